"""The step size that needs no estimate at all."""

from __future__ import annotations

import jax.numpy as jnp

from boostvi._struct import struct
from boostvi.step_sizes.base import StepSize, report


@struct
class Predefined(StepSize):
    """γ = min{2/(t+2), γ_max} with t = 1 at the first boosting step (Locatello et al. 2018b).

    The paper leaves γ_max out, and weights could turn negative.
    """

    name = "predefined"

    def __call__(self, line, state):
        gamma = jnp.minimum(2.0 / (line.t + 2.0), line.gamma_max)
        return gamma, report(state.estimate, jnp.nan, 0, 0), jnp.asarray(False)


@struct
class Zero(StepSize):
    """γ = 0: the authors' fallback in the experiment of Fig. 1 (left), which favours adaptive steps there."""

    name = "zero"

    def __call__(self, line, state):
        return jnp.zeros(()), report(state.estimate, jnp.nan, 0, 0), jnp.asarray(False)
