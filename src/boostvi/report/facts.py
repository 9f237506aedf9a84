"""What a page says of a result, in words and numbers: the result's own, from fresh draws, never computed anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boostvi.storage.loaded import LoadedResult
from boostvi.summary import STATUS, advice

if TYPE_CHECKING:
    from boostvi.result import Result

NOT_JUDGED = "not judged"
MEANING = {
    "good": "Use the draws as draws of the posterior.",
    "usable": "Use the draws with importance weights; the mixture alone is a little off.",
    "unreliable": "Do not use the draws: they do not stand for the posterior.",
    NOT_JUDGED: "Nobody has judged this fit yet: do not rely on it.",
}


@dataclass(frozen=True)
class Number:
    """A key number as people read it, with what it means."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Facts:
    verdict: str
    meaning: str
    reasons: tuple[str, ...]
    advice: str
    numbers: tuple[Number, ...]


def is_judged(result: Result) -> bool:
    return not isinstance(result, LoadedResult) or "_judgement" in vars(result)


def has_model(result: Result) -> bool:
    return not isinstance(result, LoadedResult)


def facts(result: Result) -> Facts:
    if not is_judged(result):
        remedy = f"{result.target.remedy} gives the model, and with it a verdict"  # type: ignore[attr-defined]
        row = result.history.rows[result.best_step]
        reasons = ("the file holds a run that was not judged; the numbers are those of its best step",)
        numbers = (
            _elbo(row["elbo"], row["elbo_se"]),
            _kl(row["kl_estimate"], row["kl_se"]),
            *_run(result),
        )
        return Facts(NOT_JUDGED, MEANING[NOT_JUDGED], reasons, remedy, numbers)
    error = result.evaluation.log_evidence_se
    numbers = (
        _elbo(result.elbo, result.elbo_se),
        _kl(result.kl_estimate, result.kl_se),
        Number("log evidence", with_error(result.log_evidence, error), "log Z as the fresh draws see it"),
        Number("Pareto k̂", f"{result.khat:.2f}".replace("-", "−"), "below 0.7 importance weights can be trusted"),
        Number("effective draws", f"{result.ess:,.0f}", f"of {result.judging_draws:,} fresh draws, after reweighting"),
        *_run(result),
    )
    said = advice(result).removeprefix("next: ")
    return Facts(result.verdict, MEANING[result.verdict], result.reasons, said, numbers)


def _elbo(value: float, error: float) -> Number:
    return Number("ELBO", with_error(value, error), "evidence lower bound, in nats: higher is better")


def _kl(value: float, error: float) -> Number:
    note = "distance to the posterior, in nats, on the region the mixture visits; 0 is perfect"
    return Number("KL estimate", with_error(value, error, digits=3), note)


def _run(result: Result) -> tuple[Number, ...]:
    n, last = result.mixture.n_active, result.history.rows[-1]["step"]
    return (
        Number("components", str(n), f"of family {result.mixture.family_name}"),
        Number("boosting step", str(result.best_step), f"the best of {last}" if last else "the only one"),
        Number("target evaluations", f"{result.evals:,}", "calls of the log density or its gradient"),
        Number("time", duration(result.run.seconds), "wall clock, compilation included"),
        Number("stopped", result.status, STATUS[result.status]),
    )


def with_error(value: float, error: float, digits: int | None = None) -> str:
    """A number beside its standard error; what is not finite is said as it is."""
    shown = (f"{value:.4f}" if digits is None else f"{value:.{digits}g}").replace("-", "−", 1)
    return f"{shown} ± {error:.2g}" if np.isfinite(error) else shown


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
