"""Metropolis-adjusted Langevin chains that start at draws of a mixture.

They are chains of the posterior, of a flattened one that rises again, or of what leads from the mixture to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from boostvi import linear_mixture
from boostvi.mixture import Mixture
from boostvi.next_component.local import CountedTarget

Map = Callable[[np.ndarray], np.ndarray]
Parts = tuple[np.ndarray, ...]
"""What is known at the points of the chains, from which a log density and its gradient are made."""

STEPS = 30
HOTTEST = 100.0
"""The temperature at which tempered chains begin: enough to cross between modes ten standard deviations apart."""
STEP_SIZES = (0.2, 0.5, 1.0)
"""Langevin steps in units of a component's own scale times d^(−1/6), taken in turn: some suit any curvature."""


def plain(
    model: CountedTarget, mixture: Mixture, z: Float[np.ndarray, "n dim"], owners: np.ndarray, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
    """Where chains of p end that start at these draws of a compact mixture, and ln p there."""
    move, parts = _mover(model, mixture, owners, rng), model(z)
    for i in range(STEPS):
        z, parts = move(i, z, parts, lambda value, gradient: (value, gradient))
    return z, parts[0]


def tempered(model: CountedTarget, mixture: Mixture, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Ends of n chains of p^(1/T) while T falls to 1."""
    z, _, owners = linear_mixture.draw(mixture, rng, n)
    move, parts = _mover(model, mixture, owners, rng), model(z)
    for i, T in enumerate(np.geomspace(HOTTEST, 1.0, STEPS)):
        z, parts = move(i, z, parts, lambda value, gradient, T=T: (value / T, gradient / T), np.sqrt(T))
    return z


def annealed(
    model: CountedTarget, mixture: Mixture, n: int, steps: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"], Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Ends of n chains of q^(1−β) p^β while β rises to 1; ln p there; the log weights with which they stand for p (Neal
    2001), the mean of whose exponentials estimates its mass; and the components that they started from."""
    z, _, owners = linear_mixture.draw(mixture, rng, n)

    def both(z: np.ndarray) -> Parts:
        return *model(z), *linear_mixture.log_prob_and_gradient(mixture, z)

    move, parts, log_weights = _mover(both, mixture, owners, rng), both(z), np.zeros(n)
    for i, beta in enumerate(np.arange(1, steps + 1) / steps):
        log_weights += (parts[0] - parts[2]) / steps

        def bridge(value: Any, gradient: Any, log_q: Any, gradient_q: Any, beta: float = beta) -> tuple[Any, Any]:
            return beta * value + (1.0 - beta) * log_q, beta * gradient + (1.0 - beta) * gradient_q

        z, parts = move(i, z, parts, bridge)
    return z, parts[0], log_weights, owners


def _mover(evaluate: Callable[[np.ndarray], Parts], mixture: Mixture, owners: np.ndarray, rng: np.random.Generator):
    """One step of every chain, in units of the component that made its first draw: fixed along a chain, so that the
    sampler stays exact."""
    factor, of_owner = mixture.params["factor"], linear_mixture.by_owner
    to_z: Map = partial(of_owner, factor, owners)
    to_noise: Map = partial(of_owner, factor.swapaxes(1, 2), owners)

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is not taken
    def move(
        i: int, z: np.ndarray, parts: Parts, density: Callable[..., tuple[np.ndarray, np.ndarray]], scale: float = 1.0
    ) -> tuple[np.ndarray, Parts]:
        size = STEP_SIZES[i % len(STEP_SIZES)] * mixture.dim ** (-1 / 6) * scale
        value, gradient = density(*parts)
        noise = rng.standard_normal(z.shape)
        forward = 0.5 * size**2 * to_noise(gradient) + size * noise
        new = z + to_z(forward)
        new_parts = evaluate(new)
        new_value, new_gradient = density(*new_parts)
        usable = np.isfinite(new_value) & np.isfinite(new_gradient).all(axis=1)
        backward = (-forward - 0.5 * size**2 * to_noise(np.where(usable[:, None], new_gradient, 0.0))) / size
        log_ratio = new_value - value + 0.5 * np.sum(noise**2, axis=1) - 0.5 * np.sum(backward**2, axis=1)
        taken = usable & (np.log(rng.uniform(size=len(z))) < log_ratio)
        kept = tuple(
            np.where(taken if of.ndim == 1 else taken[:, None], of, old)
            for of, old in zip(new_parts, parts, strict=True)
        )
        return np.where(taken[:, None], new, z), kept

    return move
