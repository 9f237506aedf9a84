"""Warps: exact densities whatever the coefficients; cumulants; and what a straightened fit is for everybody else."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from matplotlib import pyplot as plt
from numpy.polynomial.polynomial import polyder, polyval2d

import boostvi as bv
from boostvi import plots, polynomials, probes
from boostvi import warp as warps
from boostvi._jit import new_key
from boostvi._struct import replace
from boostvi.corrections import Refine
from boostvi.corrections.straighten import cumulants, layer_size, straighten
from boostvi.families import FullRankNormal
from boostvi.next_component import Explore
from boostvi.polynomials import Polynomial
from boostvi.recipes import auto
from boostvi.snapshot import snapshot
from boostvi.storage import archive
from boostvi.storage.archive import StorageError
from boostvi.target import log_densities, values_and_gradients
from boostvi.warp import Layer, Warp

SHAPES = ((1, 2, 1), (3, 2, 3), (5, 3, 5), (5, 3, 2), (4, 2, 1))
"""Dimensions, degree, and the coordinates that polynomials depend on."""


def random_polynomial(rng, dim: int, degree: int, inputs: int, size: float) -> Polynomial:
    listed = polynomials.exponents(inputs, degree)
    before = listed[:, 0] < np.arange(dim)[:, None]
    coefficients = size / math.sqrt(len(listed)) * rng.standard_normal((dim, len(listed))) * before
    return Polynomial((polynomials.hermite(inputs, degree).T @ coefficients.T).T, degree, inputs)


def random_layer(rng, dim: int, degree: int, inputs: int, size: float = 0.4) -> Layer:
    factor = np.eye(dim) + 0.2 * rng.standard_normal((dim, dim))
    return replace(
        warps.identity(rng.standard_normal(dim), factor, degree, inputs),
        shift=random_polynomial(rng, dim, degree, inputs, size),
        log_scale=random_polynomial(rng, dim, degree - 1, inputs, size),
        skew=size / 2 * rng.standard_normal(dim),
        tail=size / 4 * rng.standard_normal(dim),
    )


def random_warp(dim: int, degree: int, inputs: int, seed: int = 0) -> Warp:
    rng = np.random.default_rng(seed)
    first = random_layer(rng, dim, 2, dim)
    return warps.append(warps.append(None, first), random_layer(rng, dim, degree, inputs))


@pytest.mark.usefixtures("x64")
class TestPolynomials:
    @pytest.mark.parametrize(("dim", "degree"), [(1, 3), (3, 1), (3, 2), (4, 3)])
    def test_monomials_are_listed_by_their_last_coordinate(self, dim, degree):
        listed = polynomials.exponents(dim, degree)
        assert len(listed) == polynomials.n_monomials(dim, degree) == len({tuple(row) for row in listed})
        assert (np.diff(listed[:, 0]) >= 0).all()
        np.testing.assert_array_equal(polynomials.place_of(listed), np.arange(len(listed)))
        u = np.random.default_rng(0).standard_normal(dim)
        direct = [np.prod([u[c] for c in row if c >= 0]) for row in listed]
        np.testing.assert_allclose(polynomials.monomials(u, degree), direct, rtol=1e-12)

    def test_hermite_polynomials_are_orthonormal(self):
        """Exactly, by quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        weights = weights / weights.sum()
        grid = np.array(list(itertools.product(nodes, nodes)))
        share = np.prod(list(itertools.product(weights, weights)), axis=1)
        values = jax.jit(jax.vmap(lambda u: polynomials.monomials(u, 3)))(grid)
        orthonormal = polynomials.hermite(2, 3) @ np.asarray(values).T
        np.testing.assert_allclose((orthonormal * share) @ orthonormal.T, np.eye(10), atol=1e-10)

    @pytest.mark.parametrize(("dim", "degree", "inputs"), SHAPES)
    def test_row_i_sees_the_coordinates_before_i(self, dim, degree, inputs):
        polynomial = random_polynomial(np.random.default_rng(1), dim, degree, inputs, 1.0)
        jacobian = np.asarray(jax.jit(jax.jacfwd(polynomial))(np.linspace(-1.0, 1.0, dim)))
        seen = np.tril(np.ones((dim, dim), bool), -1) & (np.arange(dim) < inputs)
        np.testing.assert_array_equal(jacobian != 0, seen)
        assert polynomials.is_triangular(polynomial)

    @pytest.mark.parametrize(("dim", "degree", "inputs"), SHAPES)
    def test_many_points_on_the_host_are_the_traced_one(self, dim, degree, inputs):
        rng = np.random.default_rng(2)
        polynomial, u = random_polynomial(rng, dim, degree, inputs, 1.0), rng.standard_normal((7, dim))
        features, packed = polynomials.Features(7, inputs, degree), polynomials.Packed(polynomial)
        one_by_one = np.tile(packed.constant, (1, 7))
        for c in range(inputs):
            features.learn(c, u[:, c])
            if c + 1 < dim:
                packed.add(one_by_one, features, c)
        values, slopes = packed.values(features)
        by_value = rng.standard_normal((dim, 7))

        @jax.jit
        @jax.vmap
        def traced(x, slopes):
            at, pull_back = jax.vjp(polynomial, x)
            return polynomials.monomials(x[:inputs], degree), at, pull_back(slopes)[0]

        monomials, at, pulled = traced(u, by_value.T)
        np.testing.assert_allclose(features.until(inputs - 1, degree).T, monomials, rtol=1e-12)
        for of in (values, one_by_one):
            np.testing.assert_allclose(of.T, at, rtol=1e-12, atol=1e-12)
        by_u, by_feature = np.zeros((dim, 7)), features.no_slopes()
        packed.pull_back(by_value, features, slopes, by_feature, by_u)
        features.pull_back(by_feature, by_u)
        np.testing.assert_allclose(by_u.T, pulled, rtol=1e-10, atol=1e-12)

    def test_cumulants_of_a_polynomial(self):
        """E[∂^α R] of a polynomial R by quadrature: every pair (r, β) gives the same, and so does their mean."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(10)
        grid = np.array(list(itertools.product(nodes, nodes)))
        share = np.prod(list(itertools.product(weights, weights)), axis=1)
        share /= share.sum()
        R = np.zeros((5, 5))  # of u₀ⁱ u₁ʲ
        R[3, 0], R[2, 1], R[0, 4], R[1, 1] = 0.3, 0.5, -0.2, 1.0

        def derivative(axes):
            return polyval2d(*grid.T, functools.reduce(lambda c, axis: polyder(c, axis=axis), axes, R))

        gradients = np.stack([derivative([0]), derivative([1])], axis=1)
        features = np.asarray(jax.jit(jax.vmap(lambda u: polynomials.monomials(u, 3)))(grid))
        products = (polynomials.hermite(2, 3) @ (features * share[:, None]).T @ gradients).T
        where = cumulants(2, 3)
        found = np.sum(where.shares * products[where.rows, where.places], axis=0)
        alphas = polynomials.exponents(2, 4)[1:]
        expected = [share @ derivative(alpha[alpha >= 0].tolist()) for alpha in alphas]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("x64")
class TestWarp:
    @pytest.mark.parametrize(
        ("dim", "degree", "inputs"),
        [*SHAPES[1:4], *(pytest.param(*of, marks=pytest.mark.slow) for of in (SHAPES[0], SHAPES[4]))],
    )
    def test_the_volume_is_that_of_the_jacobian(self, dim, degree, inputs):
        warp, u = random_warp(dim, degree, inputs), np.random.default_rng(3).standard_normal((20, dim))
        _, log_det = warp.to_z(u)
        jacobian = jax.jit(jax.vmap(jax.jacfwd(lambda one: warp.forward(one)[0])))(u)
        np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], log_det, atol=1e-9)

    @pytest.mark.parametrize(("dim", "degree", "inputs"), SHAPES)
    def test_there_and_back(self, dim, degree, inputs):
        warp, u = random_warp(dim, degree, inputs), np.random.default_rng(4).standard_normal((200, dim))
        z, log_det = warp.to_z(u)
        back, log_det_back = warp.to_u(z)
        np.testing.assert_allclose(back, u, atol=1e-6)
        np.testing.assert_allclose(log_det_back, log_det, atol=1e-6)
        np.testing.assert_allclose(jax.jit(jax.vmap(warp.backward))(z[:20]), u[:20], atol=1e-6)

    @pytest.mark.parametrize("scale", [3.0, 30.0, 300.0])
    def test_there_and_back_from_afar(self, scale):
        """Where polynomials of degree 3 without bounds would be astronomical."""
        warp, z = random_warp(5, 3, 5), scale * np.random.default_rng(4).standard_normal((200, 5))
        np.testing.assert_allclose(warp.to_z(warp.to_u(z)[0])[0], z, rtol=1e-6, atol=1e-6)

    def test_far_out_nothing_breaks(self):
        u, log_det = random_warp(5, 3, 5).to_u(np.full((3, 5), 1e200))
        assert np.isfinite(u).all()
        assert np.isfinite(log_det).all()

    def test_a_target_seen_through_it(self):
        warp = random_warp(5, 3, 5)
        target = bv.Target(lambda z: -jnp.sum(jnp.cosh(z)) + z[0] * z[1], 5)
        u = np.random.default_rng(5).standard_normal((40, 5))
        values, gradients = values_and_gradients(target.through(warp), u)
        direct = jax.jit(jax.vmap(jax.value_and_grad(target.through(warp).log_density)))(u)
        np.testing.assert_allclose(values, direct[0], rtol=1e-9)
        np.testing.assert_allclose(gradients, direct[1], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(log_densities(target.through(warp), u), values, rtol=1e-12)
        assert target.through(None) is target
        assert target.through(warp).original is target

    def test_straightening_finds_a_warped_normal(self):
        """A target that is itself the image of a Normal: next to nothing is left."""
        layer = random_layer(np.random.default_rng(6), 4, 2, 4, size=0.25)
        warp = warps.append(None, replace(layer, tail=np.zeros(4)))

        def log_density(z):
            u = warp.backward(z)
            return jnp.sum(norm.logpdf(u)) - warp.forward(u)[1]

        target = bv.Target(log_density, 4)
        start = {"loc": np.asarray(layer.loc), "factor": np.asarray(layer.factor)}
        found, gain, count = straighten(target, start, 2, np.random.default_rng(0), lambda: False)
        u = np.random.default_rng(7).standard_normal((4000, 4))
        ratios = log_densities(target.through(found), u) - norm.logpdf(u).sum(axis=1)
        plain = log_densities(target, start["loc"] + u @ start["factor"].T)
        plain = plain + np.linalg.slogdet(start["factor"])[1] - norm.logpdf(u).sum(axis=1)
        se = ratios.std() / math.sqrt(len(u))
        assert -ratios.mean() < 0.01 + 3.0 * se
        assert gain < ratios.mean() - plain.mean() + 3.0 * plain.std() / math.sqrt(len(u))
        assert gain > 0.5 * (ratios.mean() - plain.mean())
        assert count.evals > 4000

    def test_polynomials_of_a_few_coordinates(self):
        """A funnel with 49 arms has more monomials than can be fitted; those of its one neck are enough."""
        dim = 50

        def log_density(z):
            return jnp.sum(norm.logpdf(z[1:], 0.0, jnp.exp(0.2 * z[0]))) + norm.logpdf(z[0])

        narrow = 1.0 / math.sqrt(1.0 + 0.08 * (dim - 1))  # the Normal with the least KL
        widths = np.array([narrow] + [math.exp(-0.04 * narrow**2)] * (dim - 1))
        target, normal = bv.Target(log_density, dim), {"loc": np.zeros(dim), "factor": np.diag(widths)}
        found, gain, _ = straighten(target, normal, 3, np.random.default_rng(0), lambda: False)
        (layer,) = found.layers
        assert layer.shift.inputs < 20
        u = np.random.default_rng(7).standard_normal((1000, dim))
        identity = warps.append(None, warps.identity(normal["loc"], normal["factor"], 2, 1))
        before, after = (log_densities(target.through(w), u) - norm.logpdf(u).sum(axis=1) for w in (identity, found))
        assert -before.mean() > 0.5
        assert -after.mean() < 0.1 + 3.0 * after.std() / math.sqrt(len(u))
        assert gain > 0.8 * (after.mean() - before.mean())
        z, log_det = found.to_z(u)
        back, log_det_back = found.to_u(z)
        np.testing.assert_allclose(back, u, atol=1e-6)
        np.testing.assert_allclose(log_det_back, log_det, atol=1e-6)

    def test_no_layer_is_larger_than_can_be_fitted(self):
        """All coordinates while there are not too many; then those that matter; nothing where these are too many."""
        assert layer_size(35, 3, 35) == (3, 35)
        assert layer_size(36, 3, 5) == (3, 8)
        assert layer_size(100, 3, 50) == (2, 100)
        assert layer_size(1000, 2, 1) == (3, 8)
        assert layer_size(1000, 2, 40) == (2, 40)
        assert layer_size(1000, 2, 300) is None

    def test_a_model_that_is_not_finite_gains_nothing(self):
        target = bv.Target(lambda z: jnp.where(z[0] > 0, jnp.sum(norm.logpdf(z)), -jnp.inf), 2)
        normal = {"loc": np.zeros(2), "factor": np.eye(2)}
        assert straighten(target, normal, 2, np.random.default_rng(0), lambda: False)[1] == -np.inf


MIXING = np.array([[1.0, 0.0, 0.0], [0.6, 1.0, 0.0], [-0.4, 0.3, 0.5]])
SHAPE = 1.5
PLACE = 5.0
STRAIGHT = {"correction": Refine(straighten_from=2), "seed": 0, "progress": False}


def skewed() -> bv.Target:
    """Three logarithms of Gamma variables, mixed and moved: one skewed mode, log Z = 0."""
    inverse = np.linalg.inv(MIXING)
    constant = -3.0 * gammaln(SHAPE) - np.linalg.slogdet(MIXING)[1]

    def log_density(z):
        x = (z - PLACE) @ inverse.T
        return jnp.sum(SHAPE * x - jnp.exp(x)) + constant

    return bv.Target(log_density, 3)


def exact_draws(n: int) -> np.ndarray:
    return np.log(np.random.default_rng(8).gamma(SHAPE, size=(n, 3))) @ MIXING.T + PLACE


@pytest.fixture(scope="module")
def target() -> bv.Target:
    with jax.enable_x64(True):
        return skewed()


@pytest.fixture(scope="module")
def result(target) -> bv.Result:
    return bv.fit(target, **STRAIGHT)


class TestFit:
    def test_one_component_is_straightened(self, result):
        assert result.mixture.warp is not None
        assert result.mixture.n_active <= 16
        assert result.verdict == "good"
        assert -result.elbo < 0.01 + 3.0 * result.elbo_se
        assert result.history["n_params"][-1] > result.history["n_params"][0]

    def test_log_prob_is_normalised_and_traceable(self, result, x64):
        """E_p[q/p] = 1 for exact draws of p, within three standard errors; traced and concrete values agree."""
        z = exact_draws(4000)
        log_q = result.mixture.log_prob(z)
        ratio = np.exp(log_q - log_densities(result.target, z))
        assert ratio.mean() == pytest.approx(1.0, abs=3.0 * ratio.std() / math.sqrt(len(z)))
        some = z[:10].reshape(2, 5, 3)
        np.testing.assert_allclose(jax.jit(result.mixture.log_prob)(some), log_q[:10].reshape(2, 5), rtol=1e-8)
        gradient = jax.jit(jax.grad(result.mixture.log_prob))(z[0])
        step = 1e-5 * np.eye(3)
        differences = (result.mixture.log_prob(z[0] + step) - result.mixture.log_prob(z[0] - step)) / 2e-5
        np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("importance", [False, True])
    def test_draws_have_the_right_moments(self, result, importance):
        n = 4000
        found, exact = result.sample(n, seed=1, importance=importance), exact_draws(100_000)
        sd = exact.std(axis=0)
        # Resampled draws repeat, and the mixture itself may be off by √(2·KL) of a standard deviation.
        error = 4.0 / math.sqrt(n) * (1.5 if importance else 1.0) + math.sqrt(2.0 * 0.005)
        assert (np.abs(found.mean(axis=0) - exact.mean(axis=0)) / sd < error).all()
        assert (np.abs(found.std(axis=0) / sd - 1.0) < error).all()

    def test_components_and_centres_are_in_the_targets_space(self, result):
        z = result.mixture.sample(50, seed=2)
        shares = np.log(result.mixture.weights) + result.mixture.component_log_probs(z)
        np.testing.assert_allclose(np.logaddexp.reduce(shares, axis=1), result.mixture.log_prob(z), rtol=1e-9)
        assert set(result.mixture.components_of(z)) <= set(range(result.mixture.n_active))
        centre, exact = np.asarray(result.mixture.weights) @ result.mixture.centres, exact_draws(10_000)
        assert (np.abs(centre - exact.mean(axis=0)) < exact.std(axis=0)).all()
        (mode,) = result.modes
        assert (np.abs(mode.location - exact.mean(axis=0)) < exact.std(axis=0)).all()

    def test_a_picture_of_it(self, result):
        step = bv.Step(result.best_step, result.mixture, dict(result.history.rows[-1]), result.history)
        taken, exact = snapshot(step), exact_draws(100_000)
        assert (taken.sd < 1.2 * exact.std(axis=0)).all()
        np.testing.assert_allclose(taken.draws.mean(axis=0), exact.mean(axis=0), atol=0.5)

    def test_fresh_draws_are_in_the_targets_space(self, result):
        exact = exact_draws(10_000)
        np.testing.assert_allclose(result._fresh[0].mean(axis=0), exact.mean(axis=0), atol=0.15)
        np.testing.assert_allclose(result.inverse_mass_matrix(), np.cov(exact.T), atol=0.2)
        for picture in (plots.corner, plots.marginals, plots.residual, plots.density):
            plt.close(picture(result))

    def test_summaries_name_the_warp(self, result):
        assert re.search(r"of family full-rank-normal behind a warp of [12] layers?", result.summary())

    @pytest.mark.parametrize("distance", [6.0, 20.0])
    def test_a_mode_far_away_is_seen(self, result, distance):
        """Its share is that of two Normals in u: the warp does not suit it."""
        far, one = result.mixture.sample(1, seed=0)[0] + distance, skewed()

        def log_density(z):
            parts = jnp.stack([one.log_density(z), jnp.sum(norm.logpdf(z, far, 0.5))])
            return jax.nn.logsumexp(parts + jnp.log(jnp.array([0.7, 0.3])))

        best = result.run.best
        found = probes.probe(bv.Target(log_density, 3).through(best.warp), best, new_key(0), climbs=64)
        assert 0.1 < found.missed_share < 0.4
        np.testing.assert_allclose(found.locations[0], far, atol=0.5)

    def test_another_number_of_draws(self, target):
        """A table that is made anew has the density of u, as the components have."""
        recipe = dataclasses.replace(auto(), draws_growth=1.5, kl_tol=0.05, min_steps=4)
        once = {"correction": Refine(split_above=0.05, straighten_from=2)}
        grown = bv.fit(target, recipe=recipe, max_steps=4, **STRAIGHT | once)
        state = grown.run.state
        assert state.mixture.warp is not None
        z = np.asarray(state.table.draws)[np.asarray(state.table.filled)][0]
        expected = log_densities(target.through(state.mixture.warp), z)
        np.testing.assert_allclose(np.asarray(state.table.log_target)[np.asarray(state.table.filled)][0], expected)

    def test_few_starts(self, target):
        fitted = bv.fit(target, next_component=Explore(n_starts=2), max_steps=2, **STRAIGHT)
        assert fitted.mixture.warp is not None

    def test_it_is_made_of_plain_arrays(self, result):
        assert {type(leaf) for leaf in jax.tree.leaves(result.mixture)} == {np.ndarray}

    def test_saved_and_loaded(self, target, result, tmp_path):
        result.save(tmp_path / "run.bvi")
        loaded = bv.load(tmp_path / "run.bvi", target=target)
        z = result.mixture.sample(20, seed=3)
        np.testing.assert_array_equal(loaded.mixture.sample(20, seed=3), z)
        np.testing.assert_array_equal(loaded.mixture.log_prob(z), result.mixture.log_prob(z))
        assert loaded.verdict == result.verdict

    def test_a_run_goes_on_as_if_it_had_not_stopped(self, target, result):
        part = bv.fit(target, max_steps=1, **STRAIGHT)
        more = bv.fit(target, resume=part, max_steps=50, progress=False)
        assert more.history["elbo"].tolist() == result.history["elbo"].tolist()

    @pytest.mark.parametrize("sizes", [[], [[1, 3]], [[99, 3]], [[2, 0]], [[2, 4]], [[2]], "2", [[2, 3]] * 9])
    def test_a_strange_file_is_refused(self, result, tmp_path, sizes):
        file = tmp_path / "run.bvi"
        result.save(file)
        with zipfile.ZipFile(file) as zipped:
            members = {name: zipped.read(name) for name in zipped.namelist()}
        (name,) = (name for name in members if name.endswith(".json"))
        manifest = json.loads(members[name])
        manifest["state"]["warp"] = sizes
        members[name] = json.dumps(manifest).encode()
        with zipfile.ZipFile(file, "w") as zipped:
            for member, content in members.items():
                zipped.writestr(member, content)
        with pytest.raises(StorageError, match="cannot load"):
            bv.load(file)

    @pytest.mark.parametrize(
        ("array", "change", "message"),
        [
            ("inverse", lambda a: 2.0 * a, "not inverted"),
            ("log_volume", lambda a: a + 1.0, "wrong volume"),
            ("shift/coefficients", lambda a: a + 1.0, "come later"),
            ("skew", lambda a: a + np.nan, "not finite"),
        ],
    )
    def test_a_file_whose_warp_is_no_map_is_refused(self, result, tmp_path, array, change, message):
        file = tmp_path / "run.bvi"
        result.save(file)
        manifest, arrays = archive.read(file)
        (name,) = (name for name in arrays if name.endswith(f"warp/layers/0/{array}.npy") and "state" in name)
        archive.write(file, manifest, arrays | {name: change(arrays[name])})
        with pytest.raises(StorageError, match=message):
            bv.load(file)

    def test_a_given_family_is_not_warped(self):
        given = dataclasses.replace(auto(), family="full-rank-normal")
        assert given.parts(FullRankNormal()).correction.straighten_from is None
        assert auto().parts(FullRankNormal()).correction.straighten_from == 16

    def test_several_modes_are_not_warped(self, bimodal):
        assert bv.fit(bimodal, max_steps=2, **STRAIGHT).mixture.warp is None


def test_a_model_with_a_warp_gives_a_guide():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import Predictive

    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(1.5, 1.0))
        numpyro.sample("shift", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    result = bv.fit(bv.from_numpyro(model, jnp.array([1, 2])), max_steps=2, **STRAIGHT)
    assert result.mixture.warp is not None
    n = 2000
    ours = result.sample(n, seed=1)["rate"]
    theirs = Predictive(result.guide, params=result.guide.params, num_samples=n)(jax.random.key(0), None)["rate"]
    error = 4.0 * math.sqrt(2.0 / n)
    assert np.mean(theirs) == pytest.approx(ours.mean(), abs=error * ours.std())
    assert dataclasses.is_dataclass(result.mixture.warp)
