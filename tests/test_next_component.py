"""Where components come from: objectives, optimisers, starts, and the first component."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi.families import DiagonalNormal, FullRankNormal, LowRankNormal, base
from boostvi.mixture import Mixture
from boostvi.next_component import (
    FIRST_COMPONENTS,
    LBFGS,
    NEXT_COMPONENTS,
    Adam,
    LaplaceApproximation,
    MixtureElbo,
    PlainVI,
    RandomComponent,
    RandomFirst,
    ResidualElbo,
)
from boostvi.next_component.first import elbo as elbo_of
from boostvi.next_component.residual_elbo import SCHEDULES, EntropicObjective
from boostvi.next_component.search import search
from boostvi.next_component.starts import from_prior, from_residual, starting_components

pytestmark = pytest.mark.usefixtures("x64")

FAMILY = DiagonalNormal()
N_DRAWS = 500


to_raw, to_scale = jax.jit(base.to_raw), jax.jit(base.to_scale)


def component(loc, scale) -> dict:
    with jax.enable_x64(True):
        return {"loc": jnp.asarray(loc, jnp.float64), "raw_scale": to_raw(np.asarray(scale, np.float64))}


def widths(params) -> np.ndarray:
    return np.asarray(to_scale(params["raw_scale"]))


def location(proposal) -> np.ndarray:
    return np.asarray(proposal.params["loc"])


def scale(proposal) -> np.ndarray:
    return widths(proposal.params)


@jax.jit
def one_component(target: bv.Target, params: dict) -> tuple[Mixture, tables.Table]:
    """A mixture of one component in 8 slots, with its table."""
    mixture = mixtures.insert(mixtures.empty(FAMILY, target.dim, 8), 0, params)
    mixture = Mixture(mixture.params, jnp.eye(8)[0], FAMILY)
    return mixture, tables.record(tables.empty(target.dim, 8, N_DRAWS), target, mixture, 0, jax.random.key(9))


@jax.jit
def log_ratios(target: bv.Target, mixture: Mixture, params: dict, weight: float) -> jax.Array:
    """ln p − ln q at draws of q = (1 − weight)·mixture + weight·component."""
    both = mixtures.insert(mixture, 1, params)
    both = Mixture(both.params, mixture.weights * (1 - weight) + weight * jnp.eye(8)[1], FAMILY)
    z, log_q = mixtures.draw(both, both.weights, jax.random.key(77), 20_000)
    return target.log_density_of(z) - log_q


def joint_elbo(target: bv.Target, mixture: Mixture, params: dict, weight: float) -> tuple[float, float]:
    """The ELBO of the mixture with the component added, and its error."""
    terms = np.asarray(log_ratios(target, mixture, params, weight))
    return terms.mean(), terms.std() / np.sqrt(terms.size)


def propose(rule, target, settled, seed: int = 0, t: int = 1):
    mixture, table = settled
    return rule(target, mixture, table, jnp.asarray(t), jax.random.key(seed))


@pytest.fixture(scope="module")
def settled(bimodal):
    """The bimodal target with its right mode already covered."""
    with jax.enable_x64(True):
        return one_component(bimodal, component([2.0], [1.0]))


@pytest.fixture(scope="module")
def standard() -> bv.Target:
    return gaussian_mixture([1.0], [[0.0]], [[1.0]])


class TestSchedules:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("constant", [1.0, 1.0, 1.0]),
            ("inverse-sqrt", [2**-0.5, 3**-0.5, 6**-0.5]),
            ("inverse", [1 / 2, 1 / 3, 1 / 6]),
            ("linear", [1.0, 2.0, 5.0]),
            ("log", [1.0, 1 + np.log(2), 1 + np.log(5)]),
            ("sqrt", [2**0.5, 3**0.5, 6**0.5]),
            ("zero", [0.0, 0.0, 0.0]),
        ],
    )
    def test_values_at_steps_1_2_5(self, name, values):
        np.testing.assert_allclose([SCHEDULES[name](jnp.asarray(t, jnp.float64)) for t in (1, 2, 5)], values)

    def test_all_of_them_are_tested(self):
        assert set(SCHEDULES) == {"constant", "inverse-sqrt", "inverse", "linear", "log", "sqrt", "zero"}

    @pytest.mark.parametrize(("name", "t"), [("constant", 1), ("sqrt", 3), ("inverse", 1)])
    def test_the_weight_reaches_the_objective(self, standard, name, t):
        """q = N(0, 2²), p = N(0, 1): E_s[ln p − ln q] + λH(s) = −(3/8)σ² + λ ln σ + c is largest at σ² = 4λ/3."""
        rule = ResidualElbo(LBFGS(draws=400), entropy_weight=name)
        proposal = propose(rule, standard, one_component(standard, component([0.0], [2.0])), t=t)
        weight = float(SCHEDULES[name](jnp.asarray(float(t))))
        # On 400 fixed draws σ² is off by the factor 1/mean(noise²), of relative error √(2/400).
        assert scale(proposal)[0] ** 2 == pytest.approx(4 * weight / 3, rel=4 * np.sqrt(2 / 400))
        assert location(proposal)[0] == pytest.approx(0.0, abs=4 * scale(proposal)[0] / np.sqrt(400))


class TestEntropicObjective:
    """Value and gradient against the closed form: s = N(m, σ²), q = N(1, 2²), p = N(0, 1)·e^c."""

    @staticmethod
    def exact(loc, log_scale, weight):
        s2 = jnp.exp(2 * log_scale)
        log_p = -0.5 * (loc**2 + s2) - 0.5 * jnp.log(2 * jnp.pi)
        log_q = -0.5 * ((loc - 1.0) ** 2 + s2) / 4.0 - jnp.log(2.0) - 0.5 * jnp.log(2 * jnp.pi)
        return log_p - log_q + weight * (log_scale + 0.5 * jnp.log(2 * jnp.pi * jnp.e))

    @pytest.mark.parametrize("weight", [1.0, 0.3])
    def test_value_and_gradient(self, standard, weight):
        mixture, _ = one_component(standard, component([1.0], [2.0]))
        objective = EntropicObjective(standard, mixture, jnp.asarray(weight), None, None, FAMILY)
        params = component([0.4], [0.7])
        batches = FAMILY.noise(jax.random.key(0), (50, 200, 1))
        values = np.asarray(jax.jit(jax.vmap(lambda noise: objective.value(params, noise)))(batches))
        slopes, _ = jax.jit(jax.vmap(lambda noise: objective.gradient(params, noise)))(batches)
        exact, exact_gradient = jax.jit(jax.value_and_grad(self.exact, (0, 1)))(0.4, np.log(0.7), weight)
        assert abs(values.mean() - exact) < 4 * values.std(ddof=1) / np.sqrt(50)
        by_loc = np.asarray(slopes["loc"])[:, 0]
        # d ln σ / d raw = sigmoid(raw)/σ
        raw = np.asarray(params["raw_scale"])[0]
        by_log_scale = np.asarray(slopes["raw_scale"])[:, 0] * 0.7 * (1.0 + np.exp(-raw))
        for found, wanted in ((by_loc, exact_gradient[0]), (by_log_scale, exact_gradient[1])):
            assert abs(found.mean() - wanted) < 4 * found.std(ddof=1) / np.sqrt(50) + 1e-9


class TestEntropyConstraint:
    """The target is narrow, q = N(0, 1) is not: the best component is narrow too, unless its entropy is bounded."""

    bound = 0.0
    # The bound is held on 128 draws, whose −ln s has variance ½; Adam still moves by a few hundredths at its end.
    tolerance = 4 * np.sqrt(0.5 / 128) + 0.05

    @staticmethod
    def entropy(proposal) -> float:
        return float(np.sum(np.log(scale(proposal)) + 0.5 * np.log(2 * np.pi * np.e)))

    @pytest.mark.parametrize(
        ("sd", "optimiser"),
        [
            (0.1, Adam(steps=400, draws=8)),
            pytest.param(0.1, LBFGS(draws=200), marks=pytest.mark.slow),
            (0.01, LBFGS(draws=200)),
        ],
    )
    def test_holds_and_binds(self, sd, optimiser):
        target = gaussian_mixture([1.0], [[0.0]], [[sd]])
        settled = one_component(target, component([0.0], [1.0]))
        free = propose(ResidualElbo(optimiser), target, settled)
        assert self.entropy(free) < self.bound - 2 * self.tolerance
        bounded = propose(ResidualElbo(optimiser, min_entropy=self.bound), target, settled)
        assert abs(self.entropy(bounded) - self.bound) < self.tolerance
        without = propose(ResidualElbo(optimiser, self.bound, entropy_weight="zero"), target, settled)
        assert abs(self.entropy(without) - self.bound) < self.tolerance


OPTIMISERS = {"adam": Adam(steps=300, draws=8), "lbfgs": LBFGS(draws=100)}


@pytest.mark.parametrize("optimiser", [pytest.param("adam", marks=pytest.mark.slow), "lbfgs"])
class TestBimodal:
    """N(2, 1) misses 0.3·N(−3, 0.7²)."""

    def test_the_mixture_elbo_finds_the_second_mode(self, bimodal, settled, optimiser):
        rule = MixtureElbo(OPTIMISERS[optimiser], starts=("prior",), n_starts=4)
        proposal = propose(rule, bimodal, settled)
        assert location(proposal)[0] == pytest.approx(-3.0, abs=0.3)
        assert scale(proposal)[0] == pytest.approx(0.7, abs=0.2)
        before, before_error = joint_elbo(bimodal, settled[0], proposal.params, 0.0)
        after, after_error = joint_elbo(bimodal, settled[0], proposal.params, 0.3)
        assert abs(before - np.log(0.7)) < 4 * before_error + 0.01  # one mode alone
        assert after > before + 4 * np.hypot(before_error, after_error)
        assert after > -0.02 - 4 * after_error  # of 0, the log evidence

    def test_the_residual_is_sought_where_it_is(self, bimodal, settled, optimiser):
        """Left of both modes ln p/q is a parabola with precision 1/0.49 − 1 and slope −3/0.49 − 2 at 0: the component
        lies far beyond the mode that it is meant for, which is why MixtureElbo exists."""
        precision, slope = 1 / 0.49 - 1, -3 / 0.49 - 2
        rule = ResidualElbo(OPTIMISERS[optimiser], starts=("prior",), n_starts=4)
        proposal = propose(rule, bimodal, settled)
        sd = precision**-0.5
        assert location(proposal)[0] == pytest.approx(slope / precision, abs=5 * sd / np.sqrt(100))
        assert scale(proposal)[0] == pytest.approx(sd, rel=5 / np.sqrt(200))


@pytest.mark.slow
def test_the_best_of_several_starts_is_kept(bimodal, settled):
    """One start sits on the covered mode, one on the missed one: the missed one wins, whatever their order."""
    mixture, _ = settled
    objective = EntropicObjective(bimodal, mixture, jnp.ones(()), None, None, FAMILY)
    here, there = component([2.0], [1.0]), component([-3.0], [0.7])
    standing = Adam(learning_rate=1e-12, steps=1)  # the ends are the starts
    noise = FAMILY.noise(jax.random.key(5), (4000, 1))
    values = [float(objective.value(params, noise)) for params in (here, there)]
    assert values[1] > values[0] + 1.0
    for starts in ((here, there), (there, here)):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
        proposal = search(objective, stacked, standing, 1000, jax.random.key(1))
        assert location(proposal)[0] == pytest.approx(-3.0, abs=1e-6)
        assert float(proposal.value) == pytest.approx(values[1], abs=1.0)
        assert int(proposal.evals) == 2 * 1 + 2 * 1000


def test_a_start_that_went_nowhere_does_not_win(bimodal, settled):
    """NaN is not a best value."""
    mixture, _ = settled
    objective = EntropicObjective(bimodal, mixture, jnp.ones(()), None, None, FAMILY)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), component([jnp.nan], [1.0]), component([-3.0], [0.7]))
    proposal = search(objective, stacked, Adam(learning_rate=1e-12, steps=1), 100, jax.random.key(1))
    assert location(proposal)[0] == pytest.approx(-3.0, abs=1e-6)


class TestStarts:
    def test_prior_starts(self, bimodal):
        """Located by init (here 4·N(0, 1)), scales softplus(N(0, 1)), as in the authors' code."""
        n = 2000
        params = jax.jit(from_prior, static_argnums=(1, 3))(bimodal, FAMILY, jax.random.key(0), n)
        assert scipy.stats.kstest(params["loc"][:, 0], scipy.stats.norm(scale=4.0).cdf).pvalue > 1e-3
        raw = np.log(np.expm1(widths(params)))[:, 0]
        assert scipy.stats.kstest(raw, "norm").pvalue > 1e-3

    def test_location_scale_and_factors_are_independent(self):
        """One key for two purposes would tie the factors of a low-rank component to its location."""
        n, target = 2000, bv.Target(lambda z: -jnp.sum(z**2), 2)
        params = jax.jit(from_prior, static_argnums=(1, 3))(target, LowRankNormal(rank=2), jax.random.key(0), n)
        columns = np.concatenate([np.asarray(leaf).reshape(n, -1) for leaf in jax.tree.leaves(params)], axis=1)
        correlation = np.corrcoef(columns.T) - np.eye(columns.shape[1])
        assert np.abs(correlation).max() < 5 / np.sqrt(n)

    def test_residual_starts_go_where_mass_is_missing(self, bimodal):
        """q = N(−½, 3²) covers both modes; p/q is largest near them. Draws follow q·(p/q)^(1/2), up to a constant."""
        mixture, table = one_component(bimodal, component([-0.5], [3.0]))
        n = 1000
        starts = jax.jit(from_residual, static_argnums=3)(mixture, table, jax.random.key(0), n)
        loc = np.asarray(starts["loc"])[:, 0]
        draws = np.asarray(table.draws[0])[:, 0]
        assert np.isin(loc, draws).all()
        log_p = np.logaddexp(
            np.log(0.3) + scipy.stats.norm.logpdf(draws, -3.0, 0.7), np.log(0.7) + scipy.stats.norm.logpdf(draws, 2.0)
        )
        expected = np.exp(0.5 * (log_p - scipy.stats.norm.logpdf(draws, -0.5, 3.0)))
        expected /= expected.sum()
        assert abs((loc < -0.5).mean() - expected[draws < -0.5].sum()) < 4 * np.sqrt(0.25 / n)
        assert abs(loc.mean() - expected @ draws) < 4 * loc.std() / np.sqrt(n)

    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow), 5])
    def test_any_number_of_starts_in_turn(self, bimodal, settled, n):
        """Residual starts have half the spread of the component they come from, prior starts have not."""
        made = starting_components(("residual", "prior"), n, bimodal, *settled, jax.random.key(0))
        spread = np.std(np.asarray(settled[1].draws[0]))
        from_table = np.isclose(widths(made)[:, 0], 0.5 * spread)
        assert made["loc"].shape == (n, 1)
        assert from_table.sum() == -(-n // 2)


class TestRandom:
    def test_component(self, bimodal, settled):
        found = [propose(RandomComponent(), bimodal, settled, seed) for seed in range(200)]
        loc = np.array([location(p)[0] for p in found])
        assert scipy.stats.kstest(loc, scipy.stats.norm(scale=4.0).cdf).pvalue > 1e-3
        assert {int(p.evals) for p in found} == {0}

    def test_first(self, bimodal):
        proposals = [RandomFirst()(bimodal, FAMILY, jax.random.key(seed)) for seed in range(3)]
        assert len({float(location(p)[0]) for p in proposals}) == 3


class TestAdam:
    """Against the formula, and against optax with the same gradients."""

    @staticmethod
    def objective():
        target = bv.Target(lambda z: -0.5 * jnp.sum((z - jnp.array([1.0, -2.0])) ** 2), 2)
        return elbo_of(target, FAMILY)

    def test_one_step_has_the_size_of_the_learning_rate(self):
        """m̂/√v̂ = sign of the gradient in the first step, up to ε."""
        start = component([[5.0, 5.0]], [[1.0, 1.0]])
        ends, evals, _ = Adam(learning_rate=0.25, steps=1, draws=3).maximise(self.objective(), start, jax.random.key(0))
        np.testing.assert_allclose(ends["loc"], [[4.75, 4.75]], atol=1e-6)
        assert evals == 3

    @pytest.mark.parametrize(("steps", "every"), [(7, 3), (250, 100)])
    def test_many_steps_are_optaxs(self, steps, every):
        objective, draws = self.objective(), 2
        start = component([[3.0, 4.0]], [[1.0, 2.0]])
        adam = Adam(learning_rate=0.1, decay=0.9, decay_every=every, steps=steps, draws=draws)
        ends, evals, nonfinite = adam.maximise(objective, start, jax.random.key(3))
        assert (evals, int(nonfinite)) == (steps * draws, 0)

        rule = optax.adam(lambda i: 0.1 * 0.9 ** (i // every))
        params = jax.tree.map(lambda leaf: leaf[0], start)
        memory = rule.init(params)
        (key,) = jax.random.split(jax.random.key(3), 1)

        @jax.jit
        def iterate(params, memory, key):
            gradient, _ = objective.gradient(params, FAMILY.noise(key, (draws, 2)))
            update, memory = rule.update(jax.tree.map(jnp.negative, gradient), memory)
            return optax.apply_updates(params, update), memory

        for one in jax.random.split(key, steps):
            params, memory = iterate(params, memory, one)
        for name, leaf in params.items():
            np.testing.assert_allclose(ends[name][0], leaf, rtol=1e-9, err_msg=name)

    def test_the_defaults_are_the_authors(self):
        adam = Adam()
        assert (adam.learning_rate, adam.decay, adam.decay_every, adam.steps, adam.draws) == (0.1, 0.9, 100, 1000, 1)

    def test_draws_without_a_gradient_are_left_out_and_counted(self):
        """−inf below 0: such draws push nowhere, and the rest still finds N(2, 0.1²)'s place."""
        target = bv.Target(lambda z: jnp.where(z[0] > 0, -50.0 * (z[0] - 2.0) ** 2, -jnp.inf), 1)
        start = component([[0.0]], [[1.0]])
        adam = Adam(steps=300, draws=4)
        ends, _, nonfinite = adam.maximise(elbo_of(target, FAMILY), start, jax.random.key(0))
        assert int(nonfinite) > 0
        assert float(ends["loc"][0, 0]) == pytest.approx(2.0, abs=0.1)


class TestLbfgs:
    def test_is_exact_on_its_own_draws(self):
        """On fixed noise e the ELBO of N(m, σ²) for N(1, 1) is largest at m + σ ē = 1, σ² var(e) = 1."""
        target = bv.Target(lambda z: -0.5 * jnp.sum((z - 1.0) ** 2), 1)
        objective = elbo_of(target, FAMILY)
        ends, evals, _ = LBFGS(draws=50).maximise(objective, component([[4.0]], [[0.2]]), jax.random.key(2))
        noise = np.asarray(FAMILY.noise(jax.random.key(2), (50, 1)))[:, 0]
        sd = 1 / noise.std()
        assert widths(ends)[0, 0] == pytest.approx(sd, rel=1e-4)
        assert float(ends["loc"][0, 0]) == pytest.approx(1 - sd * noise.mean(), abs=1e-4)
        assert evals % 50 == 0

    def test_steps_back_from_where_there_is_no_mass(self):
        target = bv.Target(lambda z: jnp.where(z[0] > 0, jnp.log(z[0]) - z[0], -jnp.inf), 1)
        ends, _, _ = LBFGS(draws=20).maximise(elbo_of(target, FAMILY), component([[3.0]], [[0.1]]), jax.random.key(0))
        assert np.isfinite(ends["loc"]).all()
        assert float(ends["loc"][0, 0]) > 0


COVARIANCE = np.array([[2.0, 0.9], [0.9, 1.0]])
CENTRE = np.array([3.0, -1.0])
LOG_Z = 7.0


@pytest.fixture(scope="module")
def gaussian() -> bv.Target:
    precision = np.linalg.inv(COVARIANCE)
    constant = LOG_Z - 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    return bv.Target(lambda z: -0.5 * (z - CENTRE) @ precision @ (z - CENTRE) + constant, 2)


class TestFirstComponent:
    def test_a_laplace_approximation_of_a_gaussian_is_exact(self, gaussian):
        proposal = LaplaceApproximation(n_starts=2)(gaussian, FullRankNormal(), jax.random.key(0))
        family, params = FullRankNormal(), proposal.params
        np.testing.assert_allclose(params["loc"], CENTRE, atol=1e-4)
        factor = np.asarray(jax.jit(jax.vmap(lambda e: family.sample(params, e) - params["loc"]))(np.eye(2))).T
        np.testing.assert_allclose(factor @ factor.T, COVARIANCE, rtol=1e-6)
        assert float(proposal.value) == pytest.approx(LOG_Z, abs=1e-5)

    def test_of_a_diagonal_family_it_keeps_the_marginal_spread(self, gaussian):
        proposal = LaplaceApproximation(n_starts=1)(gaussian, FAMILY, jax.random.key(0))
        np.testing.assert_allclose(location(proposal), CENTRE, atol=1e-4)
        np.testing.assert_allclose(scale(proposal), np.sqrt(np.diag(COVARIANCE)), rtol=1e-6)

    def test_polish_goes_on_from_it_and_cannot_lose(self, gaussian):
        """For a diagonal family plain VI is better than the Laplace spread: its scales are those of the precision."""
        rule = LaplaceApproximation(polish=Adam(learning_rate=0.05, steps=400, draws=16), n_starts=1)
        proposal = rule(gaussian, FAMILY, jax.random.key(0))
        plain = LaplaceApproximation(n_starts=1)(gaussian, FAMILY, jax.random.key(0))
        assert float(proposal.value) > float(plain.value)
        best = 1 / np.sqrt(np.diag(np.linalg.inv(COVARIANCE)))
        np.testing.assert_allclose(scale(proposal), best, rtol=0.1)

    def test_the_best_mode_is_kept(self):
        """Modes of mass 0.1 and 0.9, starts on both sides: the heavy one."""
        target = gaussian_mixture([0.1, 0.9], [[-6.0], [6.0]], [[1.0], [1.0]])
        proposal = LaplaceApproximation(n_starts=6)(target, FAMILY, jax.random.key(0))
        assert location(proposal)[0] == pytest.approx(6.0, abs=0.01)

    @pytest.mark.parametrize("optimiser", [Adam(steps=600, draws=16, learning_rate=0.05), LBFGS(draws=2000)])
    def test_plain_vi_reaches_the_evidence(self, gaussian, optimiser):
        """The family holds the target, so the ELBO's optimum is log Z."""
        family = FullRankNormal()
        proposal = PlainVI(optimiser)(gaussian, family, jax.random.key(1))
        noise = family.noise(jax.random.key(2), (20_000, 2))

        @jax.jit
        def log_ratio(params, noise):
            z, log_s = jax.vmap(family.sample_and_log_prob, in_axes=(None, 0))(params, noise)
            return gaussian.log_density_of(z) - log_s

        terms = np.asarray(log_ratio(proposal.params, noise))
        assert abs(terms.mean() - LOG_Z) < 4 * terms.std() / np.sqrt(terms.size) + 0.01
        np.testing.assert_allclose(proposal.params["loc"], CENTRE, atol=0.15)

    def test_plain_vi_keeps_the_best_of_its_starts(self):
        target = gaussian_mixture([0.1, 0.9], [[-6.0], [6.0]], [[1.0], [1.0]])
        proposal = PlainVI(Adam(steps=200, draws=4), n_starts=8)(target, FAMILY, jax.random.key(0))
        assert location(proposal)[0] == pytest.approx(6.0, abs=0.5)
        assert float(proposal.value) == pytest.approx(np.log(0.9), abs=0.1)


def test_every_part_is_reachable_by_name():
    assert set(NEXT_COMPONENTS) == {"residual-elbo", "mixture-elbo", "explore", "random"}
    assert set(FIRST_COMPONENTS) == {"vi", "laplace", "race", "random"}
    assert ResidualElbo(optimiser="lbfgs").optimiser == LBFGS()
    assert MixtureElbo(optimiser="adam").optimiser == Adam()
    assert LaplaceApproximation(polish="adam").polish == Adam()
