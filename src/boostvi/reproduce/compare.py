"""Differences with their standard errors, and what they say about a claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

ERRORS, CONFIDENCE = 2.0, 0.95
"""Standard errors beyond which a difference counts; more where they are of few pairs, as Student's t says."""
HOLDS, CONTRADICTED, NOT_SEEN, UNKNOWN = "holds", "contradicted", "no difference seen", "cannot be said"
NOT_CONTRADICTED = "not contradicted"
"""Of a claim that something is no less, where no difference is seen."""


@dataclass(frozen=True)
class Difference:
    """A mean, positive in the claimed direction, with its standard error: of so many pairs (NaN of a single one), or
    known otherwise (pairs: None)."""

    mean: float
    se: float
    pairs: int | None

    @property
    def errors(self) -> float:
        """Standard errors that it takes."""
        if self.pairs is None or self.pairs < 2:
            return ERRORS
        return max(ERRORS, float(student_t.ppf((1 + CONFIDENCE) / 2, self.pairs - 1)))

    @property
    def verdict(self) -> str:
        if not math.isfinite(self.mean) or math.isnan(self.se):
            return UNKNOWN
        if abs(self.mean) <= self.errors * self.se or self.mean == 0.0:
            return NOT_SEEN
        return HOLDS if self.mean > 0 else CONTRADICTED

    @property
    def no_less(self) -> str:
        """The verdict on the claim that it is not negative."""
        return NOT_CONTRADICTED if self.verdict == NOT_SEEN else self.verdict


def sd(values: Any) -> float:
    """Standard deviation of a sample; NaN of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def mean_and_se(values: Any) -> tuple[float, float]:
    if not len(values):
        return math.nan, math.nan
    return float(np.mean(values)), sd(values) / math.sqrt(len(values))


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Difference:
    """Mean of ours − theirs over what both have, such as seeds or folds; NaN if one of them failed there."""
    differences = np.array([ours[key] - theirs[key] for key in ours if key in theirs])
    return Difference(*mean_and_se(differences), len(differences))


def jackknife(statistic: Callable[[Sequence[Any]], float], items: Sequence[Any]) -> Difference:
    """A statistic of the items with its standard error, from leaving out one item after the other."""
    n, value = len(items), statistic(items)
    if n < 2:
        return Difference(value, math.nan, n)
    without = np.array([statistic([*items[:i], *items[i + 1 :]]) for i in range(n)])
    return Difference(value, float(np.sqrt((n - 1) * np.mean((without - without.mean()) ** 2))), n)
