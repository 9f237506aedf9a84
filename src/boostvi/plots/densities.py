"""The target beside the mixture: 1-D and 2-D marginals, with components and reference draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boostvi._struct import check_count
from boostvi.mixture import Mixture
from boostvi.plots import grids
from boostvi.plots.grids import Source
from boostvi.plots.style import (
    BLACK,
    BLUE,
    GREY,
    SKY,
    VERMILLION,
    caption,
    coordinate_names,
    has_model,
    indices,
    panels,
    short,
)
from boostvi.result import Result
from boostvi.target import log_densities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVE_POINTS = 512
GRID_POINTS = 120
BINS = 60
"""Bins of a marginal in each coordinate."""
REGIONS = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3, 0.1)
"""Contours enclose these shares of the first panel's mass."""
MAX_CURVES = 32
"""Components drawn one by one in a 1-D marginal at most, heaviest first."""
MAX_POINTS = 1000
"""Reference draws shown as points at most."""
GRID_COLUMNS = 4


def density(
    result: Result,
    *,
    coordinates: Sequence[int | str] | None = None,
    reference: Any = None,
    reference_label: str = "reference",
) -> Figure:
    """The target beside the mixture, on the unconstrained space.

    A target of one or two dimensions is drawn as it is, normalised by exp(log_evidence). Of a larger one the marginals
    of one or two `coordinates` (indices or names; the first two if not given) are drawn from draws of the mixture; the
    target's are the fresh draws weighted by importance, which is as good as `result.khat` says.
    reference: something to compare with: another Result or Mixture (plain VI, say), or draws of shape (n, dim) on the
        unconstrained space. A result that was loaded without its model is drawn without the target.
    """
    chosen = indices(result, coordinates, default=2, most=2)
    other = grids.as_reference(reference, result.mixture.dim)
    if len(chosen) == 1:
        figure, (axes,) = panels(1, 1, width=6.4, height=4.0)
        _curves(axes, result, chosen[0], _drawn(result, other), other, reference_label)
        axes.set(ylabel="density")
        axes.legend(frameon=False)
        return figure
    return _contours(result, chosen, other, reference_label)


def marginals(
    result: Result,
    *,
    coordinates: Sequence[int | str] | None = None,
    reference: Any = None,
    reference_label: str = "reference",
    most: int = 16,
) -> Figure:
    """1-D marginals of many coordinates, one panel each, as `density` draws one of them.

    coordinates: the first `most` ones if not given.
    """
    check_count("most", most)
    chosen = indices(result, coordinates, default=most, most=result.mixture.dim)
    other = grids.as_reference(reference, result.mixture.dim)
    columns = min(GRID_COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, axes = panels(rows, columns, width=max(2.6 * columns, 5.6), height=1.9 * rows + 0.8)
    drawn = _drawn(result, other)
    for one, i in zip(axes, chosen, strict=False):
        _curves(one, result, i, drawn, other, reference_label)
        one.set_yticks([])
    for one in axes[len(chosen) :]:
        one.set_visible(False)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4 if columns > 2 else 2, frameon=False
    )
    more = result.mixture.dim - len(chosen)
    left_out = f"; {more} more parameters" if coordinates is None and more else ""
    caption(figure, f"densities on the unconstrained space{left_out}")
    return figure


class Drawn(NamedTuple):
    """Draws behind all panels of a figure: made once."""

    draws: np.ndarray
    own: np.ndarray  # the component that each came from
    other: np.ndarray | None  # of the reference
    names: list[str]


def _drawn(result: Result, reference: Source | None) -> Drawn:
    draws = result.mixture.sample(grids.PICTURE_DRAWS, seed=0)
    own = result.mixture.components_of(draws, seed=0)
    other = None if reference is None else grids.draws_of(reference)
    return Drawn(draws, own, other, coordinate_names(result, draws[:2]))


def _curves(axes: Axes, result: Result, i: int, drawn: Drawn, reference: Source | None, label: str) -> None:
    columns = [one[:, i] for one in (drawn.draws, drawn.other) if one is not None]
    low, high = grids.limits(columns)
    edges = np.linspace(low, high, BINS + 1)
    if result.mixture.dim == 1:
        _exact_curves(axes, result, np.linspace(low, high, CURVE_POINTS))
    else:
        _stairs(axes, result, i, drawn, edges)
    if isinstance(reference, Mixture) and result.mixture.dim == 1:
        z = np.linspace(low, high, CURVE_POINTS)
        values = np.exp(reference.log_prob(z[:, None]))
        axes.plot(z, values, color=VERMILLION, linestyle=":", linewidth=1.8, label=label)
    elif drawn.other is not None:
        heights = grids.histogram(drawn.other[:, i], edges)
        axes.stairs(heights, edges, color=VERMILLION, linestyle=":", linewidth=1.4, label=label)
    axes.set(xlabel=drawn.names[i], xlim=(low, high), ylim=(0, None))


def _exact_curves(axes: Axes, result: Result, z: np.ndarray) -> None:
    _components(axes, z, grids.component_densities(result.mixture, z[:, None]))
    if has_model(result):
        target = _normalised(log_densities(result.target, z[:, None]), result)
        axes.plot(z, target, color=BLACK, linewidth=2.0, label="target")
    values = np.exp(result.mixture.log_prob(z[:, None]))
    axes.plot(z, values, color=BLUE, linewidth=1.8, linestyle="--", label="mixture")


def _stairs(axes: Axes, result: Result, i: int, drawn: Drawn, edges: np.ndarray) -> None:
    column, each = drawn.draws[:, i], np.full(len(drawn.draws), 1 / len(drawn.draws))
    groups = [drawn.own == k for k in range(min(result.mixture.n_active, MAX_CURVES))]
    shares = np.array([grids.histogram(column[here], edges, each[here]) for here in groups])
    _components(axes, 0.5 * (edges[1:] + edges[:-1]), shares)
    if has_model(result):
        towards = grids.histogram(result._fresh[0][:, i], edges, result._importance[0])
        axes.stairs(towards, edges, color=BLACK, linewidth=1.6, label=_target_name(result))
    axes.stairs(grids.histogram(column, edges), edges, color=BLUE, linewidth=1.6, label="mixture")


def _components(axes: Axes, z: np.ndarray, parts: np.ndarray) -> None:
    """Every component's share; nothing when there is only one, which is the mixture."""
    if len(parts) < 2:
        return
    for k, part in enumerate(parts[:MAX_CURVES]):
        axes.plot(z, part, color=SKY, linewidth=0.8, alpha=0.7, label="components" if k == 0 else None)


def _normalised(log_density: np.ndarray, result: Result) -> np.ndarray:
    """p/Z; 0 where ln p is not a number."""
    shift = result.log_evidence if np.isfinite(result.log_evidence) else np.nanmax(log_density)
    return np.nan_to_num(np.exp(log_density - shift), nan=0.0, posinf=0.0)


class Picture(NamedTuple):
    """One panel: densities over a grid, and what they are of, unless it is the target."""

    centres: list[np.ndarray]
    values: np.ndarray
    source: Source | None


def _contours(result: Result, pair: Sequence[int], reference: Source | None, label: str) -> Figure:
    mixture, draws = result.mixture, result.mixture.sample(grids.PICTURE_DRAWS, seed=0)
    shown = [draws, *([] if reference is None else [grids.draws_of(reference)])]
    ends = [grids.limits([d[:, i] for d in shown]) for i in pair]
    exact, names = mixture.dim == 2, coordinate_names(result, draws[:2])
    edges = grids.bins_for(mixture, pair, ends)  # of what comes from draws
    coarse = [0.5 * (e[:-1] + e[1:]) for e in edges]
    fine = [np.linspace(low, high, GRID_POINTS) for low, high in ends]
    grid = np.stack(np.meshgrid(*fine), axis=-1)[..., np.argsort(pair)] if exact else np.empty((0, 2))

    def picture(of: Source) -> Picture:
        if isinstance(of, Mixture) and exact:
            return Picture(fine, np.exp(of.log_prob(grid)), of)
        return Picture(coarse, grids.histogram2d(grids.draws_of(of)[:, pair], edges), of)

    shown_as: dict[str, Picture] = {}
    if has_model(result) and exact:
        flat = log_densities(result.target, grid.reshape(-1, 2)).reshape(grid.shape[:2])
        shown_as["target"] = Picture(fine, _normalised(flat, result), None)
    elif has_model(result):
        towards = grids.histogram2d(result._fresh[0][:, pair], edges, result._importance[0])
        shown_as[_target_name(result)] = Picture(coarse, towards, None)
    if reference is not None:
        shown_as[label] = picture(reference)
    count = mixture.n_active
    shown_as[f"mixture of {count} component{'s' if count > 1 else ''}"] = picture(mixture)

    figure, axes = panels(1, len(shown_as), width=max(3.6 * len(shown_as), 4.6), height=4.1, sharex=True, sharey=True)
    levels = grids.region_levels(next(iter(shown_as.values())).values, REGIONS)
    top = max(levels[-1] * 1.001, *(float(one.values.max()) for one in shown_as.values()))
    for one, (title, (centres, values, source)) in zip(axes, shown_as.items(), strict=True):
        one.contourf(*centres, values, levels=[*levels, top], cmap="Blues", vmin=0)
        one.contour(*centres, values, levels=levels, colors=BLUE, linewidths=0.4)
        if isinstance(source, Mixture):
            grids.ellipses(one, source, pair)
        elif source is not None:
            some = source[:: -(-len(source) // MAX_POINTS), pair]
            one.scatter(some[:, 0], some[:, 1], s=1.5, color=GREY, linewidths=0, alpha=0.5, zorder=3)
        one.set(title=short(title, 60), xlabel=names[pair[0]], xlim=ends[0], ylim=ends[1])
    axes[0].set_ylabel(names[pair[1]])
    shares = ", ".join(f"{100 * share:.0f}" for share in reversed(REGIONS))
    more = f" of the {grids.MAX_CENTRES} heaviest components" if count > grids.MAX_CENTRES else " of each component"
    caption(figure, f"contours: {shares} % of the first panel's mass; ellipses: centre and 1 sd{more}")
    return figure


def _target_name(result: Result) -> str:
    return f"reweighted to the target (k̂ = {result.khat:.2f})"
