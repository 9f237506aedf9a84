"""How much mass is missed: exact where regions are Normals; where they are not, at least that it is not known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import boostvi as bv
from boostvi import mixture as mixtures
from boostvi.families import FullRankNormal
from boostvi.missed import Missed, weigh
from boostvi.next_component.local import CountedTarget, isotropic, stored


def normal(dim: int, at: float = 0.0, scale: float = 1.0):
    return mixtures.of(FullRankNormal(), isotropic(np.full((1, dim), at), np.array([scale])), np.ones(1))


def missed(log_density, dim, mixture, places, elbo, seed=0):
    with_model = CountedTarget(bv.Target(log_density, dim))
    return weigh(with_model, mixture, places, elbo, np.random.default_rng(seed))


def test_nothing_found_nothing_missed(x64):
    assert missed(lambda z: jnp.sum(norm.logpdf(z)), 2, normal(2), None, 0.0) == Missed()


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_mode_of_known_mass(x64, share):
    """Far away and exactly where a component was put: neither the mixture nor what is wider covers it."""
    log_density = lambda z: jnp.logaddexp(  # noqa: E731
        jnp.log(1.0 - share) + norm.logpdf(z).sum(), jnp.log(share) + norm.logpdf(z, 20.0).sum()
    )
    found = missed(log_density, 3, normal(3), isotropic(np.full((1, 3), 20.0), np.ones(1)), np.log(1.0 - share))
    truth = share / (1.0 - share)
    assert found.by_mixture == pytest.approx(truth, rel=0.05)
    assert found.by_pool == pytest.approx(truth, rel=0.05)
    np.testing.assert_allclose(found.locations, [[20.0] * 3])


def test_a_poor_component_in_the_right_place(x64):
    """Half as wide as the mode in ten dimensions: its ELBO is 4.3 nats too low, its mass is not."""
    log_density = lambda z: jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, 20.0).sum())  # noqa: E731
    places = isotropic(np.full((1, 10), 20.0), np.array([0.5]))
    found = missed(log_density, 10, normal(10), places, 0.0)
    assert 0.5 < found.by_mixture < 1.5


def test_what_wider_draws_see_is_not_missed_by_the_pool(x64):
    """A Normal three times as wide around the mixture: uncovered by it in part, but not by draws of what is wider."""
    log_density = lambda z: jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, 0.0, 3.0).sum())  # noqa: E731
    found = missed(log_density, 2, normal(2), isotropic(np.zeros((1, 2)), np.array([3.0])), 0.0)
    assert found.by_mixture > 0.1
    assert found.by_pool == 0.0


def test_components_where_the_mixture_is_miss_nothing(x64):
    places = isotropic(np.array([[0.5, 0.0], [3.0, 0.0]]), np.array([1.0, 1e-3]))
    found = missed(lambda z: jnp.sum(norm.logpdf(z)), 2, normal(2), places, 0.0)
    assert (found.by_mixture, found.by_pool) == (0.0, 0.0)


def bananas(z):
    """A product of ten bananas in 20 dimensions, normalised: a Normal is ten nats from it."""
    x, y = z[:10], z[10:]
    return jnp.sum(norm.logpdf(x) + norm.logpdf(y, x**2, 0.3))


def test_a_crooked_region_apart_has_more_than_a_few_draws_say(x64):
    """The estimate of its mass is too low by far; what it may be at most is not negligible."""
    log_density = lambda z: jnp.logaddexp(norm.logpdf(z, 12.0, 0.5).sum(), bananas(z))  # noqa: E731
    places = isotropic(np.zeros((1, 20)) + np.repeat([0.0, 0.5], 10), np.array([0.7]))
    found = missed(log_density, 20, normal(20, 12.0, 0.5), places, 0.0)
    assert found.by_mixture < 0.5
    assert found.by_pool > 0.02


def test_chains_come_back_from_a_tail(x64):
    """The neck of a funnel beyond what the mixture covers: narrow, and far above ln q, but no region apart."""

    def funnel(z):
        return norm.logpdf(z[0], 0.0, 3.0) + jnp.sum(norm.logpdf(z[1:], 0.0, jnp.exp(0.5 * z[0])))

    def along(levels):
        """Components at these v, each as wide as the funnel is there."""
        factors, loc = np.zeros((levels.size, 10, 10)), np.zeros((levels.size, 10))
        factors[:, range(10), range(10)] = np.exp(0.5 * levels)[:, None]
        factors[:, 0, 0], loc[:, 0] = 0.8, levels
        return stored(loc, factors, np.linalg.inv(factors), np.linalg.slogdet(factors)[1])

    levels = np.arange(-8.0, 9.0)
    weights = np.exp(-0.5 * (levels / 3.0) ** 2)
    mixture = mixtures.of(FullRankNormal(), along(levels), weights / weights.sum())
    place = along(np.array([-11.0]))
    found = missed(funnel, 10, mixture, place, -0.1)
    assert found.by_pool < 0.005
