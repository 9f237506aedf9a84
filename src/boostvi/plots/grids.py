"""Densities on grids and in bins, and components as ellipses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array

from boostvi._jit import counted_jit, float64, new_key
from boostvi.mixture import Mixture
from boostvi.plots.style import VERMILLION
from boostvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHING = 1.5
"""Bins; a marginal from as many draws as PICTURE_DRAWS is smoothed by a Gaussian this wide, one from fewer by more."""
PICTURE_DRAWS = 20_000
"""Draws of the mixture behind limits and marginals."""
ELLIPSE_DRAWS = 2_000
TAIL = 0.001
"""Share of the draws beyond each end of an axis."""
MARGIN = 0.1
"""Empty share of an axis on each side of the draws."""
FEW_CENTRES = 8
MAX_CENTRES = 64
"""Component ellipses drawn at most, heaviest first."""
FEWEST_BINS, MOST_BINS = 60, 200
"""Bins of a 2-D marginal in each coordinate."""
BIN_SD = 0.35
"""Width of a bin in standard deviations of a narrow component,"""
NARROW = 0.2
"""one at this quantile of them."""

Source = Mixture | np.ndarray


def as_reference(reference: Any, dim: int) -> Source | None:
    """A Mixture or draws (n, dim) of what the user gave to compare with."""
    if reference is None:
        return None
    if isinstance(reference, Result):
        reference = reference.mixture
    if isinstance(reference, Mixture):
        if reference.dim != dim:
            raise ValueError(f"reference has {reference.dim} coordinates, but the result has {dim}")
        return reference
    draws = np.asarray(reference, dtype=float)
    if draws.ndim != 2 or draws.shape[1] != dim or not len(draws):
        raise ValueError(f"reference must be a Result, a Mixture or draws of shape (n, {dim}), got {draws.shape}")
    if not np.isfinite(draws).all():
        raise ValueError("reference has draws that are not finite: leave them out, reference[np.isfinite(...)]")
    return draws


def draws_of(source: Source) -> np.ndarray:
    return source.sample(PICTURE_DRAWS, seed=0) if isinstance(source, Mixture) else source


def limits(columns: Sequence[np.ndarray]) -> tuple[float, float]:
    """Ends of an axis that shows nearly all of every column."""
    low = min(np.quantile(c, TAIL) for c in columns)
    high = max(np.quantile(c, 1 - TAIL) for c in columns)
    margin = MARGIN * (high - low) or 0.5  # all draws in one point
    return float(low - margin), float(high + margin)


def histogram(values: np.ndarray, edges: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """A density over the bins, of all the mass: what lies outside is missing from it."""
    weights = np.full(values.size, 1.0 / values.size) if weights is None else weights
    return np.histogram(values, edges, weights=weights)[0] / np.diff(edges)


def histogram2d(draws: np.ndarray, edges: Sequence[np.ndarray], weights: np.ndarray | None = None) -> np.ndarray:
    """A smoothed density over the grid, the second coordinate along the rows."""
    from scipy.ndimage import gaussian_filter

    weights = np.full(len(draws), 1.0 / len(draws)) if weights is None else weights
    mass, *_ = np.histogram2d(draws[:, 0], draws[:, 1], bins=list(edges), weights=weights)
    area = np.diff(edges[0])[:, None] * np.diff(edges[1])
    effective = 1.0 / np.sum(np.square(weights))
    wide = SMOOTHING * max(1.0, PICTURE_DRAWS / effective) ** (1 / 6)  # the usual rate in two dimensions
    return gaussian_filter(mass / area, wide).T


def bins_for(mixture: Mixture, chosen: Sequence[int], ends: Sequence[tuple[float, float]]) -> list[np.ndarray]:
    """Edges along some coordinates that resolve the narrower components: smoothing must not make them look wide."""
    sds = np.sqrt([np.diagonal(covariance) for covariance in covariances(mixture, chosen)])
    narrow = np.quantile(sds, NARROW, axis=0)
    return [
        np.linspace(low, high, int(np.clip((high - low) / (BIN_SD * sd), FEWEST_BINS, MOST_BINS)) + 1)
        for (low, high), sd in zip(ends, narrow, strict=True)
    ]


def region_levels(values: np.ndarray, regions: Sequence[float]) -> list[float]:
    """Heights, rising, whose upper sets hold these shares of the mass on the grid."""
    ranked = np.sort(values.ravel())[::-1]
    if not ranked.sum() > 0:
        raise ValueError("there is no mass to draw: the density is 0 everywhere in the picture")
    mass = np.cumsum(ranked) / ranked.sum()
    places = np.minimum(np.searchsorted(mass, regions), ranked.size - 1)
    return sorted({float(height) for height in ranked[places] if height > 0})


def ellipses(axes: Axes, mixture: Mixture, pair: Sequence[int], linewidth: float = 1.0) -> None:
    """Centre and one-standard-deviation ellipse of the heaviest components; fainter where the weight is small."""
    from matplotlib.patches import Ellipse

    locs = mixture.centres[:MAX_CENTRES, list(pair)]
    weights = np.asarray(mixture.weights)[:MAX_CENTRES]
    strength = 0.25 + 0.75 * np.sqrt(weights / weights.max())
    crowd = max(1.0, len(locs) / FEW_CENTRES)
    strength, linewidth = strength / np.sqrt(crowd), linewidth / crowd**0.25  # many must not hide the density
    for loc, covariance, alpha in zip(locs, covariances(mixture, pair), strength, strict=False):
        eigenvalues, vectors = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
        width, height = 2 * np.sqrt(np.maximum(eigenvalues[::-1], 0.0))
        style = {"edgecolor": VERMILLION, "facecolor": "none", "linewidth": linewidth, "alpha": alpha}
        axes.add_patch(Ellipse(loc, width, height, angle=angle, **style))
    axes.scatter(locs[:, 0], locs[:, 1], color=VERMILLION, s=9 * linewidth, alpha=strength, linewidths=0)


def component_densities(mixture: Mixture, z: np.ndarray) -> np.ndarray:
    """w_k s_k(z), shape (components, points)."""
    return (np.exp(mixture.component_log_probs(z)) * np.asarray(mixture.weights)).T


@counted_jit
def _component_draws(mixture: Mixture, key: Array) -> Array:
    family = mixture.family
    noise = family.noise(key, (ELLIPSE_DRAWS, mixture.dim))
    one = lambda params: jax.vmap(family.sample, in_axes=(None, 0))(params, noise)  # noqa: E731
    return jax.lax.map(one, mixture.params)


@float64
def covariances(mixture: Mixture, chosen: Sequence[int]) -> list[np.ndarray]:
    """Covariance of each component in some coordinates, from draws: the same for every family."""
    draws = np.asarray(_component_draws(mixture, new_key(0)))
    return [np.atleast_2d(np.cov(mixture.warped(d)[:, list(chosen)].T)) for d in draws]
