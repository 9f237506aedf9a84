"""Every family: a normalised density, draws that follow it, and gradients that are right."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture
from jax.flatten_util import ravel_pytree
from scipy import stats

import boostvi as bv
from boostvi.families import (
    FAMILIES,
    DiagonalLaplace,
    DiagonalNormal,
    DiagonalStudentT,
    Family,
    FullRankNormal,
    LowRankNormal,
)
from boostvi.families.base import MIN_SCALE, log_volume, standardise, to_raw, to_scale

DIAGONAL = [
    DiagonalNormal(),
    DiagonalLaplace(),
    DiagonalStudentT(df=9.0),
]  # a variance needs 4 moments to have an error
ALL = [*DIAGONAL, LowRankNormal(rank=2), FullRankNormal()]
N_DRAWS = 20_000
LOC = np.array([0.5, -1.0, 2.0])
SCALE = np.array([0.3, 1.0, 4.0])


def label(family: Family) -> str:
    return f"{family.name}-{getattr(family, 'df', getattr(family, 'rank', ''))}".rstrip("-")


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def member(family: Family, dim: int, seed: int = 0) -> dict:
    """A component that is not special in any way."""
    params = family.init(jax.random.key(seed), jnp.asarray(LOC[:dim]), jnp.asarray(SCALE[:dim]))
    rng = np.random.default_rng(seed)
    for name in ("factor", "lower"):
        if name in params:
            params[name] = jnp.asarray(0.7 * rng.standard_normal(params[name].shape))
    return params


def moments(family: Family, params: dict) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance from the parameters, by the definition of each family."""
    scale = np.diag(to_scale(params["raw_scale"]))
    dim = scale.shape[0]
    if isinstance(family, LowRankNormal):
        factor = np.asarray(params["factor"])
        return np.asarray(params["loc"]), scale @ (np.eye(dim) + factor @ factor.T) @ scale
    if isinstance(family, FullRankNormal):
        factor = scale @ (np.eye(dim) + np.tril(params["lower"], -1))
        return np.asarray(params["loc"]), factor @ factor.T
    return np.asarray(params["loc"]), (family.unit_sd * scale) ** 2


def reference(family: Family, params: dict, z: np.ndarray) -> np.ndarray:
    """The same log density by SciPy."""
    mean, covariance = moments(family, params)
    scale = np.asarray(to_scale(params["raw_scale"]))
    if isinstance(family, DiagonalLaplace):
        return stats.laplace.logpdf(z, mean, scale).sum(-1)
    if isinstance(family, DiagonalStudentT):
        return stats.t.logpdf(z, family.df, mean, scale).sum(-1)
    return stats.multivariate_normal(mean, covariance).logpdf(z)


@partial(jax.jit, static_argnums=0)
def _draws(family: Family, params: dict, key):
    noise = family.noise(key, (N_DRAWS, params["loc"].size))
    return noise, *jax.vmap(lambda e: family.sample_and_log_prob(params, e))(noise)


def draws(family: Family, params: dict, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draws and their log densities."""
    _, z, log_s = _draws(family, params, jax.random.key(seed))
    return np.asarray(z), np.asarray(log_s)


@partial(jax.jit, static_argnums=0)
def _log_prob(family: Family, params: dict, z):
    return jax.vmap(lambda one: family.log_prob(params, one))(z)


def log_prob(family: Family, params: dict, z: np.ndarray) -> np.ndarray:
    return np.asarray(_log_prob(family, params, jnp.asarray(z)))


def test_registry_names():
    assert set(FAMILIES) == {
        "diagonal-normal", "diagonal-laplace", "diagonal-student-t", "low-rank-normal", "full-rank-normal",
        "full-rank-student-t", "product-student-t",
    }  # fmt: skip
    assert all(cls().name == name for name, cls in FAMILIES.items())


@pytest.mark.parametrize("family", [*ALL, DiagonalStudentT(), DiagonalStudentT(df=1.0)], ids=label)
def test_log_prob_equals_scipy(family):
    params = member(family, 3)
    z = np.random.default_rng(0).normal(scale=5.0, size=(200, 3))
    np.testing.assert_allclose(log_prob(family, params, z), reference(family, params, z), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("family", ALL, ids=label)
def test_log_prob_integrates_to_one(family, dim):
    """Trapezoids after z = 4·sd·tan(u), which reaches as far out as the tails of a Student-t."""
    params = member(family, dim)
    mean, covariance = moments(family, params)
    u = np.linspace(-np.pi / 2, np.pi / 2, 4001 if dim == 1 else 801)[1:-1]
    step = u[1] - u[0]
    wide = 4.0 * np.sqrt(np.diag(covariance))
    axes = [mean[i] + wide[i] * np.tan(u) for i in range(dim)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    jacobian = np.prod(wide * (1.0 + ((grid - mean) / wide) ** 2), axis=-1)
    total = np.sum(np.exp(log_prob(family, params, grid)) * jacobian) * step**dim
    assert total == pytest.approx(1.0, abs=2e-4)


@pytest.mark.parametrize("family", ALL, ids=label)
def test_log_prob_integrates_to_one_by_importance(family):
    """In three dimensions: the mean of s/r over draws of a heavier-tailed r is 1."""
    params = member(family, 3)
    mean, covariance = moments(family, params)
    proposal = stats.multivariate_t(mean, 2.0 * covariance, df=3, seed=3)
    z = proposal.rvs(40_000)
    ratio = np.exp(log_prob(family, params, z) - proposal.logpdf(z))
    se = ratio.std(ddof=1) / np.sqrt(ratio.size)
    assert se < 0.02
    assert abs(ratio.mean() - 1.0) < 4 * se


@pytest.mark.parametrize("family", ALL, ids=label)
def test_draws_know_their_density(family):
    params = member(family, 3)
    z, log_s = draws(family, params)
    np.testing.assert_allclose(log_s, log_prob(family, params, z), rtol=1e-10, atol=1e-10)


def test_ill_conditioned_draws_know_their_density():
    """The density of a draw of the family's own comes from its noise, where a solve would lose all digits."""
    family, dim = FullRankNormal(), 40
    lower = np.tril(np.full((dim, dim), -2.0), -1)
    assert np.linalg.cond(np.eye(dim) + lower) > 1e15
    params = family.init(jax.random.key(0), jnp.zeros(dim), jnp.ones(dim)) | {"lower": jnp.asarray(lower)}
    noise, _, log_s = _draws(family, params, jax.random.key(1))
    # The determinant is 1, so ln s is that of the noise.
    np.testing.assert_allclose(log_s, stats.norm.logpdf(noise).sum(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ALL, ids=label)
def test_sample_moments(family):
    params = member(family, 3)
    z, _ = draws(family, params)
    mean, covariance = moments(family, params)
    products = (z - mean)[:, :, None] * (z - mean)[:, None, :]
    for values, truth in ((z, mean), (products, covariance)):
        se = values.std(axis=0, ddof=1) / np.sqrt(z.shape[0])
        assert np.all(np.abs(values.mean(axis=0) - truth) < 4.5 * se)  # at most 9 comparisons


@pytest.mark.parametrize("family", ALL, ids=label)
def test_sample_distribution(family):
    """Kolmogorov-Smirnov, coordinate by coordinate."""
    params = member(family, 3)
    z, _ = draws(family, params, seed=5)
    mean, covariance = moments(family, params)
    scale = np.asarray(to_scale(params["raw_scale"]))
    for i in range(3):
        if isinstance(family, DiagonalLaplace):
            cdf = stats.laplace(mean[i], scale[i]).cdf
        elif isinstance(family, DiagonalStudentT):
            cdf = stats.t(family.df, mean[i], scale[i]).cdf
        else:
            cdf = stats.norm(mean[i], np.sqrt(covariance[i, i])).cdf
        assert stats.kstest(z[:, i], cdf).pvalue > 1e-3


def test_scale_round_trip():
    scale = np.geomspace(1e-6, 1e6, 101)
    np.testing.assert_allclose(to_scale(to_raw(jnp.asarray(scale))), scale, rtol=1e-9)
    raw = np.linspace(-13.0, 1e3, 101)
    np.testing.assert_allclose(to_raw(to_scale(jnp.asarray(raw))), raw, rtol=1e-9)


def test_scale_is_bounded_below():
    assert float(to_scale(jnp.asarray(-1e4))) == MIN_SCALE
    squeezed = to_raw(jnp.asarray([0.0, 1e-300, MIN_SCALE]))
    assert np.isfinite(squeezed).all()
    assert np.all(np.asarray(to_scale(squeezed)) <= 2.0 * MIN_SCALE * (1 + 1e-6))


@pytest.mark.parametrize("family", ALL, ids=label)
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_extreme_scales(family, size):
    """A change of units shifts the log density by its logarithm and nothing else."""
    scaled = family.init(jax.random.key(2), size * jnp.asarray(LOC), size * jnp.asarray(SCALE))
    plain = family.init(jax.random.key(2), jnp.asarray(LOC), jnp.asarray(SCALE))
    z, log_s = draws(family, plain)
    z_scaled, log_s_scaled = draws(family, scaled)
    np.testing.assert_allclose(z_scaled, size * z, rtol=1e-8, atol=1e-9 * size)
    np.testing.assert_allclose(log_s_scaled, log_s - 3 * np.log(size), rtol=0, atol=1e-7)


def central_differences(function, at, h: float = 1e-5):
    """Jacobian of `function` at `at`, differences in the last axis."""
    steps = h * jnp.eye(at.size)
    return jax.vmap(lambda step: (function(at + step) - function(at - step)) / (2 * h), out_axes=-1)(steps)


@pytest.mark.parametrize("family", ALL, ids=label)
def test_gradients_match_finite_differences(family):
    flat, unravel = ravel_pytree(member(family, 3))
    noise = family.noise(jax.random.key(4), (3,))

    @jax.jit
    def both(flat, noise):
        params = unravel(flat)
        z = family.sample(params, noise) + 0.1
        questions = [
            (lambda v: family.log_prob(unravel(v), z), flat),
            (lambda v: family.log_prob(params, v), z),
            (lambda v: family.sample(unravel(v), noise), flat),
            (lambda v: family.sample_and_log_prob(unravel(v), noise)[1], flat),
        ]
        return [(jax.jacrev(function)(at), central_differences(function, at)) for function, at in questions]

    for exact, numerical in both(flat, noise):
        assert np.abs(exact).max() > 0.1
        np.testing.assert_allclose(exact, numerical, rtol=1e-6, atol=1e-6)


def covariance_matrix(dim: int) -> np.ndarray:
    """Correlations of every size, in units from 0.1 to 10."""
    correlation = 0.6 ** np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    sd = np.geomspace(0.1, 10.0, dim)
    return correlation * sd[:, None] * sd


@pytest.mark.parametrize("family", [FullRankNormal(), LowRankNormal(rank=4), LowRankNormal(rank=6)], ids=label)
def test_from_gaussian_keeps_the_whole_covariance(family):
    mean, covariance = np.array([1.0, -2.0, 3.0, 0.0]), covariance_matrix(4)
    found_mean, found = moments(
        family, family.from_gaussian(jax.random.key(0), jnp.asarray(mean), jnp.asarray(covariance))
    )
    sd = np.sqrt(np.diag(covariance))
    # Low rank breaks the symmetry of its factors by 1e-4.
    tolerance = 1e-12 if isinstance(family, FullRankNormal) else 2e-3
    np.testing.assert_allclose(found_mean, mean)
    np.testing.assert_allclose(found / (sd[:, None] * sd), covariance / (sd[:, None] * sd), atol=tolerance)


def test_from_gaussian_keeps_a_factor_model():
    """Rank 2 holds a covariance of two factors and what each coordinate has of its own."""
    loadings = np.array([[0.8, 0.0], [-0.8, 0.0], [0.8, 0.0], [0.0, 0.8], [0.0, 0.8]])
    correlation = loadings @ loadings.T + 0.36 * np.eye(5)
    sd = np.geomspace(0.1, 10.0, 5)
    family = LowRankNormal(rank=2)
    params = family.from_gaussian(jax.random.key(0), jnp.zeros(5), jnp.asarray(correlation * sd[:, None] * sd))
    _, found = moments(family, params)
    np.testing.assert_allclose(found / (sd[:, None] * sd), correlation, atol=2e-3)


@pytest.mark.parametrize("family", [*DIAGONAL, LowRankNormal(rank=1)], ids=label)
def test_from_gaussian_keeps_mean_and_variances(family):
    mean, covariance = np.array([1.0, -2.0, 3.0, 0.0]), covariance_matrix(4)
    params = family.from_gaussian(jax.random.key(0), jnp.asarray(mean), jnp.asarray(covariance))
    found_mean, found = moments(family, params)
    np.testing.assert_allclose(found_mean, mean)
    np.testing.assert_allclose(np.diag(found), np.diag(covariance), rtol=2e-3)


@pytest.mark.parametrize(
    ("family", "count"),
    [
        (DiagonalNormal(), 10), (DiagonalLaplace(), 10), (DiagonalStudentT(), 10),
        (LowRankNormal(rank=3), 10 + 15), (FullRankNormal(), 5 + 15),
    ],
    ids=lambda value: label(value) if isinstance(value, Family) else str(value),
)  # fmt: skip
def test_number_of_parameters(family, count):
    assert family.n_params(5) == count


@pytest.mark.parametrize("df", [0.0, -1.0, float("nan")])
def test_bad_degrees_of_freedom(df):
    with pytest.raises(ValueError, match="df must be positive"):
        DiagonalStudentT(df=df)


@pytest.mark.parametrize("rank", [0, -1, 1.5, True])
def test_bad_rank(rank):
    with pytest.raises(ValueError, match="rank must be a positive integer"):
        LowRankNormal(rank=rank)


class DiagonalJohnson(Family):
    """A family as a newcomer would write it: a draw from noise, 2·sinh(noise/2) in each coordinate, and its density."""

    name = "diagonal-johnson"

    def sample(self, params, noise):
        return params["loc"] + to_scale(params["raw_scale"]) * 2.0 * jnp.sinh(0.5 * noise)

    def log_prob(self, params, z):
        y = 0.5 * standardise(params, z)
        inside = jax.scipy.stats.norm.logpdf(2.0 * jnp.arcsinh(y)) - 0.5 * jnp.log1p(y**2)
        return jnp.sum(inside) - log_volume(params)


@pytest.mark.slow  # the extension guide's family is run by test_readme.py
def test_a_new_family_is_two_methods():
    target = gaussian_mixture([0.4, 0.6], [[-4.0, 0.0], [4.0, 0.0]], np.ones((2, 2)))
    family = DiagonalJohnson()
    result = bv.fit(target, family=family, max_steps=2, n_draws=400, elbo_draws=2000, progress=False)
    assert result.mixture.family is family
    assert result.mixture.params.keys() == {"loc", "raw_scale"}
    assert result.history["n_params"][-1] == 4 * result.history["n_active"][-1]
    assert np.isfinite(result.history["elbo"]).all()
    # With one mode missing the ELBO is below ln 0.6 = −0.51; two of these components come to −0.05.
    assert -0.2 < result.elbo < 4 * result.elbo_se
    right = result.mixture.sample(4000, seed=3)[:, 0] > 0
    assert right.mean() == pytest.approx(0.6, abs=0.1)
