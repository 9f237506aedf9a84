"""Blended pairwise: reweight while that pays, call the expensive subproblem only when it does not.

Tsuji, Tanaka & Pokutta (2022), "Pairwise conditional gradients without swap steps".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from boostvi._struct import check, struct
from boostvi.directions.base import DirectionRule, active_gap
from boostvi.directions.frank_wolfe import FrankWolfe
from boostvi.directions.pairwise import Pairwise


@struct
class BlendedPairwise(DirectionRule):
    """Pairwise among the active components while their gap exceeds `patience` × the last new component's gap.

    Only when it does not is a new component paid for; it enters by a Frank-Wolfe step.
    """

    patience: float = 0.5

    name = "blended-pairwise"
    lazy = True

    def __post_init__(self):
        check("patience", self.patience, lambda v: v > 0, "positive")

    def wants_component(self, gradients, weights, gain):
        return (gain <= 0.0) | (active_gap(gradients, weights) <= self.patience * gain)

    def __call__(self, gradients, weights, slot):
        is_new = weights[slot] == 0.0
        towards, between = (rule(gradients, weights, slot) for rule in (FrankWolfe(), Pairwise()))
        return jax.tree.map(lambda a, b: jnp.where(is_new, a, b), towards, between)
