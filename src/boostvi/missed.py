"""How much mass of the posterior a mixture misses where a search has found that it misses some.

Components were put there (`next_component.look`). The ELBO of one of them is as far below the mass of its region as
that component is poor, and for a crooked region in many dimensions these are many nats. So the mass is estimated by
importance sampling from all components, and wider ones, and by annealed importance sampling (Neal 2001): chains that
begin at draws of the components s, while s^(1−β) p^β goes from s to p, and whose weights collect the difference. Both
are rather too low than too high; the higher one counts, and where a few draws carry it, it may be far too low.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi.families.base import Params
from boostvi.linear_mixture import shares
from boostvi.mixture import Mixture
from boostvi.next_component.chains import annealed, plain
from boostvi.next_component.local import CountedTarget, distinct
from boostvi.next_component.look import UNCOVERED
from boostvi.wide import log_weights, wide_draws, widened

DRAWS = 128
"""Of each component, and of what is wider."""
CHAINS, STEPS = 512, 64
COSTLY = 4
"""Fewer of them, by this factor, where an evaluation costs much."""
POOL_UNCOVERED = 5.0
"""Nats: a region where draws of the pool would have e⁵ times the mean weight, or more, is as good as unseen by them."""
APART = 15.0
"""Nats: so far out are regions that may have nothing to do with what is covered."""
FEW, UNSURE = 20.0, 100.0
"""With fewer effective draws than this, a region apart may have so many times the mass: weights that come from a poor
component spread over many nats."""
HEAVIEST, REPEATS, RETURNING = 32, 16, 0.02
"""It is the tail of what is covered, and no region apart, if chains that begin at its heaviest points, so many from
each, come back from it, with this share of the mass at least."""
REGION = 0.05
"""Share of the missed mass from which on a component tells where it is."""


@dataclass(frozen=True)
class Missed:
    """Mass where the mixture does not cover it, relative to the mixture's; `by_pool`: at most, where draws of something
    wider do not cover it either, so that importance weights miss it too; locations: of the components that have most of
    it."""

    by_mixture: float = 0.0
    by_pool: float = 0.0
    locations: Float[np.ndarray, "regions dim"] | None = None


@dataclass(frozen=True)
class _Points:
    """Points that stand for p with these log weights, relative to the mass of the mixture, and how far ln p is above
    ln q, and above the pool's, there."""

    log_weights: Float[np.ndarray, " n"]
    above: Float[np.ndarray, " n"]
    above_pool: Float[np.ndarray, " n"]

    def beyond(self) -> float:
        """Mass that the mixture does not cover."""
        return _without_largest(_masses(self.log_weights, self.above > UNCOVERED))

    def beyond_pool(self) -> float:
        return _without_largest(_masses(self.log_weights, self.above_pool > POOL_UNCOVERED))

    def apart(self) -> tuple[float, float]:
        """Mass of regions apart, and how many points carry it."""
        masses = _masses(self.log_weights, self.above_pool > APART)
        total = float(masses.sum())
        return total, 1.0 / float(np.sum((masses / total) ** 2)) if 0.0 < total < np.inf else np.inf


@np.errstate(over="ignore")
def _masses(log_weights: np.ndarray, where: np.ndarray) -> np.ndarray:
    """What each point adds to the mass."""
    return np.where(where, np.exp(log_weights), 0.0) / len(log_weights)


def _without_largest(masses: np.ndarray) -> float:
    """Their sum, without one point that may have most of it by chance."""
    return float(masses.sum() - masses.max()) if np.isfinite(masses).all() else np.inf


def weigh(
    model: CountedTarget, mixture: Mixture, places: Params | None, elbo: float, rng: np.random.Generator
) -> Missed:
    """The mass that `mixture`, whose ELBO this is, misses around these components."""
    if places is None:
        return Missed()
    mixture, count = linear_mixture.compact(mixture), len(places["loc"])
    pool, proposal = widened(mixture), mixtures.of(mixture.family, places, np.full(count, 1.0 / count))

    @np.errstate(invalid="ignore")
    def above(z: np.ndarray, log_target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_q = linear_mixture.log_prob(mixture, z)
        log_pool = np.logaddexp(log_q, linear_mixture.log_prob(pool, z)) - np.log(2.0)
        return log_target - log_q - elbo, log_target - log_pool - elbo

    fewer = COSTLY if model.target.is_costly else 1
    n = count * DRAWS // fewer
    draws, log_s, _ = linear_mixture.draw(proposal, rng, n)
    log_target, _ = model(draws)
    wide = wide_draws(lambda z: model(z)[0], proposal, draws, rng, n)
    assert wide is not None  # a family with climbs has a factor
    z = np.concatenate([draws, wide.draws])
    sampled = _Points(
        log_weights(log_target, log_s, wide)[0] - elbo, *above(z, np.concatenate([log_target, wide.log_target]))
    )
    ends, at_ends, weights, owners = annealed(model, proposal, CHAINS // fewer, STEPS // fewer, rng)
    moved = _Points(weights - elbo, *above(ends, at_ends))

    by_pool = max(sampled.beyond_pool(), moved.beyond_pool())
    at_most = UNSURE * max(mass for mass, carriers in (sampled.apart(), moved.apart(), (0.0, 0.0)) if carriers < FEW)
    if at_most > by_pool:
        of_ends = _masses(moved.log_weights, moved.above_pool > APART)
        heaviest = np.argsort(-of_ends)[:HEAVIEST]
        again, which = np.repeat(ends[heaviest], REPEATS, axis=0), np.repeat(owners[heaviest], REPEATS)
        back = (above(*plain(model, proposal, again, which, rng))[1] < APART).reshape(-1, REPEATS).mean(axis=1)
        if of_ends[heaviest] @ back <= RETURNING * of_ends[heaviest].sum():
            by_pool = at_most
    ratio = np.concatenate([at.ratios()[0] for _, at in linear_mixture.blocks(proposal, z)])
    of_each = _masses(sampled.log_weights, sampled.above > UNCOVERED) @ shares(ratio, np.ones(count))
    regions = distinct(places, np.where(of_each > REGION * of_each.sum(), of_each, -np.inf))
    return Missed(max(sampled.beyond(), moved.beyond()), by_pool, places["loc"][regions])
