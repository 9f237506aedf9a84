"""The picture of a calibration; part of `boostvi.plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boostvi._struct import check_count
from boostvi.plots.style import BLUE, GREY, VERMILLION, panels, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from boostvi.calibration import Calibration

PANEL_WIDTH, PANEL_HEIGHT = 2.5, 2.1
COLUMNS = 4
PER_BIN = 10
"""Fits that a bin should hold: fewer make its band wider than what it could show."""


def calibration(calibration: Calibration, *, bins: int | None = None, most: int = 16) -> Figure:
    """Histograms of P(draw < truth), worst parameter first; 95 % of the bins of a calibrated fit lie in the band.

    ∪: the fits are too narrow; ∩: too wide; mass on the right: they lie too low, on the left: too high.
    bins: 5 to 20 by the number of fits, if not given. most: parameters drawn.
    """
    check_count("most", most)
    bins = int(np.clip(calibration.n // PER_BIN, 5, 20)) if bins is None else bins
    shown = calibration.parameters[:most]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    size = (PANEL_WIDTH * max(columns, 2) + 0.4, PANEL_HEIGHT * rows + 0.9)
    figure, axes = panels(rows, columns, width=size[0], height=size[1], sharex=True, sharey=True)
    edges = np.linspace(0.0, 1.0, bins + 1)
    for one, panel in zip(shown, axes, strict=False):
        counts, low, high = calibration.histogram(one.name, bins)
        panel.axhspan(low, high, color=GREY, alpha=0.25, linewidth=0)
        panel.axhline(calibration.n / bins, color=GREY, linewidth=0.8)
        color = VERMILLION if one.words else BLUE
        panel.stairs(counts, edges, color=color, fill=True, alpha=0.3)
        panel.stairs(counts, edges, color=color, linewidth=1.4)
        panel.set_title("\n".join([short(one.name), *filter(None, one.words.split(", "))]), fontsize="small")
        panel.set(xlim=(-0.02, 1.02), xticks=(0, 0.5, 1), xticklabels=("0", "½", "1"))
    axes[0].set_ylim(0, None)
    for panel in axes[len(shown) :]:
        panel.set_visible(False)
    for panel in axes[max(0, len(shown) - columns) : len(shown)]:
        panel.tick_params(labelbottom=True)  # the last panel of each column, also above an empty place
    more = len(calibration.parameters) - len(shown)
    left_out = f"; {more} more parameters" if more else ""
    figure.supxlabel(
        f"P(draw < truth), {calibration.n} fits; band: 95 % of calibrated bins{left_out}", fontsize="small"
    )
    figure.supylabel("fits per bin", fontsize="small")
    return figure
