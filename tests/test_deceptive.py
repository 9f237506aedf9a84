"""Posteriors made to deceive: most of the mass, or half of it, is where a fit does not look by itself.

Either it is found, or the verdict is not "good". All are normalised: −ELBO is the true distance.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

import boostvi as bv


def normals(dim, *components):
    """A mixture of isotropic Normals: (weight, first coordinate of the mean, sd)."""
    weights, places, sds = map(np.array, zip(*components, strict=True))
    means = np.zeros((len(places), dim))
    means[:, 0] = places

    def log_density(z):
        return logsumexp(jnp.log(weights) + norm.logpdf(z, means, sds[:, None]).sum(axis=1))

    return bv.Target(log_density, dim)


def fitted(target, seed=0, **options):
    return bv.fit(target, seed=seed, progress=False, **options)


@pytest.mark.parametrize(
    ("dim", "components"),
    [
        (12, [(0.5, 0.0, 0.1), (0.5, 0.0, 1.0)]),  # a spike inside a slab: the mode is the spike
        (10, [(0.5, 0.0, 1.0), (0.5, 0.0, 20.0)]),
        (5, [(0.5, 0.0, 1e3), (0.5, 5e4, 1e3)]),  # in other units, and fifty standard deviations apart
        (1, [(0.5, 0.0, 1.0), (0.5, 1e3, 1.0)]),
        (1, [(0.5, 0.0, 1.0), (0.5, 3.0, 1e-4)]),
    ],
    ids=["spike", "slab", "units", "far", "needle"],
)
def test_both_halves_are_found(dim, components):
    result = fitted(normals(dim, *components))
    assert -result.elbo < 0.01
    assert result.verdict == "good"


def test_a_shell_around_a_normal():
    """Half of the mass on a sphere of radius 8 in eight dimensions, which no single component can cover."""
    dim, radius, sd = 8, 8.0, 0.3
    r = np.linspace(radius - 8 * sd, radius + 8 * sd, 20_001)
    area = 2.0 * np.pi ** (dim / 2) / 6.0  # of the unit sphere: Γ(4) = 6
    constant = np.log(np.trapezoid(area * r ** (dim - 1) * np.exp(-0.5 * ((r - radius) / sd) ** 2), r))

    def log_density(z):
        shell = -0.5 * ((jnp.sqrt(z @ z + 1e-12) - radius) / sd) ** 2 - constant
        return jnp.logaddexp(norm.logpdf(z).sum(), shell) - jnp.log(2.0)

    result = fitted(bv.Target(log_density, dim))
    assert -result.elbo > 0.1
    assert result.verdict != "good"
    assert result.probes.missed_share > 0.1


def test_a_mode_that_a_normal_is_far_from():
    """Half of the mass in a product of eight bananas, which no component comes near: its ELBO would be e⁻⁸ of it."""
    apart = np.zeros(16)
    apart[0] = -8.0

    def log_density(z):
        x, y = z[:8], z[8:]
        bananas = jnp.sum(norm.logpdf(x) + norm.logpdf(y, x**2, 0.2))
        return jnp.logaddexp(norm.logpdf(z, apart, 0.5).sum(), bananas) - jnp.log(2.0)

    result = fitted(bv.Target(log_density, 16))
    assert -result.elbo > 0.1
    assert result.verdict == "unreliable"
    assert "misses" in result.reasons[0]


def test_gradients_that_are_nan_where_the_density_is_not():
    """The usual slip with jnp.where: no climb and no chain can enter the region, and half of the mass is in it."""

    def log_density(z):
        both = jnp.logaddexp(norm.logpdf(z).sum(), norm.logpdf(z, 6.0).sum()) - jnp.log(2.0)
        return both + 0.0 * jnp.where(z[0] > 3.0, 0.0, jnp.sqrt(3.0 - z[0]))

    result = fitted(bv.Target(log_density, 5))
    assert -result.elbo > 0.5
    assert result.verdict == "unreliable"
    assert any("jnp.where" in reason for reason in result.reasons)


@pytest.mark.parametrize("offset", [-1e4, -1e6, 1e8])
def test_an_exact_fit_of_a_large_log_density(offset):
    """Rounding of ln p is all that its importance weights have."""
    result = fitted(bv.Target(lambda z: jnp.sum(norm.logpdf(z)) + offset, 3))
    assert (result.verdict, result.mixture.n_active) == ("good", 1)
    assert abs(result.elbo - offset) < 1e-6 * max(1.0, 1e-8 * abs(offset))


def test_an_improper_posterior_is_not_usable():
    result = fitted(bv.Target(lambda z: -jnp.log1p(jnp.abs(z[0])), 1), max_components=16)
    assert result.verdict == "unreliable"


def test_a_hard_boundary_is_named():
    with pytest.raises(ValueError, match=r"hard boundary.*logarithm"):
        fitted(bv.Target(lambda z: jnp.where(z[0] > 0, -0.5 * z[0] ** 2, -jnp.inf), 1))


def test_going_on_begins_with_what_the_search_found():
    """A run that stopped by itself, of a target with another mode, as large, that it never saw: around the first they
    are the same. Without a look at the verdict there is nothing to go on with; after it, there is."""
    one = lambda z: norm.logpdf(z).sum()  # noqa: E731
    target = bv.Target(lambda z: jnp.logaddexp(one(z), norm.logpdf(z, 12.0).sum()), 2)
    stopped = bv.Result(target, fitted(bv.Target(one, 2)).run, "converged")
    assert stopped.finds is None
    assert len(fitted(target, None, resume=stopped).history.rows) == len(stopped.history.rows)
    assert stopped.verdict == "unreliable"
    assert "go on with fit(target, resume=result)" in stopped.reasons[0]
    more = fitted(target, None, resume=stopped)
    assert len(more.history.rows) > len(stopped.history.rows)
    assert more.elbo == pytest.approx(np.log(2.0), abs=0.01)
    assert more.verdict == "good"
