"""The small targets of `boostvi reproduce toy-mixtures`, whose log evidence a grid gives."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import quad

from boostvi.reproduce import toys
from boostvi.reproduce.toy_targets import TOYS

MIXTURES = [name for name in TOYS if "modes" in name]


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_normalised(name):
    assert TOYS[name].log_z() == pytest.approx(0.0, abs=1e-12)


def test_log_evidence_of_a_regression_against_adaptive_integration():
    toy = TOYS["logistic regression in 1-d"]
    target = toy.target()
    with jax.enable_x64(True):
        density = jax.jit(target.log_density)
        integral, error = quad(lambda w: np.exp(float(density(np.array([w]))) + 20.0), -8, 8, epsabs=1e-12)
    assert toy.log_z() + 20.0 == pytest.approx(np.log(integral), abs=error / integral + 1e-9)


def test_the_grid_holds_all_of_the_mass():
    for name, toy in TOYS.items():
        sides, values = toy.on_grid(51)
        assert values.shape == (51,) * len(sides)
        edges = np.concatenate([np.take(values, [0, -1], axis=i).ravel() for i in range(len(sides))])
        assert edges.max() < values.max() - 20.0, name


def test_what_the_regressions_are():
    """Separable data leave a weight free to grow, others do not; a product of weights has two modes, mirrored."""
    _, separable = TOYS["logistic regression, separable"].on_grid(81)
    _, other = TOYS["logistic regression, not separable"].on_grid(81)
    ones = np.arange(81)
    assert separable[ones, ones][60] > separable[ones, ones][40]  # (4, 4) against (0, 0)
    assert other[ones, ones][60] < other[ones, ones][40]
    _, product = TOYS["logistic regression, bimodal"].on_grid(81)
    np.testing.assert_allclose(product, product[::-1, ::-1], rtol=1e-12)
    modes = product[ones, ones]
    assert modes.argmax() != 40
    assert modes[40] < modes.max() - 3.0


def test_every_toy_is_shown():
    assert toys.SHOWN["full"] == list(TOYS)
    assert set(toys.SHOWN["quick"]) | set(toys.SHOWN["smoke"]) <= set(TOYS)
