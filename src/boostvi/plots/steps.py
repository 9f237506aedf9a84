"""What each step did: its size, its curvature, its kind, and how large the mixture became."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boostvi.plots.curves import Run
from boostvi.plots.style import (
    BLACK,
    GREY,
    KINDS,
    STEP,
    finite,
    history_of,
    kind_style,
    log_numbers,
    panels,
    plain_numbers,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def step_sizes(result: Run) -> Figure:
    """Step size γ with the largest one allowed, and the curvature of the accepted bound, coloured by the step's kind.

    Only rules with a quadratic bound have a curvature (adaptive, short-step); without any there is no second panel.
    """
    history = history_of(result)
    step, curvature = np.asarray(history["step"]), finite(history["curvature"])
    rows = 2 if np.any(curvature > 0) else 1
    figure, axes = panels(rows, 1, width=6.8, height=2.5 * rows + 0.3, sharex=True)
    largest = finite(history["gamma_max"])
    axes[0].plot(step, largest, "_", color=GREY, markersize=9, label="largest allowed")
    draw_gamma(axes[0], result)
    if rows == 2:
        axes[1].set_yscale("log")
        shown = np.where(curvature > 0, curvature, np.nan)
        axes[1].plot(step, shown, color=GREY, linewidth=0.8)
        _by_kind(axes[1], step, np.asarray(history["kind"]), shown)
        log_numbers(axes[1].yaxis)
        axes[1].set_ylabel("curvature (nats)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    axes[-1].set_xlabel(STEP)
    whole_numbers(axes[-1].xaxis)
    return figure


def step_kinds(result: Run) -> Figure:
    """How many steps of each kind there were up to every step, stacked."""
    history = history_of(result)
    step, kind = np.asarray(history["step"]), np.asarray(history["kind"])
    figure, (axes,) = panels(1, 1, width=6.8, height=3.4)
    edges = np.append(step - 0.5, step[-1] + 0.5)
    below = np.zeros(len(step))
    for name in kinds_in(kind):
        above = below + np.cumsum(kind == name)
        label = f"{name} ({np.sum(kind == name)})"
        axes.stairs(above, edges, baseline=below, fill=True, color=kind_style(name)[0], alpha=0.85, label=label)
        below = above
    axes.set(xlabel=STEP, ylabel="steps so far", xlim=(edges[0], edges[-1]), ylim=(0, None))
    whole_numbers(axes.xaxis)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)  # as they are stacked
    return figure


def parameter_count(result: Run) -> Figure:
    """Active components, and the numbers that describe the mixture, over the steps."""
    figure, (components, numbers) = panels(2, 1, width=6.4, height=4.4, sharex=True)
    for axes, column, label in ((components, "n_active", "active components"), (numbers, "n_params", "parameters")):
        axes.set_ylabel(label)
        draw_count(axes, result, column)
    plain_numbers(numbers.yaxis)
    numbers.set_xlabel(STEP)
    whole_numbers(numbers.xaxis)
    return figure


def draw_gamma(axes: Axes, result: Run) -> None:
    history = history_of(result)
    step, gamma = np.asarray(history["step"]), finite(history["gamma"])
    axes.vlines(step, 0, np.nan_to_num(gamma), color=GREY, linewidth=0.6)
    _by_kind(axes, step, np.asarray(history["kind"]), gamma)
    axes.set(ylabel="step size γ")
    top = np.nanmax(np.concatenate([gamma, axes.dataLim.intervaly]), initial=1.0)
    axes.set_ylim(-0.06 * top, 1.06 * top)


def draw_count(axes: Axes, result: Run, column: str) -> None:
    history = history_of(result)
    step = np.asarray(history["step"])
    edges = np.append(step - 0.5, step[-1] + 0.5)
    axes.stairs(np.asarray(history[column]), edges, baseline=None, color=BLACK, linewidth=1.4)
    axes.set_ylim(0, None)
    whole_numbers(axes.yaxis, most=4)


def kinds_in(kind: np.ndarray) -> list[str]:
    """The kinds that there are, always in the same order."""
    there = dict.fromkeys(kind.tolist())
    return [name for name in KINDS if name in there] + [name for name in there if name not in KINDS]


def _by_kind(axes: Axes, step: np.ndarray, kind: np.ndarray, value: np.ndarray) -> None:
    for name in kinds_in(kind):
        color, marker = kind_style(name)
        here = kind == name
        axes.scatter(step[here], value[here], color=color, marker=marker, s=28, label=name, zorder=3)
