"""Towards the new component."""

from __future__ import annotations

from boostvi._struct import struct
from boostvi.directions.base import DirectionRule, Kind, make_direction, vertex


@struct
class FrankWolfe(DirectionRule):
    """δ = e_s − w, γ_max = 1 (Algorithm 1 with v_t = q_t)."""

    name = "frank-wolfe"
    needs_gradients = False

    def __call__(self, gradients, weights, slot):
        return make_direction(gradients, vertex(slot, weights) - weights, 1.0, Kind.FRANK_WOLFE)
