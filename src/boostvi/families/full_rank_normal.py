"""A Normal with any covariance."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm

from boostvi.families.base import Family, log_volume, standardise, to_raw, to_scale


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

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * (noise + jnp.tril(params["lower"], -1) @ noise)

    def log_prob(self, params, z):
        unit_lower = jnp.tril(params["lower"], -1) + jnp.eye(z.size)
        noise = solve_triangular(unit_lower, standardise(params, z), lower=True, unit_diagonal=True)
        return jnp.sum(norm.logpdf(noise)) - log_volume(params)

    def sample_and_log_prob(self, params, noise):
        return self.sample(params, noise), jnp.sum(norm.logpdf(noise)) - log_volume(params)

    def n_params(self, dim):
        return dim + dim * (dim + 1) // 2
