"""Away steps: shrink the worst component when that promises more than adding the new one."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from boostvi._struct import struct
from boostvi.directions.base import DirectionRule, Kind, make_direction, vertex, worst_active
from boostvi.directions.frank_wolfe import FrankWolfe


@struct
class Away(DirectionRule):
    """δ = w − e_v̄ with γ_max = w_v̄/(1 − w_v̄) if its gap exceeds Frank-Wolfe's and w_v̄ < 1 (appendix A)."""

    name = "away"

    def __call__(self, gradients, weights, slot):
        towards = FrankWolfe()(gradients, weights, slot)
        worst = worst_active(gradients, weights)
        rest = 1.0 - weights[worst]
        alone = rest <= 0.0
        limit = weights[worst] / jnp.where(alone, 1.0, rest)
        away = make_direction(gradients, weights - vertex(worst, weights), limit, Kind.AWAY, worst)
        take_away = (away.gap > towards.gap) & ~alone
        return jax.tree.map(lambda a, b: jnp.where(take_away, a, b), away, towards)
