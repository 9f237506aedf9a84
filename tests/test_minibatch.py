"""NumPyro plates that are subsampled: all data where it is judged, minibatches where components are optimised."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import boostvi as bv
from boostvi._jit import new_key
from boostvi.next_component import MixtureElbo
from boostvi.target import log_densities

N, D = 203, 3  # not a multiple of any block below
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
Y = X @ [1.0, -0.5, 0.2] + RNG.normal(size=N)


def model(X, y, size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("rows", X.shape[0], subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(X[rows] @ w, sigma), obs=y[rows])


@pytest.fixture(scope="module")
def whole() -> bv.Target:
    return bv.from_numpyro(model, X, Y)


@pytest.mark.parametrize("size", [20, 29, 150, N - 1])
def test_all_data_count_whatever_the_block(whole, size):
    z = np.random.default_rng(0).normal(size=(7, D + 1))
    target = bv.from_numpyro(model, X, Y, size=size)
    np.testing.assert_allclose(log_densities(target, z), log_densities(whole, z), rtol=1e-12)


def test_minibatches_are_unbiased(whole, x64):
    target = bv.from_numpyro(model, X, Y, size=20)
    z = jnp.asarray(np.random.default_rng(1).normal(size=D + 1))
    draw = jax.jit(jax.vmap(lambda key: jax.grad(target.minibatch.log_density)(z, key)))
    gradients = np.asarray(draw(jax.random.split(new_key(0), 4000)))
    exact = np.asarray(jax.grad(whole.log_density)(z))
    error = gradients.std(axis=0) / np.sqrt(len(gradients))
    assert np.all(error > 0)
    assert np.all(np.abs(gradients.mean(axis=0) - exact) < 4.5 * error)
    assert target.minibatch.share == pytest.approx(20 / N)


def test_a_plate_that_takes_every_row_is_no_minibatch(whole):
    assert whole.minibatch is None
    assert bv.from_numpyro(model, X, Y, size=N).minibatch is None


def test_fit_with_minibatches_agrees_with_the_whole(whole):
    """A conjugate-like regression: the moments of both fits agree, and only a share of the evaluations is counted."""
    target = bv.from_numpyro(model, X, Y, size=50)
    result = bv.fit(target, max_steps=0, seed=0)
    full = bv.fit(whole, max_steps=0, seed=0)
    assert result.elbo == pytest.approx(full.elbo, abs=0.05)
    ours, theirs = result.sample(20_000)["w"], full.sample(20_000)["w"]
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.15 * theirs.std(axis=0).max())
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.1)
    assert isinstance(result.run.parts.next_component, MixtureElbo)
    steps = result.run.parts.first.polish.steps * result.run.parts.first.polish.draws
    assert result.evals < steps  # 12,000 minibatch gradients are a quarter as many evaluations


def test_predictions_cover_all_rows():
    target = bv.from_numpyro(model, X, Y, size=50)
    draws = {"w": np.zeros((4, D)), "sigma": np.ones(4)}
    assert target.model.log_likelihood(draws)["y"].shape == (4, N)
    np.testing.assert_allclose(target.model.observed["y"], Y)
    assert target.model.dims["y"] == ("rows",)


def test_latent_variables_inside_the_plate_are_refused():
    def local(y):
        with numpyro.plate("rows", len(y), subsample_size=2) as rows:
            theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y[rows])

    with pytest.raises(ValueError, match=r"'theta' is a latent variable inside the subsampled plate 'rows'.*Leave out"):
        bv.from_numpyro(local, Y)


def test_two_subsampled_plates_are_refused():
    def two(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        for name in ("first", "second"):
            with numpyro.plate(name, len(y), subsample_size=5) as rows:
                numpyro.sample(f"y_{name}", dist.Normal(mu, 1.0), obs=y[rows])

    with pytest.raises(ValueError, match="'first' and 'second' are both subsampled"):
        bv.from_numpyro(two, Y)


def test_the_largest_array_is_found_inside_loops_and_jit():
    """Memory is bounded by what the density makes inside jit or scan, too."""
    plain = bv.Target(lambda z: -jnp.sum(jnp.outer(jnp.ones(10_000), z) ** 2), 2)
    jitted = bv.Target(jax.jit(lambda z: -jnp.sum(jnp.outer(jnp.ones(10_000), z) ** 2)), 2)
    assert jitted.chunk == plain.chunk < 1000
