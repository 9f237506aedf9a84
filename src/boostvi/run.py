"""What a run is between two steps: all that it needs to go on, from here or from a file."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from boostvi import diagnostics
from boostvi._jit import float64, host_generator
from boostvi.boosting import Parts, State
from boostvi.history import History
from boostvi.mixture import Mixture
from boostvi.recipes import Recipe
from boostvi.target import Target, log_densities
from boostvi.wide import wide_draws

PROBE_TOLERANCE = 1e-6
"""Relative disagreement of ln p at stored draws beyond which a resumed run's target is another one."""


@dataclass(frozen=True)
class Run:
    """Everything a run is, after any whole number of steps: it continues from here to the same end."""

    recipe: Recipe
    parts: Parts
    seed: int
    state: State
    history: History
    best: Mixture  # of the step with the highest ELBO on fresh draws
    evals: int
    seconds: float


def best_step(history: History) -> int:
    """The step with the highest ELBO; of several without one (−inf), the one that sees most of the evidence."""
    return max(range(len(history.rows)), key=lambda i: (history.rows[i]["elbo"], history.rows[i]["log_evidence"]))


def evaluated(run: Run, target: Target, mixture: Mixture, t: int) -> tuple[diagnostics.Evaluation, int]:
    """The mixture after step t, judged by fresh draws of it, and wide ones for log Ẑ; and how many these were."""
    key, space = diagnostics.key_for(run.seed, "step", t), target.through(mixture.warp)
    n, rng = run.recipe.draws_behind_elbo(space), host_generator(diagnostics.key_for(run.seed, "step wide", t))
    draws, log_target, log_q = diagnostics.fresh_log_densities(space, mixture, key, n)
    wide = wide_draws(functools.partial(log_densities, space), mixture, draws, rng, -(-n // 2))
    return diagnostics.evaluate(log_target, log_q, wide), n + (0 if wide is None else -(-n // 2))


@float64
def check_target(argument: str, run: Run, target: Target) -> None:
    """Raise ValueError unless the run is one of this target."""
    if target.dim != run.state.mixture.dim:
        raise ValueError(f"{argument} is a fit of {run.state.mixture.dim} parameters, but target has {target.dim}")
    if not _is_same(run, target):
        raise ValueError(
            f"{argument} is a fit of another target: its log density differs at the draws that were stored"
        )


def _is_same(run: Run, target: Target) -> bool:
    """Whether ln p is what it was, at the draws of the table; or, where a refinement left none, whether the last step's
    fresh draws give the same ELBO."""
    stored = run.state.table
    filled = np.flatnonzero(stored.filled)
    if filled.size:
        known = np.asarray(stored.log_target[int(filled[0])])
        now = log_densities(target.through(run.state.mixture.warp), stored.draws[int(filled[0])])
    else:
        evaluation, _ = evaluated(run, target, run.state.mixture, int(run.state.t))
        known, now = np.array([run.history.rows[-1]["elbo"]]), np.array([evaluation.elbo])
    finite = np.isfinite(known)
    same = np.allclose(now[finite], known[finite], rtol=PROBE_TOLERANCE, atol=PROBE_TOLERANCE)
    return bool(same and np.array_equal(np.isfinite(now), finite))
