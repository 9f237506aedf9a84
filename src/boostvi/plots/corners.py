"""Every pair of several coordinates at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi._struct import check_count
from boostvi.plots import grids
from boostvi.plots.style import BLACK, BLUE, VERMILLION, caption, coordinate_names, has_model, indices, panels
from boostvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 50
"""Bins of a 1-D marginal."""
REGIONS = (0.95, 0.5)
"""Contours enclose these shares of the mass."""
SIDE = 1.7
"""Inches of a panel."""
LONGEST = 18


def corner(
    result: Result,
    *,
    coordinates: Sequence[int | str] | None = None,
    reference: Any = None,
    reference_label: str = "reference",
    most: int = 6,
) -> Figure:
    """1-D marginals on the diagonal and 2-D marginals below it, on the unconstrained space.

    The mixture is blue, with the centres of its components; lines show what it is compared with: `reference` (a
    Result, a Mixture or draws of shape (n, dim)), or else the fresh draws weighted by importance to the target.
    coordinates: indices or names; the first `most` ones if not given.
    """
    check_count("most", most)
    chosen = indices(result, coordinates, default=most, most=result.mixture.dim)
    other = grids.as_reference(reference, result.mixture.dim)
    draws = result.mixture.sample(grids.PICTURE_DRAWS, seed=0)
    shown, compared, weights, label = [draws], None, None, reference_label
    if other is not None:
        compared = grids.draws_of(other)
        shown.append(compared)
    elif has_model(result):
        compared, weights = result._fresh[0], result._importance[0]
        label = f"reweighted to the target (k̂ = {result.khat:.2f})"
    ends = [grids.limits([d[:, i] for d in shown]) for i in chosen]
    edges = dict(zip(chosen, grids.bins_for(result.mixture, chosen, ends), strict=True))
    names = [name.replace(", ", "\n") for name in coordinate_names(result, draws[:2], LONGEST)]
    n = len(chosen)
    figure, axes = panels(n, n, width=max(SIDE * n + 0.6, 4.6), height=SIDE * n + 1.2, sharex="col")
    for row, i in enumerate(chosen):
        for column, j in enumerate(chosen):
            one = axes[n * row + column]
            if column > row:
                one.set_visible(False)
            elif column == row:
                _diagonal(one, edges[i], draws[:, i], None if compared is None else compared[:, i], weights, label)
            else:
                _below(one, result, (j, i), edges, draws, compared, weights)
            _labels(one, names[j], names[i], row, column, n)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left" if n < 3 else "upper right", frameon=False)
    more = result.mixture.dim - n
    left_out = f"; {more} more parameters" if coordinates is None and more else ""
    shares = " and ".join(f"{100 * share:.0f}" for share in reversed(REGIONS))
    words = f"regions and lines: {shares} % of the mass; dots: centres of components" if n > 1 else "density"
    caption(figure, f"{words}{left_out}")
    return figure


def _diagonal(
    axes: Axes, edges: np.ndarray, mine: np.ndarray, compared: np.ndarray | None, weights: np.ndarray | None, label: str
) -> None:
    edges = np.linspace(edges[0], edges[-1], BINS + 1)
    heights = grids.histogram(mine, edges)
    axes.stairs(heights, edges, fill=True, color=BLUE, alpha=0.35, label="mixture")
    axes.stairs(heights, edges, color=BLUE, linewidth=1.0)
    if compared is not None:
        axes.stairs(grids.histogram(compared, edges, weights), edges, color=BLACK, linewidth=1.2, label=label)
    axes.set(yticks=[], ylim=(0, None), xlim=(edges[0], edges[-1]))


def _below(
    axes: Axes,
    result: Result,
    pair: tuple[int, int],
    edges: dict[int, np.ndarray],
    draws: np.ndarray,
    compared: np.ndarray | None,
    weights: np.ndarray | None,
) -> None:
    sides = [edges[i] for i in pair]
    centres = [0.5 * (e[1:] + e[:-1]) for e in sides]
    values = grids.histogram2d(draws[:, pair], sides)
    levels = grids.region_levels(values, REGIONS)
    axes.contourf(*centres, values, levels=[*levels, values.max() * 1.001], cmap="Blues", vmin=-levels[-1])
    if compared is not None:
        lines = grids.histogram2d(compared[:, pair], sides, weights)
        axes.contour(*centres, lines, levels=grids.region_levels(lines, REGIONS), colors=BLACK, linewidths=0.9)
    locs = result.mixture.centres[: grids.MAX_CENTRES, list(pair)]
    axes.scatter(locs[:, 0], locs[:, 1], color=VERMILLION, s=5, linewidths=0, zorder=3)
    axes.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])


def _labels(axes: Axes, across: str, up: str, row: int, column: int, n: int) -> None:
    """Names only along the left side and the bottom, numbers too."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(labelsize="small", labelleft=column == 0 and row > 0, labelbottom=row == n - 1)
    if row != column:
        axes.yaxis.set_major_locator(MaxNLocator(3))
    if row == n - 1:
        axes.set_xlabel(across, fontsize="small")
    if column == 0 and row:
        axes.set_ylabel(up, fontsize="small")
