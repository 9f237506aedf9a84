"""Same seed, same bytes; and a run that stops and goes on is the run that did not stop."""

from __future__ import annotations

import signal
import sys

import jax
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import boosting, diagnostics
from boostvi.fit import FIRST_CAPACITY
from boostvi.next_component import Adam, MixtureElbo, PlainVI
from boostvi.step_sizes import Adaptive

RANDOM = {
    "recipe": "bbbvi",
    "family": "diagonal-normal",
    "first": "random",
    "next_component": "random",
    "n_draws": 40,
    "elbo_draws": 40,
}
ADAM = Adam(steps=20, draws=2)
SETTINGS = {
    # every component stays, so the capacity doubles when 8 are there
    "predefined": {**RANDOM, "step_size": "predefined"},
    # carries a curvature estimate from step to step, and drops components
    "adaptive-pairwise": {**RANDOM, "step_size": Adaptive(max_trials=60), "direction": "pairwise"},
    # carries the gain of the last new component
    "blended": {**RANDOM, "step_size": "exact", "direction": "blended-pairwise"},
    # draws anew at steps 1 and 3
    "growing-draws": {**RANDOM, "step_size": "exact", "correction": "fully-corrective", "draws_growth": 1.0},
    # a subproblem that reads the table
    "mixture-elbo": {
        **RANDOM,
        "first": PlainVI(ADAM),
        "next_component": MixtureElbo(ADAM, n_starts=2, selection_draws=10),
        "step_size": "exact",
        "correction": "fully-corrective",
    },
}
STEPS = {"predefined": 10, "adaptive-pairwise": 12, "blended": 12, "growing-draws": 4, "mixture-elbo": 4}
BEFORE_DOUBLING = FIRST_CAPACITY - 1  # step 7 fills the eighth slot: the next one has to double
STOPS = {
    "predefined": [0, 1, 5, BEFORE_DOUBLING, BEFORE_DOUBLING + 1],
    "adaptive-pairwise": [1, 6],
    "blended": [1, 6],
    "growing-draws": [1, 2, 3],
    "mixture-elbo": [1, 2],
}


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return gaussian_mixture([0.3, 0.7], [[-2.0, 0.0], [2.0, 1.0]], [[1.0, 0.5], [0.7, 1.0]])


@pytest.fixture(scope="module")
def uninterrupted(target) -> dict[str, bv.Result]:
    return {name: bv.fit(target, **SETTINGS[name], max_steps=STEPS[name], seed=3) for name in SETTINGS}


def assert_same(one: bv.Result, other: bv.Result) -> None:
    """Equal to the last bit in everything but the clock."""
    for mine, theirs in ((one.mixture, other.mixture), (one.run.state.mixture, other.run.state.mixture)):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    for name in one.history:
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(one.history[name], other.history[name], err_msg=name)
    state, theirs = one.run.state, other.run.state
    for a, b in zip(jax.tree.leaves(state.table), jax.tree.leaves(theirs.table), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert (one.evals, one.status, one.best_step) == (other.evals, other.status, other.best_step)
    assert (one.elbo, one.elbo_se, one.khat) == (other.elbo, other.elbo_se, other.khat)
    assert one.sample(20, seed=1).tobytes() == other.sample(20, seed=1).tobytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_runs_do_what_they_are_here_for(uninterrupted, name):
    """The settings above exercise what their comments say."""
    result = uninterrupted[name]
    capacity = result.run.state.mixture.capacity
    kinds = set(result.history["kind"])
    match name:
        case "predefined":
            assert capacity == 2 * FIRST_CAPACITY
            assert result.history["n_active"][BEFORE_DOUBLING] == FIRST_CAPACITY
        case "adaptive-pairwise":
            assert {"pairwise", "drop"} & kinds
            assert np.isfinite(result.history["curvature"][1:]).any()
        case "blended":
            assert {"frank-wolfe", "pairwise"} <= kinds
        case "growing-draws":
            assert result.run.state.table.n_draws == 4 * 40
        case "mixture-elbo":
            assert result.history["n_active"][-1] > 1


@pytest.mark.parametrize(("name", "stop"), [(name, stop) for name, stops in STOPS.items() for stop in stops])
def test_stopped_and_resumed(target, uninterrupted, name, stop):
    part = bv.fit(target, **SETTINGS[name], max_steps=stop, seed=3)
    assert part.status == "max-steps"
    assert len(part.history.rows) == stop + 1
    whole = bv.fit(target, resume=part, max_steps=STEPS[name])
    assert_same(whole, uninterrupted[name])
    # The part is what it was: resuming takes a copy.
    assert len(part.history.rows) == stop + 1
    assert part.history["step"][-1] == stop


def test_resumed_step_by_step(target, uninterrupted):
    result = bv.fit(target, **SETTINGS["predefined"], max_steps=0, seed=3)
    for step in range(1, STEPS["predefined"] + 1):
        result = bv.fit(target, resume=result, max_steps=step)
    assert_same(result, uninterrupted["predefined"])


def test_resumed_twice_from_one_result(target, uninterrupted):
    part = bv.fit(target, **SETTINGS["predefined"], max_steps=5, seed=3)
    for _ in range(2):
        assert_same(bv.fit(target, resume=part, max_steps=STEPS["predefined"]), uninterrupted["predefined"])


@pytest.mark.parametrize("stop", [0, 4, BEFORE_DOUBLING])
@pytest.mark.parametrize("where", ["callback", "step", "evaluation"])
def test_interrupted_and_resumed(target, uninterrupted, monkeypatch, where, stop):
    """Ctrl-C after a step, inside one, or while it is evaluated: the completed steps are returned and go on."""
    callbacks, count = [], [0]

    def interrupt_after(step):
        if step.step == stop:
            raise KeyboardInterrupt

    def interrupt_inside(function):
        def wrapped(*args):
            count[0] += 1
            if count[0] > stop:
                raise KeyboardInterrupt
            return function(*args)

        return wrapped

    with monkeypatch.context() as patch:
        if where == "callback":
            callbacks = [interrupt_after]
        elif where == "step":
            patch.setattr(boosting, "step", interrupt_inside(boosting.step))
        else:
            count[0] = -1  # the first component is evaluated too
            patch.setattr(diagnostics, "evaluate", interrupt_inside(diagnostics.evaluate))
        part = bv.fit(target, **SETTINGS["predefined"], seed=3, callbacks=callbacks)
    assert part.status == "interrupted"
    assert part.history["step"].tolist() == list(range(stop + 1))
    assert part.mixture.n_active <= stop + 1
    assert np.isfinite(part.elbo)
    assert_same(bv.fit(target, resume=part, max_steps=STEPS["predefined"]), uninterrupted["predefined"])


@pytest.fixture
def heeds_ctrl_c():
    """A shell's background job ignores Ctrl-C: these tests may run in one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_an_interrupt_that_was_swallowed_still_counts(target, monkeypatch):
    """Where the garbage collector calls back, Python prints an exception and forgets it. The handler is put back."""

    class Collected:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def drop(step):
        if step.step == 4:
            Collected()

    forgotten = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: forgotten.append(event.exc_type))
    part = bv.fit(target, **SETTINGS["predefined"], seed=3, callbacks=[drop])
    assert forgotten == [KeyboardInterrupt]
    assert part.status == "interrupted"
    assert part.history["step"].tolist() == list(range(5))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupted_before_there_is_anything(target, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(boosting, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bv.fit(target, **SETTINGS["predefined"])


def test_stopped_by_a_callback_and_resumed(target, uninterrupted):
    part = bv.fit(target, **SETTINGS["predefined"], seed=3, callbacks=[lambda step: step.step == 3])
    assert part.status == "callback"
    assert_same(bv.fit(target, resume=part, max_steps=STEPS["predefined"]), uninterrupted["predefined"])


class TestBudgetsAreTotals:
    @pytest.fixture
    def part(self, target) -> bv.Result:
        return bv.fit(target, **SETTINGS["predefined"], max_steps=4, seed=3)

    def test_steps(self, target, part):
        assert bv.fit(target, resume=part, max_steps=4).history["step"][-1] == 4
        assert bv.fit(target, resume=part, max_steps=2).history["step"][-1] == 4  # a step cannot be taken back
        assert bv.fit(target, resume=part, max_steps=6).history["step"][-1] == 6

    def test_the_recipes_own_budget_goes_on(self, target, part):
        """Without a new budget the old one holds, and is used up."""
        assert bv.fit(target, resume=part).history["step"][-1] == 4

    def test_components(self, target, part):
        more = bv.fit(target, resume=part, max_steps=50, max_components=7)
        assert (more.status, more.history["n_active"][-1]) == ("max-components", 7)

    def test_evaluations(self, target, part):
        more = bv.fit(target, resume=part, max_steps=50, max_evals=part.evals + 1)
        assert (more.status, more.history["step"][-1]) == ("max-evals", 5)

    def test_seconds(self, target, part):
        more = bv.fit(target, resume=part, max_steps=50, max_seconds=part.run.seconds / 2)
        assert (more.status, more.history["step"][-1]) == ("max-seconds", 4)
        assert (np.diff(bv.fit(target, resume=part, max_steps=6).history["seconds"]) > 0).all()

    def test_what_a_resumed_run_was_asked_is_remembered(self, target, part):
        more = bv.fit(target, resume=part, max_steps=6)
        assert more.run.recipe.max_steps == 6
        assert bv.fit(target, resume=more).history["step"][-1] == 6


@pytest.mark.parametrize("name", ["predefined", "mixture-elbo"])
def test_same_seed_same_bytes(target, uninterrupted, name):
    assert_same(bv.fit(target, **SETTINGS[name], max_steps=STEPS[name], seed=3), uninterrupted[name])


def test_the_default_seed_is_zero(target):
    assert_same(
        bv.fit(target, **SETTINGS["predefined"], max_steps=1),
        bv.fit(target, **SETTINGS["predefined"], max_steps=1, seed=0),
    )


@pytest.mark.parametrize("seed", [0, 4, 2**31, 2**32 + 3, 2**63 - 1])
def test_another_seed_other_draws(target, uninterrupted, seed):
    other = bv.fit(target, **SETTINGS["predefined"], max_steps=2, seed=seed)
    one = uninterrupted["predefined"]
    assert not np.isin(other.history["elbo"], one.history["elbo"]).any()
    with jax.enable_x64(True):
        mine, theirs = (np.asarray(r.run.state.table.draws[0]) for r in (other, one))
    assert not np.isin(mine, theirs).any()


def test_seeds_that_agree_in_their_low_bits_differ(target):
    runs = [bv.fit(target, **SETTINGS["predefined"], max_steps=0, seed=seed) for seed in (3, 2**32 + 3)]
    assert runs[0].history["elbo"][0] != runs[1].history["elbo"][0]


def test_steps_use_draws_of_their_own(uninterrupted):
    """No draw of the table turns up twice, and no two steps are evaluated on the same draws."""
    with jax.enable_x64(True):
        state = uninterrupted["predefined"].run.state
        draws = np.asarray(state.table.draws)[np.asarray(state.table.filled)]
    locs = np.asarray(state.mixture.params["loc"])[: draws.shape[0]]
    noise = (draws - locs[:, None]) / draws.std(axis=1, keepdims=True)
    assert np.unique(np.round(noise.ravel(), 12)).size == noise.size
    assert np.unique(uninterrupted["predefined"].history["elbo"]).size == STEPS["predefined"] + 1
