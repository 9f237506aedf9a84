"""Corrections: the best weights on the table, certified."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture, tabulate
from scipy import optimize

import boostvi as bv
from boostvi import table as tables
from boostvi.corrections import CORRECTIONS, FullyCorrective, NoCorrection
from boostvi.corrections.weights import certified_gap, solve
from boostvi.table import recenter

N_DRAWS = 400
TOL = 1e-9


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


correct = jax.jit(lambda rule, estimates, weights, filled: rule(estimates, weights, filled))
gap_of = jax.jit(certified_gap)
solved = jax.jit(solve)
prepare = jax.jit(tables.estimates)
value = jax.jit(lambda estimates, weights: estimates.objective(estimates.x(weights)))


def components(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten overlapping components in the plane, with their weights, and ten decoys."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(-5.0, 5.0, size=(20, 2))
    scales = rng.uniform(0.6, 1.4, size=(20, 2))
    weights = rng.dirichlet(np.full(10, 2.0))
    return weights, means, scales


@pytest.fixture(scope="module", params=[0.0, -2000.0], ids=["plain", "shifted"])
def twenty(request, double):
    """The table of ten true atoms and ten decoys (and four empty slots)."""
    weights, means, scales = components()
    target = gaussian_mixture(weights, means[:10], scales[:10], shift=request.param)
    _, table = tabulate(target, means, scales, N_DRAWS, capacity=24)
    return table


def uniform(n: int = 20, capacity: int = 24) -> jax.Array:
    return jnp.asarray(np.pad(np.full(n, 1.0 / n), (0, capacity - n)))


def random_weights(rng: np.random.Generator, n: int = 20, capacity: int = 24) -> jax.Array:
    weights = rng.dirichlet(np.full(n, 0.3))
    weights[rng.random(n) < 0.3] = 0.0
    weights[0] += 0.01
    return jnp.asarray(np.pad(weights / weights.sum(), (0, capacity - n)))


# -- a target whose weights are known


def weight_errors(estimates, weights: np.ndarray) -> np.ndarray:
    """Standard errors of the best weights on the table, all twenty atoms being free to take weight.

    At the true weights ln q = ln p − (a constant), so ∇F = −(c − F)·mean[s_k/q̄]: its noise, through the inverse Hessian
    on the simplex.
    """
    real = np.asarray(estimates.share) > 0
    ratios = np.exp(np.asarray(estimates.log_ratios))[:20, real]
    x = weights @ ratios
    off_center = abs(float(estimates.center) - float(value(estimates, jnp.pad(jnp.asarray(weights), (0, 4)))))
    strata = ratios.reshape(20, 20, N_DRAWS)
    covariance = sum(np.cov(strata[:, i]) for i in range(20)) / N_DRAWS / 20**2
    hessian = (ratios / x) @ ratios.T / real.sum()
    free = np.linalg.svd(np.ones((1, 20)))[2][1:].T  # directions that keep Σw
    through = free @ np.linalg.inv(free.T @ hessian @ free) @ free.T
    return off_center * np.sqrt(np.diag(through @ covariance @ through))


def test_recovers_all_weights_among_decoys(twenty):
    truth = np.concatenate([components()[0], np.zeros(10)])
    found = np.asarray(correct(FullyCorrective(tol=TOL), prepare(twenty, uniform()), uniform(), twenty.filled))
    # The rule centres ln p after a rough solve; centred there, this is what the draws still leave open.
    estimates = prepare(twenty, uniform())
    estimates = recenter(estimates, solved(estimates, uniform(), twenty.filled, 1e-2))
    errors = weight_errors(estimates, truth)
    assert errors.max() < 0.01
    assert np.all(np.abs(found[:20] - truth) < 4 * errors + 1e-6)
    assert np.all(found[20:] == 0.0)
    assert found.sum() == pytest.approx(1.0, abs=1e-14)
    assert float(gap_of(estimates, jnp.asarray(found), twenty.filled)) < 1e-4  # pruning may cost a little
    # Without a single weight pruned, the certificate is as small as was asked for.
    exact = solved(estimates, uniform(), twenty.filled, TOL)
    assert float(gap_of(estimates, exact, twenty.filled)) <= TOL


def test_recovers_weights_from_any_start(twenty):
    """From a vertex that is a decoy, from random weights: the same least value."""
    rng = np.random.default_rng(1)
    estimates = prepare(twenty, uniform())
    starts = [jnp.asarray(np.eye(24)[15]), *(random_weights(rng) for _ in range(5))]
    ends = [solved(estimates, start, twenty.filled, TOL) for start in starts]
    values = np.array([float(value(estimates, end)) for end in ends])
    assert np.ptp(values) < 2 * TOL
    assert all(float(gap_of(estimates, end, twenty.filled)) <= TOL for end in ends)


def test_certificate_bounds_what_is_left(twenty):
    """Σ w g − min g ≥ F(w) − min F at any weights, and it is 0 only at the optimum."""
    rng = np.random.default_rng(2)
    estimates = prepare(twenty, uniform())
    least = float(value(estimates, solved(estimates, uniform(), twenty.filled, TOL)))
    for _ in range(50):
        weights = random_weights(rng)
        left = float(value(estimates, weights)) - least
        assert left > 0.0
        assert float(gap_of(estimates, weights, twenty.filled)) >= left


def test_agrees_with_another_solver(twenty):
    estimates = prepare(twenty, uniform())
    both = jax.jit(jax.value_and_grad(lambda w: estimates.objective(estimates.x(w))))
    center = float(estimates.center)

    def function(w):
        f, g = both(jnp.asarray(np.pad(w, (0, 4))))
        return float(f) - center, np.asarray(g)[:20]

    other = optimize.minimize(
        function, np.full(20, 0.05), jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * 20,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(20)},
        options={"ftol": 1e-13, "maxiter": 500},
    )  # fmt: skip
    ours = solved(estimates, uniform(), twenty.filled, TOL)
    assert other.success
    assert float(value(estimates, ours)) - center <= other.fun + 1e-8
    np.testing.assert_allclose(ours[:20], other.x, atol=1e-3)


# -- promises of the rule


def test_never_worse_and_always_on_the_simplex(twenty):
    rng = np.random.default_rng(3)
    rule = FullyCorrective(prune=1e-3)
    for _ in range(20):
        weights = random_weights(rng)
        estimates = prepare(twenty, weights)
        found = correct(rule, estimates, weights, twenty.filled)
        assert float(value(estimates, found)) <= float(value(estimates, weights)) + 1e-13
        found = np.asarray(found)
        assert np.all(found >= 0.0)
        assert found.sum() == pytest.approx(1.0, abs=1e-14)
        assert np.all(found[~np.asarray(twenty.filled)] == 0.0)
        assert not np.any((found > 0.0) & (found < 1e-3))


def test_a_second_correction_changes_next_to_nothing(twenty):
    rule = FullyCorrective(tol=TOL)
    once = correct(rule, prepare(twenty, uniform()), uniform(), twenty.filled)
    estimates = prepare(twenty, once)
    twice = correct(rule, estimates, once, twenty.filled)
    assert 0.0 <= float(value(estimates, once) - value(estimates, twice)) < 1e-5


def test_a_dropped_component_may_return(twenty):
    """Weight 0, but its draws are still in the table."""
    weights = components()[0].copy()
    weights[3] = 0.0
    start = jnp.asarray(np.pad(weights / weights.sum(), (0, 14)))
    found = correct(FullyCorrective(), prepare(twenty, start), start, twenty.filled)
    assert float(found[3]) == pytest.approx(components()[0][3], abs=0.02)


def test_slots_outside_the_candidates_get_nothing(twenty):
    only = jnp.arange(24) < 5
    estimates = prepare(twenty, uniform(5))
    found = solved(estimates, uniform(5), only, TOL)
    assert np.all(np.asarray(found)[5:] == 0.0)
    assert float(gap_of(estimates, found, only)) <= TOL
    assert float(gap_of(estimates, found, twenty.filled)) > 0.01  # the others would help


def test_none_changes_nothing(twenty):
    weights = random_weights(np.random.default_rng(4))
    np.testing.assert_array_equal(NoCorrection()(prepare(twenty, weights), weights, twenty.filled), weights)


# -- corners


@pytest.mark.parametrize(
    ("truth", "means", "scales"),
    [
        ([0.0, 1.0, 0.0], [[-1.0], [0.0], [1.0]], [[1.0], [1.0], [1.0]]),  # a vertex
        ([0.3, 0.0, 0.7], [[-500.0], [0.0], [500.0]], [[1.0], [1.0], [1.0]]),  # densities that underflow
        ([0.001, 0.999, 0.0], [[-4.0], [0.0], [4.0]], [[0.5], [1.0], [0.5]]),  # a small weight
    ],
    ids=["vertex", "far-apart", "small"],
)
def test_corners(truth, means, scales):
    truth, means, scales = (np.asarray(a) for a in (truth, means, scales))
    there = truth > 0
    target = gaussian_mixture(truth[there], means[there], scales[there])
    _, table = tabulate(target, means, scales, N_DRAWS)
    start = jnp.full(3, 1 / 3)
    found = correct(FullyCorrective(tol=1e-10), prepare(table, start), start, table.filled)
    np.testing.assert_allclose(found, truth, atol=2e-3)
    assert np.all(np.asarray(found)[~there] < 1e-5)


def test_twins_share_the_weight():
    """Two identical components: the Hessian is singular, the least value is not."""
    target = gaussian_mixture([0.4, 0.6], [[-2.0], [2.0]], [[1.0], [1.0]])
    _, table = tabulate(target, [[-2.0], [2.0], [2.0]], [[1.0], [1.0], [1.0]], N_DRAWS)
    start = jnp.full(3, 1 / 3)
    estimates = prepare(table, start)
    found = correct(FullyCorrective(), estimates, start, table.filled)
    assert np.isfinite(found).all()
    assert float(found[0]) == pytest.approx(0.4, abs=0.02)
    assert float(gap_of(recenter(estimates, found), found, table.filled)) < 1e-6


def test_a_component_without_mass_is_left_out():
    """ln p = −inf at every draw of one component."""
    inside = gaussian_mixture([1.0], [[3.0]], [[1.0]])
    target = bv.Target(lambda z: jnp.where(z[0] < 0.0, -jnp.inf, inside.log_density(z)), 1)
    _, table = tabulate(target, [[3.5], [-6.0], [2.0]], [[0.5], [1.0], [0.3]], N_DRAWS)
    assert np.isneginf(table.log_target[1]).all()
    start = jnp.full(3, 1 / 3)
    estimates = prepare(table, start)
    found = correct(FullyCorrective(), estimates, start, table.filled)
    assert float(found[1]) == 0.0
    assert np.isfinite(found).all()
    assert float(value(estimates, found)) < float(value(estimates, start)) - 30.0


def test_one_component_keeps_all_the_weight():
    _, table = tabulate(gaussian_mixture([1.0], [[0.0]], [[1.0]]), [[1.0]], [[1.0]], N_DRAWS, capacity=3)
    start = jnp.asarray([1.0, 0.0, 0.0])
    np.testing.assert_array_equal(correct(FullyCorrective(), prepare(table, start), start, table.filled), start)


# -- construction


@pytest.mark.parametrize(
    ("argument", "value"), [("tol", 0.0), ("tol", -1.0), ("prune", -1e-9), ("prune", 1.0), ("tol", True)]
)
def test_bad_values_are_named(argument, value):
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        FullyCorrective(**{argument: value})


def test_rules_cannot_be_mistaken_for_each_other():
    assert set(CORRECTIONS) == {"none", "fully-corrective", "refine"}
    assert jax.tree.structure(NoCorrection()) != jax.tree.structure(FullyCorrective())
