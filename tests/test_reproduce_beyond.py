"""What is measured beside the sweeps, on data small enough for tests."""

from __future__ import annotations

import numpy as np
import pytest

from boostvi.reproduce import beyond
from boostvi.reproduce import data as datasets
from boostvi.reproduce.experiments import Size

SIZE = Size(steps=2, seeds=2, n_draws=40, iterations=30, elbo_draws=200)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((120, 2))
    y = (2.0 * X[:, 0] - 3.0 + rng.logistic(size=120) > 0).astype(int)  # rare positives: an intercept matters
    return datasets._split(X, y, "made for the test", False, {})


@pytest.mark.slow
def test_cross_validation_by_mixtures(data):
    """Held-out scores of all rows; without an intercept the base rate cannot be fitted, and the LPD shows it."""
    found = {
        intercept: beyond.cross_validate(data, "mixture-elbo", {}, 1, Size(2, 2, 100, 300, 200), intercept=intercept)
        for intercept in (False, True)
    }
    for scores in found.values():
        assert 0.5 < scores["auroc_pooled"] <= 1.0
        assert scores["lpd"] < 0.0
    assert found[True]["lpd"] > found[False]["lpd"] + 4.0 * found[True]["lpd_se"]
    assert found[True]["calibration"] < found[False]["calibration"]


@pytest.mark.slow
def test_auto_nuts_and_their_agreement(data):
    auto, nuts = beyond.fit_auto(data, None), beyond.nuts(data)
    assert auto["train_ll"] == pytest.approx(nuts["train_ll"], abs=0.01)
    assert auto["test_lpd"] == pytest.approx(nuts["test_lpd"], abs=0.01)
    assert nuts["draws"] == 2000


@pytest.mark.slow
def test_cross_validation_of_auto(data):
    scores = beyond.cross_validate_auto(data, intercept=True)
    assert 0.6 < scores["auroc_pooled"] <= 1.0
    assert -0.6 < scores["lpd"] < 0.0


@pytest.mark.slow
def test_single_runs_are_timed(data):
    rows = beyond.timing(data, SIZE, "full")
    assert {(row["method"], row["draws"]) for row in rows} == set(beyond.TIMED)
    evals = {(row["method"], row["draws"]): row["evals"] for row in rows}
    # On the table a step size costs no evaluation; the paper's way costs some at every trial.
    assert evals["adafw", "table"] == evals["predefined", "table"] == evals["line-search", "table"]
    assert evals["line-search", "fresh"] > evals["line-search", "table"]
    assert all(row["step"] > 0 for row in rows)
