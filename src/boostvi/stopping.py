"""When a run ends, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from boostvi.directions.base import Kind
from boostvi.history import History
from boostvi.run import Run
from boostvi.verdict import GOOD_KL

MIN_GAIN = 0.005
"""Nats; a smaller rise of the ELBO over `patience` steps does not count as improvement."""


@dataclass(frozen=True)
class Limits:
    """Limits of one call, which the recipe does not carry."""

    max_seconds: float | None
    max_evals: int | None
    gap_tol: float | None


def checked_limits(
    max_steps: Any, max_components: Any, max_seconds: Any, max_evals: Any, kl_tol: Any, gap_tol: Any
) -> Limits:
    for name, value, least in (
        ("max_steps", max_steps, 0),
        ("max_components", max_components, 1),
        ("max_evals", max_evals, 1),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least):
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    for name, value in (("max_seconds", max_seconds), ("kl_tol", kl_tol), ("gap_tol", gap_tol)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    return Limits(max_seconds, max_evals, gap_tol)


def reason_to_stop(run: Run, limits: Limits, seconds: float, has_more: bool = False) -> str | None:
    """The status of a run that is to end here, or None. has_more: it is known that there is more to be gained, so that
    only a limit can end it."""
    row, recipe = run.history.rows[-1], run.recipe
    if not has_more and (reason := _nothing_to_gain(run, limits)) is not None:
        return reason
    if row["step"] >= recipe.max_steps:
        return "max-steps"
    refined = not run.parts.next_component.exhaustible or _stalled(run.history, 1)  # else the components may still move
    if recipe.max_components is not None and row["n_active"] >= recipe.max_components and refined:
        return "max-components"
    if limits.max_seconds is not None and seconds + row["seconds_subproblem"] >= limits.max_seconds:
        return "max-seconds"  # the next search would end after it
    if limits.max_evals is not None and run.evals >= limits.max_evals:
        return "max-evals"
    if not has_more and recipe.patience is not None and _stalled(run.history, recipe.patience, _is_close(row)):
        return "no-improvement"
    return None


def _nothing_to_gain(run: Run, limits: Limits) -> str | None:
    row, recipe = run.history.rows[-1], run.recipe
    if (
        recipe.min_steps <= row["step"]
        and (run.parts.next_component.exhaustible is False or row["kind"] == Kind.REFINE.label)
        and recipe.kl_tol is not None
        and row["kl_estimate"] + 2.0 * row["kl_se"] < recipe.kl_tol
        and _polished(run)
    ):
        return "converged"
    gaps = [gap for gap in (row["gap_new"], row["gap_active"]) if not math.isnan(gap)]
    return "converged" if limits.gap_tol is not None and gaps and max(gaps) < limits.gap_tol else None


def _is_close(row: dict[str, Any]) -> bool:
    """Whether the KL is small enough for "good": then it is not worth while to be patient."""
    return row["kl_estimate"] + 2.0 * row["kl_se"] < GOOD_KL


def _polished(run: Run) -> bool:
    """Whether several components were refined, at least once, without making more of them."""
    rows = run.history.rows
    alone = not run.parts.next_component.exhaustible or rows[-1]["n_active"] == 1
    return alone or (len(rows) > 1 and rows[-2]["kl_estimate"] <= run.recipe.kl_tol)


def _stalled(history: History, patience: int, is_close: bool = False) -> bool:
    """Whether the last `patience` steps together raised the ELBO by less than its noise, or by next to nothing; close
    to the posterior, whether the last one raised it by next to nothing."""
    patience = 1 if is_close else patience
    if len(history.rows) <= patience:
        return False
    now, then = history.rows[-1], history.rows[-1 - patience]
    noise = 0.0 if is_close else 2.0 * math.hypot(now["elbo_se"], then["elbo_se"])
    return not now["elbo"] - then["elbo"] > max(noise, MIN_GAIN)
