"""Model calls, counted where they happen: inside the log density.

A gradient executes the model once: the count sits in the primal computation, which differentiation does not repeat.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import boostvi as bv
from boostvi import boosting
from boostvi.corrections import FullyCorrective
from boostvi.corrections import base as corrections
from boostvi.directions import Away, BlendedPairwise
from boostvi.next_component import LBFGS, Adam, MixtureElbo, PlainVI, ResidualElbo
from boostvi.program import MAX_TILE
from boostvi.step_sizes import Adaptive, Exact, LineSearch, Predefined

N_DRAWS, ELBO_DRAWS = 60, 50
DIM = 2
RANDOM = {"recipe": "bbbvi", "family": "diagonal-normal", "first": "random", "next_component": "random"}
BUDGET = {"n_draws": N_DRAWS, "elbo_draws": ELBO_DRAWS}


class Counter:
    """Executions of the log density so far."""

    def __init__(self) -> None:
        self.calls = 0

    def record(self, z) -> np.ndarray:
        """Points, without the repetitions of the last one with which a tile that is not full is padded."""
        points = z.reshape(-1, DIM)
        others = np.flatnonzero((points != points[-1]).any(axis=1))
        padding = points.shape[0] - 2 - others[-1] if points.shape[0] == MAX_TILE and others.size else 0
        self.calls += points.shape[0] - padding
        return np.zeros(z.shape[:-1], dtype=np.float32)


@pytest.fixture(scope="module")
def counter() -> Counter:
    return Counter()


@pytest.fixture(scope="module")
def target(counter) -> bv.Target:
    """Two modes in two dimensions, counting its executions, those of a whole batch at once."""
    means = np.array([[-2.0, 0.0], [2.0, 1.0]])

    @jax.custom_jvp
    def counted_zero(z):
        # float32: JAX runs callbacks in a thread of its own, where the 64-bit scope does not reach
        where = jnp.clip(z, -1e6, 1e6).astype(jnp.float32)
        zero = jax.pure_callback(
            counter.record, jax.ShapeDtypeStruct((), jnp.float32), where, vmap_method="expand_dims"
        )
        return zero.astype(z.dtype)

    @counted_zero.defjvp
    def _(primals, tangents):
        return counted_zero(*primals), jnp.zeros(())

    def log_density(z):
        return jax.nn.logsumexp(jnp.sum(norm.logpdf(z, means, 0.8), axis=1)) + counted_zero(z)

    return bv.Target(log_density, DIM, lambda key: 2.0 * jax.random.normal(key, (DIM,)))


@pytest.fixture
def by_phase(monkeypatch, counter) -> list[dict[str, int]]:
    """Executions in each phase of each step."""
    steps: list[dict[str, int]] = []
    begin = boosting.Clock.__init__

    def new_step(clock, deadline=None):
        begin(clock, deadline)
        steps.append({"subproblem": 0, "step": 0, "correction": 0})

    timed = boosting.Clock.__call__

    def counted(clock, phase, function, *args):
        before = counter.calls
        result = timed(clock, phase, function, *args)
        steps[-1][phase] += counter.calls - before
        return result

    monkeypatch.setattr(boosting.Clock, "__init__", new_step)
    monkeypatch.setattr(boosting.Clock, "__call__", counted)
    return steps


def test_the_counter_counts(target, counter):
    with jax.enable_x64(True):
        before = counter.calls
        points = np.random.default_rng(0).standard_normal((7, DIM))
        jax.block_until_ready(jax.jit(target.log_density_of)(points))
        assert counter.calls - before == 7
        jax.block_until_ready(jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))(points[:5]))
        assert counter.calls - before == 7 + 5


@pytest.mark.parametrize(
    ("step_size", "direction", "correction"),
    [
        (Predefined(), "frank-wolfe", "none"),
        (Exact(), "frank-wolfe", "fully-corrective"),
        pytest.param(Exact(), "pairwise", "none", marks=pytest.mark.slow),
        pytest.param(LineSearch(), "away", "none", marks=pytest.mark.slow),
        (Adaptive(form="lipschitz"), "away", "none"),
        (Adaptive(), "pairwise", "fully-corrective"),
    ],
)
def test_on_the_table_only_the_new_component_calls_the_model(
    target, counter, by_phase, step_size, direction, correction
):
    before = counter.calls
    result = bv.fit(
        target, **RANDOM, **BUDGET, step_size=step_size, direction=direction, correction=correction, max_steps=5
    )
    executed = counter.calls - before
    assert len(by_phase) == 6
    for phases in by_phase:
        assert phases == {"subproblem": N_DRAWS, "step": 0, "correction": 0}
    if not isinstance(step_size, Predefined):
        assert result.history["trials"][1:].sum() >= 5  # there were trials to be free of calls
    assert result.evals == result.history["evals"][-1] == executed


@pytest.mark.parametrize(
    ("step_size", "direction"),
    [
        (LineSearch(draws="fresh"), "frank-wolfe"),
        pytest.param(LineSearch(draws="fresh"), "pairwise", marks=pytest.mark.slow),
        pytest.param(Adaptive(draws="fresh", initial=1e-3), "frank-wolfe", marks=pytest.mark.slow),
        (Adaptive(draws="fresh", initial=1e-3, form="lipschitz", fallback="predefined"), "away"),
    ],
)
def test_fresh_draws_are_paid_for_and_reported(target, counter, by_phase, step_size, direction):
    before = counter.calls
    result = bv.fit(target, **RANDOM, **BUDGET, step_size=step_size, direction=direction, max_steps=5)
    executed = counter.calls - before
    paid = np.array([phases["step"] for phases in by_phase[1:]])
    assert (paid >= 2 * N_DRAWS).all()  # the gap at least
    assert (result.history["trials"] > 2).any()  # and several trials in a step
    reported = np.diff(result.history["evals"]) - N_DRAWS - ELBO_DRAWS
    np.testing.assert_array_equal(reported, paid)
    assert result.evals == executed


@pytest.mark.parametrize(
    "parts",
    [
        {"first": PlainVI(Adam(steps=20, draws=3)), "next_component": ResidualElbo(Adam(steps=15, draws=2))},
        {
            "first": PlainVI(Adam(steps=20, draws=3), n_starts=3, selection_draws=11),
            "next_component": MixtureElbo(Adam(steps=10, draws=2), n_starts=4, selection_draws=7),
        },
        pytest.param(
            {
                "first": PlainVI(LBFGS(draws=13, max_iterations=5)),
                "next_component": ResidualElbo(LBFGS(draws=9, max_iterations=5), min_entropy=-1.0),
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["residual-adam", "mixture-adam", "residual-lbfgs"],
)
def test_reported_evaluations_are_the_executed_ones(target, counter, by_phase, parts):
    before = counter.calls
    result = bv.fit(target, **{**RANDOM, **parts}, **BUDGET, step_size="exact", max_steps=2)
    assert result.evals == counter.calls - before
    reported = np.diff(result.history["evals"]) - ELBO_DRAWS
    np.testing.assert_array_equal(reported, [phases["subproblem"] for phases in by_phase[1:]])


def test_growing_draws_are_counted(target, counter):
    before = counter.calls
    result = bv.fit(target, **RANDOM, **BUDGET, step_size="predefined", draws_growth=1.0, max_steps=2)
    assert result.evals == counter.calls - before
    # Twice the draws from step 1 on, where the first component is drawn anew as well.
    expected = [ELBO_DRAWS + 2 * N_DRAWS * 2, ELBO_DRAWS + 2 * N_DRAWS]
    np.testing.assert_array_equal(np.diff(result.history["evals"]), expected)


def test_blended_pairwise_skips_subproblems(target, counter, by_phase):
    """While weight moves among the components, a step costs nothing but the fresh draws of its ELBO."""
    before = counter.calls
    result = bv.fit(
        target, **RANDOM, **BUDGET, step_size="exact", direction=BlendedPairwise(patience=0.1), max_steps=12
    )
    assert result.evals == counter.calls - before
    kinds = result.history["kind"][1:]
    spent = np.diff(result.history["evals"])
    moved = np.isin(kinds, ["pairwise", "drop"])
    assert moved.any()
    assert not moved.all()
    np.testing.assert_array_equal(spent, np.where(moved, ELBO_DRAWS, ELBO_DRAWS + N_DRAWS))
    np.testing.assert_array_equal([sum(p.values()) for p in by_phase[1:]], np.where(moved, 0, N_DRAWS))


@pytest.mark.usefixtures("x64")
def test_the_away_search_and_the_correction_need_the_table_only(target, counter):
    """The same, at the level of the parts: neither takes a target at all."""
    gradients, weights = jnp.asarray([0.3, 1.0, -0.2]), jnp.asarray([0.5, 0.5, 0.0])
    before = counter.calls
    direction = jax.jit(lambda g, w: Away()(g, w, jnp.asarray(2)))(gradients, weights)
    assert int(direction.leaving) in (-1, 1)
    state = bv.fit(target, **RANDOM, **BUDGET, max_steps=2).run.state
    before = counter.calls
    corrections._correct(FullyCorrective(), state.table, state.mixture.weights)
    assert counter.calls == before
