"""Something wider than a mixture, against which its draws are weighted: it sees what they do not.

Weights p/q of draws of q know nothing of the mass that q does not reach. With q̄ = ½ q + ½ wide, half of the draws are
of `wide`: every component with heavy tails and a larger scale, and beside each what its neighbours let expect next to
it. Where the components get narrower from one to the next, as in the neck of a funnel, no scale alone would do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi.families.base import Params
from boostvi.families.linear import FullRankStudentT, LinearFamily, scaled
from boostvi.linear_mixture import join, kl_between, take
from boostvi.mixture import Mixture

SCALE = 1.5
DF = 3.0
"""Components get this many times the scale, and the tails of a Student-t distribution."""
NEIGHBOUR, PER_DIM = 20.0, 2.0
"""Nats, and so many for each dimension, of KL in both directions together, up to which a component is a neighbour."""

LogDensity = Callable[[np.ndarray], np.ndarray]


def widened(mixture: Mixture) -> Mixture:
    """Of a mixture with full-rank factors: half of the mass in wider components, and half in reflected ones."""
    mixture = linear_mixture.compact(mixture)
    wider, weights = scaled(mixture.params, SCALE), np.asarray(mixture.weights)
    beside = reflected(mixture.params)
    if beside is not None:
        params, of = beside
        roots = np.sqrt(weights[of])  # light components are those at the edge: they count for more than they weigh
        wider, weights = join(wider, params), np.concatenate([0.5 * weights, 0.5 * roots / roots.sum()])
    return mixtures.of(FullRankStudentT(DF), wider, weights)


def reflected(params: Params) -> tuple[Params, np.ndarray] | None:
    """For each component k with a neighbour, the nearest neighbour j reflected in it, and k; None if none has any.

    loc = 2 loc_k − loc_j, and Σ = Σ_k Σ_j⁻¹ Σ_k, the reflection of Σ_j in Σ_k along their geodesic: what comes next if
    places and shapes go on changing as they did from j to k.
    """
    apart = kl_between(params)
    apart = apart + apart.T
    np.fill_diagonal(apart, np.inf)
    nearest = np.argmin(apart, axis=1)
    limit = NEIGHBOUR + PER_DIM * params["loc"].shape[1]
    of = np.flatnonzero(apart[np.arange(len(nearest)), nearest] < limit)
    if not of.size:
        return None
    here, there = take(params, of), take(params, nearest[of])
    covariance = here["factor"] @ here["factor"].swapaxes(1, 2)
    precision = here["inverse"].swapaxes(1, 2) @ here["inverse"]
    return {
        "loc": 2.0 * here["loc"] - there["loc"],
        "factor": covariance @ there["inverse"].swapaxes(1, 2),
        "inverse": there["factor"].swapaxes(1, 2) @ precision,
        "log_volume": 2.0 * here["log_volume"] - there["log_volume"],
    }, of


@dataclass(frozen=True)
class Wide:
    """Draws of the widened mixture, for log Ẑ, weights and moments; `inner` where the components live, which is where
    the densities are, and `draws` behind the mixture's warp, if it has one."""

    inner: Float[np.ndarray, "m dim"]
    draws: Float[np.ndarray, "m dim"]
    log_target: Float[np.ndarray, " m"]
    log_q: Float[np.ndarray, " m"]
    log_wide: Float[np.ndarray, " m"]
    log_wide_at_q: Float[np.ndarray, " n"]


def wide_draws(
    log_density: LogDensity, mixture: Mixture, draws: Float[np.ndarray, "n dim"], rng: np.random.Generator, n: int
) -> Wide | None:
    """n draws of the widened mixture beside these draws of q; None for families that have no full-rank factor."""
    if not isinstance(mixture.family, LinearFamily):
        return None
    wide = widened(mixture)
    z, log_wide, _ = linear_mixture.draw(wide, rng, n)
    return Wide(
        z, mixture.warped(z), log_density(z), linear_mixture.log_prob(mixture, z), log_wide,
        linear_mixture.log_prob(wide, draws),
    )  # fmt: skip


def log_weights(
    log_target: Float[np.ndarray, " n"], log_q: Float[np.ndarray, " n"], wide: Wide | None
) -> tuple[np.ndarray, np.ndarray]:
    """ln p/q̄ and q/q̄ at all draws, those of q first; q̄ has as large a share of each kind as the draws have."""
    if wide is None:
        return np.asarray(log_target) - np.asarray(log_q), np.ones(np.size(log_q))
    n, m = log_q.size, wide.log_q.size
    own, other = np.log(n / (n + m)), np.log(m / (n + m))
    at_q = np.logaddexp(own + log_q, other + wide.log_wide_at_q)
    at_wide = np.logaddexp(own + wide.log_q, other + wide.log_wide)
    both = np.concatenate([log_target - at_q, wide.log_target - at_wide])
    return both, np.exp(np.concatenate([log_q - at_q, wide.log_q - at_wide]))
