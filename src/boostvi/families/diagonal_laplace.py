"""Independent Laplace coordinates: the paper's family for logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.stats import laplace

from boostvi.families.base import Family, log_volume, standardise, to_scale


@dataclass(frozen=True)
class DiagonalLaplace(Family):
    """∏ exp(−|z_i − loc_i|/scale_i) / (2 scale_i). `scale` is Laplace's own, not the standard deviation (√2 × it)."""

    name = "diagonal-laplace"
    unit_sd = math.sqrt(2.0)

    def noise(self, key, shape):
        return jax.random.laplace(key, shape)

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * noise

    def log_prob(self, params, z):
        return jnp.sum(laplace.logpdf(standardise(params, z))) - log_volume(params)
