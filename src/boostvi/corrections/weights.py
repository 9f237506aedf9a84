"""Fully corrective weights: the best weights of all components, solved on the table to a certified gap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from boostvi._struct import check, struct
from boostvi.corrections.base import WeightCorrection
from boostvi.table import TableEstimates, recenter

MAX_ITERATIONS = 80
"""Primal-dual iterations; 15 to 30 are usual."""
TO_BOUNDARY = 0.99
"""Share of the way to the boundary of the simplex that an iteration may go."""
ROUGH = 1e-2
"""Gap, in nats, of the first solve, which only finds where to centre ln p."""
CENTERING = 0.1
"""Each iteration aims at a complementarity of this times the current one."""


@struct
class FullyCorrective(WeightCorrection):
    """argmin F(w) over the simplex, by a primal-dual interior-point method on the table.

    tol: the Frank-Wolfe gap Σ w_k g_k − min_k g_k (≥ F(w) − min F, a certificate) at which it stops, in nats.
    prune: weights below this become exactly 0 and free their slots. A component that was dropped earlier and whose
    slot has not been reused may return: its draws are still in the table.
    """

    tol: float = 1e-8
    prune: float = 1e-6

    name = "fully-corrective"

    def __post_init__(self):
        check("tol", self.tol, lambda v: v > 0, "positive")
        check("prune", self.prune, lambda v: 0 <= v < 1, "in [0, 1)")

    def __call__(self, estimates, weights, filled):
        rough = solve(estimates, weights, filled, ROUGH)
        estimates = recenter(estimates, rough)  # the closer c is to F, the less noise reaches the weights
        solved = solve(estimates, rough, filled, self.tol)
        solved = jnp.where(solved < self.prune, 0.0, solved)
        solved = solved / jnp.sum(solved)
        better = estimates.objective(estimates.x(solved)) <= estimates.objective(estimates.x(weights))
        return jnp.where(better, solved, weights)


def certified_gap(
    estimates: TableEstimates, weights: Float[Array, " slots"], candidates: Bool[Array, " slots"]
) -> Float[Array, ""]:
    """Σ w_k g_k − min_k g_k over the candidates: an upper bound on F(w) − min F on the table."""
    gradients = estimates.gradients(weights)
    mean = jnp.sum(jnp.where(weights > 0, weights * gradients, 0.0))
    return mean - jnp.min(jnp.where(candidates, gradients, jnp.inf))


def solve(
    estimates: TableEstimates, weights: Float[Array, " slots"], candidates: Bool[Array, " slots"], tol: float
) -> Float[Array, " slots"]:
    """Solve ∇F − s + ν1 = 0, Σw = 1, w∘s = μ → 0 by Newton steps; slots outside `candidates` keep weight 0."""
    ratios = jnp.where(candidates[:, None], jnp.exp(estimates.log_ratios), 0.0)
    count = jnp.sum(candidates)
    potential = estimates.log_target_ratio - estimates.center

    def gradient(x):
        return ratios @ (estimates.share * (jnp.log(x) + potential))

    def gap_of(w, g):
        return jnp.sum(w * g) - jnp.min(jnp.where(candidates, g, jnp.inf))

    def density_ratio(w):
        return jnp.where(estimates.share > 0, w @ ratios, 1.0)

    def iterate(carry):
        w, s, _, i = carry
        x = density_ratio(w)
        g = gradient(x)
        mu = CENTERING * jnp.sum(w * s) / count
        half = ratios * jnp.sqrt(estimates.share / x)
        safe_w = jnp.where(candidates, w, 1.0)
        hessian = half @ half.T + jnp.diag(jnp.where(candidates, s / safe_w, 1.0))
        # Scaled by w on both sides the system stays well conditioned when weights span many orders of magnitude.
        scale = jnp.where(candidates, jnp.sqrt(safe_w / jnp.maximum(s, 1e-300)), 1.0)
        factor = jax.scipy.linalg.cho_factor(hessian * scale[:, None] * scale)
        right = jnp.where(candidates, mu / safe_w - g, 0.0)
        both = scale[:, None] * jnp.stack([right, candidates.astype(right.dtype)], axis=1)
        along, ones = (scale[:, None] * jax.scipy.linalg.cho_solve(factor, both)).T
        step = along - ones * (jnp.sum(along) / jnp.sum(ones))
        dual_step = jnp.where(candidates, (mu - s * step) / safe_w - s, 0.0)

        def reach(values, change):
            limit = jnp.where(candidates & (change < 0), -values / jnp.where(change < 0, change, -1.0), jnp.inf)
            return jnp.minimum(1.0, TO_BOUNDARY * jnp.min(limit))

        w = w + reach(w, step) * step
        w = jnp.where(candidates, w, 0.0)
        w = w / jnp.sum(w)
        s = s + reach(s, dual_step) * dual_step
        return w, s, gap_of(w, gradient(density_ratio(w))), i + 1

    def unfinished(carry):
        _, _, gap, i = carry
        return (gap > tol) & (i < MAX_ITERATIONS)

    start = jnp.where(candidates, 0.9 * weights + 0.1 / count, 0.0)
    start = start / jnp.sum(start)
    g = gradient(density_ratio(start))
    slack = jnp.where(candidates, g - jnp.min(jnp.where(candidates, g, jnp.inf)) + 1.0, 0.0)
    solution, *_ = jax.lax.while_loop(unfinished, iterate, (start, slack, jnp.asarray(jnp.inf), 0))
    return solution
