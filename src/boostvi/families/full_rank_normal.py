"""A Normal with any covariance."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.stats import norm

from boostvi.families.base import Family, log_volume, standardise, to_raw, to_scale
from boostvi.families.triangular import unit_lower_inverse


@dataclass(frozen=True)
class FullRankNormal(Family):
    """N(loc, L Lᵀ), L = diag(scale)·(I + strictly lower `lower`): the shape is free of the coordinates' units."""

    name = "full-rank-normal"

    def init(self, key, loc, scale):
        return super().init(key, loc, scale) | {"lower": jnp.zeros((loc.size, loc.size))}

    def from_gaussian(self, key, mean, covariance):
        factor = jnp.linalg.cholesky(covariance)
        diagonal = jnp.diagonal(factor)
        return {"loc": mean, "raw_scale": to_raw(diagonal), "lower": jnp.tril(factor / diagonal[:, None], -1)}

    def freeze(self, params):
        return params if "inverse" in params else params | {"inverse": unit_lower_inverse(params["lower"])}

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * (noise + noise @ jnp.tril(params["lower"], -1).T)

    def log_prob(self, params, z):
        noise = standardise(params, z) @ self.freeze(params)["inverse"].T
        return jnp.sum(norm.logpdf(noise)) - log_volume(params)

    def sample_and_log_prob(self, params, noise):
        return self.sample(params, noise), jnp.sum(norm.logpdf(noise)) - log_volume(params)

    def n_params(self, dim):
        return dim + dim * (dim + 1) // 2
