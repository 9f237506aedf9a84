"""Are two samples from one distribution? Three measures of all coordinates together, each with its permutation null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

Draws = Float[np.ndarray, "n dim"]
Labels = Int[np.ndarray, "permutations n"]

PERMUTATIONS = 299
"""Relabelled samples behind each null; the smallest p-value is 1/300."""
SLICES = 32
NEIGHBOURS = 11
"""Odd: a vote has a winner. Few: neighbours must be near, also where the sample is small."""
PER_DIRECTION = 10
"""Draws per dimension from which the pooled covariance is good enough to whiten with."""
COLLINEAR = 1e-4
"""Relative singular value below which a direction is another parameter told twice."""


@dataclass(frozen=True)
class Measure:
    """One number for all coordinates together; 95 % of relabelled samples stay below `chance`."""

    value: float
    chance: float
    p: float


def joint(ours: Draws, theirs: Draws, rng: np.random.Generator) -> tuple[Measure, Measure, Measure]:
    """Sliced Wasserstein, MMD² and classifier accuracy of two samples of one size, each with its permutation null.

    The first row of `ours_at` holds the true labels, the others permutations of them; everything but the labels is
    computed once.
    """
    n = len(ours)
    pooled = np.concatenate([ours, theirs])
    pooled = (pooled - pooled.mean(axis=0)) / pooled.std(axis=0)
    ours_at = np.tile(np.repeat(np.array([1, 0], dtype=np.int8), n), (1 + PERMUTATIONS, 1))
    ours_at[1:] = rng.permuted(ours_at[1:], axis=1)
    distances = _squared_distances(_whitened(pooled))
    return (
        _measured(_sliced_wasserstein(pooled, ours_at, rng)),
        _measured(_mmd(distances, ours_at)),
        _measured(_accuracy(distances, ours_at)),
    )


def _measured(values: Float[np.ndarray, " permutations"]) -> Measure:
    p = np.mean(values >= values[0])  # the observed one counts among its permutations
    return Measure(float(values[0]), float(np.quantile(values[1:], 0.95)), float(p))


def _sliced_wasserstein(pooled: Draws, ours_at: Labels, rng: np.random.Generator) -> np.ndarray:
    """Mean over directions of W₁ = ∫|F − G|. The pooled sample is sorted once: F − G follows from the labels."""
    n = ours_at.shape[1] // 2
    directions = rng.standard_normal((pooled.shape[1], SLICES if pooled.shape[1] > 1 else 1))
    projected = pooled @ (directions / np.linalg.norm(directions, axis=0))
    expected = np.arange(1, 2 * n, dtype=np.float32) / 2
    total = np.zeros(ours_at.shape[0])
    for column in projected.T:
        order = np.argsort(column)
        seen = np.cumsum(ours_at[:, order[:-1]], axis=1, dtype=np.float32)
        total += np.abs(seen - expected, out=seen) @ np.diff(column[order]).astype(np.float32)
    return total * (2 / n) / projected.shape[1]


def _whitened(pooled: Draws) -> Draws:
    """Pooled principal coordinates of unit variance: a narrow direction counts as much as a wide one. With too few
    draws for that, the standardised coordinates."""
    if len(pooled) < PER_DIRECTION * pooled.shape[1]:
        return pooled
    left, singular, _ = np.linalg.svd(pooled, full_matrices=False)
    return left[:, singular > COLLINEAR * singular[0]] * np.sqrt(len(pooled))


def _squared_distances(points: Draws) -> Float[np.ndarray, "n n"]:
    points = points.astype(np.float32)
    squares = np.sum(points**2, axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * (points @ points.T), 0.0)
    np.fill_diagonal(distances, np.inf)
    return distances


def _mmd(distances: Float[np.ndarray, "n n"], ours_at: Labels) -> np.ndarray:
    """Unbiased MMD² (Gretton et al. 2012) with the kernel exp(−r²/median r²)."""
    n = ours_at.shape[1] // 2
    kernel = np.exp(-distances / np.median(distances[:n, n:]))
    kernel -= kernel.sum() / (2 * n * (2 * n - 1))  # MMD² does not see a constant, rounding does
    np.fill_diagonal(kernel, 0.0)
    chosen = ours_at.T.astype(np.float32)
    sums = kernel @ chosen
    inside = np.einsum("nb,nb->b", chosen, sums, dtype=np.float64)
    across = sums.sum(axis=0, dtype=np.float64) - inside
    outside = kernel.sum(dtype=np.float64) - 2 * across - inside
    return (inside + outside) / (n * (n - 1)) - 2 * across / n**2


def _accuracy(distances: Float[np.ndarray, "n n"], ours_at: Labels) -> np.ndarray:
    """Share of draws whose nearest neighbours, itself left out, vote for the sample that it is from."""
    nearest = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    votes = np.zeros(ours_at.shape, dtype=np.int8)
    for place in nearest.T:
        votes += ours_at[:, place]
    return np.mean((votes > NEIGHBOURS // 2) == (ours_at == 1), axis=1)
