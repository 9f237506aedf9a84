"""A result in NumPyro's own tools: guide, Predictive, log_likelihood, NUTS."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood

import boostvi as bv

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 2))
Y = (RNG.random(60) < 1 / (1 + np.exp(-X @ [1.0, -1.0] - 0.5))).astype(np.float64)


def model(X, y=None):
    # "w" comes before "a" in the model and after it in the flat vector: the guide must not mix them up
    w = numpyro.sample("w", dist.Normal(jnp.array([0.0, 5.0]), 0.5).to_event(1))
    a = numpyro.sample("a", dist.LogNormal(0.0, 0.5))
    numpyro.deterministic("first", w[0])
    numpyro.sample("y", dist.Bernoulli(logits=a + X @ w), obs=y)


@pytest.fixture(scope="module")
def result() -> bv.Result:
    return bv.fit(bv.from_numpyro(model, X, Y), first="laplace", max_steps=0, seed=0)


def test_guide_draws_have_the_mixtures_moments(result):
    guide = result.guide
    draws = guide.sample_posterior(jax.random.key(0), guide.params, X, Y, sample_shape=(20_000,))
    ours = result.sample(20_000, seed=1)
    for site in ("a", "w", "first"):
        error = 5 * ours[site].std(axis=0) / np.sqrt(10_000)
        assert np.all(np.abs(np.asarray(draws[site]).mean(axis=0) - ours[site].mean(axis=0)) < error)


def test_guide_density_is_the_mixtures(result):
    guide = result.guide
    trace = numpyro.handlers.trace(numpyro.handlers.seed(guide, jax.random.key(1))).get_trace(X, Y)
    latent = trace["_boostvi_latent"]
    z = np.concatenate([np.log(np.asarray(trace["a"]["value"]))[None], np.asarray(trace["w"]["value"])])
    assert float(latent["fn"].log_prob(latent["value"])) == pytest.approx(float(result.mixture.log_prob(z)), rel=1e-4)


def test_predictive_with_the_guide_and_new_data(result):
    guide = result.guide
    new = RNG.normal(size=(7, 2)).astype(np.float32)
    drawn = Predictive(model, guide=guide, params=guide.params, num_samples=500)(jax.random.key(2), new)
    assert drawn["y"].shape == (500, 7)
    assert drawn["first"].shape == (500,)


def test_numpyros_log_likelihood_agrees_with_ours(result):
    theirs = log_likelihood(model, result.sample(50, seed=3), X, Y)["y"]
    ours = result.log_likelihood(50, seed=3)["y"]
    assert ours.shape == (50, 60)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)  # theirs is in float32


def test_posterior_predictive_replicates_the_data(result):
    replicates = result.posterior_predictive(2000, seed=0)["y"]
    assert replicates.shape == (2000, 60)
    assert set(np.unique(replicates)) == {0, 1}
    chance = jax.nn.sigmoid(result.log_likelihood(2000)["y"] * 0.0 + _logits(result.sample(2000)))
    assert np.abs(replicates.mean() - chance.mean()) < 5 * 0.5 / np.sqrt(2000)


def _logits(draws):
    return draws["a"][:, None] + draws["w"] @ X.T


def test_nuts_starts_from_here(result):
    """Positions are unconstrained values per site, and the mass matrix is in the order NumPyro flattens them."""
    positions = result.initial_positions(2, seed=0)
    assert {name: value.shape for name, value in positions.items()} == {"a": (2,), "w": (2, 2)}
    inverse_mass = result.inverse_mass_matrix()
    kernel = NUTS(model, inverse_mass_matrix=inverse_mass, adapt_mass_matrix=False, dense_mass=True)
    mcmc = MCMC(kernel, num_warmup=50, num_samples=500, num_chains=2, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(0), X, Y, init_params=positions)
    chains = mcmc.get_samples()
    flat = np.column_stack([np.log(chains["a"]), chains["w"]])
    np.testing.assert_allclose(np.sqrt(np.diag(inverse_mass)), flat.std(axis=0), rtol=0.2)
    variances = result.inverse_mass_matrix(dense=False)
    np.testing.assert_allclose(variances, np.diag(inverse_mass))


def test_what_needs_a_model_says_so():
    plain = bv.fit(bv.Target(lambda z: -0.5 * jnp.sum(z**2), 2), first="laplace", max_steps=0)
    for use in (lambda: plain.guide, plain.posterior_predictive, plain.log_likelihood):
        with pytest.raises(ValueError, match="from_numpyro"):
            use()
    assert plain.initial_positions(3).shape == (3, 2)
