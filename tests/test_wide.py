"""Something wider than a mixture: reflections of components, and weights against both."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.special import logsumexp

import boostvi as bv
from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi.families import DiagonalNormal, FullRankNormal
from boostvi.families.linear import FullRankStudentT, scaled
from boostvi.next_component.local import isotropic, stored
from boostvi.wide import DF, SCALE, log_weights, reflected, wide_draws, widened


def normals(loc, factors, weights=None):
    factors = np.asarray(factors)
    params = stored(np.asarray(loc), factors, np.linalg.inv(factors), np.linalg.slogdet(factors)[1])
    count = len(params["loc"])
    return mixtures.of(FullRankNormal(), params, np.full(count, 1 / count) if weights is None else weights)


class TestReflected:
    def test_place_and_shape_go_on_as_they_did(self):
        """Two components along a line, the second half as wide: the next one is half as wide again."""
        mixture = normals([[0.0, 0.0], [1.0, 2.0]], [np.eye(2), 0.5 * np.eye(2)])
        params, of = reflected(mixture.params)
        assert of.tolist() == [0, 1]
        np.testing.assert_allclose(params["loc"], [[-1.0, -2.0], [2.0, 4.0]])
        np.testing.assert_allclose(params["factor"], [2.0 * np.eye(2), 0.25 * np.eye(2)], atol=1e-12)

    def test_any_covariances(self):
        rng = np.random.default_rng(0)
        mixture = normals(rng.normal(size=(2, 3)), np.linalg.cholesky(np.stack([np.cov(rng.normal(size=(3, 9)))] * 2)))
        mixture.params["factor"][1] *= 1.3  # and an inverse that goes with it
        mixture = normals(mixture.params["loc"], mixture.params["factor"])
        params, _ = reflected(mixture.params)
        first, second = (f @ f.T for f in mixture.params["factor"])
        np.testing.assert_allclose(params["factor"][0] @ params["factor"][0].T, first @ np.linalg.inv(second) @ first)
        for one, inverse in zip(params["factor"], params["inverse"], strict=True):
            np.testing.assert_allclose(one @ inverse, np.eye(3), atol=1e-10)
        np.testing.assert_allclose(params["log_volume"], np.linalg.slogdet(params["factor"])[1])

    def test_what_is_far_away_is_no_neighbour(self):
        assert reflected(normals([[0.0], [100.0]], np.ones((2, 1, 1))).params) is None
        assert reflected(normals([[0.0]], np.ones((1, 1, 1))).params) is None

    def test_the_nearest_is_reflected(self):
        params, of = reflected(normals([[0.0], [1.0], [3.0]], np.ones((3, 1, 1))).params)
        assert of.tolist() == [0, 1, 2]
        np.testing.assert_allclose(params["loc"][:, 0], [-1.0, 2.0, 5.0])


def test_one_component_is_only_wider():
    one = normals([[1.0, 2.0]], [[[1.0, 0.0], [0.5, 2.0]]])
    wide = widened(one)
    assert wide.family == FullRankStudentT(DF)
    assert wide.n_active == 1
    np.testing.assert_allclose(wide.params["factor"], scaled(one.params, SCALE)["factor"])


def test_light_components_count_for_more_than_they_weigh():
    wide = widened(normals([[0.0], [1.0]], np.ones((2, 1, 1)), np.array([0.99, 0.01])))
    np.testing.assert_allclose(wide.weights.sum(), 1.0)
    np.testing.assert_allclose(wide.weights[:2], [0.495, 0.005])
    assert wide.weights[3] > 0.04


def test_weights_are_unbiased():
    """p/q̄ has the mass of p as its mean, whatever part of it q does not reach: here half of it."""

    def log_density(z):
        return logsumexp([norm.logpdf(z[:, 0]), norm.logpdf(z[:, 0], 8.0)], axis=0) - np.log(2.0)

    mixture, rng = normals([[0.0]], np.ones((1, 1, 1))), np.random.default_rng(0)
    draws, log_q, _ = linear_mixture.draw(mixture, rng, 20_000)
    wide = wide_draws(log_density, mixture, draws, rng, 20_000)
    weights, shares = log_weights(log_density(draws), log_q, wide)
    for mean in (np.exp(weights), shares):
        assert mean.mean() == pytest.approx(1.0, abs=4 * mean.std() / np.sqrt(mean.size))
    assert np.mean(np.exp(log_density(draws) - log_q)) < 0.6  # what the draws of q alone know
    assert wide_draws(log_density, mixtures.empty(DiagonalNormal(), 1, 1), draws, rng, 10) is None


def test_importance_resampling_repairs_what_the_mixture_does_not_reach():
    """A fit of the narrow half of a target: its own weights are all the same, and know nothing of the wide one."""
    dim, scale = 8, 5.0
    target = bv.Target(lambda z: jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, 0.0, scale).sum()), dim)
    fitted = bv.fit(target, seed=0, max_steps=0, progress=False)
    planted = mixtures.of(FullRankNormal(), isotropic(np.zeros((1, dim)), np.ones(1)), np.ones(1))
    result = bv.Result(target, dataclasses.replace(fitted.run, best=planted), "converged")
    assert result.ess > 9000
    assert result.verdict == "usable"
    draws, weights, ess = result.weighted_draws(40_000, seed=1)
    truth, fourth = (1.0 + scale**2) / 2.0, 3.0 * (1.0 + scale**4) / 2.0
    np.testing.assert_allclose(weights @ draws**2, truth, atol=4 * np.sqrt((fourth - truth**2) / ess))
    error = np.sqrt((fourth - truth**2) / (dim * min(ess / 2, 2000)))  # of 2,000 draws from half as many weighted ones
    assert np.mean(result.sample(2000, importance=True) ** 2) == pytest.approx(truth, abs=4 * error)
    assert result.sample(2000).std() < 1.1
