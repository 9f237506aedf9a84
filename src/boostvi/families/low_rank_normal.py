"""A Normal with a diagonal plus a few directions: large d at a price linear in d."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from boostvi.families.base import Family, log_volume, standardise, to_raw, to_scale
from boostvi.families.triangular import lower_inverse

SYMMETRY_BREAKING = 0.1
"""Size of the factors at the start: at 0 the ELBO is stationary in them and they would never move."""


@dataclass(frozen=True)
class LowRankNormal(Family):
    """N(loc, S (I + F Fᵀ) S), S = diag(scale), F of shape (d, rank)."""

    rank: int = 8
    name = "low-rank-normal"

    def __post_init__(self):
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"rank must be a positive integer, got {self.rank!r}")

    def noise(self, key, shape):
        return jax.random.normal(key, (*shape[:-1], shape[-1] + self.rank))

    def init(self, key, loc, scale):
        factor = SYMMETRY_BREAKING * jax.random.normal(key, (loc.size, self.rank))
        return super().init(key, loc, scale) | {"factor": factor}

    def from_gaussian(self, key, mean, covariance):
        sd = jnp.sqrt(jnp.diagonal(covariance))
        eigenvalues, vectors = jnp.linalg.eigh(covariance / (sd[:, None] * sd))
        top = min(self.rank, mean.size)
        rest = jnp.mean(eigenvalues[: mean.size - top]) if top < mean.size else eigenvalues[0]
        strength = jnp.sqrt(jnp.maximum(eigenvalues[mean.size - top :] - rest, 0.0))
        loadings = vectors[:, mean.size - top :] * strength
        diagonal = jnp.sqrt(jnp.maximum(1.0 - jnp.sum(loadings**2, axis=1), 0.05))  # of the correlation matrix
        factor = jnp.zeros((mean.size, self.rank)).at[:, :top].set(loadings / diagonal[:, None])
        noise = 1e-3 * SYMMETRY_BREAKING * jax.random.normal(key, factor.shape)
        return {"loc": mean, "raw_scale": to_raw(sd * diagonal), "factor": factor + noise}

    def freeze(self, params):
        if "inverse" in params:
            return params
        capacitance = jnp.eye(self.rank) + params["factor"].T @ params["factor"]
        return params | {"inverse": lower_inverse(jnp.linalg.cholesky(capacitance))}

    def sample(self, params, noise):
        dim = params["loc"].size
        return params["loc"] + to_scale(params["raw_scale"]) * (noise[:dim] + noise[dim:] @ params["factor"].T)

    def log_prob(self, params, z):
        # Woodbury and the determinant lemma: only a (rank, rank) matrix is factorised.
        y, inverse = standardise(params, z), self.freeze(params)["inverse"]
        along = y @ params["factor"] @ inverse.T
        log_det = -jnp.sum(jnp.log(jnp.diagonal(inverse)))
        return z.size * norm.logpdf(0.0) - 0.5 * (y @ y - along @ along) - log_det - log_volume(params)
