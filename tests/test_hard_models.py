"""Models that are wrong, odd, tiny or large: a right answer, or words that a person can act on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import boostvi as bv
from boostvi.next_component import LaplaceApproximation

Y = np.array([0.5, 1.5, 2.5])


class TestImproper:
    def test_a_density_that_grows_without_bound(self):
        with pytest.raises(ValueError, match="proper prior"):
            bv.fit(bv.Target(lambda z: 0.5 * jnp.sum(z**2), 2))

    def test_separable_data_with_a_flat_prior(self):
        """The likelihood keeps rising along w: the fit runs away, is called unreliable, and says why."""
        X = np.random.default_rng(0).normal(size=(30, 2))

        def model(X, y):
            w = numpyro.sample("w", dist.ImproperUniform(constraints.real_vector, (), (2,)))
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

        target = bv.from_numpyro(model, X, (X[:, 0] > 0).astype(np.float64))
        result = bv.fit(target)
        assert result.verdict == "unreliable"
        assert any("w[0]" in reason and "proper prior" in reason for reason in result.reasons)


class TestObservations:
    def test_data_that_nothing_observes(self):
        def model(y):
            numpyro.sample("mu", dist.Normal(0.0, 1.0))

        with pytest.warns(UserWarning, match=r"no observed site.*obs="):
            bv.from_numpyro(model, Y)

    def test_a_prior_on_purpose_is_no_slip(self):
        target = bv.from_numpyro(lambda: numpyro.sample("mu", dist.Normal(0.0, 1.0)))
        assert target.dim == 1

    def test_empty_data(self):
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            with numpyro.plate("rows", max(len(y), 1)):
                numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

        with pytest.warns(UserWarning, match="'y' is empty"):
            bv.from_numpyro(model, np.zeros(0))

    def test_a_parameter_without_a_prior(self):
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu, numpyro.param("sigma", 1.0)), obs=y)

        with pytest.raises(ValueError, match=r"'sigma' is a numpyro\.param.*numpyro\.sample"):
            bv.from_numpyro(model, Y)

    @pytest.mark.parametrize("discrete", [dist.Poisson(3.0), dist.Bernoulli(0.5), dist.Categorical(jnp.ones(3) / 3)])
    def test_discrete_latent_variables(self, discrete):
        def model(y):
            k = numpyro.sample("k", discrete)
            numpyro.sample("y", dist.Normal(k, 1.0), obs=y)

        with pytest.raises(ValueError, match=r"'k' is a discrete latent variable.*sum it out"):
            bv.from_numpyro(model, Y)

    def test_missing_values_may_be_masked(self):
        """`obs_mask` makes latent variables of the values it hides; they follow their predictive distribution."""
        y = np.array([1.0, 2.0, np.nan])

        def model(y, mask):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=jnp.where(mask, y, 0.0), obs_mask=mask)

        target = bv.from_numpyro(model, y, np.isfinite(y))
        draws = bv.fit(target, first="laplace", max_steps=0).sample(20_000)
        assert draws["mu"].mean() == pytest.approx(1.0, abs=0.05)  # two values 1 and 2, prior N(0, 1)
        assert draws["mu"].std() == pytest.approx(np.sqrt(1 / 3), rel=0.05)


class TestSizes:
    def test_one_parameter(self):
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

        result = bv.fit(bv.from_numpyro(model, Y))
        assert result.verdict == "good"
        assert result.mixture.n_active == 1
        draws = result.sample(20_000)["mu"]
        assert draws.mean() == pytest.approx(4.5 / 4, abs=5 * 0.5 / np.sqrt(20_000))
        assert draws.std() == pytest.approx(0.5, rel=0.03)

    @pytest.mark.parametrize("family", [pytest.param(None, marks=pytest.mark.slow), "low-rank-normal"])
    def test_a_thousand_parameters(self, family):
        """Independent, with scales from 0.1 to 10: log Z is known, and low-rank components are exact here, too."""
        scales = jnp.asarray(np.geomspace(0.1, 10.0, 1000))
        target = bv.Target(lambda z: jnp.sum(jax.scipy.stats.norm.logpdf(z, 0.0, scales)), 1000)
        result = bv.fit(target, family=family, first=LaplaceApproximation(n_starts=1), max_steps=0)
        assert result.mixture.family.name == (family or "full-rank-normal")
        assert result.elbo == pytest.approx(0.0, abs=0.1)
        np.testing.assert_allclose(result.sample(2000).std(axis=0), scales, rtol=0.15)


def test_a_region_without_mass():
    """Half of the plane has no mass: draws that fall there make the ELBO −inf, so the fit must keep out, or say so."""
    target = bv.Target(
        lambda z: jnp.where(z[0] > 0.0, -0.5 * jnp.sum((z - jnp.array([3.0, 0.0])) ** 2), -jnp.inf),
        2,
        lambda key: jnp.abs(jax.random.normal(key, (2,))) + 0.1,
    )
    result = bv.fit(target, max_steps=2)
    if np.isfinite(result.elbo):
        assert result.kl_estimate < 0.1
    else:
        assert result.verdict == "unreliable"
        assert any("no mass" in reason for reason in result.reasons)


@pytest.mark.slow
def test_a_density_that_loses_its_digits_far_out():
    """At a precision of e⁴⁵ the lgamma terms of a Dirichlet-multinomial cancel to thousands of nats, more than any
    prior takes back, and all of it rounding error. The searches start out there, too."""
    rng = np.random.default_rng(8)
    shares = rng.dirichlet(12.0 * np.array([0.4, 0.3, 0.2, 0.1]), size=15)
    counts = np.stack([rng.multinomial(50, row) for row in shares])

    def model():
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(4)))
        precision = numpyro.sample("precision", dist.LogNormal(2.0, 1.0))
        numpyro.sample("counts", dist.DirichletMultinomial(precision * shares, total_count=50), obs=counts)

    target = bv.from_numpyro(model)
    far = np.array([[41.026, -3.143, -4.112, 3.568], [45.517, -6.282, 24.651, 1.233], [48.764, 8.546, -3.844, -7.283]])
    result = bv.fit(target, seed=0)
    with jax.enable_x64(True):
        assert max(float(target.log_density(z)) for z in far) > result.elbo + 1000.0
    assert result.verdict == "good", result.reasons
    draws = result.sample(20_000, seed=1)
    assert np.log(draws["precision"]).mean() == pytest.approx(2.4, abs=0.2)
    np.testing.assert_allclose(draws["shares"].mean(axis=0), counts.mean(axis=0) / 50.0, atol=0.03)
