"""Looking for what a mixture has missed, before it is called good.

Two searches that the fit had no part in. *Climbs*, as in `next_component.look`: from prior draws, wide draws and draws
of the inflated mixture, half of them up the deflated residual first, from the ends of tempered chains, which leave the
mixture while the posterior is flattened and settle as it rises, and from the points with the highest ln p − ln q that
judged the mixture. What they find is weighed. *Chains*: short runs of a Metropolis-adjusted Langevin sampler of the
posterior, started at draws of the mixture. If the mixture were the posterior, ln p − ln q would stay where it is; it
rises when the chains walk into mass that the mixture has too little of, at most by KL(p‖q) + KL(q‖p).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi._jit import float64, host_generator
from boostvi.families.linear import LinearFamily
from boostvi.missed import Missed, weigh
from boostvi.mixture import Mixture
from boostvi.next_component.chains import plain
from boostvi.next_component.local import CountedTarget
from boostvi.next_component.look import Found, look
from boostvi.target import Target, to_own

CLIMBS = 256
"""Of which a quarter begin at the ends of tempered chains."""
CHAINS = 512
COSTLY = 4
"""Fewer climbs and chains, by this factor, where an evaluation costs much."""
HINTS = 32
"""Ends of chains, those that rose furthest, that the search looks at."""


@dataclass(frozen=True)
class Probes:
    """What the searches found.

    found: by the climbs. missed: how much mass that is; `locations` of it, where the target lives.
    drift: mean rise of ln p − ln q along the chains, in nats, with its standard error.
    """

    climbs: int
    found: Found
    missed: Missed
    locations: Float[np.ndarray, "regions dim"]
    drift: float
    drift_se: float
    evals: int

    @property
    def missed_share(self) -> float:
        """Share of all the mass seen that the mixture misses."""
        return _share(self.missed.by_mixture)

    @property
    def pool_missed_share(self) -> float:
        """The same, of what wider draws miss too."""
        return _share(self.missed.by_pool)


def _share(mass: float) -> float:
    return mass / (1.0 + mass) if np.isfinite(mass) else 1.0


@float64
def probe(
    target: Target, mixture: Mixture, key: Array, climbs: int = CLIMBS,
    hints: Float[np.ndarray, "n dim"] | None = None,
) -> Probes | None:  # fmt: skip
    """Search for what `mixture` misses; None for a family whose components cannot be climbed with. hints: points where
    ln p − ln q was seen to be high."""
    if not isinstance(mixture.family, LinearFamily):
        return None
    climbs = climbs // COSTLY if target.is_costly else climbs
    drift, drift_se, furthest, evals = chains(target, mixture, jax.random.fold_in(key, 1))
    hints = furthest if hints is None else np.concatenate([furthest, hints])
    found = look(target, mixture, climbs, key, evals, hints)
    model, rng = CountedTarget(target, found.evals), host_generator(jax.random.fold_in(key, 2))
    missed = weigh(model, mixture, found.places, found.level.elbo, rng)
    locations = np.zeros((0, target.dim)) if missed.locations is None else to_own(target, missed.locations)
    return Probes(climbs, found, missed, locations, drift, drift_se, model.evals)


def chains(target: Target, mixture: Mixture, key: Array) -> tuple[float, float, np.ndarray, int]:
    """Drift of ln p − ln q along Langevin chains started at draws of q, its standard error, the ends of the chains that
    rose furthest, and the evaluations."""
    rng, model = host_generator(key), CountedTarget(target)
    mixture = linear_mixture.compact(mixture)
    z, log_q, owners = linear_mixture.draw(mixture, rng, CHAINS // COSTLY if target.is_costly else CHAINS)
    before = model(z)[0] - log_q
    ends, value = plain(model, mixture, z, owners, rng)
    rise = value - linear_mixture.log_prob(mixture, ends) - before
    furthest = ends[np.argsort(-np.where(np.isfinite(rise), rise, -np.inf))[:HINTS]]
    rise = rise[np.isfinite(rise)]
    return float(rise.mean()), float(rise.std(ddof=1) / np.sqrt(rise.size)), furthest, model.evals
