"""The minimiser of φ on the table."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from boostvi._struct import check, struct
from boostvi.step_sizes.base import StepSize, report

MAX_TRIALS = 100
"""Bisections alone reach machine precision in half of that."""


@struct
class Exact(StepSize):
    """argmin φ over [0, γ_max]: the zero of the increasing φ', by a safeguarded secant method.

    tol: width of the final bracket, relative to γ_max. φ is convex on the table, so the bracket is a certificate.
    """

    tol: float = 1e-10

    name = "exact"

    def __post_init__(self):
        check("tol", self.tol, lambda v: v > 0, "positive")

    def __call__(self, line, state):
        zero, end = jnp.zeros(()), line.gamma_max
        slope_end = line.slope(end)

        def narrow(carry):
            low, high, slope_low, slope_high, trials = carry
            secant = low - slope_low * (high - low) / (slope_high - slope_low)
            middle = 0.5 * (low + high)
            # Alternate with bisection: a secant that keeps hitting one side cannot stall the bracket.
            usable = jnp.isfinite(secant) & (secant > low) & (secant < high) & (trials % 2 == 0)
            trial = jnp.where(usable, secant, middle)
            slope = line.slope(trial)
            down = slope < 0
            return (
                jnp.where(down, trial, low),
                jnp.where(down, high, trial),
                jnp.where(down, slope, slope_low),
                jnp.where(down, slope_high, slope),
                trials + 1,
            )

        def wide(carry):
            low, high, slope_low, _, trials = carry
            return (high - low > self.tol * end) & (trials < MAX_TRIALS) & (slope_low < 0)

        low, high, _, _, trials = jax.lax.while_loop(wide, narrow, (zero, end, -line.gap, slope_end, jnp.asarray(1)))
        gamma = jnp.where(line.gap <= 0, 0.0, jnp.where(slope_end <= 0, end, 0.5 * (low + high)))
        return gamma, report(state.estimate, jnp.nan, trials, 0), jnp.asarray(False)
