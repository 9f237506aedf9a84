"""PyMC models: PyMC's own density, draws in the model's own space, and nothing switched on behind the user's back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import boostvi as bv

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when it is imported
    pm = pytest.importorskip("pymc")

from boostvi.integrations import pymc as adapter

# PyTensor's complaint about the machine, when it first looks for a BLAS that nothing here uses
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pymc-stan.md"
BENCHMARKS = ROOT / "benchmarks"
GROUPS = ["a", "b", "c"]
X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
Y = np.random.default_rng(0).normal(size=(4, 3))
DIM = 8


@pytest.fixture(scope="module")
def model():
    """Mutable data and coords, several transforms, deterministics and a potential."""
    with pm.Model(coords={"group": GROUPS}) as model:
        model.add_coord("row", length=4)
        x = pm.Data("x", X, dims=("row", "group"))
        theta = pm.Normal("theta", 1.0, 2.0, dims="group")
        tau = pm.HalfNormal("tau", 2.0)
        shares = pm.Dirichlet("shares", np.array([1.0, 2.0, 3.0]))
        slope = pm.Uniform("slope", -2.0, 2.0, shape=2)
        pm.Deterministic("twice", 2 * theta, dims="group")
        pm.Deterministic("biggest", shares.max())
        pm.Potential("pull", -0.5 * (slope[1] - 1.0) ** 2)
        pm.Normal("y", theta + slope[0] * x, tau, observed=Y, dims=("row", "group"))
    return model


@pytest.fixture(scope="module")
def target(model) -> bv.Target:
    return bv.from_pymc(model)


@pytest.fixture(scope="module")
def draws(target) -> dict[str, np.ndarray]:
    z = np.random.default_rng(1).normal(size=(600, DIM))
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(target.constrain))(z))


@pytest.mark.usefixtures("x64")
def test_log_density_is_pymcs(model, target):
    theirs = model.compile_fn(model.logp(), mode="FAST_COMPILE")
    points = np.random.default_rng(2).normal(size=(5, DIM))
    for z, ours in zip(points, jax.jit(target.log_density_of)(points), strict=True):
        values = dict(zip([v.name for v in model.value_vars], np.split(z, [3, 4, 6]), strict=True))
        values["tau_log__"] = values["tau_log__"][0]
        np.testing.assert_allclose(ours, theirs(values), rtol=1e-12)


def test_names_follow_the_flat_vector(target):
    assert target.names == (
        "theta[0]", "theta[1]", "theta[2]", "tau", "shares[0]", "shares[1]", "slope[0]", "slope[1]",
    )  # fmt: skip
    assert target.is_float64


def test_constrained_draws_and_deterministics(draws):
    assert {name: value.shape[1:] for name, value in draws.items()} == {
        "theta": (3,), "tau": (), "shares": (3,), "slope": (2,), "twice": (3,), "biggest": (),
    }  # fmt: skip
    z = np.random.default_rng(1).normal(size=(600, DIM))
    np.testing.assert_array_equal(draws["theta"], z[:, :3])
    np.testing.assert_allclose(draws["tau"], np.exp(z[:, 3]))
    np.testing.assert_allclose(draws["shares"].sum(axis=1), 1.0)
    np.testing.assert_allclose(draws["slope"], 4 / (1 + np.exp(-z[:, 6:])) - 2)
    np.testing.assert_array_equal(draws["twice"], 2 * draws["theta"])
    np.testing.assert_array_equal(draws["biggest"], draws["shares"].max(axis=1))


def test_dims_coords_and_data(target):
    known = target.model
    assert known.dims["theta"] == ("group",)
    assert known.dims["y"] == ("row", "group")
    assert list(known.coords["group"]) == GROUPS
    assert "row" not in known.coords  # it has a length only
    np.testing.assert_array_equal(known.observed["y"], Y)


def test_log_likelihood_of_every_observation(target, draws):
    values = target.model.log_likelihood(draws)
    loc = draws["theta"][:, None] + draws["slope"][:, 0, None, None] * X
    expected = scipy.stats.norm.logpdf(Y, loc, draws["tau"][:, None, None])
    assert list(values) == ["y"]
    np.testing.assert_allclose(values["y"], expected, rtol=1e-10)


def test_posterior_predictive_is_given_the_draws(model, target, draws):
    """The latents are those of the draws, although dims and data could have changed; seeds decide."""
    first, again, other = (target.model.posterior_predictive(draws, seed)["y"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    loc = draws["theta"][:, None] + draws["slope"][:, 0, None, None] * X
    standardised = (first - loc) / draws["tau"][:, None, None]
    assert scipy.stats.kstest(standardised.ravel(), "norm").pvalue > 1e-3
    with model:
        pm.set_data({"x": X + 100.0})
    try:
        moved = target.model.posterior_predictive(draws, 0)["y"]
    finally:
        with model:
            pm.set_data({"x": X})
    np.testing.assert_allclose(moved - first, np.broadcast_to(100 * draws["slope"][:, :1, None], moved.shape))


def starts(target: bv.Target, n: int) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        points = jax.jit(jax.vmap(target.init))(jax.random.split(jax.random.key(0), n))
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(target.constrain))(points))


def test_starts_are_prior_draws(target):
    found = starts(target, 200)
    laws = {
        "theta": (found["theta"][:, 1], scipy.stats.norm(1.0, 2.0)),
        "tau": (found["tau"], scipy.stats.halfnorm(scale=2.0)),
        "shares": (found["shares"][:, 2], scipy.stats.beta(3, 3)),
        "slope": (found["slope"][:, 0], scipy.stats.uniform(-2.0, 4.0)),
    }
    for name, (values, law) in laws.items():
        assert scipy.stats.kstest(np.unique(values), law.cdf).pvalue > 1e-3, name


def test_starts_around_initial_values():
    with pm.Model() as model:
        pm.Normal("a", 0.0, 1.0, initval=50.0)
        pm.Normal("b", -50.0, 1.0)
        pm.Potential("p", model["a"] + model["b"])
    found = starts(bv.from_pymc(model), 100)
    assert np.abs(found["a"] - 50).max() <= 1
    assert np.ptp(found["a"]) > 1  # dispersed
    assert np.abs(found["b"] + 50).max() < 6


def test_starts_where_a_prior_is_flat():
    with pm.Model() as model:
        a = pm.Flat("a")
        pm.Normal("y", a, 1.0, observed=3.0)
    target = bv.from_pymc(model)
    assert np.ptp(starts(target, 100)["a"]) > 1
    with jax.enable_x64(True):
        expected = scipy.stats.norm.logpdf(3.0, 0.4, 1.0)
        assert float(target.log_density(jnp.asarray([0.4]))) == pytest.approx(expected, rel=1e-12)


def test_a_conjugate_model_end_to_end():
    """Posterior N(Σy/(n + 1/100), 1/(n + 1/100)) and its evidence, from a Laplace approximation that is exact."""
    y = np.random.default_rng(3).normal(1.0, 1.0, size=20)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0.0, 10.0), 1.0, observed=y)
    result = bv.fit(bv.from_pymc(model), recipe="bbbvi", first="laplace", family="full-rank-normal", max_steps=0)
    precision = y.size + 0.01
    draws, sd = result.sample(4000, seed=0)["mu"], precision**-0.5
    assert abs(draws.mean() - y.sum() / precision) < 4 * sd / np.sqrt(draws.size)
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(2 * draws.size)
    evidence = scipy.stats.multivariate_normal(np.zeros(y.size), np.eye(y.size) + 100.0).logpdf(y)
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)


class TestBadModels:
    def test_not_a_model(self):
        with pytest.raises(TypeError, match=r"model must be a pymc.Model"):
            bv.from_pymc(lambda: None)

    def test_discrete_latents(self):
        with pm.Model() as model:
            pm.Normal("a")
            pm.Poisson("k", 3.0)
        with pytest.raises(ValueError, match=r"'k' is a discrete latent variable.*pymc.Mixture"):
            bv.from_pymc(model)

    def test_nothing_latent(self):
        with pm.Model() as model:
            pm.Normal("y", observed=1.0)
        with pytest.raises(ValueError, match="no latent variables"):
            bv.from_pymc(model)

    def test_nothing_observed(self):
        with pm.Model() as model:
            pm.Normal("a")
        with pytest.warns(UserWarning, match="a fit of the prior"):
            bv.from_pymc(model)

    @pytest.mark.parametrize("both", [True, False])
    def test_minibatches(self, both):
        rows = np.arange(10.0)
        x, y = pm.Minibatch(rows, rows, batch_size=2)
        with pm.Model() as model:
            slope = pm.Normal("slope")
            pm.Normal("y", slope * x, observed=y if both else np.zeros(2), total_size=10)
        with pytest.raises(ValueError, match=r"'y' uses pymc.Minibatch; pass it all of the data"):
            bv.from_pymc(model)

    @pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # PyMC's own cast of the NaN
    def test_missing_counts(self):
        with pytest.warns(pm.exceptions.ImputationWarning), pm.Model() as model:
            pm.Poisson("y", pm.Exponential("rate", 1.0), observed=np.array([1.0, np.nan, 2.0]))
        with pytest.raises(ValueError, match="'y_unobserved' stands for the missing values"):
            bv.from_pymc(model)

    def test_nan_in_the_observations(self):
        with pm.Model() as model:
            data = pm.Data("data", np.ones(3))
            pm.Normal("y", pm.Normal("mu"), observed=data)
            pm.set_data({"data": np.array([1.0, np.nan, np.nan])})
        with pytest.raises(ValueError, match="observed variable 'y' has 2 NaN values"):
            bv.from_pymc(model)

    def test_nan_in_the_covariates(self):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("slope") * np.array([0.5, np.nan]), observed=np.ones(2))
        with pytest.raises(ValueError, match="the data it uses contain NaN"):
            bv.fit(bv.from_pymc(model), max_steps=0)

    def test_what_jax_cannot_do(self, monkeypatch):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu"), observed=1.0)
        monkeypatch.setattr("pymc.sampling.jax.get_jaxified_graph", _no_conversion)
        with pytest.raises(ValueError, match="cannot translate this model to JAX: No JAX conversion"):
            bv.from_pymc(model)

    def test_without_pymc(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pymc", None)
        with pytest.raises(ImportError, match=r"pip install 'boostvi\[pymc\]'"):
            bv.from_pymc(object())


def _no_conversion(**graph):
    raise NotImplementedError("No JAX conversion for the given `Op`: Some\nmore")


def test_imputed_values_are_latent():
    y = np.array([0.5, np.nan, 1.5])
    with pytest.warns(pm.exceptions.ImputationWarning), pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0.0, 1.0), 1.0, observed=y)
    target = bv.from_pymc(model)
    assert target.names == ("mu", "y_unobserved[0]")
    with jax.enable_x64(True):
        sites = target.constrain(jnp.asarray([0.1, 0.2]))
    np.testing.assert_array_equal(sites["y"], [0.5, 0.2, 1.5])


FRESH = """
import os, warnings
warnings.simplefilter("ignore")
import jax, jax.numpy as jnp, pymc as pm, boostvi as bv
with pm.Model() as model:
    pm.Normal("y", pm.Normal("mu"), observed=1.0)
with jax.enable_x64(True):  # the harder case: here the switch reads as on
    target = bv.from_pymc(model)
assert target.is_float64
assert jnp.zeros(()).dtype == jnp.float32, "64 bits"
assert os.environ.get("XLA_FLAGS") is None, os.environ["XLA_FLAGS"]
assert len(jax.devices()) == 1
"""


def test_the_users_settings_are_kept():
    """In a fresh process, where PyMC's JAX part is imported for the first time."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mine", [True, False])
def test_settings_come_back_as_they_were(monkeypatch, mine):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    before = jax.config.jax_enable_x64
    try:
        jax.config.update("jax_enable_x64", mine)
        with jax.enable_x64(not mine), adapter._settings_kept():
            jax.config.update("jax_enable_x64", not mine)
            os.environ["XLA_FLAGS"] = "--theirs"
        assert jax.config.jax_enable_x64 == mine
    finally:
        jax.config.update("jax_enable_x64", before)
    assert os.environ["XLA_FLAGS"] == "--mine"


@pytest.fixture(scope="module")
def models():
    """The benchmark's examples, imported as the script imports them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import models

        yield models
    for name in ("models", "_models_numpyro", "_models_pymc", "_data"):
        sys.modules.pop(name, None)


EXAMPLES = (
    "eight_schools_centred", "eight_schools_noncentred", "logistic_regression", "poisson_regression", "horseshoe",
    "gaussian_process", "state_space", "mixture", "ordered_logistic", "dirichlet_multinomial", "lkj_normal",
)  # fmt: skip


QUICK_EXAMPLES = ("eight_schools_noncentred", "lkj_normal")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_EXAMPLES else [pytest.mark.slow]) for name in EXAMPLES]
)
def test_numpyro_and_pymc_agree_on_the_examples(models, name):
    assert tuple(models.EXAMPLES) == EXAMPLES
    assert models.density_disagreement(models.EXAMPLES[name], points=5) < models.DENSITY_TOLERANCE


def test_the_comparison_sees_a_difference(models, monkeypatch):
    """A prior of another width in one of the two languages."""
    example = models.EXAMPLES["poisson_regression"]

    def wider(X, exposure, y):
        with pm.Model() as model:
            alpha, beta = pm.Normal("alpha", 0.0, 5.1), pm.Normal("beta", 0.0, 1.0, shape=X.shape[1])
            pm.Poisson("y", exposure * pm.math.exp(alpha + X @ beta), observed=y)
        return model

    monkeypatch.setattr("_models_pymc.poisson_regression", wider)
    assert models.density_disagreement(example, points=5) > models.DENSITY_TOLERANCE


def test_the_page_runs():
    (block,) = [b for b in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "from_pymc" in b]
    names: dict = {}
    quick = 'seed=0, recipe="bbbvi", first="random", max_steps=0, n_draws=10, elbo_draws=10)'
    exec(block.replace("seed=0)", quick), names)
    assert names["draws"]["level"].shape == (1000, 3)
