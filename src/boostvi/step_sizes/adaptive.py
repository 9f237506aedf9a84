"""Algorithm 2: approximate backtracking on the local curvature."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from boostvi._struct import check, check_count, look_up, static, struct
from boostvi.step_sizes.base import StepSize, check_draws, report
from boostvi.step_sizes.exact import Exact
from boostvi.step_sizes.predefined import Predefined, Zero

FORMS = ("curvature", "lipschitz")
DISTANCES = ("kl", "l2")
TINY = 1e-300
FALLBACKS = {"exact": Exact, "predefined": Predefined, "zero": Zero}


@struct
class Adaptive(StepSize):
    """The largest γ = min{gap/C, γ_max} whose quadratic bound holds: D(γ) ≤ C γ²/2 + 2ε_t.

    grow: τ > 1, the factor on C after a failed trial.
    shrink: 1/η in (0, 1), the factor on C before the first trial (the paper's C/η with η ≤ 1 could never shrink it).
    epsilon0: ε_t = ε₀/(t+1)² allows for Monte-Carlo error; on the table the identity behind the test is exact.
    max_trials: imax, the number of times C may grow before the rule gives up.
    initial: C₋₁ (or L₋₁).
    form: "curvature", or "lipschitz" with C = L·dist(s, q) as in the paper's experiments.
    distance: of the Lipschitz form: "kl" = KL(s‖q), or "l2" = ∫(s − q)².
    min_gamma: give up when gap/C falls below this (the authors' code: 0.01); a smaller γ_max is no reason to.
    fallback: after giving up: "exact" cannot lose on the table; "predefined" is the paper's; "zero" stays.
    draws: "table", or "fresh" draws at every trial as in the paper.
    """

    grow: float = 2.0
    shrink: float = 0.1
    epsilon0: float = 0.0
    max_trials: int = 10
    initial: float = 1.0
    min_gamma: float = 0.0
    form: str = static(default="curvature")
    distance: str = static(default="kl")
    fallback: StepSize | None = dataclasses.field(default="exact")  # type: ignore[assignment]
    draws: str = static(default="table")

    name = "adaptive"

    def __post_init__(self):
        check("grow", self.grow, lambda v: v > 1, "greater than 1")
        check("shrink", self.shrink, lambda v: 0 < v < 1, "between 0 and 1")
        check("epsilon0", self.epsilon0, lambda v: v >= 0, "not negative")
        check_count("max_trials", self.max_trials)
        check("initial", self.initial, lambda v: v > 0, "positive")
        check("min_gamma", self.min_gamma, lambda v: 0 <= v < 1, "in [0, 1)")
        for argument, value, choices in (("form", self.form, FORMS), ("distance", self.distance, DISTANCES)):
            if value not in choices:
                raise ValueError(f"{argument}={value!r} is not known; choose one of {', '.join(map(repr, choices))}")
        check_draws(self.draws)
        object.__setattr__(self, "fallback", look_up("fallback", self.fallback, FALLBACKS, StepSize))

    def init(self):
        return report(self.initial, jnp.nan, 0, 0)

    def __call__(self, line, state):
        unit = jnp.maximum(line.distance(self.distance), TINY) if self.form == "lipschitz" else jnp.ones(())
        slack = 2.0 * self.epsilon0 / (line.t + 1.0) ** 2

        def unclipped(estimate):
            return line.gap / (estimate * unit)

        def gamma_of(estimate):
            return jnp.minimum(unclipped(estimate), line.gamma_max)

        def holds(estimate, trial):
            gamma = gamma_of(estimate)
            return line.divergence(gamma, trial) <= estimate * unit * gamma**2 / 2.0 + slack

        def keep_trying(carry):
            estimate, accepted, trials = carry
            return ~accepted & (trials <= self.max_trials) & (unclipped(estimate) >= self.min_gamma)

        def backtrack(carry):
            estimate, _, trials = carry
            estimate = jnp.where(trials == 0, estimate, self.grow * estimate)
            return estimate, holds(estimate, trials), trials + 1

        promising = line.gap > 0
        first = self.shrink * state.estimate
        estimate, accepted, trials = jax.lax.while_loop(keep_trying, backtrack, (first, ~promising, jnp.asarray(0)))
        gamma = gamma_of(estimate)
        failed = ~(accepted & promising)
        # Where the rule gives up the estimate is kept as it stood before the step, and so is γ = 0.
        kept = jnp.where(failed, state.estimate, estimate)
        evals = (trials + 1) * line.value_cost  # the value at γ = 0 is computed even where nothing is tried
        curvature = jnp.where(failed, jnp.nan, estimate * unit)
        return jnp.where(failed, 0.0, gamma), report(kept, curvature, trials, evals), failed
