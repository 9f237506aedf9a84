"""What a notebook shows of a result: the verdict, the key numbers, and a small picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from boostvi.report.columns import columns_of, heights, in_own_space
from boostvi.report.facts import Facts, facts
from boostvi.report.page import COLORS, MARKS
from boostvi.summary import DRAWS

if TYPE_CHECKING:
    from boostvi.result import Result

PANELS = 6
"""Parameters whose distribution is drawn."""
BINS = 32
WIDTH, HEIGHT = 130, 56
NUMBERS = ("ELBO", "KL estimate", "Pareto k̂", "effective draws", "components", "stopped")
LONGEST = 20
TONES = {"good": "#00936f", "usable": "#b87700", "unreliable": "#d55e00", "not judged": "#d55e00"}
"""Readable on light and on dark: a notebook's theme is not ours to know. All else takes the colour of its text."""


def card(result: Result) -> str:
    """HTML without scripts or outside resources. A notebook must not break because its last line is a result: what
    goes wrong is said in place of the card."""
    try:
        return _card(result)
    except Exception as error:
        return f"<pre>a boostvi.Result that cannot be shown: {escape(f'{type(error).__name__}: {error}'[:2000])}</pre>"


def _card(result: Result) -> str:
    said = facts(result)
    tone = TONES[said.verdict]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in said.reasons)
    return (
        f'<div style="border-left:6px solid {tone};padding:4px 14px;max-width:60em">'
        f'<div style="font-size:1.35em;font-weight:700;color:{tone}">{MARKS[said.verdict]} {escape(said.verdict)}</div>'
        f"<div>{escape(said.meaning)}</div>"
        f'<ul style="margin:4px 0 6px 18px;padding:0">{reasons}</ul>{_numbers(said)}'
        f'<div style="margin:6px 0"><b>Next:</b> {escape(said.advice)}</div>{_picture(result)}</div>'
    )


def _numbers(said: Facts) -> str:
    cells = "".join(
        f'<span style="display:inline-block;margin:0 18px 4px 0"><span style="opacity:.7;font-size:.85em">'
        f"{escape(one.label)}</span><br><b>{escape(one.value)}</b></span>"
        for one in said.numbers
        if one.label in NUMBERS
    )
    return f"<div>{cells}</div>"


def _picture(result: Result) -> str:
    """Distributions of the first parameters, and the weights of the components as one bar."""
    columns = columns_of(result, result.mixture.sample(DRAWS, seed=0))
    names = list(columns)[:PANELS]
    panels = "".join(_panel(i, name, columns[name]) for i, name in enumerate(names))
    width = WIDTH * len(names)
    bar = _bar(np.asarray(result.mixture.weights), min(width, 3 * WIDTH))
    left = len(columns) - len(names)
    said = [] if in_own_space(result) else ["unconstrained parameters, for the model is not here"]
    said += [f"{left:,} more parameters: result.summary()"] if left else []
    foot = f'<div style="opacity:.7;font-size:.85em">{"; ".join(said)}</div>' if said else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" fill="currentColor" font-size="11" width="{width}" '
        f'viewBox="0 0 {width} {HEIGHT + 62}" style="max-width:100%;height:auto" '
        f'aria-label="Distributions of the parameters and weights of the components">{panels + bar}</svg>{foot}'
    )


def _panel(i: int, name: str, values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    left, shown = i * WIDTH, name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    said = f"{finite.mean():.3g} ± {finite.std():.2g}".replace("-", "−", 1) if finite.size else "not finite"
    return (
        f'<g transform="translate({left} 0)"><text x="2" y="11">{escape(shown)}</text>'
        f'<path d="{_steps(heights(finite, BINS) if finite.size else ())}" fill="#3d8fc6"/>'
        f'<text x="2" y="{HEIGHT + 28}" opacity=".75">{said}</text></g>'
    )


def _steps(tall: Sequence[float]) -> str:
    if not tall:
        return ""
    width, bottom = (WIDTH - 10) / len(tall), HEIGHT + 14
    return f"M2 {bottom}" + "".join(f"V{bottom - (HEIGHT - 4) * h:.1f}h{width:.2f}" for h in tall) + f"V{bottom}z"


def _bar(weights: np.ndarray, width: float) -> str:
    y, ends = HEIGHT + 48, np.concatenate([[0.0], np.cumsum(weights / weights.sum())]) * width
    parts = "".join(
        f'<rect x="{ends[k]:.1f}" y="{y}" width="{max(ends[k + 1] - ends[k] - 0.6, 0.4):.1f}" height="10" '
        f'fill="{COLORS[k % len(COLORS)]}"/>'
        for k in range(weights.size)
        if ends[k + 1] - ends[k] > 0.3
    )
    return f'<text x="2" y="{y - 4}" opacity=".75">weights of the components</text>{parts}'
