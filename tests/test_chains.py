"""Langevin chains: exact where there is an answer, and across a gap where they should go."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import boostvi as bv
from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi.families import FullRankNormal
from boostvi.next_component import chains
from boostvi.next_component.chains import annealed, plain, tempered
from boostvi.next_component.local import CountedTarget, isotropic


def normal(dim: int, scale: float = 1.0, at: float = 0.0):
    return mixtures.of(FullRankNormal(), isotropic(np.full((1, dim), at), np.array([scale])), np.ones(1))


def test_the_target_is_stationary(x64):
    """Chains that start at exact draws still have its moments."""
    n, sd = 20_000, np.array([0.5, 2.0])
    model, rng = CountedTarget(bv.Target(lambda z: jnp.sum(norm.logpdf(z, 1.0, sd)), 2)), np.random.default_rng(0)
    draws = 1.0 + sd * rng.standard_normal((n, 2))
    ends, values = plain(model, normal(2), draws, np.zeros(n, dtype=int), rng)
    np.testing.assert_allclose(ends.mean(axis=0), 1.0, atol=4 * sd.max() / np.sqrt(n))
    np.testing.assert_allclose(ends.std(axis=0) / sd, 1.0, atol=4 / np.sqrt(2 * n))
    np.testing.assert_allclose(values, norm.logpdf(ends, 1.0, sd).sum(axis=1))
    assert not np.array_equal(ends, draws)
    assert model.evals == n * (1 + chains.STEPS)


def test_tempered_chains_cross_to_another_mode(x64):
    """From one of two equal modes ten standard deviations apart to the other, where climbs of p alone would end."""
    dim = 30
    apart = 10.0 / np.sqrt(dim)
    two = lambda z: jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, apart).sum())  # noqa: E731
    model = CountedTarget(bv.Target(two, dim))
    ends = tempered(model, normal(dim), 64, np.random.default_rng(0))
    crossed = np.mean(ends.mean(axis=1) > apart / 2)
    assert 0.1 < crossed < 0.6
    assert model.evals == 64 * (1 + chains.STEPS)


class TestAnnealed:
    def test_the_mass_of_a_normal_that_is_elsewhere(self, x64):
        """e³·N(1.5, 0.8²) in four dimensions, from a standard Normal, whose importance weights have an sd of 31 (p²/q
        integrates to 5.6 in one)."""
        model = CountedTarget(bv.Target(lambda z: 3.0 + jnp.sum(norm.logpdf(z, 1.5, 0.8)), 4))
        n = 2000
        ends, values, log_weights, owners = annealed(model, normal(4), n, 64, np.random.default_rng(1))
        weights = np.exp(log_weights - 3.0)
        assert weights.mean() == pytest.approx(1.0, abs=4 * weights.std() / np.sqrt(n))
        assert weights.std() < 3.1
        np.testing.assert_allclose(values, 3.0 + norm.logpdf(ends, 1.5, 0.8).sum(axis=1))
        np.testing.assert_allclose(weights @ ends / weights.sum(), 1.5, atol=4 * 0.8 * np.sqrt(5.0 / n))
        assert not owners.any()

    def test_from_the_target_itself_there_is_nothing_to_collect(self, x64):
        model = CountedTarget(bv.Target(lambda z: jnp.sum(norm.logpdf(z)), 3))
        _, _, log_weights, _ = annealed(model, normal(3), 50, 10, np.random.default_rng(2))
        np.testing.assert_allclose(log_weights, 0.0, atol=1e-12)

    def test_points_without_mass_have_no_weight(self, x64):
        """Half of the draws begin where p is 0: the other half knows the mass."""
        model = CountedTarget(bv.Target(lambda z: jnp.where(z[0] > 0, jnp.sum(norm.logpdf(z)), -jnp.inf), 1))
        n = 4000
        _, _, log_weights, _ = annealed(model, normal(1), n, 8, np.random.default_rng(3))
        assert np.mean(np.exp(log_weights)) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(n))


def test_several_components_move_in_their_own_units(x64):
    """A wide and a narrow mode: chains of either are accepted."""
    params = isotropic(np.array([[0.0, 0.0], [50.0, 0.0]]), np.array([1.0, 1e-3]))
    mixture = mixtures.of(FullRankNormal(), params, np.full(2, 0.5))
    target = bv.Target(
        lambda z: jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, jnp.array([50.0, 0.0]), 1e-3).sum()), 2
    )
    rng = np.random.default_rng(4)
    draws, _, owners = linear_mixture.draw(mixture, rng, 1000)
    ends, _ = plain(CountedTarget(target), mixture, draws, owners, rng)
    for k, scale in enumerate((1.0, 1e-3)):
        mine = owners == k
        assert np.mean(np.any(ends[mine] != draws[mine], axis=1)) > 0.99
        assert np.std(ends[mine, 1]) == pytest.approx(scale, rel=4 / np.sqrt(2 * mine.sum()))
