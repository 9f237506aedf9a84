"""NumPyro models: the same posterior as NumPyro's own, reported in the model's own space."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer.util import log_density

import boostvi as bv

N_GROUPS = 3
Y = np.random.default_rng(0).normal(size=(10, N_GROUPS))


def model(y, scale=1.0):
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    cut = numpyro.sample("cut", dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()
    ))  # fmt: skip
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("groups", N_GROUPS):
        theta = numpyro.sample("theta", dist.Normal(cut[0], tau))
        numpyro.deterministic("twice", 2.0 * theta)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(theta, scale), obs=y)
    numpyro.deterministic("biggest", shares.max())
    numpyro.factor("pull", -0.5 * (cut[1] - 1.0) ** 2)


SUPPORTS = {
    "tau": constraints.positive,
    "cut": constraints.ordered_vector,
    "shares": constraints.simplex,
    "theta": constraints.real,
}
SIZES = {"cut": 2, "shares": 2, "tau": 1, "theta": N_GROUPS}  # unconstrained, in the order of the flat vector
DIM = sum(SIZES.values())


def reference(z: np.ndarray) -> float:
    """NumPyro's log density of the constrained values, plus the log-Jacobian of the transforms."""
    parts = dict(zip(SIZES, np.split(z, np.cumsum(list(SIZES.values()))[:-1]), strict=True))
    values, log_jacobian = {}, 0.0
    for name, part in parts.items():
        free = jnp.asarray(part if name != "tau" else part[0])
        transform = biject_to(SUPPORTS[name])
        values[name] = transform(free)
        log_jacobian += jnp.sum(transform.log_abs_det_jacobian(free, values[name]))
    value, _ = log_density(model, (Y,), {"scale": 1.5}, values)
    return float(value + log_jacobian)


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return bv.from_numpyro(model, Y, scale=1.5)


@pytest.fixture(scope="module")
def result(target) -> bv.Result:
    return bv.fit(target, recipe="bbbvi", first="random", max_steps=0, n_draws=10, elbo_draws=10)


@pytest.mark.usefixtures("x64")
def test_log_density_is_numpyros_plus_the_jacobian(target):
    points = np.random.default_rng(1).normal(size=(8, DIM))
    np.testing.assert_allclose(target.log_density_of(jnp.asarray(points)), [reference(z) for z in points], rtol=1e-12)


def test_names_follow_the_flat_vector(target):
    assert target.dim == DIM
    assert target.names == (
        "cut[0]", "cut[1]", "shares[0]", "shares[1]", "tau", "theta[0]", "theta[1]", "theta[2]",
    )  # fmt: skip


def test_constrained_draws_and_deterministics(result):
    n = 50
    draws = result.sample(n, seed=1)
    shapes = {name: value.shape for name, value in draws.items()}
    assert shapes == {
        "tau": (n,), "cut": (n, 2), "shares": (n, 3), "theta": (n, N_GROUPS), "twice": (n, N_GROUPS), "biggest": (n,),
    }  # fmt: skip
    assert all(isinstance(value, np.ndarray) for value in draws.values())
    assert (draws["tau"] > 0).all()
    assert (np.diff(draws["cut"], axis=1) > 0).all()
    np.testing.assert_allclose(draws["shares"].sum(axis=1), 1.0)
    np.testing.assert_array_equal(draws["twice"], 2 * draws["theta"])
    np.testing.assert_array_equal(draws["biggest"], draws["shares"].max(axis=1))
    # They are the transforms of the mixture's own draws, coordinate by coordinate as named.
    flat = result.mixture.sample(n, seed=1)
    np.testing.assert_allclose(draws["tau"], np.exp(flat[:, 4]))
    np.testing.assert_array_equal(draws["theta"], flat[:, 5:])
    np.testing.assert_allclose(draws["cut"], np.stack([flat[:, 0], flat[:, 0] + np.exp(flat[:, 1])], axis=1))


def test_importance_draws_are_constrained_too(result):
    draws = result.sample(20, seed=1, importance=True)
    assert draws["shares"].shape == (20, 3)
    assert draws["twice"].shape == (20, N_GROUPS)


def test_summary_names_sites_in_their_own_space(result):
    text = result.summary()
    for label in ("tau", "shares[2]", "twice[1]", "biggest"):
        assert label in text


@pytest.mark.usefixtures("x64")
def test_starts_are_prior_draws(target):
    n = 2000
    starts = np.asarray(jax.jit(jax.vmap(target.init))(jax.random.split(jax.random.key(0), n)))
    assert starts.shape == (n, DIM)
    constrained = jax.vmap(target.constrain)(jnp.asarray(starts))
    tau = np.asarray(constrained["tau"])
    laws = {
        "tau": (tau, scipy.stats.halfnorm(scale=2.0).cdf),
        "shares": (np.asarray(constrained["shares"][:, 2]), scipy.stats.beta(3, 3).cdf),
        "cut": (np.asarray(constrained["cut"][:, 0]), scipy.stats.norm.cdf),
        "theta": (np.asarray((constrained["theta"][:, 1] - constrained["cut"][:, 0]) / tau), scipy.stats.norm.cdf),
    }
    for name, (draws, cdf) in laws.items():
        assert scipy.stats.kstest(draws, cdf).pvalue > 1e-3, name


def known(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def test_a_conjugate_model_end_to_end():
    """Posterior N(Σy/(n + 1/100), 1/(n + 1/100)) and its evidence, from a Laplace approximation that is exact."""
    y = np.random.default_rng(2).normal(1.0, 1.0, size=20)
    target = bv.from_numpyro(known, y)
    result = bv.fit(target, recipe="bbbvi", first="laplace", family="full-rank-normal", max_steps=0)
    precision = y.size + 0.01
    draws = result.sample(4000, seed=0)["mu"]
    sd = precision**-0.5
    assert abs(draws.mean() - y.sum() / precision) < 4 * sd / np.sqrt(draws.size)
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(2 * draws.size)
    covariance = np.eye(y.size) + 100.0
    evidence = scipy.stats.multivariate_normal(np.zeros(y.size), covariance).logpdf(y)
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert result.kl_estimate < 1e-6


@pytest.mark.usefixtures("x64")
class TestImproperPriors:
    @staticmethod
    def plain():
        a = numpyro.sample("a", dist.ImproperUniform(constraints.positive, (), (2,)))
        numpyro.sample("y", dist.Normal(a.sum(), 1.0), obs=3.0)

    @staticmethod
    def in_plate():
        with numpyro.plate("groups", 2):
            a = numpyro.sample("a", dist.ImproperUniform(constraints.positive, (), ()))
        numpyro.sample("y", dist.Normal(a.sum(), 1.0), obs=3.0)

    @staticmethod
    def expanded():
        a = numpyro.sample("a", dist.ImproperUniform(constraints.positive, (), ()).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(a.sum(), 1.0), obs=3.0)

    @staticmethod
    def masked():
        a = numpyro.sample("a", dist.ImproperUniform(constraints.positive, (), (2,)).mask(False))
        numpyro.sample("y", dist.Normal(a.sum(), 1.0), obs=3.0)

    @pytest.mark.parametrize("name", ["plain", "in_plate", "expanded", "masked"])
    def test_start_uniformly_and_density_is_the_likelihood(self, name):
        target = bv.from_numpyro(getattr(self, name))
        assert target.names == ("a[0]", "a[1]")
        z = np.array([0.3, -0.4])
        expected = scipy.stats.norm.logpdf(3.0, np.exp(z).sum(), 1.0) + z.sum()
        np.testing.assert_allclose(target.log_density(jnp.asarray(z)), expected, rtol=1e-12)
        starts = np.asarray(jax.jit(jax.vmap(target.init))(jax.random.split(jax.random.key(0), 500)))
        for column in starts.T:
            assert scipy.stats.kstest(column, scipy.stats.uniform(-2, 4).cdf).pvalue > 1e-3

    def test_proper_sites_beside_them_start_from_their_prior(self):
        def mixed():
            a = numpyro.sample("a", dist.ImproperUniform(constraints.real, (), ()))
            b = numpyro.sample("b", dist.Normal(5.0, 0.1))
            numpyro.sample("y", dist.Normal(a + b, 1.0), obs=0.0)

        target = bv.from_numpyro(mixed)
        starts = np.asarray(jax.jit(jax.vmap(target.init))(jax.random.split(jax.random.key(0), 500)))
        assert scipy.stats.kstest(starts[:, 0], scipy.stats.uniform(-2, 4).cdf).pvalue > 1e-3
        assert scipy.stats.kstest(starts[:, 1], scipy.stats.norm(5.0, 0.1).cdf).pvalue > 1e-3


@pytest.mark.usefixtures("x64")
def test_support_that_depends_on_another_site():
    def dependent():
        top = numpyro.sample("top", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.Uniform(0.0, 2.0 * top))

    target = bv.from_numpyro(dependent)
    z = np.array([0.3, -0.4])
    top, share = np.exp(z[0]), 1 / (1 + np.exp(-z[1]))
    # x = 2·top·sigmoid(z₁): density 1/(2 top) times Jacobian 2 top·σ(1 − σ)
    expected = scipy.stats.halfnorm.logpdf(top) + z[0] + np.log(share * (1 - share))
    np.testing.assert_allclose(target.log_density(jnp.asarray(z)), expected, rtol=1e-10)
    constrained = target.constrain(jnp.asarray(z))
    np.testing.assert_allclose([constrained["top"], constrained["x"]], [top, 2 * top * share], rtol=1e-10)


class TestBadModels:
    def test_discrete_latents(self):
        def discrete():
            numpyro.sample("a", dist.Normal())
            numpyro.sample("k", dist.Bernoulli(0.5))

        with pytest.raises(ValueError, match="'k' is a discrete latent variable"):
            bv.from_numpyro(discrete)

    def test_nothing_latent(self):
        with pytest.raises(ValueError, match="no latent variables"):
            bv.from_numpyro(lambda: numpyro.sample("y", dist.Normal(), obs=1.0))

    def test_not_a_model(self):
        with pytest.raises(TypeError, match="model must be a NumPyro model function"):
            bv.from_numpyro({"mu": 1.0})

    def test_a_model_that_raises(self):
        def broken(y):
            raise KeyError("height")

        with pytest.raises(ValueError, match=r"the model raised KeyError.*height"):
            bv.from_numpyro(broken, Y)

    def test_missing_arguments(self):
        with pytest.raises(ValueError, match="the model raised TypeError"):
            bv.from_numpyro(model)

    def test_nan_in_the_observations(self):
        y = np.array([0.5, np.nan, 1.0, np.nan])
        with pytest.raises(ValueError, match="observed site 'y' has 2 NaN values"):
            bv.from_numpyro(known, y)

    @pytest.mark.parametrize("checked", [True, False])
    def test_nan_in_the_covariates(self, checked):
        """Also where NumPyro's own checks are switched off."""
        x = np.array([0.5, np.nan])

        def slope(x):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=np.ones(2))

        with numpyro.validation_enabled(checked), pytest.raises(ValueError, match=r"NaN|invalid loc parameter"):
            bv.fit(bv.from_numpyro(slope, x), max_steps=0)

    def test_no_mass_anywhere(self):
        def impossible():
            numpyro.sample("a", dist.Normal(0.0, 1.0))
            numpyro.factor("never", -jnp.inf)

        with pytest.raises(ValueError, match="infinite at all 64 starting points"):
            bv.fit(bv.from_numpyro(impossible), max_steps=0)


def test_masked_nan_is_fine():
    """Masked observations are as good as absent: same density, and finite gradients."""
    y = np.array([0.5, np.nan, 1.0])

    def masked(y, mask):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.handlers.mask(mask=mask):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with jax.enable_x64(True):
        some, rest = bv.from_numpyro(masked, y, ~np.isnan(y)), bv.from_numpyro(known, y[~np.isnan(y)])
        z = jnp.asarray([0.7])
        (value, gradient), (expected, slope) = (jax.value_and_grad(t.log_density)(z) for t in (some, rest))
    assert value == pytest.approx(float(expected), rel=1e-12)
    assert gradient[0] == pytest.approx(float(slope[0]), rel=1e-12)


def test_the_models_precision_is_left_alone():
    before = jnp.zeros(()).dtype
    bv.from_numpyro(known, np.ones(3))
    assert jnp.zeros(()).dtype == before == jnp.float32
