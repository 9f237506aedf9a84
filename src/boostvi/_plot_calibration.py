"""The picture of a calibration; part of `boostvi.plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boostvi._struct import check_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from boostvi.calibration import Calibration

PANEL_WIDTH, PANEL_HEIGHT = 2.5, 2.1
COLUMNS = 4
LONGEST = 30
"""Letters of a name that fit above a panel."""
PER_BIN = 10
"""Fits that a bin should hold: fewer make its band wider than what it could show."""


def calibration(calibration: Calibration, *, bins: int | None = None, most: int = 16) -> Figure:
    """Histograms of P(draw < truth), worst parameter first; 95 % of the bins of a calibrated fit lie in the band.

    ∪: the fits are too narrow; ∩: too wide; mass on the right: they lie too low, on the left: too high.
    bins: 5 to 20 by the number of fits, if not given. most: parameters drawn.
    """
    import numpy as np

    from boostvi import plots

    check_count("most", most)
    bins = int(np.clip(calibration.n // PER_BIN, 5, 20)) if bins is None else bins
    shown = calibration.parameters[:most]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    size = (PANEL_WIDTH * max(columns, 2) + 0.4, PANEL_HEIGHT * rows + 0.9)
    figure = plots.figure_class()(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    edges = np.linspace(0.0, 1.0, bins + 1)
    for one, panel in zip(shown, axes, strict=False):
        counts, low, high = calibration.histogram(one.name, bins)
        panel.axhspan(low, high, color=plots.GREY, alpha=0.25, linewidth=0)
        panel.axhline(calibration.n / bins, color=plots.GREY, linewidth=0.8)
        color = plots.VERMILLION if one.words else plots.BLUE
        panel.stairs(counts, edges, color=color, fill=True, alpha=0.3)
        panel.stairs(counts, edges, color=color, linewidth=1.4)
        panel.set_title("\n".join([_short(one.name), *filter(None, one.words.split(", "))]), fontsize="small")
        panel.spines[["top", "right"]].set_visible(False)
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


def _short(name: str) -> str:
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half + 1 :]}"
