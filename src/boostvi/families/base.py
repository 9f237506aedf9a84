"""What a family of components is: two unbatched methods."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_SCALE = 1e-10
"""Scales are bounded below, so that no component can turn into a point."""

Params = dict[str, Any]


class Family(ABC):
    """A reparameterisable family. A new one writes `sample` and `log_prob`; the rest has defaults.

    The default parameters are a location and a positive scale per coordinate, the default noise N(0, 1)^d; a family
    with others overrides `init` or `noise`. `sample` and `log_prob` take one component and one draw: the library vmaps.
    Write `z @ A.T`, not `A @ z`: XLA on a CPU can get the second form wrong when it is vmapped (docs/numerics.md).
    """

    name: ClassVar[str]
    unit_sd: float = 1.0  # standard deviation of a draw with scale 1
    has_variance: bool = True  # whether it is finite

    @abstractmethod
    def sample(self, params: Params, noise: Any) -> Float[Array, " dim"]:
        """The draw that `noise` stands for; differentiable in `params`."""

    @abstractmethod
    def log_prob(self, params: Params, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """Normalised log density at z."""

    def noise(self, key: Array, shape: tuple[int, ...]) -> Any:
        """Parameter-free randomness of `shape[:-1]` draws of dimension `shape[-1]`."""
        return jax.random.normal(key, shape)

    def init(self, key: Array, loc: Float[Array, " dim"], scale: Float[Array, " dim"]) -> Params:
        """A component at `loc` with that scale in each coordinate; `key` breaks symmetries where there are any."""
        del key
        return {"loc": loc, "raw_scale": to_raw(scale)}

    def freeze(self, params: Params) -> Params:
        """The parameters as a mixture stores them, with whatever `log_prob` would compute from them every time."""
        return params

    def from_gaussian(self, key: Array, mean: Float[Array, " dim"], covariance: Float[Array, "dim dim"]) -> Params:
        """The member that resembles a Gaussian most: same mean, and as much of the covariance as the family holds."""
        return self.init(key, mean, jnp.sqrt(jnp.diagonal(covariance)) / self.unit_sd)

    def sample_and_log_prob(self, params: Params, noise: Any) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """A draw and its log density. Override where the noise gives the density without solving for it."""
        z = self.sample(params, noise)
        return z, self.log_prob(params, z)

    def n_params(self, dim: int) -> int:
        """Numbers that describe one component."""
        return _n_params(self, dim)


@functools.cache
def _n_params(family: Family, dim: int) -> int:
    loc = jnp.zeros(dim)
    shapes = jax.eval_shape(lambda key: family.init(key, loc, loc + 1.0), jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def to_scale(raw: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """softplus, so that a raw N(0, 1) start is the paper's."""
    return jax.nn.softplus(raw) + MIN_SCALE


def to_raw(scale: Float[Array, " dim"]) -> Float[Array, " dim"]:
    scale = jnp.maximum(scale - MIN_SCALE, MIN_SCALE)
    return scale + jnp.log(-jnp.expm1(-scale))


def standardise(params: Params, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
    return (z - params["loc"]) / to_scale(params["raw_scale"])


def log_volume(params: Params) -> Float[Array, ""]:
    return jnp.sum(jnp.log(to_scale(params["raw_scale"])))
