"""The record of a run: one row per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

COLUMNS = {
    "step": "boosting step; 0 is the first component",
    "kind": "init, frank-wolfe, away, pairwise, drop, fallback or refine",
    "elbo": "evidence lower bound from fresh draws",
    "elbo_se": "its standard error",
    "table_elbo": "the same on the table, which fitted the weights: above `elbo` by what was overfitted",
    "log_evidence": "log of the mean importance ratio, same draws",
    "kl_estimate": "log_evidence − elbo: KL to the posterior on the visited region",
    "kl_se": "its standard error",
    "gap": "−Σ δ_k g_k along the step's direction; NaN, as the next two, at step 0",
    "gap_new": "the same towards the new component",
    "gap_active": "max − min of g over the active components",
    "gamma": "step size taken",
    "gamma_max": "largest step size allowed",
    "curvature": "C of the accepted quadratic bound; NaN for rules without one, and after a fallback",
    "trials": "trials of the step-size rule",
    "n_active": "components with positive weight",
    "n_params": "numbers that describe the mixture: n_active × parameters per component, and those of its warp",
    "evals": "target evaluations since the start; a gradient counts as one",
    "nonfinite": "draws left out of gradients in this step, their gradient not being finite",
    "seconds": "wall-clock seconds since the start",
    "seconds_subproblem": "of this step: finding the component and evaluating its draws",
    "seconds_step": "of this step: direction, step size and update",
    "seconds_correction": "of this step: correction of the weights",
    "seconds_evaluation": "of this step: the fresh draws behind elbo and kl_estimate",
}


class History(Mapping[str, np.ndarray]):
    """A mapping from column name to array over steps; `rows` holds the same as a tuple of dictionaries."""

    def __init__(self, rows: tuple[dict[str, Any], ...] = ()):
        self.rows = rows

    def append(self, **row: Any) -> History:
        return History((*self.rows, {name: row[name] for name in COLUMNS}))

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in COLUMNS:
            raise KeyError(f"{name!r} is not recorded; the columns are {', '.join(COLUMNS)}")
        return np.array([row[name] for row in self.rows])

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)

    def __repr__(self) -> str:
        return f"History({len(self.rows)} steps: {', '.join(COLUMNS)})"
