"""Modes of a fitted mixture: components between which the target does not dip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from boostvi.mixture import Mixture
from boostvi.target import Target, log_densities

NEIGHBOURS = 10
"""Each component is compared with its nearest ones: a curved mode is a chain of them."""
POINTS = 9
"""Points between two centres at which the target is looked at."""
DIP = 1.0
"""Nats: two hills with a shallower saddle between them count as one."""


@dataclass(frozen=True)
class Mode:
    """A cluster of components: its share of the mixture, where its density is highest, and which components it has."""

    weight: float
    location: Any  # in the model's own space
    members: tuple[int, ...]


def clusters(target: Target, mixture: Mixture) -> list[tuple[np.ndarray, int]]:
    """Members of each mode and the one with the highest density, heaviest mode first.

    Two neighbours are of one mode if ln p, on the line between their centres, falls nowhere more than DIP below the
    lower of the two.
    """
    loc = np.asarray(mixture.params["loc"])
    n, weights = len(loc), np.asarray(mixture.weights)
    heights = log_densities(target, loc)
    i, j = _neighbours(mixture, loc)
    steps = np.linspace(0.0, 1.0, POINTS + 2)[1:-1, None]
    between = loc[i][:, None] + steps * (loc[j] - loc[i])[:, None]
    lowest = (
        log_densities(target, between.reshape(-1, loc.shape[1])).reshape(len(i), POINTS).min(axis=1, initial=np.inf)
    )
    joined = lowest > np.minimum(heights[i], heights[j]) - DIP
    graph = coo_array((np.ones(joined.sum()), (i[joined], j[joined])), shape=(n, n))
    _, label = connected_components(graph, directed=False)
    groups = [np.flatnonzero(label == k) for k in range(label.max() + 1)]
    groups.sort(key=lambda members: -weights[members].sum())
    return [(members, int(members[np.argmax(heights[members])])) for members in groups]


def _neighbours(mixture: Mixture, loc: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of near components, by distance in units of the mixture's spread."""
    weights = np.asarray(mixture.weights)
    spread = np.sqrt(weights @ (loc - weights @ loc) ** 2)
    unit = loc / np.where(spread > 0, spread, 1.0)
    square = ((unit[:, None] - unit[None]) ** 2).sum(axis=-1)
    nearest = np.argsort(square, axis=1, kind="stable")[:, 1 : NEIGHBOURS + 1]
    i = np.repeat(np.arange(len(loc)), nearest.shape[1])
    return i, nearest.ravel()
