"""Independent Student-t coordinates: heavy tails."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.stats import t

from boostvi.families.base import Family, log_volume, standardise, to_scale
from boostvi.families.student_t import DegreesOfFreedom


@dataclass(frozen=True)
class DiagonalStudentT(DegreesOfFreedom, Family):  # type: ignore[override]
    """∏ t_df((z_i − loc_i)/scale_i)/scale_i with fixed degrees of freedom."""

    name = "diagonal-student-t"

    def noise(self, key, shape):
        return jax.random.t(key, self.df, shape)

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * noise

    def log_prob(self, params, z):
        return jnp.sum(t.logpdf(standardise(params, z), self.df)) - log_volume(params)
