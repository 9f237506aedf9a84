"""Independent Normal coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.stats import norm

from boostvi.families.base import Family, log_volume, standardise, to_scale


@dataclass(frozen=True)
class DiagonalNormal(Family):
    """∏ N(z_i; loc_i, scale_i²): 2d parameters."""

    name = "diagonal-normal"

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * noise

    def log_prob(self, params, z):
        return jnp.sum(norm.logpdf(standardise(params, z))) - log_volume(params)
