"""What is measured beside the sweeps, on data small enough for tests."""

from __future__ import annotations

import numpy as np
import pytest

from boostvi._struct import replace
from boostvi.next_component import ResidualElbo
from boostvi.reproduce import batch, beyond, entries, factorization, fits, held_out, logistic, methods, nuts, timing
from boostvi.reproduce import data as datasets
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.scores import calibration_error

SIZE = Size(steps=2, seeds=2, n_draws=40, iterations=30, elbo_draws=200)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((120, 2))
    y = (2.0 * X[:, 0] - 3.0 + rng.logistic(size=120) > 0).astype(int)  # rare positives: an intercept matters
    return datasets._split(X, y, "made for the test", False, {})


def perfect(data, found):
    """Predictions that are right for every held-out row, with probability 3/4."""
    sign = 2.0 * found.y - 1.0
    out = found.held_out.any(axis=0)
    values = {"logit": sign, "lpd": np.full(len(sign), np.log(0.75)), "prob": 0.5 + 0.25 * sign}
    return {name: np.where(out, value, np.nan) for name, value in values.items()}


@pytest.mark.parametrize("rows", [6000, 100])
def test_scores_of_folds_and_of_one_split(data, monkeypatch, rows):
    """Up to so many rows all of them are held out once; beyond, the test set is."""
    monkeypatch.setattr(held_out, "CV_ROWS", rows)
    found = held_out.splits(data)
    assert found.held_out.sum() == (120 if rows == 6000 else len(data.test))
    assert (found.kind, len(found.held_out)) == (("10 folds", 10) if rows == 6000 else ("one split", 1))
    scores = held_out.scores(found, perfect(data, found), [-0.5])
    assert scores["auroc"] == scores["auroc_pooled"] == 1.0
    assert scores["lpd"] == pytest.approx(np.log(0.75))
    assert scores["lpd_se"] == pytest.approx(0.0, abs=1e-12)
    prob, y = 0.25 + 0.5 * found.y, found.y
    out = found.held_out.any(axis=0)
    assert scores["calibration"] == pytest.approx(calibration_error(prob[out], y[out]))
    assert (scores["auroc_se"] == 0.0) == (rows == 6000)  # folds do not differ; few positives in order prove little


def test_one_split_leaves_out_rows_that_are_in_neither_part(data, monkeypatch):
    monkeypatch.setattr(held_out, "CV_ROWS", 100)
    index = {"train_index": np.arange(60), "test_index": np.arange(100, 120)}
    found = held_out.splits(datasets._split(data.X, data.y, "", True, index, standardise=False))
    np.testing.assert_array_equal(found.X, data.X[[*range(60), *range(100, 120)]])
    assert found.held_out.sum() == 20


def test_stored_draws_are_of_the_very_rows(data, tmp_path, monkeypatch):
    """Whatever the file is called, and not if its features were standardised anew."""
    draws = np.ones((7, 2))
    folder = tmp_path / "shared" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "here").mkdir()
    np.savez(folder / nuts.ROWS, X=2.0 * data.X, y=data.y)
    np.savez(folder / nuts.REFERENCE, draws=draws)
    np.savez(tmp_path / "mine.npz", X=2.0 * data.X, y=data.y)
    np.savez(tmp_path / nuts.ROWS, X=data.X, y=data.y)
    monkeypatch.chdir(tmp_path / "here")
    np.testing.assert_array_equal(nuts.reference(datasets.load(tmp_path / "mine.npz", standardise=False)), draws)
    assert nuts.reference(datasets.load(tmp_path / "mine.npz")) is None
    assert nuts.reference(datasets.load(tmp_path / nuts.ROWS, standardise=False)) is None


@pytest.mark.slow
def test_one_split_is_a_run_of_the_sweep(data, monkeypatch):
    """The same rows have a say, and the same are predicted."""
    monkeypatch.setattr(held_out, "CV_ROWS", 100)
    scores = held_out.of_method(data, "predefined", {}, 2, SIZE)
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    parts = [methods.parts("predefined", {}, SIZE.iterations)]
    ((*_, last),) = batch.run(problem, parts, [0], SIZE.settings)
    for name, of_sweep in (("auroc", "test_auroc"), ("lpd", "test_lpd"), ("train_ll", "train_ll")):
        assert scores[name] == pytest.approx(last[of_sweep], rel=1e-6)


@pytest.mark.slow
def test_held_out_scores_of_mixtures(data):
    """Without an intercept the base rate cannot be fitted, and the LPD shows it."""
    size = Size(2, 2, 100, 300, 200)
    found = {
        intercept: held_out.of_method(data, "mixture-elbo", {}, 1, size, intercept=intercept)
        for intercept in (False, True)
    }
    for scores in found.values():
        assert 0.5 < scores["auroc_pooled"] <= 1.0
        assert scores["lpd"] < 0.0
    assert found[True]["lpd"] > found[False]["lpd"] + 4.0 * found[True]["lpd_se"]
    assert found[True]["calibration"] < found[False]["calibration"]


@pytest.mark.slow
def test_auto_nuts_and_their_agreement(data):
    auto, chains = fits.default(logistic.problem(data.X, data.y, data.train, data.test)), nuts.fit(data)
    assert auto["train_ll"] == pytest.approx(chains["train_ll"], abs=0.01)
    assert auto["test_lpd"] == pytest.approx(chains["test_lpd"], abs=0.01)
    assert chains["draws"] == 2000
    assert chains["seconds"] > 0


@pytest.mark.slow
def test_held_out_scores_of_auto_and_nuts_on_one_split(data, monkeypatch):
    monkeypatch.setattr(held_out, "CV_ROWS", 100)
    auto, chains = held_out.of_auto(data, intercept=True), nuts.held_out_scores(data, intercept=True)
    assert auto["lpd"] == pytest.approx(chains["lpd"], abs=0.02)
    assert auto["auroc"] == pytest.approx(chains["auroc"], abs=0.1)


@pytest.mark.slow
def test_cross_validation_of_auto(data):
    scores = held_out.of_auto(data, intercept=True)
    assert 0.6 < scores["auroc_pooled"] <= 1.0
    assert -0.6 < scores["lpd"] < 0.0


@pytest.mark.slow
def test_single_runs_are_timed(data):
    rows = timing.measure(data, SIZE, "full", {name: method.winner for name, method in methods.METHODS.items()})
    assert {(row["method"], row["draws"]) for row in rows} == set(timing.TIMED["full"])
    evals = {(row["method"], row["draws"]): row["evals"] for row in rows}
    # On the table a step size costs no evaluation; the paper's way costs some at every trial.
    assert evals["adafw", "table"] == evals["predefined", "table"] == evals["line-search", "table"]
    assert evals["line-search", "fresh"] > evals["line-search", "table"]
    for row in rows:
        assert 0 < row["step"] <= min(row["repeats"])  # of every step the least time
        assert len(row["repeats"]) == timing.REPEATS["full"]


def test_an_interrupted_fit_is_no_result(data):
    """`fit` returns what it has; an experiment that kept it would show it for good."""

    def ctrl_c(step):
        raise KeyboardInterrupt

    target = logistic.problem(data.X, data.y, data.train, data.test).target
    with pytest.raises(KeyboardInterrupt):
        fits.whole(target, recipe="bbbvi", first="random", max_steps=2, callbacks=[ctrl_c])


def test_a_line_search_that_jumps_ends_at_either_end(data):
    """At 0, where plain VI is, or beyond the best; a small b₀ hardly moves, and it does not matter when it stops."""
    settled, jumps = (beyond.one_iteration_fewer(data, b0, 1, SIZE)["elbo"] for b0 in (1e-3, 50.0))
    assert settled["25"] == pytest.approx(settled["24"], abs=1e-3)
    assert jumps["25"] > jumps["24"] + 1.0


def test_the_entropy_weight_of_the_code_is_another_subproblem(data):
    found = beyond.falling_entropy_weight(data, {"predefined": {}}, SIZE)
    assert found["predefined"]["config"] == {}
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    for weight, same in (("inverse-sqrt", True), ("constant", False)):
        parts = methods.parts("predefined", {}, SIZE.iterations)
        other = ResidualElbo(parts.next_component.optimiser, entropy_weight=weight)
        rows = batch.run(problem, [replace(parts, next_component=other)] * SIZE.seeds, range(SIZE.seeds), SIZE.settings)
        assert np.allclose([run[-1]["elbo"] for run in rows], found["predefined"]["elbo"], rtol=1e-6) is same


@pytest.mark.slow
def test_auto_on_a_small_factorisation(monkeypatch):
    """Every hidden entry is the product of two factors: predicting 0 has the error of the entries themselves."""
    monkeypatch.setattr(entries, "ROWS", 8)
    monkeypatch.setattr(entries, "COLUMNS", 9)
    drawn = entries.drawn(0, rank=1)
    found = fits.default(factorization.problem(drawn), 20.0)
    assert 0.0 < found["test_mse"] < np.mean(drawn.values[drawn.hidden] ** 2)
    assert found["n_params"] > 0
