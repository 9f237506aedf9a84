"""`auto` end to end on small targets with known answers, its parts, and the traps that its verdict must see."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm, t

import boostvi as bv
from boostvi import mixture as mixtures
from boostvi import probes
from boostvi._jit import new_key, trace_counts
from boostvi.corrections import Refine
from boostvi.families import DiagonalNormal, FullRankNormal, FullRankStudentT
from boostvi.next_component import Explore, Race
from boostvi.next_component.climb import climb
from boostvi.next_component.explore import look
from boostvi.next_component.local import CountedTarget, distinct, gaussians_at, isotropic
from boostvi.next_component.mean_field import PAIRS, mean_field
from boostvi.next_component.race import LIGHT_TAIL, TAIL_SHARE, tail_index

GRID = 6.0 * np.array([[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)], dtype=np.float64)


@pytest.fixture(scope="module")
def nine() -> bv.Target:
    """Nine unit Normals on a grid; log Z = 0."""
    return bv.Target(lambda z: jax.nn.logsumexp(jnp.sum(norm.logpdf(z, GRID), axis=1)) - jnp.log(9.0), 2)


@pytest.fixture(scope="module")
def fitted(nine) -> bv.Result:
    return bv.fit(nine, seed=0, progress=False)


def exact(modes) -> bv.Mixture:
    return mixtures.of(
        FullRankNormal(), isotropic(GRID[modes], np.ones(len(modes))), np.full(len(modes), 1 / len(modes))
    )


class TestNineModes:
    def test_all_are_found_and_it_stops_by_itself(self, fitted):
        assert fitted.status == "converged"
        assert abs(fitted.elbo) < 0.01 + 4 * fitted.elbo_se
        nearest = np.argmin(((fitted.mixture.sample(9000, seed=1)[:, None] - GRID) ** 2).sum(-1), axis=1)
        np.testing.assert_allclose(
            np.bincount(nearest, minlength=9) / 9000, 1 / 9, atol=4 * np.sqrt(8 / 81 / 9000) + 0.01
        )

    def test_it_is_called_good(self, fitted):
        assert fitted.verdict == "good", fitted.reasons
        assert fitted.probes.missed_share < 0.005
        assert "cannot be seen" in fitted.reasons[1]

    def test_a_second_fit_compiles_nothing(self, nine, fitted):
        before = dict(trace_counts)
        bv.fit(nine, seed=0, progress=False)
        assert dict(trace_counts) == before

    def test_the_last_step_found_nothing_new(self, fitted):
        assert fitted.history["kind"][-1] == "refine"

    def test_evaluations_are_reported(self, fitted):
        assert fitted.evals == fitted.history["evals"][-1] > 10_000


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [0, 1, 2, 3, 5, 6, 7, 8]], ids=["four-missing", "one-missing"])
def test_a_planted_trap_is_caught(nine, fitted, kept):
    """Exact but for the modes taken away: nearly all draws have the same weight, and k̂ need not warn."""
    planted = bv.Result(nine, dataclasses.replace(fitted.run, best=exact(kept)), "converged")
    assert np.median(np.abs(np.diff(planted._fresh[1] - planted._fresh[2]))) < 1e-3
    assert planted.verdict == "unreliable"
    assert "misses" in planted.reasons[0]
    with jax.enable_x64(True):
        missing = np.setdiff1d(np.arange(9), kept)
        nearest = np.argmin(((planted.probes.locations[:, None] - GRID) ** 2).sum(-1), axis=1)
    assert set(nearest) <= set(missing)


def test_a_budget_far_too_small_is_not_good(nine):
    result = bv.fit(nine, seed=3, max_steps=0, first=Race(n_starts=2), progress=False)
    assert result.verdict == "unreliable"


def test_one_component_is_enough_for_a_gaussian_of_any_scale():
    sd = np.logspace(-3, 3, 20)
    result = bv.fit(bv.Target(lambda z: jnp.sum(norm.logpdf(z, 0.0, sd)), 20), progress=False)
    assert (result.status, result.mixture.n_active, result.verdict) == ("converged", 1, "good")
    assert abs(result.elbo) < 1e-6


@pytest.mark.parametrize("dim", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_heavy_tails_choose_their_family(dim):
    result = bv.fit(bv.Target(lambda z: jnp.sum(t.logpdf(z, 2.0)), dim), progress=False)
    assert "student-t" in result.mixture.family.name
    assert result.elbo > -0.05
    assert np.isfinite(result.mixture.params["log_volume"]).all()


def test_several_modes_are_no_heavy_tail():
    """A Student-t over all of them has an ELBO that looks better than a Normal's in few draws, and is −∞."""
    loc, sd = np.array([-4.0, -1.0, 1.5, 5.0]), np.array([0.5, 0.3, 0.4, 0.8])
    target = bv.Target(lambda z: logsumexp(norm.logpdf(z[0], loc, sd)) - jnp.log(4.0), 1)
    result = bv.fit(target, progress=False)
    assert (result.mixture.family.name, result.mixture.n_active) == ("full-rank-normal", 4)
    assert abs(result.elbo) < 1e-3


def test_the_index_of_a_tail():
    """Of how far ln p − ln q falls below its median: 1/a if further than x has probability x^(−a)."""
    uniform = np.random.default_rng(0).random(100_000)
    fall = uniform**-1.0 - 2.0  # of median 0; the shift by 2 makes the index at most 2/18 higher
    assert 1.0 < tail_index(-fall) + 4.0 / np.sqrt(TAIL_SHARE * fall.size) < 1.3
    assert tail_index(np.log(uniform)) < LIGHT_TAIL
    assert tail_index(np.zeros(100)) == 0.0
    assert tail_index(np.r_[np.zeros(100), -np.inf]) == np.inf


@pytest.mark.usefixtures("x64")
def test_a_mean_field_fit_of_a_gaussian():
    """Its means are exact; its standard deviations solve s_i Σ_j Λ_ij M_ij s_j = 1, M the second moments of its draws
    (Λ_ii s_i² = 1 for very many of them: Bishop 2006, 10.1.2); all up to the 0.001 nats at which climbs end."""
    root = 0.1 * np.random.default_rng(0).standard_normal((20, 20)) + np.diag(np.geomspace(0.5, 5.0, 20))
    precision, mean = root @ root.T, np.linspace(-2.0, 2.0, 20)
    model = CountedTarget(bv.Target(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), 20))
    fitted = mean_field(model, np.zeros((2, 20)), np.array([1.0, 0.1]), np.random.default_rng(1))
    noise = np.random.default_rng(1).standard_normal((PAIRS, 20))
    sd = np.diagonal(fitted["factor"], axis1=1, axis2=2)
    np.testing.assert_allclose((fitted["loc"] - mean) * np.sqrt(np.diag(precision)), 0.0, atol=0.1)
    np.testing.assert_allclose(sd * (sd @ (precision * (noise.T @ noise / PAIRS))), 1.0, atol=0.1)
    np.testing.assert_allclose(fitted["factor"] @ fitted["inverse"], [np.eye(20)] * 2, atol=1e-9)


def test_where_the_mode_is_a_spike():
    """Centred group effects: the density grows without bound as their spread goes to 0, where there is no mass."""
    groups = 60
    rng = np.random.default_rng(0)
    y = rng.standard_normal(groups) + 0.5 * rng.standard_normal(groups)

    def log_density(z):
        log_sd, effects = z[0], z[1:]
        return (
            norm.logpdf(log_sd)
            + jnp.sum(norm.logpdf(effects, 0.0, jnp.exp(log_sd)))
            + jnp.sum(norm.logpdf(y, effects, 0.5))
        )

    log_sd = np.linspace(-3.0, 3.0, 6001)
    marginal = norm.logpdf(log_sd) + jnp.sum(norm.logpdf(y[:, None], 0.0, np.sqrt(np.exp(2 * log_sd) + 0.25)), axis=0)
    log_z = float(logsumexp(marginal) + np.log(log_sd[1] - log_sd[0]))
    result = bv.fit(bv.Target(log_density, groups + 1), max_steps=0, progress=False)
    assert log_z - 1.0 < result.elbo < log_z + 4 * result.elbo_se


def test_a_banana_takes_several_components_and_keeps_to_max_components():
    target = bv.Target(lambda z: norm.logpdf(z[0]) + norm.logpdf(z[1], z[0] ** 2, 0.3), 2)
    result = bv.fit(target, max_components=6, max_steps=5, progress=False)
    assert 2 <= result.history["n_active"].max() <= 6
    assert -0.2 < result.elbo < 4 * result.elbo_se
    assert result.verdict != "unreliable" or result.khat > 0.7


def test_resuming_ends_where_an_uninterrupted_run_does(nine, fitted):
    half = bv.fit(nine, seed=0, max_steps=1, progress=False)
    whole = bv.fit(nine, resume=half, max_steps=50, progress=False)
    np.testing.assert_array_equal(whole.history["elbo"], fitted.history["elbo"])
    np.testing.assert_array_equal(whole.mixture.weights, fitted.mixture.weights)


@pytest.mark.slow
def test_a_race_can_start_any_recipe(nine):
    result = bv.fit(
        nine, recipe="fully-corrective", family="full-rank-normal", first=Race(n_starts=4), next_component="random",
        max_steps=2, elbo_draws=500, progress=False,
    )  # fmt: skip
    assert result.history["table_elbo"][1:].size == 2
    assert np.isfinite(result.history["table_elbo"][1:]).all()
    assert result.mixture.weights.sum() == pytest.approx(1.0)


def test_other_families_get_gradient_parts():
    result = bv.fit(
        bv.Target(lambda z: jnp.sum(norm.logpdf(z)), 2), family="diagonal-normal", max_steps=0, progress=False
    )
    assert result.run.parts.first.name == "laplace"
    assert result.run.parts.correction.name == "fully-corrective"
    assert result.probes is None
    assert result.verdict == "usable"


@pytest.mark.parametrize("part", [{"first": "race"}, {"next_component": "explore"}, {"correction": "refine"}])
def test_parts_that_need_a_full_rank_family_say_so(part):
    target = bv.Target(lambda z: jnp.sum(norm.logpdf(z)), 2)
    with pytest.raises(ValueError, match="needs a full-rank family"):
        bv.fit(target, recipe="bbbvi", family="diagonal-normal", **{"first": "random", **part}, max_steps=1)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Race(n_starts=0), "n_starts"),
        (lambda: Explore(n_starts=0), "n_starts"),
        (lambda: Refine(rounds=0), "rounds"),
        (lambda: Refine(split_above=-1.0), "split_above"),
        (lambda: Refine(prune=1.0), "prune"),
    ],
)
def test_bad_values_are_named(make, argument):
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        make()


class TestClimb:
    def test_quadratics_of_any_scale(self):
        scales = np.logspace(-3, 3, 8)
        centre = np.arange(8.0)

        def function(z):
            return -0.5 * np.sum(((z - centre) / scales) ** 2, axis=1), -(z - centre) / scales**2

        ends, values = climb(function, np.random.default_rng(0).standard_normal((5, 8)), 200)
        assert (values > -4.0).all()  # near enough for natural gradients to go on from
        assert ends.shape == (5, 8)

    def test_starts_without_a_value_stay(self):
        def function(z):
            inside = z[:, 0] > 0
            return np.where(inside, -((z[:, 0] - 1) ** 2), np.nan), -2 * (z - 1)

        ends, values = climb(function, np.array([[-1.0], [2.0]]), 50)
        assert values[0] == -np.inf
        assert ends[0, 0] == -1.0
        assert ends[1, 0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.usefixtures("x64")
class TestLocal:
    def test_curvature_at_a_mode(self):
        root = np.array([[2.0, 0.0], [0.5, 1e-3]])
        precision = np.linalg.inv(root @ root.T)
        model = CountedTarget(bv.Target(lambda z: -0.5 * z @ precision @ z, 2))
        one = gaussians_at(model, np.zeros((1, 2)))
        np.testing.assert_allclose(one["factor"][0] @ one["factor"][0].T, root @ root.T, rtol=1e-4)
        np.testing.assert_allclose(one["factor"][0] @ one["inverse"][0], np.eye(2), atol=1e-6)
        assert one["log_volume"][0] == pytest.approx(np.log(2e-3), abs=1e-4)
        assert model.evals == 4

    def test_duplicates_are_dropped(self):
        params = isotropic(np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0]]), np.ones(3))
        assert distinct(params, np.array([-1.0, 0.0, -2.0])).tolist() == [1, 2]

    def test_look_finds_what_is_missing_and_nothing_else(self, nine):
        found = look(nine, exact([0, 1, 2, 3, 4, 5]), 128, new_key(0))
        nearest = np.argmin(((found.components["loc"][:, None] - GRID) ** 2).sum(-1), axis=1)
        assert set(nearest) == {6, 7, 8}
        np.testing.assert_allclose(found.elbos[:3], -np.log(9), atol=0.1)
        assert look(nine, exact(list(range(9))), 128, new_key(1)).elbos.size == 0

    def test_deflated_climbs_find_a_heavy_tailed_mode(self):
        """Seven of eight Student-t modes in 12 dimensions: q has the tails of p, so that ln p − ln q is flat."""
        rng = np.random.default_rng(0)
        means = rng.uniform(-20, 20, (8, 12))
        family = FullRankStudentT(2.0)
        target = bv.Target(lambda z: logsumexp(jax.vmap(family.log_base)(z - means)) - jnp.log(8.0), 12)
        found = [
            look(target, mixtures.of(family, isotropic(means[1:], np.ones(7)), np.full(7, 1 / 7)), 64, new_key(seed))
            for seed in range(4)
        ]
        for one in found:
            np.testing.assert_allclose(one.components["loc"], means[:1], atol=0.2)
            assert one.elbos[0] == pytest.approx(-np.log(8), abs=0.3)

    def test_modes_that_one_climb_reaches_ask_for_a_longer_look(self, nine):
        assert look(nine, exact(list(range(9))), 8, new_key(0)).lonely
        assert not look(nine, exact(list(range(9))), 256, new_key(0)).lonely

    def test_chains_stay_in_the_target_and_leave_a_narrow_fit(self):
        target = bv.Target(lambda z: jnp.sum(norm.logpdf(z)), 2)

        def drift(scale):
            mixture = mixtures.of(FullRankNormal(), isotropic(np.zeros((1, 2)), np.array([scale])), np.ones(1))
            return probes.chains(target, mixture, new_key(4))[:2]

        assert drift(1.0) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))
        rise, se = drift(0.6)
        # KL(q‖p) + KL(p‖q) = d(s² + s⁻² − 2)/2 is the most that it can rise by
        assert 0.3 < rise < (0.36 + 1 / 0.36 - 2) + 4 * se


def test_no_probes_without_a_factor():
    mixture = mixtures.empty(DiagonalNormal(), 2, 1)
    assert probes.probe(bv.Target(lambda z: jnp.sum(norm.logpdf(z)), 2), mixture, new_key(0)) is None
