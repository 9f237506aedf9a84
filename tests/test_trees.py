"""Targets whose parameters are trees of named arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import boostvi as bv
from boostvi import trees
from boostvi.target import log_densities

EXAMPLE = {"mean": np.zeros(2), "scale": {"log": 0.0}}


def log_density(p):
    return -0.5 * jnp.sum((p["mean"] - jnp.array([1.0, 2.0])) ** 2) - 2.0 * (p["scale"]["log"] + 1.0) ** 2


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return bv.Target(log_density, EXAMPLE)


def test_it_is_the_flat_density_in_the_order_of_the_tree(target):
    assert target.dim == 3
    assert target.names == ("mean[0]", "mean[1]", "scale.log")
    z = np.random.default_rng(0).normal(size=(4, 3))
    expected = -0.5 * ((z[:, :2] - [1.0, 2.0]) ** 2).sum(axis=1) - 2.0 * (z[:, 2] + 1.0) ** 2
    np.testing.assert_allclose(log_densities(target, z), expected, rtol=1e-14)


def test_draws_come_back_as_trees(target):
    result = bv.fit(target, first="laplace", max_steps=0)
    draws = result.sample(20_000)
    assert jax.tree.map(np.shape, draws) == {"mean": (20_000, 2), "scale": {"log": (20_000,)}}
    np.testing.assert_allclose(draws["mean"].mean(axis=0), [1.0, 2.0], atol=5 / np.sqrt(20_000))
    assert draws["scale"]["log"].std() == pytest.approx(0.5, rel=0.05)
    assert jax.tree.map(np.shape, result.initial_positions(4)) == {"mean": (4, 2), "scale": {"log": (4,)}}
    assert "scale.log" in result.summary()


def test_init_and_constrain_work_with_trees():
    target = bv.Target(
        log_density,
        EXAMPLE,
        lambda key: {"mean": 5.0 + jax.random.normal(key, (2,)), "scale": {"log": jnp.zeros(())}},
        constrain=lambda p: {"mean": p["mean"], "scale": jnp.exp(p["scale"]["log"])},
    )
    draws = bv.fit(target, first="laplace", max_steps=0).sample(100)
    assert set(draws) == {"mean", "scale"}
    assert np.all(draws["scale"] > 0)


@pytest.mark.parametrize(
    "example", [(np.zeros(2), np.zeros(1)), [np.zeros(3)], np.zeros(3)], ids=["tuple", "list", "array"]
)
def test_any_pytree_will_do(example):
    target = bv.Target(lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)), example)
    assert target.dim == 3


def test_integers_are_taken_as_reals_and_words_are_refused():
    assert bv.Target(lambda p: -(p["n"] ** 2.0), {"n": 1}).dim == 1
    with pytest.raises(TypeError, match="'word' must hold real numbers"):
        bv.Target(lambda p: 0.0, {"word": np.array("a")})


def test_columns_name_every_number():
    draws = {"a": np.arange(6.0).reshape(3, 2), "b": {"c": np.arange(3.0)}}
    columns = trees.columns(draws)
    assert list(columns) == ["a[0]", "a[1]", "b.c"]
    np.testing.assert_array_equal(columns["a[1]"], [1.0, 3.0, 5.0])
