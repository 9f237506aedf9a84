"""Nothing is compiled twice: traces are counted, and bounded by the doublings of the capacity."""

from __future__ import annotations

import math
from collections import Counter

import jax
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi._jit import trace_counts
from boostvi.corrections import FullyCorrective
from boostvi.directions import BlendedPairwise
from boostvi.fit import FIRST_CAPACITY
from boostvi.next_component import Adam, MixtureElbo, PlainVI, ResidualElbo
from boostvi.step_sizes import Adaptive, Exact, LineSearch, ShortStep

# Numbers of draws that no other file has: what that had compiled would not be counted here.
BUDGET = {"recipe": "bbbvi", "family": "diagonal-normal", "n_draws": 21, "elbo_draws": 23}
RANDOM = {"first": "random", "next_component": "random"}


def traced(run) -> Counter[str]:
    """Which functions `run` traced, and how often."""
    before = trace_counts.copy()
    run()
    return trace_counts - before


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return gaussian_mixture([0.5, 0.5], [[-2.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])


def climbing(adam: Adam) -> dict:
    return {
        "first": PlainVI(adam),
        "next_component": MixtureElbo(adam, n_starts=2, selection_draws=8),
        "step_size": "predefined",  # every component stays, so the capacity has to grow
    }


STEPS = 10
PARTS = climbing(Adam(steps=4, draws=2))


@pytest.fixture(scope="module")
def run(target) -> tuple[bv.Result, Counter[str]]:
    """Ten boosting steps, which double the capacity, and what they traced."""
    results = []
    counts = traced(lambda: results.append(bv.fit(target, **BUDGET, **PARTS, max_steps=STEPS)))
    return results[0], counts


class TestManySteps:
    def test_each_function_compiles_once_per_capacity(self, run):
        result, counts = run
        capacity = result.run.state.mixture.capacity
        assert result.history["n_active"][-1] == STEPS + 1
        assert capacity == 16
        allowed = 1 + int(math.log2(capacity / FIRST_CAPACITY))
        # q_0 is found by another objective, without a mixture in it: one more program for the optimiser.
        first = {"_climb": 1}
        assert {"_climb", "_best", "_insert", "_move", "_correct", "_fresh"} <= set(counts)
        too_often = {name: n for name, n in counts.items() if n > allowed + first.get(name, 0)}
        assert not too_often

    def test_what_knows_no_mixture_compiles_once(self, run):
        _, counts = run
        assert counts["_starting_points"] == counts["_tile"] == counts["_starting_components"] == 1

    def test_a_second_fit_compiles_nothing(self, run, target):
        assert not traced(lambda: bv.fit(target, **BUDGET, **PARTS, max_steps=STEPS, seed=5))

    def test_nor_does_another_schedule_of_adam(self, run, target):
        other = climbing(Adam(steps=4, draws=2, learning_rate=0.3, decay=0.5, decay_every=2))
        assert not traced(lambda: bv.fit(target, **BUDGET, **other, max_steps=3))

    def test_nor_does_a_resumed_one(self, run, target):
        half = bv.fit(target, **BUDGET, **PARTS, max_steps=3, seed=6)
        assert set(traced(lambda: bv.fit(target, resume=half, max_steps=STEPS))) <= {"_log_density_of"}
        again = bv.fit(target, **BUDGET, **PARTS, max_steps=3, seed=7)
        assert not traced(lambda: bv.fit(target, resume=again, max_steps=12))


@pytest.mark.parametrize(
    "make",
    [
        lambda v: {"step_size": Adaptive(1 + v, v, epsilon0=v, max_trials=int(9 * v), initial=v, min_gamma=v / 9)},
        lambda v: {"step_size": LineSearch(b0=v, iterations=int(9 * v) + 1, tol=v / 100)},
        lambda v: {"step_size": ShortStep(curvature=v)},
        lambda v: {"step_size": Exact(tol=v / 100), "correction": FullyCorrective(tol=v / 100, prune=v / 1e4)},
        lambda v: {"step_size": "exact", "direction": BlendedPairwise(patience=v)},
        lambda v: {"next_component": ResidualElbo(Adam(learning_rate=v, steps=3), min_entropy=-v)},
    ],
    ids=["adaptive", "line-search", "short-step", "corrective", "blended", "residual"],
)
def test_other_hyperparameters_compile_nothing(target, make):
    """They are arguments of the compiled programs: a grid over them compiles once."""
    bv.fit(target, **{**BUDGET, **RANDOM, **make(0.4)}, max_steps=2)
    assert not traced(lambda: bv.fit(target, **{**BUDGET, **RANDOM, **make(0.7)}, max_steps=2, seed=3))


def test_int_and_float_hyperparameters_share_a_program(target):
    bv.fit(target, **BUDGET, **RANDOM, step_size=ShortStep(curvature=2.0), max_steps=1)
    for same in (2, np.float64(2.0)):
        counts = traced(
            lambda v=same: bv.fit(target, **BUDGET, **RANDOM, step_size=ShortStep(curvature=v), max_steps=1)
        )
        assert counts.total() <= 1  # of the step itself, at the most


def test_judging_a_second_result_compiles_nothing(target):
    def look(seed):
        result = bv.fit(target, **BUDGET, **RANDOM, max_steps=0, seed=seed)
        result.mixture.sample(30)
        result.mixture.log_prob(np.zeros((5, 2)))
        return result.elbo, result.khat, result.sample(30), result.sample(30, importance=True), result.summary()

    look(0)
    assert not traced(lambda: look(1))


def test_drawing_in_the_models_own_space_traces_it_once():
    calls = []

    def constrain(z):
        calls.append(1)
        return {"a": z}

    plain = gaussian_mixture([1.0], [[0.0]], [[1.0]])
    target = bv.Target(plain.raw_log_density, 1, constrain=constrain)
    result = bv.fit(target, **BUDGET, **RANDOM, max_steps=0)
    for seed in range(3):
        result.sample(10, seed=seed)
    assert len(calls) == 1


def test_equal_targets_are_programs_of_their_own_and_one_target_is_one(target):
    """A target is known by its traced function: passing it through a pytree makes no new program."""
    bv.fit(target, **BUDGET, **RANDOM, max_steps=1)
    copied = jax.tree.map(lambda leaf: leaf, target)
    assert not traced(lambda: bv.fit(copied, **BUDGET, **RANDOM, max_steps=1))
    other = gaussian_mixture([0.4, 0.6], [[-2.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    assert traced(lambda: bv.fit(other, **BUDGET, **RANDOM, max_steps=1))["_insert"] == 1
