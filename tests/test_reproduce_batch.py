"""Many runs in one program are the same runs as one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest

from boostvi import boosting
from boostvi._jit import trace_counts
from boostvi.boosting import Clock
from boostvi.directions.base import Kind
from boostvi.reproduce import batch, logistic, methods, programs

ITERATIONS = 20
SETTINGS = batch.Settings(steps=3, n_draws=40, elbo_draws=400)
RUNS = [({"tau": 2.0, "shrink": 0.5, "initial": 1.0}, 0), ({"tau": 5.0, "shrink": 0.1, "initial": 0.01}, 0),
        ({"tau": 2.0, "shrink": 0.5, "initial": 1.0}, 1)]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 3))
    return X, (X @ [1.0, -1.0, 0.5] + rng.logistic(size=60) > 0).astype(int)


@pytest.fixture(scope="module")
def problem(data):
    return logistic.problem(*data, np.arange(50), np.arange(50, 60))


@pytest.fixture(scope="module")
def batched(problem):
    compositions = [methods.parts("adaafw", config, ITERATIONS) for config, _ in RUNS]
    return batch.run(problem, compositions, [seed for _, seed in RUNS], SETTINGS)


@pytest.mark.parametrize("i", range(len(RUNS)))
def test_a_run_is_the_same_in_a_batch(problem, batched, i, x64):
    config, seed = RUNS[i]
    parts, clock = methods.parts("adaafw", config, ITERATIONS), Clock()
    key = jax.random.key(seed, impl=batch.KEYS)
    state, _ = boosting.start(parts, problem.target, problem.family, 4, SETTINGS.n_draws, key, clock)
    for row in batched[i][1:]:
        state, info = boosting.step(parts, problem.target, state, clock)
        assert row["kind"] == Kind(int(info.kind)).label
        assert row["n_active"] == state.mixture.n_active
        for name in ("gamma", "gap", "curvature"):
            assert row[name] == pytest.approx(float(getattr(info, name)), rel=1e-6, nan_ok=True)


def test_rows_say_what_the_protocol_asks_for(problem, batched):
    for run in batched:
        assert [row["step"] for row in run] == [0, 1, 2, 3]
        assert run[0]["kind"] == "init"
        for row in run:
            assert row["n_params"] == 6 * row["n_active"]
            assert row["train_ll"] <= row["train_lpd"] <= 0.0  # Jensen
            assert 0.0 <= row["test_auroc"] <= 1.0
            assert row["seconds_subproblem"] > 0
    seeds = [run[0]["elbo"] for run in batched]
    assert seeds[0] == seeds[1] != seeds[2]  # the first component depends on the seed alone


def test_other_numbers_compile_nothing(problem, batched):
    before = dict(trace_counts)
    compositions = [methods.parts("adaafw", {"tau": 1.1, "shrink": 0.9, "initial": 7.0}, ITERATIONS)] * 3
    again = batch.run(problem, compositions, [5, 6, 7], SETTINGS)
    assert dict(trace_counts) == before
    assert again[0][0]["elbo"] != batched[0][0]["elbo"]


def test_another_step_size_compiles_one_program(problem, batched):
    before = dict(trace_counts)
    parts = methods.parts("predefined", {}, ITERATIONS)
    rows = batch.run(problem, [parts] * 3, [0, 1, 2], SETTINGS)
    assert {name: n - before.get(name, 0) for name, n in trace_counts.items() if n != before.get(name, 0)} == {
        "move": 1
    }
    np.testing.assert_allclose([row["gamma"] for row in rows[0][1:]], [2 / 3, 2 / 4, 2 / 5])
    assert rows[0][0]["elbo"] == batched[0][0]["elbo"]


FOLD = (np.arange(60) + 1) % 3
HELD_OUT = np.arange(3)[:, None] == FOLD


def test_a_fold_has_no_say_in_its_own_run(data, x64):
    X, y = data
    folds, _ = logistic.held_out_problem(X, y, HELD_OUT)
    z = jax.numpy.array([0.3, -0.2, 1.0])
    for k in range(3):
        alone = logistic.target_of(X[k != FOLD], 2.0 * y[k != FOLD] - 1.0)
        own = programs.target_of(folds.target, folds.axes, k)
        assert float(own.log_density(z)) == pytest.approx(float(alone.log_density(z)), rel=1e-12)


def test_held_out_predictions_are_gathered_in_any_order(data):
    folds, latest = logistic.held_out_problem(*data, HELD_OUT)
    assert np.isnan(latest["logit"]).all()
    for step in range(2):
        for k in (2, 0, 1):
            folds.summarise({name: np.full(60, 10.0 * step + k) for name in ("logit", "lpd", "prob", "ll")}, k)
        np.testing.assert_array_equal(latest["logit"], 10.0 * step + FOLD)


def test_held_out_predictions_where_folds_grow_at_different_steps(data, monkeypatch):
    """States are sorted by capacity: the folds then come in another order."""
    monkeypatch.setattr(batch, "FIRST_CAPACITY", 2)
    monkeypatch.setattr(batch, "SMALL", 0)
    folds, latest = logistic.held_out_problem(*data, HELD_OUT)
    order = []

    def summarise(measured, i):
        order.append(i)
        return folds.summarise(measured, i)

    parts = [methods.parts("exact", {}, ITERATIONS)] * 3
    rows = batch.run(replace(folds, summarise=summarise), parts, range(3), replace(SETTINGS, steps=2))
    assert order[-3:] == [2, 0, 1]
    for k in range(3):
        assert latest["lpd"][k == FOLD].mean() == pytest.approx(rows[k][-1]["test_lpd"], rel=1e-12)


def test_intercept_has_a_wide_prior(data, x64):
    X, y = data
    target = logistic.target_of(logistic.with_intercept(X), 2.0 * y - 1.0, intercept=True)
    none = logistic.target_of(logistic.with_intercept(X) * 0.0, 2.0 * y - 1.0, intercept=True)
    at = jax.numpy.zeros(4).at[0].set(10.0)
    assert target.dim == 4
    assert float(none.log_density(at) - none.log_density(0.0 * at)) == pytest.approx(-0.5)


def test_a_shape_is_seen_once_alone_and_then_side_by_side():
    """Whoever comes first compiles; the others wait for nobody, have 64 bits too, and keep their order."""
    threads, meeting, alone = batch.Threads(ThreadPoolExecutor(2)), threading.Barrier(2), []

    def double(item):
        if threading.current_thread() is threading.main_thread():
            alone.append(item)
        else:
            meeting.wait(timeout=30)  # a thread that has nobody beside it ends in an error here
        return jax.numpy.asarray(2.0 * item).dtype, 2 * item

    with threads.pool, jax.enable_x64(True):
        found = threads.map(double, [10, 11, 20, 12], lambda item: item // 10)
        assert alone == [10, 20]
        assert [value for _, value in found] == [20, 22, 40, 24]
        assert [value for _, value in threads.map(double, [21, 13], lambda item: item // 10)] == [42, 26]
        assert {str(dtype) for dtype, _ in found} == {"float64"}
        with pytest.raises(ZeroDivisionError):
            threads.map(lambda item: 1 // item, [1, 0], lambda item: "all alike")
