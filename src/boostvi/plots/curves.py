"""ELBO and KL estimate over a run, with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from boostvi.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    NATS,
    ORANGE,
    PURPLE,
    STEP,
    VERMILLION,
    finite,
    history_of,
    log_numbers,
    panels,
    plain_numbers,
    whole_numbers,
)
from boostvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Run = Result | Mapping[str, np.ndarray]
AGAINST = {"step": STEP, "seconds": "seconds since the start, compilation included", "evals": "target evaluations"}
"""Columns that a run can be drawn against, and what they are called."""
DENSE = 40
"""Beyond this many steps a line has no markers."""
REFERENCE_STYLES = ((GREEN, "-."), (VERMILLION, (0, (5, 1))), (PURPLE, ":"), (GREY, "-"))
KL_FLOOR = 1e-6
"""Nats; nothing is drawn lower on a log scale: rounding."""


def elbo(result: Run, *, references: Mapping[str, float] | None = None, against: str = "step") -> Figure:
    """ELBO on fresh draws, with ± 2 standard errors, and the log evidence of each step.

    What the first component reaches alone is marked, and the mixture that a Result returns. Steps whose ELBO is not
    finite are gaps in the line. references: other ELBOs by name, drawn as horizontal lines. against: "step", "seconds"
    or "evals".
    """
    figure, (axes,) = panels(1, 1, width=6.4, height=4.0)
    draw_elbo(axes, result, references or {}, against)
    axes.legend(framealpha=0.9, edgecolor="none")
    return figure


def kl(result: Run, *, against: str = "step") -> Figure:
    """Estimated KL to the posterior, on the region that the mixture visits, with ± 2 standard errors; log scale.

    An estimate of 0 has no place on a log scale: a triangle stands at twice its standard error. against: "step",
    "seconds" or "evals".
    """
    figure, (axes,) = panels(1, 1, width=6.4, height=4.0)
    draw_kl(axes, result, against)
    axes.legend(framealpha=0.9, edgecolor="none")
    return figure


def convergence(result: Run, *, references: Mapping[str, float] | None = None) -> Figure:
    """ELBO (above) and KL estimate (below), against the boosting step and against time."""
    figure, axes = panels(2, 2, width=9.6, height=6.4, sharex="col", sharey="row")
    for column, against in enumerate(("step", "seconds")):
        draw_elbo(axes[column], result, references or {}, against)
        draw_kl(axes[2 + column], result, against)
        axes[column].set_xlabel("")
        if column:
            axes[column].set_ylabel("")
            axes[2 + column].set_ylabel("")
    for row in (axes[0], axes[2]):
        row.legend(framealpha=0.9, edgecolor="none", fontsize="small")
    return figure


def draw_elbo(axes: Axes, result: Run, references: Mapping[str, float], against: str) -> None:
    history = history_of(result)
    x, value = _position(axes, history, against), finite(history["elbo"])
    error = np.where(np.isnan(value), 0.0, np.nan_to_num(finite(history["elbo_se"])))
    axes.plot(x, finite(history["log_evidence"]), color=BLACK, linewidth=1.2, linestyle="--", label="log evidence")
    axes.fill_between(x, value - 2 * error, value + 2 * error, color=BLUE, alpha=0.25, linewidth=0, label="± 2 se")
    axes.plot(x, value, color=BLUE, marker=_marker(x), markersize=4, label="ELBO")
    axes.plot(x[:1], value[:1], color=ORANGE, marker="D", markersize=9, linestyle="none", label="first component")
    if np.isfinite(value[0]):
        axes.axhline(value[0], color=ORANGE, linewidth=0.8, linestyle=":")
    for i, (name, level) in enumerate(references.items()):
        color, style = REFERENCE_STYLES[i % len(REFERENCE_STYLES)]
        axes.axhline(level, color=color, linewidth=1.2, linestyle=style, label=name)
    _ring(axes, result, x, value)
    axes.set_ylabel(f"ELBO ({NATS})")


def draw_kl(axes: Axes, result: Run, against: str) -> None:
    history = history_of(result)
    x, value, error = _position(axes, history, against), finite(history["kl_estimate"]), finite(history["kl_se"])
    error = np.where(np.isnan(value), np.nan, np.nan_to_num(error))
    seen = np.concatenate([value, 2 * error])
    floor = max(0.5 * np.min(seen[seen > 0], initial=1.0), KL_FLOOR)
    shown = np.where(value > floor, value, np.nan)
    low, high = np.maximum(value - 2 * error, floor), np.maximum(value + 2 * error, floor)
    axes.set_yscale("log")
    log_numbers(axes.yaxis)
    axes.fill_between(x, low, high, color=BLUE, alpha=0.25, linewidth=0, label="± 2 se")
    axes.plot(x, shown, color=BLUE, marker=_marker(x), markersize=4, label="KL estimate")
    zero = value <= floor
    if zero.any():
        axes.plot(x[zero], high[zero], "v", color=BLUE, markerfacecolor="none", label="0, up to its error")
    _ring(axes, result, x, np.where(zero, high, value))
    axes.set(ylabel=f"KL to the posterior ({NATS})")
    if not np.isfinite(value).any():
        axes.set_ylim(0.1, 1.0)


def _position(axes: Axes, history: Mapping[str, np.ndarray], against: str) -> np.ndarray:
    if against not in AGAINST:
        raise ValueError(f"against must be one of {', '.join(map(repr, AGAINST))}, got {against!r}")
    axes.set_xlabel(AGAINST[against])
    if against == "step":
        whole_numbers(axes.xaxis)
    elif against == "evals":
        plain_numbers(axes.xaxis)
    return np.asarray(history[against], dtype=float)


def _marker(x: np.ndarray) -> str:
    return "o" if len(x) <= DENSE else ""


def _ring(axes: Axes, result: Run, x: np.ndarray, value: np.ndarray) -> None:
    """Around the step whose mixture a Result returns."""
    if isinstance(result, Result):
        at = slice(result.best_step, result.best_step + 1)
        (ring,) = axes.plot(x[at], value[at], "o", color=VERMILLION, markersize=11, label="returned mixture")
        ring.set_markerfacecolor("none")
