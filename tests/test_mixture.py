"""The mixture: densities against scipy, draws against their moments, slots, tracing, and honest own densities."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from boostvi import Mixture
from boostvi import mixture as mixtures
from boostvi.families import DiagonalLaplace, DiagonalNormal, FullRankNormal
from boostvi.families.base import to_raw

WEIGHTS = np.array([0.0, 0.5, 0.3, 0.0, 0.2])  # two of five slots are free
LOCS = np.array([[9.0, 9.0], [-2.0, 0.5], [1.5, -1.0], [-9.0, 9.0], [4.0, 3.0]])
SCALES = np.array([[1.0, 1.0], [0.5, 2.0], [1.0, 0.3], [1.0, 1.0], [0.8, 1.2]])
SCIPY = {"diagonal-normal": scipy.stats.norm, "diagonal-laplace": scipy.stats.laplace}
UNIT_VARIANCE = {"diagonal-normal": 1.0, "diagonal-laplace": 2.0}

draw = jax.jit(mixtures.draw, static_argnums=(3, 4))


def make(family, weights=WEIGHTS) -> Mixture:
    return Mixture({"loc": LOCS, "raw_scale": raw_scales()}, np.asarray(weights), family)


@functools.cache
def raw_scales() -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(to_raw)(SCALES))


def moments(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the mixture."""
    mean = WEIGHTS @ LOCS
    within = np.diag(UNIT_VARIANCE[name] * WEIGHTS @ SCALES**2)
    return mean, within + (WEIGHTS * (LOCS - mean).T) @ (LOCS - mean)


@pytest.fixture(params=[DiagonalNormal(), DiagonalLaplace()], ids=lambda family: family.name)
def mixture(request) -> Mixture:
    return make(request.param)


def reference_log_prob(mixture: Mixture, z: np.ndarray) -> np.ndarray:
    if mixture.family.name == "diagonal-laplace":  # scipy's own logpdf underflows in the tails
        terms = -np.abs(z[..., None, :] - LOCS) / SCALES - np.log(2 * SCALES)
    else:
        terms = scipy.stats.norm.logpdf(z[..., None, :], LOCS, SCALES)
    terms = terms.sum(axis=-1)
    return scipy.special.logsumexp(terms, b=WEIGHTS, axis=-1)


@pytest.mark.parametrize("shape", [(2,), (7, 2), (3, 4, 2), (0, 2)])
def test_log_prob_is_scipys_at_any_shape(mixture, shape):
    z = 4.0 * np.random.default_rng(0).normal(size=shape)
    value = mixture.log_prob(z)
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.float64
    assert value.shape == shape[:-1]
    np.testing.assert_allclose(value, reference_log_prob(mixture, z), rtol=1e-12, atol=1e-12)


def test_log_prob_far_out_is_finite(mixture):
    z = np.array([1e3, -1e3])
    np.testing.assert_allclose(mixture.log_prob(z), reference_log_prob(mixture, z), rtol=1e-12)


@pytest.mark.parametrize("shape", [(3,), (5, 1), ()])
def test_log_prob_refuses_another_dimension(mixture, shape):
    with pytest.raises(ValueError, match=r"shape \(\.\.\., 2\)"):
        mixture.log_prob(np.zeros(shape))


@pytest.mark.parametrize("shape", [(2,), (3, 4, 2)])
def test_log_prob_inside_jit_and_grad(mixture, shape):
    z = np.random.default_rng(1).normal(size=shape)
    with jax.enable_x64(True):
        value, gradient = jax.jit(lambda z: (mixture.log_prob(z), jax.grad(lambda z: mixture.log_prob(z).sum())(z)))(z)
    assert isinstance(value, jax.Array)
    np.testing.assert_allclose(value, reference_log_prob(mixture, z), rtol=1e-10)
    step = 1e-6
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        slope = (reference_log_prob(mixture, z + shift) - reference_log_prob(mixture, z - shift)) / (2 * step)
        np.testing.assert_allclose(gradient[..., axis], slope, rtol=1e-6, atol=1e-7)


def test_log_prob_traced_in_single_precision_stays_single(mixture):
    """Inside a user's float32 program it joins that program."""
    z = np.random.default_rng(2).normal(size=(6, 2)).astype(np.float32)
    value = jax.jit(mixture.log_prob)(jnp.asarray(z))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, reference_log_prob(mixture, z.astype(np.float64)), rtol=2e-5, atol=2e-5)


def test_gradient_is_finite_with_free_slots(mixture):
    """ln 0 of a free slot must not reach the gradient, neither in z nor in the weights."""
    z = np.array([0.3, 0.2])
    with jax.enable_x64(True):
        gradient = jax.grad(lambda w: mixtures.log_prob(Mixture(mixture.params, w, mixture.family), z))
        free = np.asarray(jax.jit(gradient)(WEIGHTS))
    assert np.isfinite(free).all()
    density = np.exp(reference_log_prob(mixture, z))
    expected = SCIPY[mixture.family.name].pdf(z, LOCS, SCALES).prod(axis=-1) / density
    np.testing.assert_allclose(free[WEIGHTS > 0], expected[WEIGHTS > 0], rtol=1e-10)


def test_sample_moments_and_seed(mixture):
    n = 40_000
    draws = mixture.sample(n, seed=3)
    np.testing.assert_array_equal(mixture.sample(n, seed=3), draws)
    assert not np.isin(mixture.sample(n, seed=2), draws).any()
    assert draws.shape == (n, 2)
    assert draws.dtype == np.float64
    mean, covariance = moments(mixture.family.name)
    assert_moments(draws, mean, covariance)


def assert_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """First and second moments within 5 standard errors."""
    n = draws.shape[0]
    error = np.abs(draws.mean(axis=0) - mean)
    assert (error < 5 * np.sqrt(np.diag(covariance) / n)).all()
    products = np.einsum("ni,nj->nij", draws - mean, draws - mean)
    assert (np.abs(products.mean(axis=0) - covariance) < 5 * products.std(axis=0) / np.sqrt(n)).all()


@pytest.mark.parametrize("n", [0, -1, 2.0, True, "10", None])
def test_sample_refuses_a_bad_number(mixture, n):
    with pytest.raises(ValueError, match="n must be a positive integer"):
        mixture.sample(n)


def test_active_is_the_same_distribution(mixture):
    active = mixture.active()
    np.testing.assert_array_equal(active.weights, [0.5, 0.3, 0.2])
    np.testing.assert_array_equal(active.params["loc"], LOCS[[1, 2, 4]])
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(active))
    assert (mixture.n_active, mixture.capacity, active.n_active, active.capacity) == (3, 5, 3, 3)
    z = np.random.default_rng(4).normal(size=(7, 2))
    np.testing.assert_allclose(active.log_prob(z), mixture.log_prob(z), rtol=1e-13)


@pytest.mark.usefixtures("x64")
class TestSlots:
    def test_an_empty_mixture_has_free_slots_only(self):
        mixture = mixtures.empty(DiagonalNormal(), 3, 4)
        assert (mixture.dim, mixture.capacity, mixture.n_active) == (3, 4, 0)
        assert np.isfinite(jax.jit(mixtures.log_components)(mixture, np.zeros(3))).all()

    def test_insert_replaces_one_component_and_no_weight(self):
        mixture = make(DiagonalNormal())
        new = {"loc": np.array([0.1, 0.2]), "raw_scale": np.array([0.3, 0.4])}
        after = jax.jit(mixtures.insert)(jax.tree.map(jnp.asarray, mixture), 3, new)
        np.testing.assert_array_equal(after.weights, WEIGHTS)
        for name, value in jax.jit(mixtures.component)(after, 3).items():
            np.testing.assert_array_equal(value, new[name])
        others = [0, 1, 2, 4]
        np.testing.assert_array_equal(np.asarray(after.params["loc"])[others], LOCS[others])

    def test_log_weights(self):
        np.testing.assert_array_equal(jax.jit(mixtures.log_weights)(np.array([0.0, 1.0])), [-np.inf, 0.0])


@pytest.mark.usefixtures("x64")
class TestDraw:
    n = 20_001  # no share of it is a whole number

    @pytest.mark.parametrize("stratified", [True, False])
    def test_moments_and_density(self, mixture, stratified):
        z, log_q = draw(mixture, WEIGHTS, jax.random.key(0), self.n, stratified)
        assert_moments(np.asarray(z), *moments(mixture.family.name))
        np.testing.assert_allclose(log_q, reference_log_prob(mixture, np.asarray(z)), rtol=1e-9, atol=1e-9)

    def labels(self, stratified: bool, weights: np.ndarray = WEIGHTS) -> np.ndarray:
        """Which of five far-apart components each draw came from."""
        far = {"loc": 100.0 * np.arange(5.0)[:, None] * np.ones(2), "raw_scale": np.zeros((5, 2))}
        z, _ = draw(Mixture(far, weights, DiagonalNormal()), weights, jax.random.key(1), self.n, stratified)
        return np.rint(np.asarray(z)[:, 0] / 100.0).astype(int)

    def test_strata_follow_the_weights(self):
        """One point in each of n equal intervals: every count is within 1 of n·w at each of its two ends."""
        counts = np.bincount(self.labels(True), minlength=5)
        assert (np.abs(counts - self.n * WEIGHTS) <= 2).all()
        assert (counts[WEIGHTS == 0] == 0).all()

    def test_plain_draws_are_multinomial(self):
        labels = self.labels(False)
        counts = np.bincount(labels, minlength=5)
        assert (counts[WEIGHTS == 0] == 0).all()
        active = WEIGHTS > 0
        assert scipy.stats.chisquare(counts[active], self.n * WEIGHTS[active]).pvalue > 1e-4
        # Independent draws come in no order; strata do.
        assert (np.diff(labels[:100]) < 0).any()

    def test_other_weights_than_the_mixtures_own(self):
        alone = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
        z, log_q = draw(make(DiagonalNormal()), alone, jax.random.key(2), self.n, True)
        expected = scipy.stats.norm.logpdf(np.asarray(z), LOCS[4], SCALES[4]).sum(axis=-1)
        np.testing.assert_allclose(log_q, expected, rtol=1e-10)

    def test_weights_that_sum_to_less_lose_nothing(self):
        """Rounding may leave Σw below 1; no draw may fall behind the last active slot."""
        short = np.array([0.0, 0.5, 0.5 - 1e-9, 0.0, 0.0])
        assert set(self.labels(True, short)) == {1, 2}

    def test_chunks_change_nothing(self, monkeypatch, mixture):
        def drawn():
            afresh = jax.jit(lambda *args: mixtures.draw(*args, 1000))
            return afresh(mixture, WEIGHTS, jax.random.key(4))

        whole = drawn()
        monkeypatch.setattr(mixtures, "GATHER_BYTES", 2**10)
        parts = drawn()
        np.testing.assert_allclose(parts[0], whole[0], rtol=1e-13)
        np.testing.assert_allclose(parts[1], whole[1], rtol=1e-10)


def covariance_of_condition(number: float, dim: int):
    """A component whose covariance has this condition number, rotated at random."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    covariance = (rotation * np.geomspace(1.0, number, dim) / np.sqrt(number)) @ rotation.T
    symmetric = 0.5 * (covariance + covariance.T)
    return jax.jit(FullRankNormal().from_gaussian)(jax.random.key(0), np.zeros(dim), symmetric)


def long_chain(dim: int):
    """Each coordinate ten times the sum of those before it, plus noise: a solve doubles its rounding at every row."""
    return {"loc": np.zeros(dim), "raw_scale": np.zeros(dim), "lower": np.tril(np.full((dim, dim), 10.0), -1)}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("make_params", "size", "solvable"),
    [(covariance_of_condition, 1e12, True), pytest.param(long_chain, None, False, marks=pytest.mark.slow)],
)
def test_an_ill_conditioned_component_invents_no_density(make_params, size, solvable):
    """The mean of −ln s over its own draws is its entropy, (d/2)(1 + ln 2π) + ln det L, to d/2 of variance per draw.

    In the second case solving for the noise loses everything: there the draw's own noise is what keeps it right.
    """
    family, n = FullRankNormal(), 4000
    params = make_params(size, 6) if size else make_params(40)
    dim = params["loc"].size
    mixture = Mixture(jax.tree.map(lambda leaf: np.asarray(leaf)[None], params), np.ones(1), family)
    z, log_q = draw(mixture, mixture.weights, jax.random.key(1), n, True)
    scale = np.logaddexp(0.0, params["raw_scale"])
    entropy = 0.5 * dim * (1.0 + np.log(2 * np.pi)) + np.log(scale).sum()
    error = np.sqrt(0.5 * dim / n)
    assert abs(-np.mean(log_q) - entropy) < 4 * error
    assert (abs(-np.mean(jax.jit(mixtures.log_prob)(mixture, z)) - entropy) < 4 * error) == solvable
