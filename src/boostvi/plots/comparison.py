"""Several runs beside each other, averaged over their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from boostvi.plots.curves import AGAINST
from boostvi.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    caption,
    finite,
    log_numbers,
    panels,
    plain_numbers,
    short,
    whole_numbers,
)
from boostvi.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
LINES = ("-", "--", "-.", ":")
POINTS = 400
"""Places along time and evaluations at which runs are averaged."""
GAP_FLOOR = 1e-4
"""Nats; smaller gaps, which the draws behind an ELBO do not resolve, are drawn here."""
LABELS = AGAINST | {"seconds": "seconds, with compilation"}


def compare(results: Mapping[str, Result | Sequence[Result]], *, log_evidence: float | None = None) -> Figure:
    """ELBO, and the gap log Z − ELBO, of several runs against step, time and target evaluations.

    results: by name, a Result or several of them with different seeds, all of the same target; several are averaged,
        and the band is ± 1 standard deviation, within the range of the runs. A run that has stopped keeps its last
        value. Where the ELBO of a run is not finite there is a gap.
    log_evidence: log Z, if it is known; else what the run with the highest ELBO says of it, which cannot see modes that
        this run did not visit.
    """
    groups = _checked(results)
    if log_evidence is None:
        best = max((run for runs in groups.values() for run in runs), key=_highest)
        log_evidence, source = best.history["log_evidence"][best.best_step], "of the highest ELBO"
    else:
        source = "as given"
    figure, axes = panels(2, 3, width=10.8, height=6.0, sharex="col", sharey="row")
    smallest = 1.0
    for place, (name, runs) in enumerate(groups.items()):
        style: dict[str, Any] = {
            "color": COLORS[place % len(COLORS)],
            "linestyle": LINES[place % len(LINES)],
            "linewidth": 1.6,
        }
        label = short(name) if len(runs) == 1 else f"{short(name)} ({len(runs)} seeds)"
        for column, against in enumerate(AGAINST):
            x, values = aligned(runs, against)
            gaps = log_evidence - values
            smallest = min(smallest, max(np.nanmin(gaps, initial=1.0), GAP_FLOOR))
            for axis, table in ((axes[column], values), (axes[3 + column], np.maximum(gaps, GAP_FLOOR))):
                mean, low, high = spread(table)
                axis.plot(x, mean, label=label, marker="o" if len(x) == 1 else "", **style)
                if len(runs) > 1:
                    axis.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    for column, against in enumerate(AGAINST):
        axes[3 + column].set_xlabel(LABELS[against])
    axes[0].set_ylabel("ELBO (nats)")
    axes[3].set_ylabel("log Z − ELBO (nats)")
    axes[3].set_yscale("log")
    log_numbers(axes[3].yaxis)
    axes[3].set_ylim(0.7 * smallest, None)
    whole_numbers(axes[3].xaxis)
    plain_numbers(axes[5].xaxis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    several = any(len(runs) > 1 for runs in groups.values())
    words = f"log Z = {round(log_evidence, 3) + 0.0:.3f}, {source}"
    caption(figure, f"{words}; lines: means over seeds, bands: ± 1 sd within their range" if several else words)
    return figure


def _checked(results: Mapping[str, Result | Sequence[Result]]) -> dict[str, list[Result]]:
    if not isinstance(results, Mapping) or not results:
        raise TypeError("results must be a mapping of names to a Result or several, such as {'auto': result}")
    groups = {name: [runs] if isinstance(runs, Result) else list(runs) for name, runs in results.items()}
    for name, runs in groups.items():
        if not runs or not all(isinstance(run, Result) for run in runs):
            raise TypeError(f"results[{name!r}] must be a Result or a sequence of them")
    names = {tuple(run.target.names) for runs in groups.values() for run in runs}
    if len(names) > 1:
        raise ValueError("results must be of the same target: these have different parameters")
    return groups


def _highest(run: Result) -> float:
    return float(np.max(run.history["elbo"]))


def aligned(runs: Sequence[Result], against: str) -> tuple[np.ndarray, Float[np.ndarray, "runs places"]]:
    """Places along the axis, from where all runs have begun to where the last one ends, and the ELBOs there."""
    places = [np.asarray(run.history[against], dtype=float) for run in runs]
    values = [finite(run.history["elbo"]) for run in runs]
    begin, end = max(p[0] for p in places), max(p[-1] for p in places)
    if against == "step" or begin == end:
        x = np.unique(np.concatenate(places))
        x = x[x >= begin]
    else:
        x = np.linspace(begin, end, POINTS)
    last = [np.searchsorted(p, x, side="right") - 1 for p in places]  # what each run had by then
    return x, np.array([v[i] for v, i in zip(values, last, strict=True)])


def spread(values: Float[np.ndarray, "runs places"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the runs, and ± 1 standard deviation within their range; NaN where one of them is."""
    mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else 0.0
    return mean, np.maximum(mean - sd, values.min(axis=0)), np.minimum(mean + sd, values.max(axis=0))
