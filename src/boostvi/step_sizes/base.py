"""Line 5 of Algorithm 1: how far to go. A rule sees only the `Line`, so it is written once for all directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from boostvi._struct import struct
from boostvi.line import Line

DRAWS = ("table", "fresh")


@struct
class RuleState:
    """What a rule carries to the next step, and what it says about this one."""

    estimate: Float[Array, ""]  # carried: the curvature or Lipschitz estimate
    curvature: Float[Array, ""]  # C of the quadratic bound that was accepted; NaN for rules without one
    trials: Int[Array, ""]
    evals: Int[Array, ""]  # target evaluations paid for by the trials


class StepSize(ABC):
    """`rule(line, state) -> (gamma, state, failed)`. γ never exceeds line.gamma_max.

    When `failed`, the step is retaken along Frank-Wolfe's direction with `fallback`.
    """

    name: ClassVar[str]
    draws: str = "table"
    fallback: StepSize | None = None

    def init(self) -> RuleState:
        return report(jnp.nan, jnp.nan, 0, 0)

    @abstractmethod
    def __call__(self, line: Line, state: RuleState) -> tuple[Float[Array, ""], RuleState, Bool[Array, ""]]:
        """The step size, the state to carry on, and whether the rule gave up."""


def report(estimate, curvature, trials, evals) -> RuleState:
    return RuleState(
        jnp.asarray(estimate, jnp.float64),
        jnp.asarray(curvature, jnp.float64),
        jnp.asarray(trials, jnp.int64),
        jnp.asarray(evals, jnp.int64),
    )


def check_draws(draws: str) -> None:
    if draws not in DRAWS:
        raise ValueError(f"draws={draws!r} is not known; choose one of {', '.join(map(repr, DRAWS))}")
