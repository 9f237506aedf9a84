"""The paper's line search: projected stochastic gradient descent on γ."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from boostvi._struct import check, check_count, static, struct
from boostvi.step_sizes.base import StepSize, check_draws, report


@struct
class LineSearch(StepSize):
    """γ ← clip(γ − b₀/(i+1)·φ'(γ), 0, γ_max) from γ = 2/(t+2).

    b0: first step of the descent; nothing but trial and error sets it, which is the paper's point against this rule.
    iterations, tol: at most that many, or until γ moves less than tol.
    draws: "table", or "fresh" draws at every iteration as in the paper.
    """

    b0: float = 0.1
    iterations: int = 25
    tol: float = 1e-6
    draws: str = static(default="table")

    name = "line-search"

    def __post_init__(self):
        check("b0", self.b0, lambda v: v > 0, "positive")
        check_count("iterations", self.iterations)
        check("tol", self.tol, lambda v: v >= 0, "not negative")
        check_draws(self.draws)

    def start(self, line):
        return jnp.minimum(2.0 / (line.t + 2.0), line.gamma_max)

    def descend(self, line, gamma, i):
        """γ after iteration i, and φ' where it was."""
        slope = line.slope(gamma, i)
        return jnp.clip(gamma - self.b0 / (i + 1.0) * slope, 0.0, line.gamma_max), slope

    def __call__(self, line, state):
        def iterate(carry):
            gamma, _, i = carry
            new, _ = self.descend(line, gamma, i)
            return new, jnp.abs(new - gamma), i + 1

        def moving(carry):
            _, moved, i = carry
            return (moved >= self.tol) & (i < self.iterations)

        start = self.start(line), jnp.asarray(jnp.inf), jnp.asarray(0)
        gamma, _, trials = jax.lax.while_loop(moving, iterate, start)
        return gamma, report(state.estimate, jnp.nan, trials, trials * line.slope_cost), jnp.asarray(False)
