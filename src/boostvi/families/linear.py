"""Families that map noise by a full matrix: Normal, Student-t, and products of Student-t."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.scipy.stats import norm, t
from jaxtyping import Array, Float

from boostvi.families.base import Family, Params, log_volume, to_raw, to_scale
from boostvi.families.student_t import DegreesOfFreedom
from boostvi.families.triangular import unit_lower_inverse


class LinearFamily(Family):
    """z = loc + A·noise. A new one writes `noise`, `log_base` and `score`.

    While it is optimised by gradients, A = diag(scale)·(I + strictly lower `lower`): the shape is free of the
    coordinates' units. A mixture stores A itself (`factor`), its inverse, and ln|det A|; refinement moves these.
    """

    @abstractmethod
    def log_base(self, noise: Float[Array, "... dim"]) -> Float[Array, "..."]:
        """Log density of the noise."""

    @abstractmethod
    def score(self, noise: Float[Array, "... dim"]) -> Float[Array, "... dim"]:
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


@dataclass(frozen=True)
class FullRankNormal(LinearFamily):
    """N(loc, A Aᵀ): a Normal with any covariance."""

    name = "full-rank-normal"

    def log_base(self, noise):
        return jnp.sum(norm.logpdf(noise), axis=-1)

    def score(self, noise):
        return -noise


@dataclass(frozen=True)
class StudentT(DegreesOfFreedom, LinearFamily):  # type: ignore[override]
    """Either of the two below."""

    def _student_t(self, key: Array, shape: tuple[int, ...], mixing: tuple[int, ...]) -> Array:
        """Normal noise over the root of χ²/df, which is shared along axes where `mixing` is 1."""
        key_normal, key_chi = jax.random.split(key)
        if self.df % 2 == 0:  # a sum of exponentials compiles ten times faster than a sampler of Gamma variables
            chi2 = 2.0 * jnp.sum(jax.random.exponential(key_chi, (int(self.df) // 2, *mixing)), axis=0)
        else:
            chi2 = jax.random.chisquare(key_chi, self.df, mixing)
        return jax.random.normal(key_normal, shape) * jnp.sqrt(self.df / chi2)


@dataclass(frozen=True)
class FullRankStudentT(StudentT):
    """Multivariate Student-t with fixed degrees of freedom: heavy in every direction at once."""

    name = "full-rank-student-t"

    def noise(self, key, shape):
        return self._student_t(key, shape, (*shape[:-1], 1))

    def log_base(self, noise):
        dim, df = noise.shape[-1], self.df
        constant = gammaln(0.5 * (df + dim)) - gammaln(0.5 * df) - 0.5 * dim * math.log(df * math.pi)
        return constant - 0.5 * (df + dim) * jnp.log1p(jnp.sum(noise**2, axis=-1) / df)

    def score(self, noise):
        dim, df = noise.shape[-1], self.df
        return -(df + dim) * noise / (df + jnp.sum(noise**2, axis=-1, keepdims=True))


@dataclass(frozen=True)
class ProductStudentT(StudentT):
    """A linear map of independent Student-t variables: heavy along each of its own axes."""

    name = "product-student-t"

    def noise(self, key, shape):
        return self._student_t(key, shape, shape)

    def log_base(self, noise):
        return jnp.sum(t.logpdf(noise, self.df), axis=-1)

    def score(self, noise):
        return -(self.df + 1.0) * noise / (self.df + noise**2)
