"""Directions and the update: always on the simplex, never beyond γ_max, and what is dropped is exactly 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boostvi as bv
from boostvi.boosting import update
from boostvi.directions import DIRECTIONS, Away, BlendedPairwise, FrankWolfe, Kind, Pairwise
from boostvi.directions.base import NO_SLOT, active_gap, best_active, worst_active
from boostvi.step_sizes import Exact


def free_slot(weights):
    """The first slot of weight 0."""
    return jnp.argmin(weights > 0)


SLOTS = 8
RULES = {name: cls() for name, cls in DIRECTIONS.items()}


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


compiled = jax.jit(lambda rule, *args: rule(*args))
updated = jax.jit(update)


def at(rule, gradients, weights, slot):
    direction = compiled(rule, np.asarray(gradients, dtype=float), np.asarray(weights, dtype=float), slot)
    return jax.tree.map(np.asarray, direction)


# -- each rule against its definition, on numbers that can be checked by hand

WEIGHTS = [0.5, 0.3, 0.2, 0.0]
G = [1.0, 4.0, 2.0, 0.5]  # slot 3 is new; Σ w g = 2.1, the worst active component is slot 1


def test_frank_wolfe_by_hand():
    d = at(FrankWolfe(), G, WEIGHTS, 3)
    np.testing.assert_allclose(d.delta, [-0.5, -0.3, -0.2, 1.0])
    assert d.gap == pytest.approx(2.1 - 0.5)
    assert d.gamma_max == 1.0
    assert (d.kind, d.leaving) == (Kind.FRANK_WOLFE, NO_SLOT)


def test_away_by_hand():
    d = at(Away(), G, WEIGHTS, 3)  # 4 − 2.1 = 1.9 exceeds 1.6
    np.testing.assert_allclose(d.delta, [0.5, -0.7, 0.2, 0.0])
    assert d.gap == pytest.approx(1.9)
    assert d.gamma_max == pytest.approx(0.3 / 0.7)
    assert (d.kind, d.leaving) == (Kind.AWAY, 1)


def test_away_goes_towards_when_that_promises_more():
    d = at(Away(), [1.0, 4.0, 2.0, -3.0], WEIGHTS, 3)
    np.testing.assert_allclose(d.delta, [-0.5, -0.3, -0.2, 1.0])
    assert (d.kind, d.leaving, d.gamma_max) == (Kind.FRANK_WOLFE, NO_SLOT, 1.0)
    assert d.gap == pytest.approx(2.1 + 3.0)


def test_away_cannot_leave_the_only_component():
    d = at(Away(), [5.0, 7.0], [1.0, 0.0], 1)  # the new one is worse, but there is nothing to go away to
    assert d.kind == Kind.FRANK_WOLFE
    assert np.isfinite(d.delta).all()


def test_pairwise_by_hand():
    d = at(Pairwise(), G, WEIGHTS, 3)
    np.testing.assert_allclose(d.delta, [0.0, -1.0, 0.0, 1.0])
    assert d.gap == pytest.approx(4.0 - 0.5)
    assert d.gamma_max == 0.3
    assert (d.kind, d.leaving) == (Kind.PAIRWISE, 1)


def test_blended_pairwise_by_hand():
    new = at(BlendedPairwise(), G, WEIGHTS, 3)
    assert new.kind == Kind.FRANK_WOLFE
    np.testing.assert_allclose(new.delta, [-0.5, -0.3, -0.2, 1.0])
    old = at(BlendedPairwise(), G, WEIGHTS, 0)
    assert (old.kind, old.leaving) == (Kind.PAIRWISE, 1)
    np.testing.assert_allclose(old.delta, [1.0, -1.0, 0.0, 0.0])
    assert old.gap == pytest.approx(3.0)
    assert old.gamma_max == 0.3


def test_free_slots_do_not_count():
    """The worst and the best component are among the active ones, whatever g says of the others."""
    gradients, weights = jnp.asarray([9.0, 4.0, 2.0, -9.0]), jnp.asarray([0.0, 0.6, 0.4, 0.0])
    assert int(worst_active(gradients, weights)) == 1
    assert int(best_active(gradients, weights)) == 2
    assert float(active_gap(gradients, weights)) == 2.0


def test_unfilled_slots_may_have_no_gradient():
    for rule in RULES.values():
        d = at(rule, [1.0, 4.0, 2.0, 0.5, np.inf, np.nan], [*WEIGHTS, 0.0, 0.0], 3)
        assert np.isfinite(d.gap)
        assert np.isfinite(d.delta).all()


@pytest.mark.parametrize(("gain", "wanted"), [(7.0, True), (6.0, True), (5.0, False), (np.inf, True)])
def test_blended_pairwise_pays_when_reweighting_promises_less_than_half(gain, wanted):
    weights, gradients = jnp.asarray(WEIGHTS), jnp.asarray(G)  # the active gap is 3
    assert bool(BlendedPairwise().wants_component(gradients, weights, jnp.asarray(gain))) is wanted
    assert bool(BlendedPairwise(patience=0.25).wants_component(gradients, weights, jnp.asarray(2 * gain))) is wanted


@pytest.mark.parametrize("gain", [0.0, -0.1])
def test_blended_pairwise_asks_again_after_a_useless_component(gain):
    """A subproblem that promised nothing must not be the last one: no active gap falls below a negative number."""
    wants = BlendedPairwise().wants_component(jnp.asarray(G), jnp.asarray(WEIGHTS), jnp.asarray(gain))
    assert bool(wants)


def test_only_blended_pairwise_is_lazy():
    for name, rule in RULES.items():
        assert rule.lazy is (name == "blended-pairwise")
        if not rule.lazy:
            assert bool(rule.wants_component(jnp.asarray(G), jnp.asarray(WEIGHTS), jnp.zeros(())))


@pytest.mark.parametrize("patience", [0.0, -1.0])
def test_bad_patience(patience):
    with pytest.raises(ValueError, match="patience must be positive"):
        BlendedPairwise(patience=patience)


def test_rules_cannot_be_mistaken_for_each_other():
    """A jitted function looks its program up by the structure of its arguments: it must tell the rules apart."""
    structures = [jax.tree.structure(rule) for rule in RULES.values()]
    for i, one in enumerate(structures):
        assert [one == other for other in structures] == [i == j for j in range(len(structures))]


def test_names():
    assert set(DIRECTIONS) == {"frank-wolfe", "away", "pairwise", "blended-pairwise"}
    assert [kind.label for kind in Kind] == ["init", "frank-wolfe", "away", "pairwise", "drop", "fallback", "refine"]


# -- the update, over thousands of random directions


@jax.jit
def one_step(rules, gradients, weights, slot, fraction):
    """Each rule's direction, and the weights after a step of `fraction`·γ_max along it."""
    out = {}
    for name, rule in rules.items():
        direction = rule(gradients, weights, slot)
        gamma = fraction * direction.gamma_max
        new, dropped = update(weights, direction, gamma)
        out[name] = (direction, gamma, new, dropped, free_slot(new))
    return out


many_steps = jax.jit(jax.vmap(one_step.__wrapped__, in_axes=(None, 0, 0, 0, 0)))


def check_step(name, weights, slot, fraction, direction, gamma, new, dropped, free):
    """What holds for every step from weights on the simplex."""
    active, after = np.count_nonzero(weights), np.count_nonzero(new)
    assert np.all(new >= 0.0)
    assert np.isfinite(new).all()
    assert new.sum() == pytest.approx(1.0, abs=1e-14)
    assert 0.0 <= gamma <= direction.gamma_max
    assert direction.delta.sum() == pytest.approx(0.0, abs=1e-14)
    # γ_max is the end: nothing is negative there, and what leaves is at 0.
    end = weights + direction.gamma_max * direction.delta
    assert end.min() > -1e-14 * max(1.0, direction.gamma_max)
    if direction.leaving != NO_SLOT:
        assert abs(end[direction.leaving]) < 1e-14 * max(1.0, direction.gamma_max)
        assert weights[direction.leaving] > 0.0
    # Along the way the weights are w + γδ.
    if not dropped:
        np.testing.assert_allclose(new, weights + gamma * direction.delta, rtol=0, atol=1e-13 * max(1.0, gamma))
    assert bool(dropped) is bool(direction.leaving != NO_SLOT and fraction == 1.0)
    if dropped:
        assert new[direction.leaving] == 0.0
    # A slot that nobody touched stays free, and the first free one is the next to be used.
    untouched = (weights == 0.0) & (np.arange(weights.size) != slot)
    assert np.all(new[untouched] == 0.0)
    if after < weights.size:
        assert free == np.flatnonzero(new == 0.0)[0]
    is_new = weights[slot] == 0.0
    if direction.kind == Kind.AWAY:
        assert new[slot] == 0.0 or not is_new  # an away step never adds a component
        assert after <= active - dropped
    if direction.kind == Kind.PAIRWISE and is_new and dropped:
        assert after == active  # one in, one out
    if name == "blended-pairwise":
        assert direction.kind == (Kind.FRANK_WOLFE if is_new else Kind.PAIRWISE)


@pytest.mark.slow
def test_simplex_over_thousands_of_random_directions():
    rng, n = np.random.default_rng(0), 5000
    weights = rng.gamma(rng.choice([0.02, 0.3, 2.0], size=(n, 1)) * np.ones(SLOTS)) + 1e-300
    weights[rng.random((n, SLOTS)) < 0.4] = 0.0
    weights[:, 0] += weights.sum(axis=1) == 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    weights[:500] = np.eye(SLOTS)[rng.integers(SLOTS, size=500)]
    gradients = rng.standard_cauchy((n, SLOTS)) - rng.choice([0.0, 2000.0], size=(n, 1))
    free = np.argmin(weights > 0, axis=1)
    slots = np.where(rng.random(n) < 0.7, free, rng.integers(SLOTS, size=n))
    # The component that a pairwise step moves to is never the worst one: `step` picks a new one or the best one.
    worst = np.argmax(np.where(weights > 0, gradients, -np.inf), axis=1)
    slots = np.where(slots == worst, np.where(weights[np.arange(n), free] == 0.0, free, (worst + 1) % SLOTS), slots)
    fractions = rng.choice([0.0, 1e-9, 0.3, 0.999, 1.0], size=n)
    results = jax.tree.map(np.asarray, many_steps(RULES, *map(jnp.asarray, (gradients, weights, slots, fractions))))
    kinds = set()
    for name, (direction, gamma, new, dropped, after) in results.items():
        for i in range(n):
            one = jax.tree.map(lambda leaf, i=i: leaf[i], direction)
            check_step(name, weights[i], slots[i], fractions[i], one, gamma[i], new[i], dropped[i], after[i])
            kinds.add((name, int(one.kind), bool(dropped[i])))
    assert {("away", Kind.AWAY, True), ("away", Kind.FRANK_WOLFE, False), ("pairwise", Kind.PAIRWISE, True)} <= kinds


@st.composite
def situations(draw):
    """Weights with free slots and sizes down to 1e-12, any gradients, and a slot that is new or the best active one."""
    size = st.one_of(st.just(0.0), st.floats(1e-12, 1.0))
    raw = np.array(draw(st.lists(size, min_size=SLOTS, max_size=SLOTS)))
    raw[draw(st.integers(0, SLOTS - 1))] += 0.5
    weights = raw / raw.sum()
    number = st.floats(-1e4, 1e4, allow_subnormal=False)
    gradients = np.array(draw(st.lists(number, min_size=SLOTS, max_size=SLOTS, unique=True)))
    best = int(np.argmin(np.where(weights > 0, gradients, np.inf)))
    free = np.flatnonzero(weights == 0.0)
    several = np.count_nonzero(weights) > 1
    slot = best if several and (free.size == 0 or draw(st.booleans())) else int(free[0])
    return gradients, weights, slot, draw(st.one_of(st.just(1.0), st.floats(0.0, 0.99)))


@settings(max_examples=500, deadline=None, derandomize=True)
@given(situations())
def test_simplex_whatever_the_situation(situation):
    gradients, weights, slot, fraction = situation
    for name, result in jax.tree.map(np.asarray, one_step(RULES, gradients, weights, slot, fraction)).items():
        check_step(name, weights, slot, fraction, *result)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
@pytest.mark.parametrize("weights", [[1.0, 0.0], [0.5, 0.5]])
def test_pairwise_between_a_component_and_itself_moves_nothing(weights, fraction):
    """All active components equally good: the best and the worst are the same slot, and δ = 0."""
    direction = at(Pairwise(), np.ones(2), weights, 0)
    assert np.all(direction.delta == 0.0)
    new, dropped = updated(np.asarray(weights), direction, fraction * direction.gamma_max)
    np.testing.assert_array_equal(new, weights)
    assert not dropped


def test_a_dropped_slot_is_used_again():
    """Pairwise drops, one after another, never need more than one slot beside the active ones."""
    rng = np.random.default_rng(1)
    weights = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    for _ in range(20):
        slot = int(np.argmin(weights > 0))
        assert weights[slot] == 0.0
        gradients = rng.standard_normal(5)
        gradients[slot] = -5.0
        direction = at(Pairwise(), gradients, weights, slot)
        weights, dropped = map(np.asarray, updated(weights, direction, direction.gamma_max))
        assert dropped
        assert np.count_nonzero(weights) == 4
        assert np.argmin(weights > 0) == direction.leaving


# -- the same in a run


@pytest.fixture(scope="module")
def runs(double, bimodal):
    """Random components, so that many are worth dropping; exact steps."""
    seen = {}
    for name in DIRECTIONS:
        mixtures = []
        result = bv.fit(
            bimodal, recipe="bbbvi", family="diagonal-normal", first="random", next_component="random", direction=name,
            step_size=Exact(), n_draws=100, elbo_draws=100, max_steps=14, progress=False, seed=3,
            callbacks=[lambda step, mixtures=mixtures: mixtures.append(step.mixture)],
        )  # fmt: skip
        seen[name] = (result, mixtures)
    return seen


@pytest.mark.parametrize("name", list(DIRECTIONS))
def test_counts_in_a_run(runs, name):
    result, mixtures = runs[name]
    history = result.history
    kinds, active = history["kind"], history["n_active"]
    assert np.all(history["gamma"] <= history["gamma_max"])
    assert np.all(history["gamma"] >= 0.0)
    for mixture, count in zip(mixtures, active, strict=True):
        assert mixture.weights.size == count
        assert mixture.weights.min() > 0.0
        assert mixture.weights.sum() == pytest.approx(1.0, abs=1e-12)
    for kind, before, after, gamma in zip(kinds[1:], active, active[1:], history["gamma"][1:], strict=False):
        delta = after - before
        if kind == "away":
            assert delta == 0
        elif kind == "drop":
            assert delta == (-1 if name in ("away", "blended-pairwise") else 0)
        elif kind == "pairwise":
            assert delta == (0 if name == "blended-pairwise" or gamma == 0.0 else 1)
        elif gamma < 1.0:
            assert kind == "frank-wolfe"
            assert delta == (0 if gamma == 0.0 else 1)
        else:
            assert after == 1  # all the weight went to the new component
    # Slots that were freed are filled again before any is added: capacity doubles only when all are active.
    assert result.run.state.mixture.capacity == max(8, 2 ** int(np.ceil(np.log2(active[:-1].max() + 1))))


def test_runs_take_the_steps_they_are_named_after(runs):
    kinds = {name: set(result.history["kind"][1:]) for name, (result, _) in runs.items()}
    assert kinds["frank-wolfe"] == {"frank-wolfe"}
    assert {"away", "drop"} & kinds["away"]
    assert kinds["away"] <= {"frank-wolfe", "away", "drop"}
    assert {"pairwise", "drop"} == kinds["pairwise"]
    assert {"pairwise", "frank-wolfe"} <= kinds["blended-pairwise"]


def test_blended_pairwise_saves_components(runs):
    """A step among the active components costs no new evaluation of the target."""
    history = runs["blended-pairwise"][0].history
    cost = np.diff(history["evals"])
    between = np.isin(history["kind"][1:], ["pairwise", "drop"])
    assert np.all(cost[between] == 100)  # the fresh draws behind the ELBO
    assert np.all(cost[~between] == 200)  # and those of the new component
