"""The target: tracing once, data as arguments, chunks, non-finite values, names, start points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import boostvi as bv
from boostvi import program
from boostvi._jit import map_chunked
from boostvi.target import validate_start

DATA = np.random.default_rng(0).normal(size=(50, 3))


def regression(z):
    return -0.5 * jnp.sum((DATA @ z - 1.0) ** 2) - 0.5 * jnp.sum(z**2)


@pytest.mark.usefixtures("x64")
class TestLogDensity:
    def test_is_the_users_function(self):
        target = bv.Target(regression, 3)
        z = jnp.asarray(np.random.default_rng(1).normal(size=(20, 3)))
        expected = -0.5 * np.sum((z @ DATA.T - 1.0) ** 2, axis=1) - 0.5 * np.sum(np.square(z), axis=1)
        np.testing.assert_allclose(target.log_density_of(z), expected, rtol=1e-13)
        np.testing.assert_allclose(target.log_density(z[0]), expected[0], rtol=1e-13)
        gradient = jax.grad(target.log_density)(z[0])
        np.testing.assert_allclose(gradient, -DATA.T @ (DATA @ np.asarray(z[0]) - 1.0) - np.asarray(z[0]), rtol=1e-12)

    def test_the_function_is_called_once(self):
        calls = []

        def log_density(z):
            calls.append(z.dtype)
            return -jnp.sum(z**2)

        target = bv.Target(log_density, 2)
        for _ in range(3):
            jax.jit(lambda t, z: t.log_density_of(z))(target, jnp.zeros((4, 2)))
        assert calls == [jnp.float64]

    def test_data_are_arguments_not_constants(self):
        """A compiled program that holds the data would hold one copy for every function."""
        big = np.random.default_rng(2).normal(size=(1000, 3))
        target = bv.Target(lambda z: -jnp.sum((big @ z) ** 2), 3)
        assert [leaf.shape for leaf in jax.tree.leaves(target)] == [(1000, 3)]
        text = jax.jit(lambda t, z: t.log_density(z)).lower(target, jnp.zeros(3)).as_text()
        assert len(text) < 10_000

    @pytest.mark.parametrize(("bad", "becomes"), [(np.nan, -np.inf), (np.inf, -np.inf), (-np.inf, -np.inf), (2.5, 2.5)])
    def test_a_value_that_no_density_has_is_no_mass(self, bad, becomes):
        target = bv.Target(lambda z: jnp.where(z[0] > 0, bad, 0.0), 1)
        assert target.log_density(jnp.ones(1)) == becomes
        assert target.log_density(-jnp.ones(1)) == 0.0

    def test_a_single_precision_function_is_accepted(self):
        target = bv.Target(lambda z: -jnp.sum(z.astype(jnp.float32) ** 2), 2)
        value = target.log_density(jnp.asarray([1.0, 2.0]))
        assert value.dtype == jnp.float64
        assert value == -5.0
        np.testing.assert_allclose(jax.grad(target.log_density)(jnp.asarray([1.0, 2.0])), [-2.0, -4.0])

    def test_chunks_bound_the_memory_and_change_nothing(self, monkeypatch):
        draws = jnp.asarray(np.random.default_rng(3).normal(size=(101, 3)))
        whole = bv.Target(regression, 3)
        monkeypatch.setattr(program, "CHUNK_BYTES", 50 * 8 * 7)  # the largest intermediate is 50 floats
        parts = bv.Target(regression, 3)
        assert parts.chunk == 50 * 8 * 7 // 512 < 101 < whole.chunk
        np.testing.assert_allclose(parts.log_density_of(draws), whole.log_density_of(draws), rtol=1e-13)


@pytest.mark.parametrize(("n", "chunk"), [(1, 1), (10, 3), (10, 5), (10, 10), (10, 100), (7, 1), (5, 4)])
def test_map_chunked_is_vmap(n, chunk):
    xs = {"a": jnp.arange(float(n)), "b": jnp.arange(2.0 * n).reshape(n, 2)}
    out = map_chunked(lambda x: (x["a"] * 2, x["b"].sum()), xs, chunk)
    np.testing.assert_array_equal(out[0], 2 * np.arange(n))
    np.testing.assert_array_equal(out[1], 4 * np.arange(n) + 1)


class TestDescription:
    def test_default_names(self):
        target = bv.Target(regression, 3)
        assert target.names == ("z[0]", "z[1]", "z[2]")
        assert target.dim == 3
        assert repr(target) == "Target(dim=3)"

    def test_own_names(self):
        assert bv.Target(regression, 3, names=["a", "b", "c"]).names == ("a", "b", "c")

    def test_default_starts_are_standard_normal(self):
        n = 4000
        draws = np.asarray(jax.vmap(bv.Target(regression, 3).init)(jax.random.split(jax.random.key(0), n)))
        assert (np.abs(draws.mean(axis=0)) < 4 / np.sqrt(n)).all()
        assert (np.abs(draws.var(axis=0) - 1) < 4 * np.sqrt(2 / n)).all()

    def test_a_numpy_integer_is_a_dimension(self):
        assert bv.Target(regression, np.int64(3)).dim == 3


class TestStart:
    def test_one_finite_start_is_enough(self):
        """Mass only where z > 1.5, which few of 64 standard Normal starts reach."""
        target = bv.Target(lambda z: jnp.where(z[0] > 1.5, 0.0, -jnp.inf), 1)
        assert validate_start(target, jax.random.key(0)) is None

    def test_starts_outside_the_support_are_refused(self):
        target = bv.Target(lambda z: jnp.where(z[0] > 40.0, 0.0, -jnp.inf), 1)
        with pytest.raises(ValueError, match=r"infinite at all 64 starting points.*init="):
            validate_start(target, jax.random.key(0))

    def test_init_of_another_shape_is_refused(self):
        target = bv.Target(regression, 3, lambda key: jax.random.normal(key, (2,)))
        with pytest.raises(ValueError, match=r"init must return an array of shape \(3,\), got \(2,\)"):
            validate_start(target, jax.random.key(0))


def test_draws_come_back_in_the_models_own_space():
    """constrain may return any pytree; without it draws are an array."""
    target = bv.Target(regression, 3, constrain=lambda z: {"scale": jnp.exp(z[0]), "rest": (z[1:], {"sum": z.sum()})})
    result = bv.fit(target, recipe="bbbvi", first="random", max_steps=0, n_draws=10, elbo_draws=10)
    plain = result.mixture.sample(5, seed=3)
    made = result.sample(5, seed=3)
    np.testing.assert_allclose(made["scale"], np.exp(plain[:, 0]))
    np.testing.assert_array_equal(made["rest"][0], plain[:, 1:])
    np.testing.assert_allclose(made["rest"][1]["sum"], plain.sum(axis=1))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(made))
    assert "rest.1.sum" in result.summary()
