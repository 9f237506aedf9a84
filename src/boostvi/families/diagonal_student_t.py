"""Independent Student-t coordinates: heavy tails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.stats import t

from boostvi.families.base import Family, log_volume, standardise, to_scale


@dataclass(frozen=True)
class DiagonalStudentT(Family):
    """∏ t_df((z_i − loc_i)/scale_i)/scale_i with fixed degrees of freedom."""

    df: float = 4.0
    name = "diagonal-student-t"

    def __post_init__(self):
        if isinstance(self.df, (bool, str)) or not self.df > 0:
            raise ValueError(f"df must be positive, got {self.df!r}")

    @property
    def unit_sd(self) -> float:  # type: ignore[override]
        return math.sqrt(self.df / (self.df - 2.0)) if self.df > 2.0 else 1.0

    def noise(self, key, shape):
        return jax.random.t(key, self.df, shape)

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * noise

    def log_prob(self, params, z):
        return jnp.sum(t.logpdf(standardise(params, z), self.df)) - log_volume(params)
