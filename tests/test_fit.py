"""Whole fits: every family and recipe, budgets, stopping, callbacks, progress, and the record of a run."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import boostvi as bv
from boostvi import table as tables
from boostvi.directions import DIRECTIONS, BlendedPairwise
from boostvi.families import FAMILIES
from boostvi.history import COLUMNS
from boostvi.next_component import Adam, MixtureElbo
from boostvi.recipes import RECIPES, Recipe
from boostvi.step_sizes import Adaptive, LineSearch

DIM = 2


def warped_mixture(weights, means, scales, bend, log_z) -> bv.Target:
    """A mixture of Normals in (z₀, z₁ − bend·(z₀² − 1)): the map keeps volumes, so the evidence is exp(log_z)."""
    means, scales = np.asarray(means), np.asarray(scales)
    # A scalar would be compiled in; arrays stay data.
    shape, offset = np.array([0.0, bend]), np.log(weights) + log_z

    def log_density(z):
        straight = z - shape * (z[0] ** 2 - 1.0)
        return jax.nn.logsumexp(offset + jnp.sum(norm.logpdf(straight, means, scales), axis=-1))

    return bv.Target(log_density, DIM, lambda key: 2.0 * jax.random.normal(key, (DIM,)))


def with_data_of(program: bv.Target, target: bv.Target) -> bv.Target:
    """`target`, sharing the compiled programs of another one of the same shape."""
    mine, theirs = jax.tree.leaves(target), jax.tree.leaves(program)
    assert [leaf.shape for leaf in mine] == [leaf.shape for leaf in theirs] != []
    return jax.tree.unflatten(jax.tree.structure(program), mine)


LOG_Z = {"two-modes": 0.0, "banana": 3.0, "far-below": -2000.0}
_TARGETS = {
    "two-modes": warped_mixture([0.4, 0.6], [[-2.5, 0.0], [2.5, 1.0]], [[0.8, 1.0], [1.0, 0.6]], 0.0, 0.0),
    "banana": warped_mixture([0.5, 0.5], [[0.0, 0.0], [0.0, 0.0]], [[1.5, 0.5], [1.5, 0.5]], 0.5, 3.0),
    "far-below": warped_mixture([0.8, 0.2], [[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5], [2.0, 2.0]], 0.0, -2000.0),
}
TARGETS = {name: with_data_of(_TARGETS["two-modes"], target) for name, target in _TARGETS.items()}

LEARNED = {
    "recipe": "bbbvi",
    "family": "diagonal-normal",
    "first": "laplace",
    "next_component": MixtureElbo(Adam(steps=150, draws=4)),
    "step_size": "exact",
}
RANDOM = {
    "recipe": "bbbvi",
    "family": "diagonal-normal",
    "first": "random",
    "next_component": "random",
    "n_draws": 100,
    "elbo_draws": 100,
}
TARGET = TARGETS["two-modes"]

NAN_ALLOWED = {"curvature"}  # of rules without one
NAN_AFTER_REFINING = {"gap", "gap_new", "gap_active", "gamma_max", "table_elbo"}  # no direction, and no table
NAN_AT_THE_START = {"gap", "gap_new", "gap_active", "curvature"}  # there is no direction yet


def assert_no_nan(result: bv.Result) -> None:
    for leaf in jax.tree.leaves((result.mixture, result.run.state.mixture, result.run.state.table)):
        assert not np.isnan(np.asarray(leaf)).any()
    for row in result.history.rows:
        allowed = NAN_AT_THE_START if row["step"] == 0 else NAN_ALLOWED
        if result.run.recipe.correction is None:
            allowed = allowed | NAN_AFTER_REFINING
        missing = {name for name, value in row.items() if isinstance(value, float) and np.isnan(value)}
        assert missing <= allowed, (row["step"], missing)
    for name in ("elbo", "elbo_se", "log_evidence", "kl_estimate", "kl_se", "khat", "ess"):
        assert not np.isnan(getattr(result, name)), name
    assert not np.isnan(result.sample(100)).any()


def assert_on_the_simplex(result: bv.Result) -> None:
    weights = result.mixture.weights
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


@jax.jit
def objective_terms(table, weights):
    estimates = tables.estimates(table, weights)
    x, log_x = estimates.x(weights), estimates.log_x(weights)
    return jnp.where(x > 0, x * (log_x + estimates.log_target_ratio - estimates.center), 0.0) - x


def table_error(state) -> float:
    """Standard error of F on the table, whose draws are n from each of its S components:
    F is the mean of S independent means, so its variance is Σ var_s/(n S²)."""
    with jax.enable_x64(True):
        terms = objective_terms(state.table, state.mixture.weights)
        by_slot = np.asarray(terms).reshape(state.table.log_target.shape)[np.asarray(state.table.filled)]
    return float(np.sqrt(by_slot.var(axis=1, ddof=1).sum() / state.table.n_draws) / by_slot.shape[0])


def assert_climbs(target: bv.Target, steps: int, **settings) -> bv.Result:
    """Fit step by step, and hold the ELBO on fresh draws against its past and against the table.

    The fresh ELBO and the table's are two independent estimates of one number (but for the weights having been fitted
    on the table), so their difference is held against the errors of both.
    """
    result = bv.fit(target, **settings, max_steps=0)
    for step in range(1, steps + 1):
        result = bv.fit(target, resume=result, max_steps=step)
        now, then = result.history.rows[-1], result.history.rows[-2]
        assert now["elbo"] > then["elbo"] - 4 * np.hypot(now["elbo_se"], then["elbo_se"])
        error = np.hypot(now["elbo_se"], table_error(result.run.state))
        assert abs(now["table_elbo"] - now["elbo"]) < 4 * error, (step, now["table_elbo"], now["elbo"], error)
    first, last = result.history.rows[0], result.history.rows[-1]
    assert last["elbo"] > first["elbo"] - 4 * np.hypot(first["elbo_se"], last["elbo_se"])
    return result


@pytest.mark.parametrize("name", TARGETS)
def test_the_targets_differ_in_their_data_only(name):
    with jax.enable_x64(True):
        found, expected = (jax.jit(of[name].log_density)(np.array([0.7, -0.4])) for of in (TARGETS, _TARGETS))
        assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert TARGETS[name]._program is TARGET._program


BY_DEFAULT = ("diagonal-normal", "full-rank-normal")
"""The other families take as long, and differ in what test_families.py looks at."""


class TestEveryFamily:
    @pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "two-modes" else []) for name in TARGETS]
    )
    @pytest.mark.parametrize(
        "family",
        [pytest.param(name, marks=[] if name in BY_DEFAULT else [pytest.mark.slow]) for name in FAMILIES],
    )
    def test_end_to_end(self, family, name):
        settings = {**LEARNED, "family": family, "correction": "fully-corrective"}
        result = assert_climbs(TARGETS[name], 3, **settings)
        assert_no_nan(result)
        assert_on_the_simplex(result)
        assert result.mixture.family.name == family
        assert result.elbo < LOG_Z[name] + 4 * result.elbo_se  # no ELBO exceeds the evidence
        assert result.elbo > LOG_Z[name] - 1.0 - 2 * result.elbo_se
        assert result.elbo > result.history["elbo"][0] - 4 * np.hypot(result.elbo_se, result.history["elbo_se"][0])


class TestExactSteps:
    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_never_lose(self, direction):
        result = assert_climbs(TARGET, 4, **LEARNED, direction=direction)
        assert_no_nan(result)
        assert result.elbo > result.history["elbo"][0]


class TestEveryRecipe:
    @pytest.fixture(scope="class", params=list(RECIPES))
    @classmethod
    def fitted(cls, request) -> tuple[str, bv.Result]:
        return request.param, bv.fit(TARGET, recipe=request.param, max_steps=2, seed=1)

    def test_end_to_end(self, fitted):
        name, result = fitted
        assert_no_nan(result)
        assert_on_the_simplex(result)
        assert result.status in ("max-steps", "converged")
        assert result.history["step"].tolist() == [0, 1, 2][: len(result.history.rows)]
        assert result.elbo < 4 * result.elbo_se + 1e-9  # log Z = 0; an exact fit has rounding errors only
        if name == "bbbvi":  # t counts from 1: 2/3, then 1/2
            np.testing.assert_allclose(result.history["gamma"], [1, 2 / 3, 1 / 2])
        if name == "auto":
            assert result.elbo > -0.02
            assert result.verdict == "good"

    def test_the_papers_are_the_papers(self):
        for name, recipe in RECIPES.items():
            if name != "auto":
                parts = recipe().parts(FAMILIES["diagonal-laplace"]())
                assert parts.first.optimiser == parts.next_component.optimiser == Adam()
                assert parts.next_component.entropy_weight == "constant"
                assert recipe().family == "diagonal-laplace"
        winners = {"adafw": (2.0, 0.01, 1.0), "adaafw": (5.0, 0.1, 1.0), "adapfw": (1.01, 0.99, 0.01)}
        for name, expected in winners.items():
            rule = RECIPES[name]().step_size
            assert (rule.grow, rule.shrink, rule.initial) == expected
            assert (rule.form, rule.distance, rule.max_trials, rule.min_gamma) == ("lipschitz", "kl", 10, 0.01)
            assert rule.fallback.name == "predefined"
        assert RECIPES["line-search"]().step_size.b0 == 0.05

    def test_a_recipe_of_ones_own(self):
        recipe = Recipe(first="random", next_component="random", family="diagonal-normal", max_steps=1, n_draws=100)
        assert bv.fit(TARGET, recipe=recipe).history["step"].tolist() == [0, 1]


class TestBudgets:
    @pytest.mark.parametrize("steps", [0, 1, 3])
    def test_steps(self, steps):
        result = bv.fit(TARGET, **RANDOM, max_steps=steps)
        assert result.status == "max-steps"
        assert result.history["step"].tolist() == list(range(steps + 1))

    @pytest.mark.parametrize("components", [1, 4])
    def test_components(self, components):
        result = bv.fit(TARGET, **RANDOM, max_components=components)
        assert result.status == "max-components"
        assert result.history["n_active"][-1] == components
        assert (result.history["n_active"][:-1] < components).all()

    def test_evaluations(self):
        result = bv.fit(TARGET, **RANDOM, max_evals=1000)
        assert result.status == "max-evals"
        assert result.history["evals"][-1] >= 1000 > result.history["evals"][-2]

    def test_seconds(self):
        result = bv.fit(TARGET, **RANDOM, max_seconds=1e-9)
        assert result.status == "max-seconds"
        assert result.history["step"].tolist() == [0]  # a step that has begun is finished
        assert bv.fit(TARGET, **RANDOM, max_steps=1, max_seconds=1e6).status == "max-steps"

    def test_numpy_integers(self):
        assert bv.fit(TARGET, **RANDOM, max_steps=np.int64(1), seed=np.int64(3)).status == "max-steps"


class TestStopping:
    def test_kl_tolerance(self):
        """Stops at the first step whose KL, plus twice its error, is below; every earlier one is not."""
        free = bv.fit(TARGET, **RANDOM, step_size="exact", max_steps=8)
        bound = free.history["kl_estimate"] + 2 * free.history["kl_se"]
        tolerance = float(np.median(bound)) + 1e-9
        expected = int(np.flatnonzero(bound < tolerance)[0])
        assert expected > 0
        result = bv.fit(TARGET, **RANDOM, step_size="exact", max_steps=8, kl_tol=tolerance)
        assert (result.status, result.history["step"][-1]) == ("converged", expected)

    def test_min_steps_come_first(self):
        recipe = dataclasses.replace(Recipe(), **{k: v for k, v in RANDOM.items() if k != "recipe"}, min_steps=3)
        result = bv.fit(TARGET, recipe=recipe, kl_tol=1e9)
        assert (result.status, result.history["step"][-1]) == ("converged", 3)

    def test_gap_tolerance(self):
        """Stops where neither a new component nor the old ones promise more."""
        free = bv.fit(TARGET, **RANDOM, step_size="exact", max_steps=8)
        promised = np.maximum(free.history["gap_new"], free.history["gap_active"])[1:]
        tolerance = float(np.median(promised)) + 1e-9
        expected = int(np.flatnonzero(promised < tolerance)[0]) + 1
        result = bv.fit(TARGET, **RANDOM, step_size="exact", max_steps=8, gap_tol=tolerance)
        assert (result.status, result.history["step"][-1]) == ("converged", expected)

    def test_no_improvement(self):
        """A run that stands still is ended after its patience."""
        settings = {k: v for k, v in RANDOM.items() if k != "recipe"}
        recipe = Recipe(**settings, step_size="zero", patience=3)
        result = bv.fit(TARGET, recipe=recipe)
        assert (result.status, result.history["step"][-1]) == ("no-improvement", 3)


class TestCallbacks:
    def test_see_every_step(self):
        seen: list[bv.Step] = []
        result = bv.fit(TARGET, **RANDOM, max_steps=3, callbacks=[seen.append])
        assert [step.step for step in seen] == [0, 1, 2, 3]
        for step in seen:
            assert isinstance(step, bv.Step)
            np.testing.assert_equal(step.row, result.history.rows[step.step])
            assert len(step.history.rows) == step.step + 1
            assert step.mixture.n_active == step.row["n_active"]
            assert np.isfinite(step.mixture.log_prob(np.zeros(DIM)))

    @pytest.mark.parametrize("stop", [0, 2])
    def test_stop_the_run(self, stop):
        result = bv.fit(TARGET, **RANDOM, callbacks=[lambda step: step.step == stop])
        assert (result.status, result.history["step"][-1]) == ("callback", stop)

    def test_all_are_called_and_one_is_enough(self):
        called = []
        result = bv.fit(TARGET, **RANDOM, callbacks=[lambda step: True, lambda step: called.append(step.step)])
        assert (result.status, called) == ("callback", [0])

    def test_cannot_change_the_record(self):
        result = bv.fit(TARGET, **RANDOM, max_steps=1, callbacks=[lambda step: step.row.clear()])
        assert set(result.history.rows[-1]) == set(COLUMNS)

    def test_what_they_raise_reaches_the_caller(self):
        def fail(step):
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            bv.fit(TARGET, **RANDOM, callbacks=[fail])


class TestProgress:
    def test_is_on_stderr(self, capfd):
        bv.fit(TARGET, **RANDOM, max_steps=2, progress=True)
        said = capfd.readouterr()
        assert said.out == ""
        for word in ("ELBO", "components", "KL", "2/2"):
            assert word in said.err

    @pytest.mark.parametrize("progress", [False, None])
    def test_is_silent_when_off_and_by_default_where_nobody_watches(self, capfd, progress):
        bv.fit(TARGET, **RANDOM, max_steps=2, progress=progress)
        assert capfd.readouterr() == ("", "")


class TestHistory:
    @pytest.fixture(scope="class")
    @classmethod
    def result(cls) -> bv.Result:
        return bv.fit(TARGET, **RANDOM, step_size=Adaptive(), direction="pairwise", max_steps=8)

    def test_is_complete(self, result):
        history = result.history
        assert list(history) == list(COLUMNS)
        assert len(history) == len(COLUMNS)
        for name in history:
            assert history[name].shape == (9,)
        promised = {
            "elbo", "elbo_se", "gap", "gamma", "gamma_max", "curvature", "trials", "kind", "n_active", "n_params",
            "evals", "seconds_subproblem", "seconds_step", "seconds_correction",
        }  # fmt: skip
        assert promised <= set(history)
        with pytest.raises(KeyError, match="'elbow' is not recorded; the columns are step, "):
            history["elbow"]

    def test_is_consistent(self, result):
        history = result.history
        assert history["kind"][0] == "init"
        assert set(history["kind"]) <= {"init", "frank-wolfe", "away", "pairwise", "drop", "fallback"}
        assert (history["gamma"] <= history["gamma_max"]).all()
        assert (history["gamma"] >= 0).all()
        np.testing.assert_array_equal(history["n_params"], 2 * DIM * history["n_active"])
        np.testing.assert_allclose(history["kl_estimate"], history["log_evidence"] - history["elbo"], atol=1e-9)
        assert (np.diff(history["evals"]) > 0).all()
        assert (np.diff(history["seconds"]) > 0).all()
        phases = [history[f"seconds_{phase}"] for phase in ("subproblem", "step", "correction", "evaluation")]
        assert all((phase >= 0).all() for phase in phases)
        assert sum(phases).sum() <= result.run.seconds
        adaptive = ~np.isin(history["kind"], ["init", "fallback"])
        np.testing.assert_array_equal(np.isfinite(history["curvature"]), adaptive)

    def test_a_pairwise_drop_keeps_the_count(self):
        result = bv.fit(TARGET, **RANDOM, step_size="exact", direction="pairwise", max_steps=12)
        dropped = np.flatnonzero(result.history["kind"] == "drop")
        assert dropped.size > 0
        np.testing.assert_array_equal(result.history["n_active"][dropped], result.history["n_active"][dropped - 1])

    def test_away_steps_never_add(self):
        result = bv.fit(TARGET, **RANDOM, step_size="exact", direction="away", max_steps=12)
        kinds, change = result.history["kind"][1:], np.diff(result.history["n_active"])
        assert np.isin(kinds, ["away", "drop"]).any()
        assert (change[kinds == "away"] == 0).all()
        assert (change[kinds == "drop"] == -1).all()
        assert (change[kinds == "frank-wolfe"] <= 1).all()


def test_blended_pairwise_moves_weight_before_it_pays_for_a_component():
    result = bv.fit(TARGET, **RANDOM, step_size="exact", direction=BlendedPairwise(patience=0.1), max_steps=12)
    history = result.history
    moved = np.isin(history["kind"][1:], ["pairwise", "drop"])
    assert moved.any()
    assert not moved.all()
    np.testing.assert_array_equal(np.diff(history["evals"]), np.where(moved, 100, 200))
    assert (np.diff(history["n_active"])[moved] <= 0).all()
    assert (np.diff(history["table_elbo"]) >= -1e-9)[moved].all()  # the same table: no worse on it


class TestBestStep:
    def test_the_result_is_the_best_mixture(self):
        """Predefined steps towards random components lose: the mixture returned is that of the best step."""
        seen = []
        result = bv.fit(TARGET, **RANDOM, max_steps=8, callbacks=[lambda step: seen.append(step.mixture)], seed=2)
        best = int(np.argmax(result.history["elbo"]))
        assert best < 8
        assert result.best_step == best
        np.testing.assert_array_equal(result.mixture.weights, seen[best].weights)
        np.testing.assert_array_equal(result.mixture.params["loc"], seen[best].params["loc"])

    def test_also_where_every_elbo_is_infinite(self):
        target = bv.Target(lambda z: jnp.where(z[0] > 0, -jnp.sum(z**2), -jnp.inf), DIM)
        seen = []
        result = bv.fit(target, **RANDOM, max_steps=3, callbacks=[lambda step: seen.append(step.mixture)])
        assert (result.history["elbo"] == -np.inf).all()
        np.testing.assert_array_equal(result.mixture.weights, seen[result.best_step].weights)


@pytest.fixture(scope="module")
def half_line() -> bv.Target:
    """No mass at z₀ < 0: many draws of any component have ln p = −inf."""
    return bv.Target(lambda z: jnp.where(z[0] > 0, -jnp.sum(z**2), -jnp.inf), DIM)


@pytest.mark.parametrize(
    ("step_size", "direction"),
    [
        pytest.param("exact", "frank-wolfe", marks=pytest.mark.slow),
        ("adaptive", "pairwise"),
        (LineSearch(draws="fresh"), "frank-wolfe"),
        (Adaptive(draws="fresh"), "away"),
    ],
)
def test_no_nan_where_the_target_has_no_mass(half_line, step_size, direction):
    result = bv.fit(half_line, **RANDOM, step_size=step_size, direction=direction, max_steps=5)
    assert_on_the_simplex(result)
    for name in ("gamma", "gamma_max", "table_elbo", "elbo", "n_active"):
        assert not np.isnan(np.asarray(result.history[name], dtype=float)).any(), name
    for leaf in jax.tree.leaves(result.run.state.mixture):
        assert not np.isnan(np.asarray(leaf)).any()
    assert result.verdict == "unreliable"
