"""Line 4 of Algorithm 1: where to move the weights.

A variant is a signed direction δ over the slots, its gap −Σ δ_k g_k, and the largest step that keeps the weights on
the simplex. The update is always w ← w + γ δ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from boostvi._struct import struct

NO_SLOT = -1


class Kind(IntEnum):
    """What a step did to the mixture."""

    INIT = 0
    FRANK_WOLFE = 1
    AWAY = 2
    PAIRWISE = 3
    DROP = 4  # an away or pairwise step taken to its end: a component left
    FALLBACK = 5  # the step-size rule gave up
    REFINE = 6  # nothing new was found: the components that are there were improved

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


@struct
class Direction:
    """δ with what a step along it needs to know."""

    delta: Float[Array, " slots"]
    gap: Float[Array, ""]
    gamma_max: Float[Array, ""]
    kind: Int[Array, ""]
    leaving: Int[Array, ""]  # the slot whose weight reaches 0 at gamma_max, or NO_SLOT


class DirectionRule(ABC):
    """`rule(gradients, weights, slot) -> Direction`, with g_k of every slot and the slot of the new component."""

    name: ClassVar[str]
    needs_gradients: ClassVar[bool] = True  # False: Σ δ_k g_k is enough, no slot is compared with another
    lazy: ClassVar[bool] = False  # True: `wants_component` is asked before every subproblem

    @abstractmethod
    def __call__(
        self, gradients: Float[Array, " slots"], weights: Float[Array, " slots"], slot: Int[Array, ""]
    ) -> Direction:
        """The direction at these weights."""

    def wants_component(
        self, gradients: Float[Array, " slots"], weights: Float[Array, " slots"], gain: Float[Array, ""]
    ) -> Bool[Array, ""]:
        """Whether to pay for a new component now; `gain` is the gap that the last one promised."""
        del gradients, weights, gain
        return jnp.asarray(True)


def vertex(slot: Int[Array, ""], weights: Float[Array, " slots"]) -> Float[Array, " slots"]:
    """e_slot."""
    return jnp.zeros_like(weights).at[slot].set(1.0)


def worst_active(gradients: Float[Array, " slots"], weights: Float[Array, " slots"]) -> Int[Array, ""]:
    """v̄ = argmax over the active components of E_v ln(q/p) (the paper prints p/q: a slip)."""
    return jnp.argmax(jnp.where(weights > 0, gradients, -jnp.inf))


def best_active(gradients: Float[Array, " slots"], weights: Float[Array, " slots"]) -> Int[Array, ""]:
    return jnp.argmin(jnp.where(weights > 0, gradients, jnp.inf))


def active_gap(gradients: Float[Array, " slots"], weights: Float[Array, " slots"]) -> Float[Array, ""]:
    """max g − min g over the active components: what shifting weight among them can still promise."""
    worst, best = worst_active(gradients, weights), best_active(gradients, weights)
    return gradients[worst] - gradients[best]


def make_direction(gradients, delta, gamma_max, kind: Kind, leaving=NO_SLOT) -> Direction:
    return Direction(
        delta=delta,
        gap=-jnp.sum(jnp.where(delta == 0.0, 0.0, delta * gradients)),
        gamma_max=jnp.asarray(gamma_max, dtype=delta.dtype),
        kind=jnp.asarray(int(kind)),
        leaving=jnp.asarray(leaving),
    )
