"""The page as HTML: verdict and table are plain, so that they can be read without scripts and on paper."""

from __future__ import annotations

import base64
import hashlib
import json
import string
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi.report.columns import Row
from boostvi.report.facts import Facts
from boostvi.summary import MOST_MODES
from boostvi.summary import modes as modes_in_words

if TYPE_CHECKING:
    from boostvi.result import Result

MOST_ROWS = 1000
SCRIPTS = ("base.js", "table.js", "charts.js", "mixture.js", "explorer.js")
MARKS = {"good": "✓", "usable": "◐", "unreliable": "✕", "not judged": "?"}
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#8f7cc3")
"""Okabe and Ito's colours without black, for components: told apart by the colour-blind, on light and on dark."""
UNCONSTRAINED = (
    "<p class='warning'>The page was written without the model, so these are the <b>unconstrained</b> parameters that "
    "the mixture lives on, not the model's own: a positive parameter, say, is shown as its logarithm.</p>"
)
HEADS = ("mean", "sd", "5 %", "50 %", "95 %")
SPARK = (96, 22)
"""Width and height of the small histograms."""


def page(title: str, sections: Sequence[tuple[str, str, str]], data: dict[str, Any], footer: str) -> str:
    """sections: id, heading and HTML of each."""
    from boostvi import __version__

    style, script = _file("page.css"), "\n".join(_file(name) for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    template = string.Template(_file("page.html"))
    return template.substitute(
        policy=escape(policy),
        version=__version__,
        title=escape(title),
        style=style,
        navigation=" ".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections),
        sections="\n".join(_section(*one) for one in sections),
        footer=footer,
        data=as_json(data | {"colors": COLORS}),
        script=script,
    )


def as_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return resources.files("boostvi.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _section(name: str, heading: str, content: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>\n{content}</section>'


# -- what the sections say


def verdict(said: Facts) -> str:
    first, *others = said.reasons
    more = "".join(f"<li>{escape(reason)}</li>" for reason in others)
    name = said.verdict.replace(" ", "-")
    return (
        f'<div class="verdict {name}"><p class="word"><span aria-hidden="true">{MARKS[said.verdict]}</span> '
        f"{escape(said.verdict)}</p><p class='meaning'>{escape(said.meaning)}</p>"
        f"<p><b>Why:</b></p><ul><li>{escape(first)}</li>{more}</ul>"
        f"<p><b>Next:</b> {escape(said.advice)}</p></div>"
    )


def numbers(said: Facts) -> str:
    cells = "".join(
        f"<div><dt>{escape(one.label)}</dt><dd>{escape(one.value)}</dd><dd class='note'>{escape(one.note)}</dd></div>"
        for one in said.numbers
    )
    return f'<dl class="numbers">{cells}</dl>'


def table(rows: Sequence[Row], own: bool, draws: int) -> str:
    many = f"{len(rows):,} parameter{'s' if len(rows) != 1 else ''}"
    space = "in the model's own space" if own else "on the unconstrained space"
    heads = "".join(f'<th scope="col" class="number" aria-sort="none">{head}</th>' for head in HEADS)
    body = "\n".join(_table_row(row) for row in rows[:MOST_ROWS])
    more = len(rows) - MOST_ROWS
    rest = f"<p>… and {more:,} more; result.sample(n) has them all.</p>" if more > 0 else ""
    return (
        f"{'' if own else UNCONSTRAINED}"
        f"<p>{many}, {space}, from {draws:,} draws of the mixture (not reweighted).</p>"
        '<p class="with-js tools"><label>Search <input id="search" type="search" autocomplete="off" '
        'placeholder="part of a name"></label> <span id="found" role="status"></span></p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of parameters"><table id="table"><thead><tr>'
        '<th scope="col" aria-sort="none">parameter</th><th scope="col" class="plain">distribution</th>'
        f"{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>{rest}"
    )


def _table_row(row: Row) -> str:
    cells = "".join(f"<td>{number(value)}</td>" for value in row.numbers)
    flag = f' <span class="flag">{row.left_out:,} draws not finite</span>' if row.left_out else ""
    return f'<tr><th scope="row">{escape(row.name)}{flag}</th><td class="hist">{spark(row.heights)}</td>{cells}</tr>'


def number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−", 1) if np.isfinite(value) else "—"


def spark(heights: Sequence[float]) -> str:
    """A small histogram."""
    if not heights:
        return ""
    width, height = SPARK
    step = width / len(heights)
    line = "".join(f"V{height - 1 - (height - 3) * h:.1f}h{step:g}" for h in heights)
    return f'<svg viewBox="0 0 {width} {height}" aria-hidden="true"><path d="M0 {height}{line}V{height}z"/></svg>'


def modes(result: Result) -> str:
    """The modes with their weights, in the words of `summary`."""
    found, said = result.modes, modes_in_words(result)
    unseen = "Modes that nothing visited cannot be seen."
    if said is None:
        return f"<p>One: the target does not dip between any of the components. {unseen}</p>"
    items = "".join(
        f"<li><meter min='0' max='1' value='{mode.weight:.4f}'></meter> {escape(line.strip())}</li>"
        for mode, line in zip(found[:MOST_MODES], said.splitlines()[1:], strict=False)
    )
    more = f"<p>… and {len(found) - MOST_MODES} more in result.modes</p>" if len(found) > MOST_MODES else ""
    intro = f"{len(found)} modes; their place is given by the parameters that tell them apart."
    return f"<p>{intro} {unseen}</p><ul class='modes'>{items}</ul>{more}"


def stored(text: str) -> str:
    return f"<details><summary>What the fit said when it was saved</summary><pre>{escape(text)}</pre></details>"


def explorer(steps: int) -> str:
    """The empty explorer, with a slider if there is more than one step; the script fills it."""
    play = (
        '<div class="row"><button id="play" type="button">▶ Play</button><label class="grow">Step '
        '<input id="slider" type="range" min="0" max="0" value="0"></label></div>'
    )
    return string.Template(_file("explorer.html")).substitute(play=play if steps > 1 else "")
