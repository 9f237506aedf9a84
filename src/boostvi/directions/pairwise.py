"""Pairwise steps: move weight from the worst component to the new one."""

from __future__ import annotations

import jax.numpy as jnp

from boostvi._struct import struct
from boostvi.directions.base import NO_SLOT, DirectionRule, Kind, make_direction, vertex, worst_active


@struct
class Pairwise(DirectionRule):
    """δ = e_s − e_v̄, γ_max = w_v̄ (appendix A)."""

    name = "pairwise"

    def __call__(self, gradients, weights, slot):
        worst = worst_active(gradients, weights)
        delta = vertex(slot, weights) - vertex(worst, weights)
        return make_direction(gradients, delta, weights[worst], Kind.PAIRWISE, jnp.where(worst == slot, NO_SLOT, worst))
