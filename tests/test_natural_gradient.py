"""Natural-gradient rounds: exact on Gaussians, Stein's identity, trust region, and what a round leaves alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm, t

import boostvi as bv
from boostvi import linear_mixture as lm
from boostvi import mixture as mixtures
from boostvi import natural_gradient as ng
from boostvi.families import FullRankNormal, FullRankStudentT, ProductStudentT
from boostvi.linear_mixture import join, take
from boostvi.next_component.local import CountedTarget, isotropic, kl_between, local_vi, stored

pytestmark = pytest.mark.usefixtures("x64")
DIM = 3
ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.3, 0.4, 2.0]])
MEAN = np.array([1.0, -2.0, 0.5])


def gaussian() -> bv.Target:
    inverse = np.linalg.inv(ROOT)
    return bv.Target(lambda z: jnp.sum(norm.logpdf((z - MEAN) @ inverse.T)) - jnp.log(np.linalg.det(ROOT)), DIM)


def of_family(family, loc, factor) -> bv.Target:
    """The member of a family with this centre and factor, as a target: log Z = 0."""
    inverse, volume = np.linalg.inv(factor), np.linalg.slogdet(factor)[1]
    return bv.Target(lambda z: family.log_base((z - loc) @ inverse.T) - volume, len(loc))


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 1.0), (3.0, 0.5)])
def test_local_vi_finds_a_gaussian_exactly(loc, scale):
    model = CountedTarget(gaussian())
    starts = isotropic(np.full((1, DIM), loc), np.array([scale]))
    fitted = local_vi(model, FullRankNormal(), starts, 40, np.random.default_rng(0))
    params = take(fitted.params, 0)
    np.testing.assert_allclose(params["loc"], MEAN, atol=2e-3)
    np.testing.assert_allclose(params["factor"] @ params["factor"].T, ROOT @ ROOT.T, atol=5e-3)
    np.testing.assert_allclose(params["factor"] @ params["inverse"], np.eye(DIM), atol=1e-8)
    assert params["log_volume"] == pytest.approx(np.linalg.slogdet(ROOT)[1], abs=2e-3)
    np.testing.assert_allclose(fitted.elbos, 0.0, atol=5e-4)
    assert model.evals % 64 == 0


def test_local_vi_drops_duplicates_and_what_will_not_come_near():
    """Three modes, of which the second has e⁻²⁰ of the mass; two starts go to the first."""
    means, mass = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]]), np.array([0.0, -20.0, -1.0])
    target = bv.Target(lambda z: jax.nn.logsumexp(jnp.sum(t.logpdf(z - means, 20.0), 1) + mass), 2)
    starts = isotropic(np.array([[0.3, 0.0], [29.5, 0.0], [0.0, 0.4], [0.0, 29.5]]), np.full(4, 0.8))
    fitted = local_vi(CountedTarget(target), FullRankNormal(), starts, 40, np.random.default_rng(0))
    assert fitted.origins.size == 2
    assert fitted.origins[0] in (0, 2)
    assert fitted.origins[1] == 3
    np.testing.assert_allclose(fitted.params["loc"], means[[0, 2]], atol=0.05)
    np.testing.assert_allclose(fitted.elbos, [0.0, -1.0], atol=0.02)


@pytest.mark.parametrize("family", [FullRankStudentT(2.0), ProductStudentT(2.0)], ids=lambda f: f.name)
def test_local_vi_finds_a_heavy_tailed_target_in_its_own_family(family):
    """At two degrees of freedom the reparameterised gradient has no variance to speak of: Stein's identity has."""
    scale = np.diag([0.5, 2.0, 1.0])
    model = CountedTarget(of_family(family, MEAN, scale))
    params = local_vi(model, family, isotropic(MEAN[None] + 0.5, np.array([1.0])), 60, np.random.default_rng(1)).params
    found = params["factor"][0] @ params["factor"][0].T
    np.testing.assert_allclose(found, scale @ scale.T, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(params["loc"][0], MEAN, atol=0.02)


def test_one_component_jointly_is_one_component_locally():
    """With one component the shared draws are its own, so both estimates are of the same moments."""
    rng = np.random.default_rng(0)
    family, params = FullRankNormal(), isotropic(np.zeros((1, DIM)), np.array([1.3]))
    noise = rng.standard_normal((1, 400, DIM))
    z = params["loc"][:, None] + noise @ params["factor"][0].T
    model = CountedTarget(gaussian())
    values, gradients = model(z[0])
    local = ng.local_moments(family, params, noise, values[None], gradients[None])
    mixture = mixtures.of(family, params, np.ones(1))
    joint, spread, effective = ng.joint_moments(mixture, np.array([400]), z[0], values, gradients)
    assert effective[0] == pytest.approx(400)
    np.testing.assert_allclose(joint.residual[0], local.residual[0], rtol=1e-10)
    residuals = values - lm.log_own(family, params, noise)[0]
    np.testing.assert_allclose(spread[0], residuals.std(), rtol=1e-9)
    np.testing.assert_allclose(joint.gradient[0], local.gradient[0], rtol=1e-9)
    # The local estimate centres the gradients only; the joint one is the same sum.
    np.testing.assert_allclose(joint.hessian[0], local.hessian[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "family", [FullRankNormal(), FullRankStudentT(4.0), ProductStudentT(4.0)], ids=lambda f: f.name
)
def test_densities_and_their_gradient(family):
    rng = np.random.default_rng(1)
    factors = np.eye(DIM) + 0.3 * rng.standard_normal((2, DIM, DIM))
    params = stored(rng.standard_normal((2, DIM)), factors, np.linalg.inv(factors), np.linalg.slogdet(factors)[1])
    mixture = mixtures.of(family, params, np.array([0.3, 0.7]))
    z = rng.standard_normal((5, DIM))
    log_q, gradient = lm.log_prob_and_gradient(mixture, z)
    np.testing.assert_allclose(log_q, mixtures.log_prob(mixture, jnp.asarray(z)), rtol=1e-12)
    np.testing.assert_allclose(lm.log_prob(mixture, z), log_q, rtol=1e-12)
    np.testing.assert_allclose(gradient, jax.vmap(jax.grad(lambda x: mixtures.log_prob(mixture, x)))(z), rtol=1e-9)


def test_a_step_stays_in_the_trust_region_and_positive_definite():
    family = FullRankNormal()
    params = isotropic(np.zeros((2, DIM)), np.array([1.0, 1.0]))
    slopes, curvatures = np.array([[1e3, 0, 0], [0, 0, 0.0]]), np.stack([50.0 * np.eye(DIM), np.eye(DIM)])
    new, moved = ng.step(params, ng.Moments(np.zeros(2), slopes, curvatures), 1.0)
    assert (moved > 0).all()
    assert (moved <= ng.TRUST).all()
    both = join(take(new, [0]), take(params, [0]))
    assert kl_between(both)[0, 1] <= ng.TRUST + 1e-9
    assert (np.linalg.eigvalsh(new["factor"]) > 0).all()
    assert family.n_params(DIM) == 9


def test_non_finite_moments_leave_a_component_where_it_is():
    params = isotropic(np.zeros((1, DIM)), np.array([1.0]))
    bad = ng.Moments(np.zeros(1), np.full((1, DIM), np.nan), np.zeros((1, DIM, DIM)))
    new, moved = ng.step(params, bad, 1.0)
    np.testing.assert_array_equal(new["loc"], params["loc"])
    assert float(moved[0]) == 0.0


def test_a_round_leaves_the_target_itself_alone():
    """R is constant: no draw, however few, moves the components or the weights."""
    means = np.array([[-2.0, 0.0], [2.0, 1.0]])
    target = bv.Target(lambda z: jax.nn.logsumexp(jnp.sum(norm.logpdf(z, means), 1) + jnp.log(np.array([0.3, 0.7]))), 2)
    mixture = mixtures.of(FullRankNormal(), isotropic(means, np.ones(2)), np.array([0.3, 0.7]))
    after = ng.joint_round(CountedTarget(target), mixture, np.array([32, 16]), 1.0, np.random.default_rng(2))
    np.testing.assert_allclose(after.mixture.params["loc"], means, atol=1e-9)
    np.testing.assert_allclose(after.mixture.weights, [0.3, 0.7], atol=1e-9)
    np.testing.assert_allclose(after.spread, 0.0, atol=1e-6)
    assert after.moved < 1e-12


def test_draws_with_a_non_finite_gradient_are_left_out():
    target = bv.Target(lambda z: jnp.where(z[0] > 0, -0.5 * z @ z, jnp.nan), 2)
    mixture = mixtures.of(FullRankNormal(), isotropic(np.zeros((1, 2)), np.ones(1)), np.ones(1))
    model = CountedTarget(target)
    after = ng.joint_round(model, mixture, np.array([64]), 1.0, np.random.default_rng(3))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.mixture))
    assert 0 < model.nonfinite < model.evals
