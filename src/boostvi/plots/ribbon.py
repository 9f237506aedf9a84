"""Weights over the steps as a stacked ribbon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boostvi.plots.curves import Run
from boostvi.plots.follow import WeightRecorder
from boostvi.plots.steps import draw_count, draw_gamma, kinds_in
from boostvi.plots.style import STEP, caption, history_of, kind_style, panels, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLATEAU = 0.25
"""Half of the width over which a step's weights stay level; between steps they change in a straight line."""
SHADES = (0.95, 0.78)
"""Opacities of neighbours in the stack."""
SEAM = 0.4
"""Points of white between layers; none when they are so many that they would be all seam."""
MOST_SEAMS = 60


def weights(result: Run, record: WeightRecorder | None = None) -> Figure:
    """What each step did: step size γ coloured by the step's kind, and the number of active components.

    record: a WeightRecorder that was among the run's callbacks adds a ribbon: the weights of all components, stacked,
    each in the colour of the kind of step that brought it in, beside the component that it was nearest to then.
    """
    history = history_of(result)
    if record is not None and not len(record.steps):
        raise ValueError("record is empty: give it to the fit, fit(..., callbacks=[record])")
    ratios = [1.0, 0.8] if record is None else [2.2, 1.0, 0.8]
    figure, axes = panels(len(ratios), 1, width=7.2, height=1.9 * sum(ratios) + 0.3, sharex=True, height_ratios=ratios)
    draw_gamma(axes[-2], result)
    draw_count(axes[-1], result, "n_active")
    axes[-1].set(xlabel=STEP, ylabel="active\ncomponents")
    whole_numbers(axes[-1].xaxis)
    if record is not None:
        _ribbon(axes[0], record)
        caption(figure, "a ribbon per component, in the colour of the step that brought it in")
    handles = dict(zip(*reversed(axes[-2].get_legend_handles_labels()), strict=True))
    if record is not None:
        handles |= {
            label: handle
            for handle, label in zip(*axes[0].get_legend_handles_labels(), strict=True)
            if label not in handles
        }
    shown = kinds_in(np.array([*np.asarray(history["kind"]).tolist(), *handles]))
    figure.legend([handles[name] for name in shown], shown, loc="outside right upper", frameon=False)
    return figure


def _ribbon(axes: Axes, record: WeightRecorder) -> None:
    lineage, steps = record.lineage(), record.steps
    x = (steps[:, None] + np.array([-PLATEAU, PLATEAU])).ravel()
    seam = SEAM if len(lineage.entered) <= MOST_SEAMS else 0.0
    below, labelled = np.zeros(x.size), set()
    for place, k in enumerate(lineage.order):
        above = below + np.repeat(lineage.weights[:, k], 2)
        kind = lineage.entered[k]
        label = None if kind in labelled else kind
        labelled.add(kind)
        there = _there(above - below)
        axes.fill_between(
            x, below, above, where=there, facecolor=kind_style(kind)[0], alpha=SHADES[place % 2], edgecolor="white",
            linewidth=seam, label=label,
        )  # fmt: skip
        below = above
    axes.set(ylabel="weight", ylim=(0.0, 1.0), xlim=(x[0] - PLATEAU, x[-1] + PLATEAU))


def _there(height: np.ndarray) -> np.ndarray:
    """Where a layer is drawn: where it has height, and one place beyond, so that it begins and ends in a point."""
    positive = height > 0
    beside = positive.copy()
    beside[1:] |= positive[:-1]
    beside[:-1] |= positive[1:]
    return beside
