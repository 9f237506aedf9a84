"""Theorem 1, for a run's own curvature estimates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def convergence_bound(
    history: Mapping[str, np.ndarray], *, initial_error: float, delta: float = 1.0, epsilon0: float = 0.0
) -> np.ndarray:
    """Theorem 1's bound on KL(q_t) − KL(q*) for t = 1, 2, …, unrolled correctly.

    With a_t = ½((t−2)δ+2)((t−1)δ+2), ε_i = ε₀/(i+1)² and C_i the curvature accepted in step i:

        (a_0/a_t)·E₀ + 2 C̄_t/(δ(tδ+1)) + (2/a_t)·Σ_{i<t} a_{i+1} ε_i,      C̄_t = (1/t)·Σ_{i<t} C_i

    (The paper averages C_t instead of C_i and unrolls ε₀/t² instead of ε₀/i²; its last term, 2ε₀/t, is too small.)

    history: of a run with adaptive Frank-Wolfe steps; its "curvature" must be finite, so no fallback may have happened.
    initial_error: E₀ = KL(q_0) minus the dual objective there; the Frank-Wolfe gap at q_0 is one upper bound.
    delta: δ in (0, 1], the share of the best possible gap that each subproblem reached.
    epsilon0: ε₀ of the run's rule.
    """
    if not 0 < delta <= 1:
        raise ValueError(f"delta must be in (0, 1], got {delta!r}")
    if not initial_error >= 0:
        raise ValueError(f"initial_error must not be negative, got {initial_error!r}")
    if not epsilon0 >= 0:
        raise ValueError(f"epsilon0 must not be negative, got {epsilon0!r}")
    steps = np.asarray(history["kind"]) != "init"
    curvature = np.asarray(history["curvature"], dtype=float)[steps]
    if not np.isfinite(curvature).all():
        bad = int(np.flatnonzero(~np.isfinite(curvature))[0]) + 1
        raise ValueError(
            f"step {bad} has no curvature estimate: the theorem holds for adaptive steps without fallback "
            "(step_size='adaptive')"
        )
    t = np.arange(1, curvature.size + 1)

    def a(i):
        return 0.5 * ((i - 2) * delta + 2) * ((i - 1) * delta + 2)

    mean_curvature = np.cumsum(curvature) / t
    slack = np.cumsum(a(t) * epsilon0 / t**2)  # a_{i+1} ε_i at i = t − 1
    return a(0) / a(t) * initial_error + 2 * mean_curvature / (delta * (t * delta + 1)) + 2 / a(t) * slack
