"""Single fits beside the sweeps."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

import boostvi as bv
from boostvi.reproduce.batch import Problem

DRAWS = 1000
"""From which the default's predictions are made."""


def whole(target: bv.Target, **options: Any) -> bv.Result:
    """A fit that Ctrl-C ends like all else: the part that `fit` returns then is no result of an experiment."""
    result = bv.fit(target, progress=False, **options)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def default(problem: Problem, max_seconds: float | None = None) -> dict[str, Any]:
    """The default recipe, measured as a sweep measures its mixtures."""
    begin = time.perf_counter()
    result = whole(problem.target, seed=0, max_seconds=max_seconds)
    seconds = time.perf_counter() - begin
    draws = np.asarray(result.mixture.sample(DRAWS, seed=1))
    return {
        **problem.summarise(measured(problem, problem.target, draws), 0),
        "elbo": result.elbo, "elbo_se": result.elbo_se, "kl_estimate": result.kl_estimate, "khat": result.khat,
        "n_active": int(result.mixture.n_active),
        "n_params": int(result.history["n_params"][-1]), "seconds": seconds,
        "log_evidence": result.log_evidence, "verdict": result.verdict, "status": result.status,
        "family": result.mixture.family_name,
    }  # fmt: skip


def measured(problem: Problem, target: bv.Target, draws: np.ndarray) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, problem.measure(target, jax.numpy.asarray(draws)))
