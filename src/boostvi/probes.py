"""Looking for what a mixture has missed, before it is called good.

Two searches that the fit had no part in. *Climbs*: as in `next_component.explore`, from prior draws, wide draws and
draws of the inflated mixture, half of them up the deflated residual first, and from the ends of tempered chains, which
leave the mixture while the posterior is flattened and settle as it rises; any that ends at a mode with mass which the
mixture does not have is a find. *Chains*: short runs of a Metropolis-adjusted Langevin sampler of the posterior,
started at draws of the mixture. If the mixture were the posterior, ln p − ln q would stay where it is; it rises when
the chains walk into mass that the mixture has too little of, at most by KL(p‖q) + KL(q‖p).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi._jit import float64, host_generator
from boostvi.families.linear import LinearFamily
from boostvi.mixture import Mixture
from boostvi.next_component.explore import look
from boostvi.next_component.local import CountedTarget
from boostvi.target import Target, to_own

Map = Callable[[np.ndarray], np.ndarray]

CLIMBS = 256
"""Of which a quarter begin at the ends of tempered chains."""
CHAINS = 512
COSTLY = 4
"""Fewer climbs and chains, by this factor, where an evaluation costs much."""
CHAIN_STEPS = 30
HOTTEST = 100.0
"""The temperature at which tempered chains begin: enough to cross between modes ten standard deviations apart."""
STEP_SIZES = (0.2, 0.5, 1.0)
"""Langevin steps in units of a component's own scale times d^(−1/6), taken in turn: some suit any curvature."""


@dataclass(frozen=True)
class Probes:
    """What the searches found.

    missed: the shares of the posterior's mass, relative to the mixture's, of the modes that climbs found.
    drift: mean rise of ln p − ln q along the chains, in nats, with its standard error.
    """

    climbs: int
    missed: Float[np.ndarray, " modes"]
    locations: Float[np.ndarray, "modes dim"]
    drift: float
    drift_se: float
    evals: int

    @property
    def missed_share(self) -> float:
        """Share of all the mass seen that lies in the missed modes."""
        total = self.missed.sum()
        return float(total / (1.0 + total)) if np.isfinite(total) else 1.0


@float64
def probe(target: Target, mixture: Mixture, key: Array, climbs: int = CLIMBS) -> Probes | None:
    """Search for what `mixture` misses; None for a family whose components cannot be climbed with."""
    if not isinstance(mixture.family, LinearFamily):
        return None
    climbs = climbs // COSTLY if target.is_costly else climbs
    rng, model = host_generator(jax.random.fold_in(key, 2)), CountedTarget(target)
    ends = tempered(model, linear_mixture.compact(mixture), climbs // 4, rng)
    found = look(target, mixture, climbs - climbs // 4, key, model.evals, ends)
    locations = to_own(target, found.components["loc"]) if found.elbos.size else np.zeros((0, target.dim))
    drift, drift_se, evals = chains(target, mixture, jax.random.fold_in(key, 1))
    with np.errstate(over="ignore"):
        missed = np.exp(found.elbos - found.elbo)
    return Probes(climbs, missed, locations, drift, drift_se, found.evals + evals)


def tempered(model: CountedTarget, mixture: Mixture, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Ends of Langevin chains of p^(1/T), started at draws of a compact mixture, while T falls to 1."""
    z, _, owners = linear_mixture.draw(mixture, rng, n)
    to_z, to_noise = _preconditioners(mixture, owners)
    value, gradient = model(z)
    for i, T in enumerate(np.geomspace(HOTTEST, 1.0, CHAIN_STEPS)):
        size = _step_size(i, mixture.dim) * np.sqrt(T)
        z, value, gradient = _langevin(model, z, value, gradient, to_z, to_noise, size, rng, T)
    return z


def chains(target: Target, mixture: Mixture, key: Array) -> tuple[float, float, int]:
    """Drift of ln p − ln q along Langevin chains started at draws of q, its standard error, and the evaluations."""
    rng, model = host_generator(key), CountedTarget(target)
    mixture = linear_mixture.compact(mixture)
    z, log_q, owners = linear_mixture.draw(mixture, rng, CHAINS // COSTLY if target.is_costly else CHAINS)
    to_z, to_noise = _preconditioners(mixture, owners)
    value, gradient = model(z)
    before = value - log_q
    for i in range(CHAIN_STEPS):
        size = _step_size(i, target.dim)
        z, value, gradient = _langevin(model, z, value, gradient, to_z, to_noise, size, rng)
    rise = value - linear_mixture.log_prob(mixture, z) - before
    rise = rise[np.isfinite(rise)]
    return float(rise.mean()), float(rise.std(ddof=1) / np.sqrt(rise.size)), model.evals


def _preconditioners(mixture: Mixture, owners: np.ndarray) -> tuple[Map, Map]:
    """By the component that made the draw: fixed along a chain, so the sampler stays exact."""
    factor, of_owner = mixture.params["factor"], linear_mixture.by_owner
    return partial(of_owner, factor, owners), partial(of_owner, factor.swapaxes(1, 2), owners)


def _step_size(i: int, dim: int) -> float:
    return STEP_SIZES[i % len(STEP_SIZES)] * dim ** (-1 / 6)


def _langevin(
    model: CountedTarget, z: np.ndarray, value: np.ndarray, gradient: np.ndarray, to_z: Map, to_noise: Map, size: float,
    rng: np.random.Generator, T: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """One Metropolis-adjusted Langevin step of every chain, for p^(1/T); `to_z` multiplies by its factor, `to_noise` by
    the transpose."""
    noise = rng.standard_normal(z.shape)
    forward = 0.5 * size**2 * to_noise(gradient) / T + size * noise
    new = z + to_z(forward)
    new_value, new_gradient = model(new)
    usable = np.isfinite(new_value) & np.isfinite(new_gradient).all(axis=1)
    new_whitened = to_noise(np.where(usable[:, None], new_gradient, 0.0)) / T
    backward = (-forward - 0.5 * size**2 * new_whitened) / size
    log_ratio = (new_value - value) / T + 0.5 * np.sum(noise**2, axis=1) - 0.5 * np.sum(backward**2, axis=1)
    taken = usable & (np.log(rng.uniform(size=z.shape[0])) < log_ratio)
    return (
        np.where(taken[:, None], new, z),
        np.where(taken, new_value, value),
        np.where(taken[:, None], new_gradient, gradient),
    )
