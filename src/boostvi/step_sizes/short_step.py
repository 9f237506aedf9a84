"""The short step with a global curvature that the user knows."""

from __future__ import annotations

import jax.numpy as jnp

from boostvi._struct import check, struct
from boostvi.step_sizes.base import StepSize, report


@struct
class ShortStep(StepSize):
    """γ = min{gap/C, γ_max} with a given C (Locatello et al. 2018a)."""

    curvature: float = 1.0

    name = "short-step"

    def __post_init__(self):
        check("curvature", self.curvature, lambda v: v > 0, "positive")

    def __call__(self, line, state):
        gamma = jnp.clip(line.gap / self.curvature, 0.0, line.gamma_max)
        return gamma, report(state.estimate, self.curvature, 0, 0), jnp.asarray(False)
