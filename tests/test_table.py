"""The table: F is what it says, exactly convex, and its identity with the gap holds."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture, tabulate
from scipy import stats
from scipy.special import logsumexp

import boostvi as bv
from boostvi import boosting
from boostvi import table as tables
from boostvi.directions import DIRECTIONS
from boostvi.families import DiagonalNormal
from boostvi.line import along_table
from boostvi.mixture import insert
from boostvi.step_sizes import Exact

MEANS = np.array([-3.0, 2.0, 0.0, 3.0, -1.0])[:, None]
SCALES = np.array([0.7, 1.0, 2.0, 0.5, 1.5])[:, None]
FILLED, CAPACITY, N_DRAWS = 5, 7, 200
SHIFTS = {"plain": 0.0, "shifted": -2000.0, "holes": 0.0}


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def _target(case: str) -> bv.Target:
    mixture = gaussian_mixture([0.3, 0.7], MEANS[:2], SCALES[:2], shift=SHIFTS[case])
    if case != "holes":
        return mixture
    return bv.Target(lambda z: jnp.where(z[0] < -2.5, -jnp.inf, mixture.log_density(z)), 1, mixture.init)


@pytest.fixture(scope="module", params=list(SHIFTS))
def case(request, double):
    """Five components on a bimodal target (plain; with ln p near −2000; with ln p = −inf at some draws)."""
    mixture, table = tabulate(_target(request.param), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)
    return SimpleNamespace(name=request.param, mixture=mixture, table=table)


def random_weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """Points of the simplex over the filled slots: inside, near and on its faces, and vertices."""
    concentration = rng.choice([0.05, 0.3, 1.0, 5.0], size=(n, 1))
    weights = rng.gamma(np.broadcast_to(concentration, (n, FILLED))) + 1e-300
    weights[rng.random((n, FILLED)) < 0.2] = 0.0
    weights[weights.sum(axis=1) == 0.0, 0] = 1.0
    weights[: n // 10] = np.eye(FILLED)[rng.integers(FILLED, size=n // 10)]
    weights = np.pad(weights, ((0, 0), (0, CAPACITY - FILLED)))
    return weights / weights.sum(axis=1, keepdims=True)


def log_components(table: tables.Table) -> np.ndarray:
    """ln s_k at every draw of the filled slots, by SciPy: (slots, draws)."""
    z = np.asarray(table.draws[:FILLED, :, 0]).ravel()
    return stats.norm.logpdf(z, MEANS, SCALES)


def reference_terms(table: tables.Table, weights: np.ndarray, center: float) -> tuple[np.ndarray, np.ndarray]:
    """The formulas of the table at each draw, in NumPy: of F, and of every g_k."""
    log_s = log_components(table)
    log_p = np.asarray(table.log_target[:FILLED]).ravel()
    log_p = np.where(np.isfinite(log_p), log_p, log_p[np.isfinite(log_p)].min() - tables.FLOOR_BELOW_WORST)
    with np.errstate(divide="ignore"):
        log_q = logsumexp(np.log(weights[:FILLED])[:, None] + log_s, axis=0)
    log_reference = logsumexp(log_s, axis=0) - np.log(FILLED)
    x = np.exp(log_q - log_reference)
    potential = log_q - log_p - center
    return x * potential - x + 1.0 + center, np.exp(log_s - log_reference) * potential + center


def standard_error(terms: np.ndarray) -> np.ndarray:
    """Of the mean of `terms` over draws that are stratified by slot."""
    strata = terms.reshape(*terms.shape[:-1], FILLED, N_DRAWS)
    return np.sqrt((strata.var(axis=-1, ddof=1) / N_DRAWS).sum(axis=-1)) / FILLED


@jax.jit
def value_and_gradients(table, weights):
    estimates = tables.estimates(table, weights)
    return estimates.objective(estimates.x(weights)), estimates.gradients(weights), estimates.center


@jax.jit
def _arrays(table, weights):
    estimates = tables.estimates(table, weights)
    return estimates, estimates.x(weights), estimates.log_x(weights)


def arrays(table: tables.Table, weights: np.ndarray):
    """The estimates, x and ln x, of NumPy arrays."""
    return jax.tree.map(np.asarray, _arrays(table, weights))


def quadrature(weights: np.ndarray, log_density) -> tuple[float, np.ndarray]:
    """F and g_k by trapezoids on a grid that holds all of every component."""
    grid = np.linspace(-30.0, 30.0, 60_001)
    log_s = stats.norm.logpdf(grid, MEANS, SCALES)
    with np.errstate(divide="ignore"):
        log_q = logsumexp(np.log(weights[:FILLED])[:, None] + log_s, axis=0)
    slopes = np.trapezoid(np.exp(log_s) * (log_q - log_density(grid)), grid, axis=1)
    return weights[:FILLED] @ slopes, slopes


# -- F against other ways to compute it


@pytest.mark.parametrize("seed", range(4))
def test_values_follow_the_formula(case, seed):
    weights = random_weights(40, np.random.default_rng(seed))[10 + seed]
    value, gradients, center = (np.asarray(a) for a in value_and_gradients(case.table, jnp.asarray(weights)))
    terms, slopes = reference_terms(case.table, weights, float(center))
    assert value == pytest.approx(terms.mean(), rel=1e-12, abs=1e-10)
    np.testing.assert_allclose(gradients[:FILLED], slopes.mean(axis=1), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("case", ["plain", "shifted"], indirect=True)  # KL is infinite where p has holes
@pytest.mark.parametrize("seed", range(4))
def test_values_against_quadrature(case, seed):
    weights = random_weights(40, np.random.default_rng(seed))[20 + seed]
    shift = SHIFTS[case.name]

    def log_density(z):
        return np.logaddexp(np.log(0.3) + stats.norm.logpdf(z, -3, 0.7), np.log(0.7) + stats.norm.logpdf(z, 2)) + shift

    truth, slopes = quadrature(weights, log_density)
    value, gradients, center = (np.asarray(a) for a in value_and_gradients(case.table, jnp.asarray(weights)))
    terms, slope_terms = reference_terms(case.table, weights, float(center))
    se, slopes_se = standard_error(terms), standard_error(slope_terms)
    assert se < 0.1  # far below the shift: centring keeps ln p ≈ −2000 out of the noise
    assert abs(value - truth) < 4 * se + 1e-9
    assert np.all(np.abs(gradients[:FILLED] - slopes) < 4 * slopes_se + 1e-9)


def test_a_shift_of_the_log_density_moves_nothing_else():
    (_, plain), (_, shifted) = (
        tabulate(_target(name), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1) for name in ("plain", "shifted")
    )
    for weights in random_weights(20, np.random.default_rng(0)):
        value, gradients, _ = value_and_gradients(plain, jnp.asarray(weights))
        moved, moved_gradients, _ = value_and_gradients(shifted, jnp.asarray(weights))
        assert float(moved - value) == pytest.approx(2000.0, abs=1e-8)
        np.testing.assert_allclose(moved_gradients[:FILLED] - gradients[:FILLED], 2000.0, rtol=0, atol=1e-8)


def test_value_is_the_mean_of_its_gradients():
    """ELBO = −Σ w_k g_k: exactly, once F is centred at the self-normalised estimate."""
    _, table = tabulate(_target("plain"), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)
    for weights in random_weights(10, np.random.default_rng(1)):
        value, gradients, center = map(np.asarray, value_and_gradients(table, weights))
        estimates, x, _ = arrays(table, weights)
        mean = np.sum(weights[weights > 0] * gradients[weights > 0])
        surplus = np.sum(estimates.share * x) - 1.0
        # F = mean[x(… − c)] + c − mean[x − 1], and Σ w g is the same without the last term.
        assert value == pytest.approx(mean - surplus, abs=1e-12)
        assert mean == pytest.approx(center, abs=1e-12)


# -- convexity and the identity


@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 2})  # runs longer than it compiles
def second_differences(table, center, first, second):
    """F(w) − 2 F(middle) + F(w'), and the same for Σ w_k·mean_j[ln q_w − ln p] over each slot's own draws."""
    estimates = tables.estimates(table, center)

    def own_draws(weights):
        potential = (estimates.log_x(weights) + estimates.log_target_ratio).reshape(table.log_target.shape)
        return jnp.sum(jnp.where(weights > 0, weights * potential.mean(axis=1), 0.0))

    def one(pair):
        def bend(function):
            return function(pair[0]) - 2 * function(0.5 * (pair[0] + pair[1])) + function(pair[1])

        return bend(lambda w: estimates.objective(estimates.x(w))), bend(own_draws)

    return jax.lax.map(one, (first, second), batch_size=500)


def ten_thousand_pairs(reach: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Where to centre, and pairs of weights, the second on the way from the first to a random third."""
    rng = np.random.default_rng(2)
    first, other = random_weights(10_000, rng), random_weights(10_000, rng)
    rng.shuffle(other)
    return jnp.asarray(random_weights(10, rng)[-1]), jnp.asarray(first), jnp.asarray(first + reach * (other - first))


@pytest.mark.parametrize("reach", [1.0, pytest.param(1e-2, marks=pytest.mark.slow)])
def test_convex_in_ten_thousand_directions(case, reach):
    bends, _ = second_differences(case.table, *ten_thousand_pairs(reach))
    assert np.isfinite(bends).all()
    assert np.max(bends) > 1e-4
    size = max(1.0, abs(SHIFTS[case.name]), tables.FLOOR_BELOW_WORST if case.name == "holes" else 0.0)
    assert np.min(bends) > -1e-14 * size


def test_convex_where_the_obvious_estimator_is_not():
    """Three draws of each component: the mean over each slot's own draws bends downwards, F does not."""
    _, table = tabulate(_target("plain"), MEANS, SCALES, 3, capacity=CAPACITY, seed=1)
    bends, own_draws = second_differences(table, *ten_thousand_pairs(1.0))
    assert np.min(own_draws) < -1e-3  # a thousand billion times the rounding
    assert np.min(bends) > -1e-14


@jax.jit
def identity(rules, table, weights, slots, fractions):
    def one(args):
        weights, slot, fraction = args
        estimates = tables.estimates(table, weights)
        gradients = estimates.gradients(weights)
        out = []
        for rule in rules:
            direction = rule(gradients, weights, slot)
            line = along_table(estimates, weights, direction, slot, jnp.ones(()))
            gamma = fraction * jnp.minimum(direction.gamma_max, 1e3)
            moved = jnp.maximum(weights + gamma * direction.delta, 0.0)
            end = estimates.objective(estimates.x(moved))
            rise = end - estimates.objective(estimates.x(weights))
            out.append((rise + gamma * direction.gap, line.divergence(gamma), line.value(gamma), gamma, end))
        return out

    return jax.lax.map(one, (weights, slots, fractions), batch_size=250)


def test_identity_of_value_gap_and_divergence(case):
    """F(w + γδ) − F(w) + γ·gap = D(γ) ≥ 0 in every direction, from every weight."""
    rng, n = np.random.default_rng(3), 2000
    weights = random_weights(n, rng)
    fractions = rng.random(n)
    fractions[:200] = 1.0
    slots = rng.integers(FILLED, size=n)
    rules = tuple(cls() for cls in DIRECTIONS.values())
    results = identity(rules, case.table, *(jnp.asarray(a) for a in (weights, slots, fractions)))
    for name, (left, divergence, value, gamma, moved) in zip(DIRECTIONS, results, strict=True):
        size = np.maximum(1.0, gamma)  # an away step may be 1,000 long, and so is then the rounding of γ·gap
        assert np.all(np.abs(left - divergence) < 1e-10 * size), name
        assert np.all(np.asarray(left) > -1e-10 * size), name
        assert np.max(divergence) > 0.1, name
        np.testing.assert_allclose(value, moved, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("gamma", [1e-3, 1e-6, 1e-8, 1e-10])
def test_divergence_keeps_its_digits_near_zero(case, gamma):
    """D(γ) → γ²/2·mean[dx²/x]: backtracking compares it with C γ²/2, and must not meet rounding of size 1e-16 there."""
    weights = np.pad(np.array([0.3, 0.3, 0.2, 0.0, 0.2]), (0, CAPACITY - FILLED))
    estimates, x, log_x = arrays(case.table, weights)
    dx = np.exp(estimates.log_ratios[1]) - x
    found = jax.jit(tables.TableEstimates.divergence)(estimates, x + gamma * dx, x, log_x)
    real = estimates.share > 0
    u = np.where(real, dx / np.where(real, x, 1.0), 0.0)
    second, third = np.sum(estimates.share * x * u**2) / 2, np.sum(estimates.share * x * u**3) / 6
    assert float(found) == pytest.approx(gamma**2 * second - gamma**3 * third, rel=1e-4, abs=0)


def test_slope_is_the_derivative(case):
    """−gap is φ'(0), and φ' is the derivative of φ inside."""
    rng = np.random.default_rng(4)
    weights, slot = jnp.asarray(random_weights(40, rng)[-1]), jnp.asarray(3)

    @jax.jit
    def compare(table, weights, slot):
        estimates = tables.estimates(table, weights)
        gradients = estimates.gradients(weights)
        out = []
        for rule in (cls() for cls in DIRECTIONS.values()):
            direction = rule(gradients, weights, slot)
            line = along_table(estimates, weights, direction, slot, jnp.ones(()))
            gamma = 0.5 * direction.gamma_max
            out.append((line.slope(0.0), -direction.gap, line.slope(gamma), jax.grad(line.value)(gamma)))
        return out

    for at_zero, minus_gap, inside, derivative in compare(case.table, weights, slot):
        assert float(at_zero) == pytest.approx(float(minus_gap), rel=1e-9, abs=1e-9)
        assert float(inside) == pytest.approx(float(derivative), rel=1e-9, abs=1e-9)


# -- what the table holds


def test_record_fills_its_row_and_column():
    _, table = tabulate(_target("plain"), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)
    z = np.asarray(table.draws[:FILLED])[..., 0]
    expected = stats.norm.logpdf(z, MEANS[:, :, None], SCALES[:, :, None])
    np.testing.assert_allclose(table.log_components[:FILLED, :FILLED], expected, rtol=1e-10, atol=1e-10)
    log_p = np.logaddexp(np.log(0.3) + stats.norm.logpdf(z, -3, 0.7), np.log(0.7) + stats.norm.logpdf(z, 2))
    np.testing.assert_allclose(table.log_target[:FILLED], log_p, rtol=1e-10)
    np.testing.assert_array_equal(table.filled, np.arange(CAPACITY) < FILLED)


def test_a_reused_slot_forgets_what_it_held():
    target = _target("plain")
    mixture, table = tabulate(target, MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)

    @jax.jit
    def renew(table, mixture, slot, key):
        narrow = DiagonalNormal().init(key, jnp.asarray([7.0]), jnp.asarray([0.1]))
        return tables.record(table, target, insert(mixture, slot, narrow), slot, key)

    renewed = jax.tree.map(np.asarray, renew(table, mixture, 2, jax.random.key(9)))
    table = jax.tree.map(np.asarray, table)
    means, scales = MEANS.copy(), SCALES.copy()
    means[2], scales[2] = 7.0, 0.1
    z = np.asarray(renewed.draws[:FILLED])[..., 0]
    assert np.all(np.abs(z[2] - 7.0) < 1.0)
    others = np.array([0, 1, 3, 4])
    np.testing.assert_array_equal(z[others], table.draws[others, :, 0])
    np.testing.assert_array_equal(renewed.log_target[others], table.log_target[others])
    expected = stats.norm.logpdf(z, means[:, :, None], scales[:, :, None])
    np.testing.assert_allclose(renewed.log_components[:FILLED, :FILLED], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(renewed.filled, table.filled)


def test_empty_slots_change_nothing():
    """The same draws in a larger table: the same F, g and centre."""
    weights = jnp.asarray(random_weights(30, np.random.default_rng(5))[-1])
    _, table = tabulate(_target("plain"), MEANS, SCALES, N_DRAWS, seed=1)
    mixture, roomy = tabulate(_target("plain"), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)
    state = boosting.State(
        jnp.asarray(1), mixture, roomy, Exact().init(), jnp.zeros(()), jnp.zeros(()), jax.random.key(0)
    )
    grown = boosting.grow(state, 16).table
    value, gradients, center = value_and_gradients(table, weights[:FILLED])
    for larger in (roomy, grown):
        padded = jnp.pad(weights[:FILLED], (0, larger.filled.size - FILLED))
        again, more, again_center = value_and_gradients(larger, padded)
        assert float(again) == pytest.approx(float(value), abs=1e-13)
        assert float(again_center) == pytest.approx(float(center), abs=1e-13)
        np.testing.assert_allclose(more[:FILLED], gradients, rtol=0, atol=1e-12)


def test_no_mass_is_forbidding_but_finite():
    """Where ln p = −inf, the table reads the worst finite ln p minus a floor: F stays finite, and high."""
    _, table = tabulate(_target("holes"), MEANS, SCALES, N_DRAWS, capacity=CAPACITY, seed=1)
    infinite = np.isneginf(np.asarray(table.log_target[:FILLED]))
    assert infinite[0].mean() > 0.5  # most of N(−3, 0.7²) is in the hole
    inside, outside = (jnp.asarray(np.eye(CAPACITY)[slot]) for slot in (1, 0))
    value_inside, gradients, _ = value_and_gradients(table, inside)
    value_outside, _, _ = value_and_gradients(table, outside)
    assert np.isfinite(gradients[:FILLED]).all()
    assert float(value_inside) < 1.0
    assert float(value_outside) > tables.FLOOR_BELOW_WORST * infinite[0].mean()
    assert int(jnp.argmax(gradients[:FILLED])) == 0


# -- extremes, against closed forms


def test_gradients_where_the_mixture_underflows():
    """q = N(0, 1) is 0 in floating point at the draws of s = p = N(60, 1), but ln q is not."""
    target = gaussian_mixture([1.0], [[60.0]], [[1.0]])
    _, table = tabulate(target, [[0.0], [60.0]], [[1.0], [1.0]], N_DRAWS)
    weights = jnp.asarray([1.0, 0.0])
    value, gradients, _ = value_and_gradients(table, weights)
    # ln q − ln p = 1800 − 60 z: mean ±1800, standard deviation 60.
    se = 60.0 / np.sqrt(N_DRAWS)
    assert abs(float(value) - 1800.0) < 4 * se
    assert abs(float(gradients[0]) - 1800.0) < 4 * se
    assert abs(float(gradients[1]) + 1800.0) < 4 * se


def test_distances_against_closed_forms():
    """KL(s‖q) and ∫(s − q)² for two Normals."""
    n = 20_000
    _, table = tabulate(gaussian_mixture([1.0], [[0.0]], [[1.0]]), [[0.0], [1.0]], [[1.0], [2.0]], n, seed=3)
    weights = np.array([1.0, 0.0])
    ask = jax.jit(
        lambda table, slot, of: tables.estimates(table, weights).distance(weights, slot, of), static_argnums=2
    )

    def distance(slot, of):
        return float(ask(table, slot, of))

    z = np.asarray(table.draws)[..., 0]
    log_ratio = stats.norm.logpdf(z[1], 1.0, 2.0) - stats.norm.logpdf(z[1])
    kl = 0.5 * (4.0 + 1.0) - 0.5 - np.log(2.0)
    se = log_ratio.std(ddof=1) / np.sqrt(n)
    assert abs(distance(1, "kl") - kl) < 4 * se

    def overlap(mean, variance):
        return stats.norm.pdf(mean, 0.0, np.sqrt(variance))

    l2 = overlap(0.0, 2.0) + overlap(0.0, 8.0) - 2 * overlap(1.0, 5.0)
    s, q = stats.norm.pdf(z, 1.0, 2.0), stats.norm.pdf(z)
    terms = (s - q) ** 2 / (0.5 * (s + q))
    se = np.sqrt((terms.var(axis=1, ddof=1) / n).sum()) / 2
    assert abs(distance(1, "l2") - l2) < 4 * se
    assert distance(0, "kl") == 0.0
    assert distance(0, "l2") == pytest.approx(0.0, abs=1e-20)
