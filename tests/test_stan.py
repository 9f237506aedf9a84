"""Stan models: any object with BridgeStan's methods, here one written by hand."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import boostvi as bv

PAGE = Path(__file__).parents[1] / "docs" / "pymc-stan.md"
Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SE = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
DIM = 10


class EightSchools:
    """What BridgeStan makes of eight schools, non-centred, with `theta` a transformed parameter."""

    def __init__(self) -> None:
        self.calls = 0

    def param_unc_num(self):
        return DIM

    def param_unc_names(self):
        return ["mu", "tau", *(f"raw.{i}" for i in range(1, 9))]

    def param_names(self, *, include_tp=False, include_gq=False):
        assert not include_gq
        return self.param_unc_names() + [f"theta.{i}" for i in range(1, 9) if include_tp]

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False, out=None, rng=None):
        mu, tau, raw = theta_unc[0], np.exp(theta_unc[1]), theta_unc[2:]
        return np.concatenate([[mu, tau], raw, mu + tau * raw if include_tp else []])

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        assert jacobian
        assert theta_unc.dtype == np.float64
        assert theta_unc.flags["C_CONTIGUOUS"]
        self.calls += 1
        mu, log_tau, raw = theta_unc[0], theta_unc[1], theta_unc[2:]
        tau = np.exp(log_tau)
        residual = (Y - mu - tau * raw) / SE
        value = -0.5 * (mu / 5) ** 2 - np.log1p((tau / 5) ** 2) + log_tau - 0.5 * raw @ raw - 0.5 * residual @ residual
        if not propto:
            value += np.log(2 / (np.pi * 5)) - np.log(5) - np.log(SE).sum() - 8.5 * np.log(2 * np.pi)
        share = (tau / 5) ** 2 / (1 + (tau / 5) ** 2)
        gradient = [-mu / 25 + np.sum(residual / SE), 1 - 2 * share + tau * np.sum(raw * residual / SE)]
        return value, np.concatenate([gradient, -raw + tau * residual / SE])


class Flat:
    """A standard normal of one parameter with everything that a Stan program may write."""

    def param_unc_num(self):
        return 1

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        return -0.5 * float(theta_unc[0] ** 2), -theta_unc

    def param_names(self, *, include_tp=False, include_gq=False):
        generated = ["y_rep.1", "y_rep.2"] if include_gq else []
        return ["x", "m.1.1", "m.2.1", "m.1.2", "m.2.2", "m.1.3", "m.2.3", "pair:1", "pair:2.1", *generated]

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False, out=None, rng=None):
        assert include_tp
        return np.concatenate(
            [theta_unc, theta_unc * np.arange(1, 7), [7, 8], rng.normal(size=2) if include_gq else []]
        )


class Generating(Flat):
    def new_rng(self, seed):
        return np.random.default_rng(seed)


class Bounded(Flat):
    """Stan raises above 1, and overflows below −1.5."""

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        if theta_unc[0] > 1:
            raise RuntimeError("Exception: normal_lpdf: Scale parameter is -1, but must be positive!")
        value = -0.5 * float(theta_unc[0] ** 2) if theta_unc[0] > -1.5 else np.nan
        return value, -theta_unc if theta_unc[0] > -1.5 else np.full(1, np.nan)

    def param_constrain(self, theta_unc, **options):
        if theta_unc[0] > 1:
            raise RuntimeError("Exception: no such value")
        return super().param_constrain(theta_unc, **options)


def schools():
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
    theta = numpyro.deterministic("theta", mu + tau * raw)
    numpyro.sample("y", dist.Normal(theta, SE), obs=Y)


@pytest.fixture(scope="module")
def stan() -> EightSchools:
    return EightSchools()


@pytest.fixture(scope="module")
def target(stan) -> bv.Target:
    return bv.from_stan(stan)


@pytest.fixture(scope="module")
def peer() -> bv.Target:
    return bv.from_numpyro(schools)


def as_numpyro(z):
    """Coordinates in the order of the names: mu, raw, tau."""
    return jnp.concatenate([z[:1], z[2:], z[1:2]])


@pytest.mark.usefixtures("x64")
class TestDensity:
    def test_is_numpyros_with_its_constants(self, target, peer):
        points = jnp.asarray(np.random.default_rng(0).normal(size=(6, DIM)))
        values, gradients = jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))(points)
        expected, slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda z: peer.log_density(as_numpyro(z)))))(points)
        np.testing.assert_allclose(values, expected, rtol=1e-13)
        np.testing.assert_allclose(gradients, slopes, rtol=1e-11, atol=1e-12)

    def test_value_and_gradient_are_one_call_per_point(self, target, stan):
        points = jnp.asarray(np.random.default_rng(1).normal(size=(7, DIM)))
        before = stan.calls
        jax.block_until_ready(jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))(points))
        assert stan.calls == before + 7
        repeated = jnp.concatenate([points, jnp.repeat(points[-1:], 50, axis=0)])  # as in a tile that is padded
        jax.block_until_ready(jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))(repeated))
        assert stan.calls == before + 14

    def test_second_derivatives(self, target, peer):
        z = jnp.asarray(np.random.default_rng(2).normal(size=DIM))
        expected = jax.jit(jax.hessian(lambda z: peer.log_density(as_numpyro(z))))(z)
        np.testing.assert_allclose(jax.jit(jax.hessian(target.log_density))(z), expected, rtol=1e-6, atol=1e-7)

    def test_large_batches(self, target, stan):
        points = np.random.default_rng(3).normal(size=(20_000, DIM))
        values = np.asarray(jax.jit(target.log_density_of)(points))
        expected = [stan.log_density_gradient(point, propto=False)[0] for point in points[::999]]
        np.testing.assert_array_equal(values[::999], expected)

    def test_no_mass_where_stan_raises(self):
        target = bv.from_stan(Bounded())
        points = jnp.asarray([[0.5], [2.0], [-2.0]])
        values, gradients = jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))(points)
        np.testing.assert_array_equal(values, [-0.125, -np.inf, -np.inf])
        np.testing.assert_array_equal(gradients, [[-0.5], [0.0], [0.0]])
        sites = jax.vmap(target.constrain)(jnp.asarray([[0.5], [2.0]]))
        np.testing.assert_array_equal(sites["x"], [0.5, np.nan])


@pytest.mark.usefixtures("x64")
class TestSites:
    def test_names(self, target):
        assert target.names[:3] == ("mu", "tau", "raw[0]")
        assert bv.from_stan(Flat()).names == ("z[0]",)  # an object without param_unc_names

    def test_transformed_parameters(self, target):
        z = np.random.default_rng(4).normal(size=(3, DIM))
        sites = jax.jit(jax.vmap(target.constrain))(z)
        assert {name: value.shape for name, value in sites.items()} == {
            "mu": (3,), "tau": (3,), "raw": (3, 8), "theta": (3, 8),
        }  # fmt: skip
        np.testing.assert_allclose(sites["theta"], z[:, :1] + np.exp(z[:, 1:2]) * z[:, 2:], rtol=1e-14)

    def test_matrices_are_written_by_columns(self):
        sites = bv.from_stan(Flat()).constrain(jnp.asarray([10.0]))
        np.testing.assert_array_equal(sites["m"], [[10, 30, 50], [20, 40, 60]])
        assert float(sites["x"]) == 10
        assert float(sites["pair:1"]) == 7
        np.testing.assert_array_equal(sites["pair:2"], [8])

    def test_generated_quantities_belong_to_their_draws(self):
        constrain = jax.jit(jax.vmap(bv.from_stan(Generating()).constrain))
        z = jnp.arange(5.0)[:, None]
        first, again, other = constrain(z), constrain(z), constrain(z + 1)
        assert first["y_rep"].shape == (5, 2)
        np.testing.assert_array_equal(first["y_rep"], again["y_rep"])
        assert np.unique(np.concatenate([first["y_rep"], other["y_rep"]])).size == 20


class TestBadObjects:
    def test_missing_methods(self):
        class CmdStanModel:
            def param_names(self):
                return []

        with pytest.raises(TypeError, match=r"CmdStanModel lacks param_unc_num, log_density_gradient, param_constrain"):
            bv.from_stan(CmdStanModel())

    def test_no_parameters(self):
        class Empty(Flat):
            def param_unc_num(self):
                return 0

        with pytest.raises(ValueError, match="the Stan model has no parameters"):
            bv.from_stan(Empty())

    def test_stan_raises_everywhere(self):
        class Broken(Flat):
            def log_density_gradient(self, theta_unc, **options):
                raise RuntimeError("Exception: y has 3 rows, expected 4")

        with pytest.raises(ValueError, match="Stan raised at all 64 starting points: Exception: y has 3 rows"):
            bv.from_stan(Broken())

    def test_wrong_gradient(self):
        class Wrong(Flat):
            def log_density_gradient(self, theta_unc, **options):
                return 0.0, np.zeros(3)

        with pytest.raises(ValueError, match=r"gradient of shape \(1,\)"):
            bv.from_stan(Wrong())

    def test_a_mistake_in_the_object_is_not_a_point_without_mass(self):
        class Mistaken(Flat):
            def log_density_gradient(self, theta_unc):
                return 0.0, theta_unc

        with pytest.raises(TypeError, match="propto"):
            bv.from_stan(Mistaken())


def test_fits_agree_with_numpyro(target, peer, stan):
    """The same posterior: means within a tenth of a standard deviation, and every call of Stan is accounted for."""
    before = stan.calls
    ours = bv.fit(target, seed=0, max_steps=1)
    assert ours.evals == stan.calls - before
    theirs = bv.fit(peer, seed=0, max_steps=1)
    assert ours.elbo == pytest.approx(theirs.elbo, abs=0.05)
    first, second = ours.sample(4000), theirs.sample(4000)
    for name, values in second.items():
        np.testing.assert_allclose(first[name].mean(axis=0), values.mean(axis=0), atol=0.1 * values.std(axis=0).min())


def test_the_page_runs(monkeypatch):
    """With an object of ours in BridgeStan's place."""
    bridgestan = types.SimpleNamespace(StanModel=lambda *args, **kwargs: Generating())
    monkeypatch.setitem(sys.modules, "bridgestan", bridgestan)
    (block,) = [b for b in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "from_stan" in b]
    names: dict = {}
    exec(block, names)
    assert names["draws"]["y_rep"].shape == (1000, 2)
