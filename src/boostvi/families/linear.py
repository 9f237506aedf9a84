"""Families that map noise by a full matrix: Normal, Student-t, and products of Student-t."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from boostvi.families.base import Family, Params, log_volume, to_raw, to_scale
from boostvi.families.student_t import DegreesOfFreedom
from boostvi.families.triangular import unit_lower_inverse


class LinearFamily(Family):
    """z = loc + A·noise. A new one writes `noise` (with JAX), `host_noise` (with NumPy), and, for arrays of either,
    `log_base` and `score`; a `RadialFamily` less.

    While it is optimised by gradients, A = diag(scale)·(I + strictly lower `lower`): the shape is free of the
    coordinates' units. A mixture stores A itself (`factor`), its inverse, and ln|det A|; refinement moves these, on the
    host (`boostvi.linear_mixture`).
    """

    @abstractmethod
    def host_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "... dim"]:
        """As `noise`, from NumPy's generator."""

    @abstractmethod
    def log_base(self, noise: Any) -> Any:
        """Log density of the noise, along the last axis."""

    @abstractmethod
    def score(self, noise: Any) -> Any:
        """Gradient of `log_base`."""

    def init(self, key, loc, scale):
        return super().init(key, loc, scale) | {"lower": jnp.zeros((loc.size, loc.size))}

    def from_gaussian(self, key, mean, covariance):
        factor = jnp.linalg.cholesky(covariance) / self.unit_sd
        diagonal = jnp.diagonal(factor)
        return {"loc": mean, "raw_scale": to_raw(diagonal), "lower": jnp.tril(factor / diagonal[:, None], -1)}

    def freeze(self, params):
        if "factor" in params:
            return params
        scale, lower = to_scale(params["raw_scale"]), jnp.tril(params["lower"], -1)
        return {
            "loc": params["loc"],
            "factor": scale[:, None] * (jnp.eye(scale.size) + lower),
            "inverse": unit_lower_inverse(lower) / scale,
            "log_volume": log_volume(params),
        }

    def sample(self, params, noise):
        return params["loc"] + noise @ self.freeze(params)["factor"].T

    def log_prob(self, params, z):
        frozen = self.freeze(params)
        return self.log_base((z - frozen["loc"]) @ frozen["inverse"].T) - frozen["log_volume"]

    def sample_and_log_prob(self, params, noise):
        frozen = self.freeze(params)
        return self.sample(frozen, noise), self.log_base(noise) - frozen["log_volume"]

    def n_params(self, dim):
        return dim + dim * (dim + 1) // 2


def scaled(params: Params, by: float) -> Params:
    """Stored components with their scale multiplied."""
    return {
        "loc": params["loc"],
        "factor": params["factor"] * by,
        "inverse": params["inverse"] / by,
        "log_volume": params["log_volume"] + params["loc"].shape[-1] * math.log(by),
    }


class RadialFamily(LinearFamily):
    """The density of the noise is a function of its squared length r². A new one writes that function, and `pull`."""

    @abstractmethod
    def log_radial(self, squares: Any, dim: int) -> Any:
        """Log density of noise of this squared length."""

    @abstractmethod
    def pull(self, squares: Any, dim: int) -> Any:
        """c(r²) with score = −c·noise."""

    def log_base(self, noise):
        return self.log_radial(_squares(noise), noise.shape[-1])

    def score(self, noise):
        return -self.pull(_squares(noise), noise.shape[-1])[..., None] * noise


@dataclass(frozen=True)
class FullRankNormal(RadialFamily):
    """N(loc, A Aᵀ): a Normal with any covariance."""

    name = "full-rank-normal"

    def host_noise(self, rng, shape):
        return rng.standard_normal(shape)

    def log_radial(self, squares, dim):
        return -0.5 * (squares + dim * math.log(2.0 * math.pi))

    def pull(self, squares, dim):
        return squares.__array_namespace__().ones_like(squares)

    def score(self, noise):
        return -noise


@dataclass(frozen=True)
class StudentT(DegreesOfFreedom, LinearFamily):  # type: ignore[override]
    """Either of the two below; `independent` says whether every coordinate has a χ² of its own."""

    independent: ClassVar[bool]

    def _mixing(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self.independent else (*shape[:-1], 1)

    def noise(self, key, shape):
        key_normal, key_chi = jax.random.split(key)
        mixing = self._mixing(shape)
        if self.df % 2 == 0:  # a sum of exponentials compiles ten times faster than a sampler of Gamma variables
            chi2 = 2.0 * jnp.sum(jax.random.exponential(key_chi, (int(self.df) // 2, *mixing)), axis=0)
        else:
            chi2 = jax.random.chisquare(key_chi, self.df, mixing)
        return jax.random.normal(key_normal, shape) * jnp.sqrt(self.df / chi2)

    def host_noise(self, rng, shape):
        return rng.standard_normal(shape) * np.sqrt(self.df / rng.chisquare(self.df, self._mixing(shape)))

    def _log_density(self, squares: Any, dim: int) -> Any:
        constant = (
            math.lgamma(0.5 * (self.df + dim)) - math.lgamma(0.5 * self.df) - 0.5 * dim * math.log(self.df * math.pi)
        )
        return constant - 0.5 * (self.df + dim) * squares.__array_namespace__().log1p(squares / self.df)


@dataclass(frozen=True)
class FullRankStudentT(StudentT, RadialFamily):  # type: ignore[override]  # as of StudentT
    """Multivariate Student-t with fixed degrees of freedom: heavy in every direction at once."""

    name = "full-rank-student-t"
    independent = False

    def log_radial(self, squares, dim):
        return self._log_density(squares, dim)

    def pull(self, squares, dim):
        return (self.df + dim) / (self.df + squares)


@dataclass(frozen=True)
class ProductStudentT(StudentT):
    """A linear map of independent Student-t variables: heavy along each of its own axes."""

    name = "product-student-t"
    independent = True

    def log_base(self, noise):
        return self._log_density(noise**2, 1).sum(axis=-1)

    def score(self, noise):
        return -(self.df + 1.0) * noise / (self.df + noise**2)


def _squares(noise: Any) -> Any:
    """Sums of squares over the last axis; with NumPy, in one pass over them."""
    return np.einsum("...i,...i->...", noise, noise) if isinstance(noise, np.ndarray) else jnp.sum(noise**2, axis=-1)
