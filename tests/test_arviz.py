"""Results in ArviZ, of whichever version is installed."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import boostvi as bv

az = pytest.importorskip("arviz")
pytestmark = pytest.mark.filterwarnings("ignore")  # ArviZ's own, about Pareto shapes and single chains

RNG = np.random.default_rng(2)
X = RNG.normal(size=(40, 2))
Y = X @ [1.0, -1.0] + RNG.normal(size=40)


def model(X, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("row", X.shape[0]):
        mean = numpyro.deterministic("mean", X @ w)
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)
    numpyro.factor("nothing", 0.0)


@pytest.fixture(scope="module")
def result() -> bv.Result:
    return bv.fit(bv.from_numpyro(model, X, Y), first="laplace", max_steps=0)


@pytest.fixture(scope="module")
def data(result):
    return result.to_arviz(800, seed=4, coords={"w_dim_0": ["left", "right"]})


def test_groups_and_their_shapes(data, result):
    assert data.posterior["w"].shape == (1, 800, 2)
    assert data.posterior["w"].dims == ("chain", "draw", "w_dim_0")
    assert list(data.posterior["w_dim_0"].values) == ["left", "right"]
    assert data.posterior["mean"].dims[-1] == "row"
    assert data.log_likelihood["y"].shape == data.posterior_predictive["y"].shape == (1, 800, 40)
    assert set(data.log_likelihood.data_vars) == {"y"}  # a factor is no data
    np.testing.assert_allclose(data.observed_data["y"].values, Y)
    np.testing.assert_array_equal(data.posterior["w"].values[0], result.sample(800, seed=4)["w"])


def test_sample_stats(data, result):
    stats = {name: values.values[0] for name, values in data.sample_stats.data_vars.items()}
    z = result.mixture.sample(800, seed=4)
    np.testing.assert_allclose(stats["log_prob"], result.mixture.log_prob(z))
    assert stats["importance_weight"].mean() == pytest.approx(1.0)
    assert np.corrcoef(stats["importance_weight"], np.exp(stats["lp"] - stats["log_prob"]))[0, 1] > 0.9
    assert set(stats["component"]) == {0}


def test_importance_resampled_draws_have_equal_weights(result):
    stats = result.to_arviz(100, importance=True).sample_stats
    np.testing.assert_array_equal(stats["importance_weight"].values, 1.0)


def test_summary_and_loo_run_on_it(data):
    table = az.summary(data, var_names=["w", "sigma"])
    assert {"w[left]", "w[right]", "sigma"} <= set(table.index)
    loo = az.loo(data)
    assert float(loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo) < 0


def test_a_plot_runs_on_it(data):
    import matplotlib

    matplotlib.use("Agg")
    plot = az.plot_dist if int(az.__version__.split(".")[0]) >= 1 else az.plot_posterior
    assert plot(data, var_names=["sigma"]) is not None


def test_plain_targets_and_trees():
    flat = bv.fit(bv.Target(lambda z: -0.5 * jnp.sum(z**2), 2), first="laplace", max_steps=0).to_arviz(50)
    assert flat.posterior["z"].shape == (1, 50, 2)
    nested = bv.Target(lambda p: -0.5 * (p["a"]["b"] ** 2 + jnp.sum(p["c"] ** 2)), {"a": {"b": 0.0}, "c": np.zeros(3)})
    tree = bv.fit(nested, first="laplace", max_steps=0).to_arviz(50)
    assert set(tree.posterior.data_vars) == {"a.b", "c"}
    assert tree.posterior["c"].shape == (1, 50, 3)
