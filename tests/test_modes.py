"""Modes of a mixture, and the summary that shows them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import mixture as mixtures
from boostvi._jit import float64
from boostvi.families import FullRankNormal
from boostvi.modes import clusters
from boostvi.summary import advice, modes


@float64
def normals(weights, means, scale=1.0) -> bv.Mixture:
    means = np.asarray(means, dtype=np.float64)
    n, dim = means.shape
    unit = np.broadcast_to(np.eye(dim), (n, dim, dim))
    params = {
        "loc": means,
        "factor": scale * unit,
        "inverse": unit / scale,
        "log_volume": np.full(n, dim * np.log(scale)),
    }
    return mixtures.of(FullRankNormal(), params, np.asarray(weights, dtype=np.float64)).active()


def test_components_of_one_hill_are_one_mode_and_distant_ones_are_not():
    target = gaussian_mixture([0.25, 0.75], [[-6.0, 0.0], [6.0, 0.0]], [[1.0, 1.0]] * 2)
    mixture = normals([0.4, 0.35, 0.25], [[5.5, 0.0], [6.5, 0.3], [-6.0, 0.0]])
    found = clusters(target, mixture)
    assert [members.tolist() for members, _ in found] == [[0, 1], [2]]
    assert found[0][1] == 1 or found[0][1] == 0


def test_a_curved_hill_is_one_chain():
    """Along a ring of radius 5 and width 0.5 the straight line between far components leaves the hill."""
    target = bv.Target(lambda z: -0.5 * ((jnp.linalg.norm(z) - 5.0) / 0.5) ** 2, 2, lambda key: jnp.array([5.0, 0.0]))
    angles = np.linspace(0.0, 1.8 * np.pi, 24)
    mixture = normals(np.full(24, 1 / 24), 5.0 * np.column_stack([np.cos(angles), np.sin(angles)]), 0.5)
    assert len(clusters(target, mixture)) == 1


def test_many_dimensions_do_not_split_a_mode():
    target = bv.Target(lambda z: -0.5 * jnp.sum(z**2), 40)
    mixture = normals(np.full(8, 1 / 8), np.random.default_rng(0).normal(size=(8, 40)), 0.8)
    assert len(clusters(target, mixture)) == 1


@pytest.fixture(scope="module")
def two_sided() -> bv.Result:
    def log_density(p):
        sides = jnp.array([jnp.log(0.7), jnp.log(0.3)]) - 2.0 * jnp.array([(p["x"] - 3.0) ** 2, (p["x"] + 3.0) ** 2])
        return jax.nn.logsumexp(sides) - 0.5 * jnp.sum(p["y"] ** 2)

    return bv.fit(bv.Target(log_density, {"x": 0.0, "y": np.zeros(2)}), seed=0)


def test_result_lists_its_modes(two_sided):
    first, second = two_sided.modes
    assert first.weight == pytest.approx(0.7, abs=0.02)
    assert float(first.location["x"]) == pytest.approx(3.0, abs=0.1)
    assert float(second.location["x"]) == pytest.approx(-3.0, abs=0.1)
    assert sorted(first.members + second.members) == list(range(two_sided.mixture.n_active))


def test_summary_names_the_parameter_that_tells_modes_apart(two_sided):
    text = modes(two_sided)
    assert text.splitlines()[0] == "2 modes:"
    assert "70.0 % at x = 3" in text
    assert text in two_sided.summary()


@pytest.mark.parametrize(
    ("verdict", "status", "words"),
    [
        ("good", "converged", "result.sample(n)"),
        ("usable", "converged", "importance=True"),
        ("usable", "max-seconds", "resume=result"),
        ("unreliable", "max-seconds", "larger budget"),
        ("unreliable", "no-improvement", "reparameterise"),
    ],
)
def test_advice_fits_the_verdict(verdict, status, words):
    @dataclasses.dataclass
    class Judged:
        verdict: str
        status: str

    assert words in advice(Judged(verdict, status))
