"""Seconds of single runs, as a user would start them: step sizes and subproblems apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import boostvi as bv
from boostvi.reproduce import fits, logistic, methods
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size

TIMED = {
    "full": (
        ("adaafw", "table"), ("adapfw", "table"), ("adafw", "table"), ("predefined", "table"), ("line-search", "table"),
        ("adaafw", "fresh"), ("adapfw", "fresh"), ("adafw", "fresh"), ("line-search", "fresh"),
        ("adafw-exact-fallback", "table"), ("exact", "table"), ("fully-corrective", "table"), ("mixture-elbo", "table"),
    ),
    "quick": (("adafw", "table"), ("predefined", "table"), ("line-search", "table")),
}  # fmt: skip
"""Methods, and where their trials read: stored draws ("table"), or fresh ones at every trial as in the paper."""
REPEATS = {"full": 3, "quick": 2}
"""Timed runs of each method, in turn: of every step's times the least counts, which other work on the machine disturbs
least."""
STEPS = {"full": 15, "quick": 4}
"""Of each run: with fifty the runs would take an hour."""


def measure(data: Data, size: Size, mode: str, configs: Mapping[str, methods.Config]) -> list[dict[str, Any]]:
    """Compiled before the clock starts. configs: of each method. `repeats` has the step-size seconds of each
    repetition, for the error."""
    target = logistic.problem(data.X, data.y, data.train, data.test).target
    steps = STEPS[mode]
    seconds: dict[tuple[str, str], list[np.ndarray]] = {key: [] for key in TIMED[mode]}
    evals = {}
    for repeat in range(REPEATS[mode] + 1):
        for method, draws in TIMED[mode]:
            parts = methods.parts(method, configs[method], size.iterations, draws)
            history = fits.whole(target, recipe=recipe(parts, size.n_draws), max_steps=steps, seed=0).history
            evals[method, draws] = int(history["evals"][-1])
            if repeat > 0:  # the first one compiles
                both = [_seconds_step(history), history["seconds_subproblem"][1:]]
                seconds[method, draws].append(np.array(both))
    found = []
    for (method, draws), repeats in seconds.items():
        step, subproblem = np.min(repeats, axis=0).sum(axis=1)
        found.append(
            {"method": method, "draws": draws, "config": dict(configs[method]), "steps": steps, "step": float(step),
             "subproblem": float(subproblem), "repeats": [float(one[0].sum()) for one in repeats],
             "evals": evals[method, draws]}
        )  # fmt: skip
    return found


def _seconds_step(history: Any) -> np.ndarray:
    """A correction of the weights belongs to the step."""
    return history["seconds_step"][1:] + history["seconds_correction"][1:]


def recipe(parts: Any, n_draws: int) -> bv.Recipe:
    """A composition as `fit` takes it."""
    return bv.Recipe(
        first=parts.first, next_component=parts.next_component, direction=parts.direction, step_size=parts.step_size,
        correction=parts.correction, n_draws=n_draws,
    )  # fmt: skip
