"""Differences with their errors, and what they say about a claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boostvi.reproduce import compare
from boostvi.reproduce.compare import CONTRADICTED, HOLDS, NOT_SEEN, UNKNOWN, Difference


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (Difference(2.1, 1.0, None), HOLDS), (Difference(1.9, 1.0, None), NOT_SEEN),
        (Difference(-2.1, 1.0, None), CONTRADICTED), (Difference(1.0, math.nan, 1), UNKNOWN),
        (Difference(math.nan, 1.0, 9), UNKNOWN), (Difference(0.0, 0.0, 9), NOT_SEEN), (Difference(1.0, 0.0, 9), HOLDS),
        (Difference(4.2, 1.0, 3), NOT_SEEN), (Difference(4.4, 1.0, 3), HOLDS),  # t with 2 degrees: 4.30
    ],
)  # fmt: skip
def test_verdicts(difference, verdict):
    assert difference.verdict == verdict


def test_pairs_are_what_both_have():
    found = compare.paired({0: 1.0, 1: 2.0, 2: 9.0}, {1: 1.0, 0: 0.5, 7: 3.0})
    assert (found.mean, found.pairs) == (0.75, 2)
    assert found.se == pytest.approx(np.std([0.5, 1.0], ddof=1) / np.sqrt(2))
    assert compare.paired({0: 1.0}, {0: 2.0}).verdict == UNKNOWN
    assert compare.paired({0: 1.0, 1: math.nan}, {0: 2.0, 1: 2.0}).verdict == UNKNOWN


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(1).normal(size=20)
    found = compare.jackknife(lambda rows: float(np.mean(values[list(rows)])), range(20))
    assert found.mean == pytest.approx(values.mean())
    assert found.se == pytest.approx(values.std(ddof=1) / np.sqrt(20))
