"""Small targets whose log evidence a grid gives: mixtures and logistic regressions after those of the authors' code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

REACH = 8.0
"""Standard deviations around every component, or around the prior, that the grid covers."""
FINE = 801
"""Points of the grid along each side: the sum of a smooth density on it is its integral to rounding."""


@dataclass(frozen=True)
class Toy:
    """make: the target; low, high: corners of a box with all of its mass."""

    make: Callable[[], Any]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def target(self) -> Any:
        import jax

        with jax.enable_x64(True):
            return self.make()

    def on_grid(self, n: int) -> tuple[list[np.ndarray], np.ndarray]:
        """n points along each side of the box, and ln p there (first coordinate first)."""
        import jax

        sides = [np.linspace(a, b, n) for a, b in zip(self.low, self.high, strict=True)]
        points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
        with jax.enable_x64(True):
            values = self.target().log_density_of(jax.numpy.asarray(points.reshape(-1, len(sides))))
        return sides, np.asarray(values).reshape(points.shape[:-1])

    def log_z(self) -> float:
        from scipy.special import logsumexp

        sides, values = self.on_grid(FINE)
        return float(logsumexp(values) + sum(np.log(side[1] - side[0]) for side in sides))


def mixture(weights: list[float], means: list[list[float]], scales: list[list[float]]) -> Toy:
    """Of diagonal Normals."""
    theta = np.concatenate([np.array(weights)[:, None], means, scales], axis=1)

    def make() -> Any:
        from boostvi.reproduce.one_step import mixture_target

        return mixture_target(theta)

    ends = [(np.array(means) + sign * REACH * np.array(scales)).T for sign in (-1, 1)]
    return Toy(make, tuple(map(min, ends[0].tolist())), tuple(map(max, ends[1].tolist())))


def regression(dim: int, shift: float, rows: int = 40, seed: int = 3) -> Toy:
    """Logistic regression without intercept, w ~ N(0, 1): half of the rows are around +shift, half around −shift in
    every feature, with unit spread; the label is the side."""

    def make() -> Any:
        from boostvi.reproduce.logistic import target_of

        rng = np.random.default_rng(seed)
        signs = np.where(np.arange(rows) % 2, 1.0, -1.0)
        return target_of(rng.standard_normal((rows, dim)) + shift * signs[:, None], signs)

    return Toy(make, (-REACH,) * dim, (REACH,) * dim)


def product_regression(rows: int = 40, slope: float = 1.5, seed: int = 3) -> Toy:
    """One feature whose weight is a product: y ~ Bernoulli(σ(w₁w₂x)), w ~ N(0, 1). (w₁, w₂) and (−w₁, −w₂) are the same
    model, so there are two modes."""

    def make() -> Any:
        import jax
        import jax.numpy as jnp

        from boostvi.reproduce.logistic import log_sigmoid
        from boostvi.target import Target

        rng = np.random.default_rng(seed)
        x = rng.standard_normal(rows)
        signed = jnp.asarray(np.where(rng.random(rows) < 1 / (1 + np.exp(-slope * x)), x, -x))

        def log_density(w):
            return jnp.sum(log_sigmoid(w[0] * w[1] * signed)) + jnp.sum(jax.scipy.stats.norm.logpdf(w))

        return Target(log_density, 2)

    return Toy(make, (-REACH,) * 2, (REACH,) * 2)


TOYS = {
    "two modes": mixture([0.4, 0.6], [[-1.0], [1.5]], [[0.4], [0.5]]),
    "two modes, very different scales": mixture([0.5, 0.5], [[-2.0], [3.0]], [[0.1], [1.5]]),
    "four modes": mixture([0.25] * 4, [[-4.0], [-1.0], [1.5], [5.0]], [[0.5], [0.3], [0.4], [0.8]]),
    "four modes in 2-d": mixture(
        [0.3, 0.2, 0.3, 0.2], [[-2.0, -2.0], [2.0, -2.0], [2.0, 2.0], [-2.0, 2.0]],
        [[0.6, 0.6], [0.5, 0.9], [0.6, 0.6], [0.9, 0.5]],
    ),
    "logistic regression in 1-d": regression(1, 0.5),
    "logistic regression, separable": regression(2, 3.0),
    "logistic regression, not separable": regression(2, 0.5),
    "logistic regression, bimodal": product_regression(),
}  # fmt: skip
