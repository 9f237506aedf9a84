"""Comparing with reference draws: the measures, their nulls, and what may be given."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from conftest import gaussian_mixture
from scipy.spatial import cKDTree
from scipy.stats import binom, norm, wasserstein_distance

import boostvi as bv
from boostvi import two_sample
from boostvi.check import JOINT_DRAWS, Check, Parameter, compare_draws, holm
from boostvi.families import DiagonalNormal
from boostvi.mixture import Mixture
from boostvi.two_sample import Measure

N, M = 1000, 800


def normal(n, dim, seed):
    return np.random.default_rng(seed).standard_normal((n, dim))


def against(ours, theirs, **options) -> Check:
    """One chain of independent reference draws."""
    names = [f"a[{i}]" for i in range(ours.shape[1])]
    return compare_draws(ours, theirs[None], names, by_chain=False, **options)


def chains(rho, shape, seed):
    """Stationary AR(1) chains with standard Normal marginals."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    out = noise.copy()
    for t in range(1, shape[1]):
        out[:, t] = rho * out[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return out


# -- the null


REPEATS = 40
UNLIKELY = 1e-4


@pytest.fixture(scope="module")
def repeated() -> dict[str, np.ndarray]:
    """p-values of samples that do come from one distribution, a skew one."""
    found = [against(normal(150, 3, 2 * i) ** 2, normal(150, 3, 2 * i + 1) ** 2).p_values for i in range(REPEATS)]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


@pytest.mark.parametrize("measure", ["means", "sds", "sliced Wasserstein", "MMD", "classifier"])
def test_equal_distributions_are_rejected_no_more_than_promised(repeated, measure):
    level = 0.1
    assert np.sum(repeated[measure] < level) <= binom.isf(UNLIKELY, REPEATS, level)


@pytest.mark.parametrize("measure", ["sliced Wasserstein", "MMD", "classifier"])
def test_permutation_p_values_are_uniform(repeated, measure):
    assert repeated[measure].mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / REPEATS))


def test_autocorrelated_chains_are_worth_their_effective_draws():
    """Each of 40 means of slow chains, against exact draws: by chain the errors are right, and not otherwise."""
    slow, exact = chains(0.9, (4, 500, 40), 0), normal(2000, 40, 1)
    names = [f"a[{i}]" for i in range(40)]
    by_chain = compare_draws(exact, slow, names)
    rejected = sum(one.p_mean < 0.05 for one in by_chain.parameters)
    assert rejected <= binom.isf(UNLIKELY, 40, 0.05)
    ess = 2000 * (1 - 0.9) / (1 + 0.9)
    assert np.median([one.ess for one in by_chain.parameters]) == pytest.approx(ess, rel=0.3)
    assert by_chain.n_joint < 2 * ess
    assert "4 chains" in by_chain.notes[0]
    flat = compare_draws(exact, slow.reshape(1, -1, 40), names, by_chain=False)
    assert sum(one.p_mean < 0.05 for one in flat.parameters) > binom.isf(UNLIKELY, 40, 0.05)
    assert "look autocorrelated" in flat.notes[0]


def test_independent_draws_are_called_so():
    assert against(normal(200, 1, 0), normal(200, 1, 1)).notes == ("the reference draws are taken as independent",)


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])


# -- differences


@pytest.mark.parametrize("shift", [-0.5, 0.2])
def test_a_shift_is_measured_within_its_error(shift):
    ours = normal(N, 2, 0) * 3.0
    ours[:, 1] += 3.0 * shift
    found = against(ours, normal(M, 2, 1) * 3.0)
    worst = found.parameters[0]
    assert worst.name == "a[1]"
    assert worst.mean_se == pytest.approx(np.sqrt(1 / N + 1 / M), rel=0.1)
    assert worst.mean_difference == pytest.approx(shift, abs=4 * worst.mean_se)
    assert found.verdict == "different"
    assert not found.ok
    assert "means" in found.beyond_chance
    assert f"the mean of a[1] is off by {worst.mean_difference:+.2f} sd" in str(found)


def test_a_scale_is_measured_within_its_error():
    found = against(normal(N, 1, 0) * 0.6, normal(M, 1, 1))
    (only,) = found.parameters
    assert only.sd_se == pytest.approx(np.sqrt(1 / (2 * N) + 1 / (2 * M)), rel=0.2)  # of a Normal's ln sd
    assert np.log(only.sd_ratio) == pytest.approx(np.log(0.6), abs=4 * only.sd_se)
    assert only.p_mean > 0.01
    assert "sds" in found.beyond_chance
    assert "the sd of a[0] is 0." in str(found)


def test_dependence_behind_equal_marginals_is_seen():
    theirs = normal(M, 2, 1)
    theirs[:, 1] = 0.7 * theirs[:, 0] + np.sqrt(1 - 0.49) * theirs[:, 1]
    found = against(normal(N, 2, 0), theirs)
    assert not {"means", "sds"} & set(found.beyond_chance)
    assert {"MMD", "classifier"} <= set(found.beyond_chance)


def test_a_narrow_direction_counts_as_much_as_a_wide_one():
    """Twice the sd across a ridge: invisible in every marginal and in most directions."""

    def ridge(seed, across):
        z = normal(N, 2, seed)
        return np.stack([z[:, 0], z[:, 0] + across * z[:, 1]], axis=1)

    found = against(ridge(0, 0.01), ridge(1, 0.02))
    assert not {"means", "sds", "sliced Wasserstein"} & set(found.beyond_chance)
    assert {"MMD", "classifier"} <= set(found.beyond_chance)


def test_two_modes_behind_equal_moments_are_seen():
    sign = np.sign(normal(N, 1, 2))
    found = against(0.95 * sign + np.sqrt(1 - 0.95**2) * normal(N, 1, 0), normal(M, 1, 1))
    assert not {"means", "sds"} & set(found.beyond_chance)
    assert {"sliced Wasserstein", "MMD", "classifier"} <= set(found.beyond_chance)
    assert found.verdict == "different"


def test_a_parameter_told_twice_changes_nothing_pairwise():
    ours, theirs = normal(300, 2, 0), normal(300, 2, 1)
    twice = lambda z: np.column_stack([z, z @ [2.0, -1.0]])  # noqa: E731
    once, again = against(ours, theirs), against(twice(ours), twice(theirs))
    assert again.mmd.value == pytest.approx(once.mmd.value, rel=1e-2, abs=1e-5)
    assert again.classifier.value == pytest.approx(once.classifier.value, abs=2 / 600)


def test_constants_are_left_out_and_a_stuck_parameter_is_not():
    ours, theirs = normal(200, 3, 0), normal(200, 3, 1)
    ours[:, 0] = theirs[:, 0] = 1.0  # the diagonal of a correlation matrix
    ours[:, 1] = 0.0
    found = against(ours, theirs)
    assert {one.name for one in found.parameters} == {"a[1]", "a[2]"}
    assert found.parameters[0].name == "a[1]"
    assert found.parameters[0].sd_ratio == 0.0
    assert found.parameters[0].p_sd == 0.0
    with pytest.raises(ValueError, match="the same constants"):
        against(ours[:, :1], theirs[:, :1])


# -- the measures against their definitions


def test_sliced_wasserstein_in_one_dimension_is_scipys():
    ours, theirs = normal(200, 1, 0), 1.5 * normal(200, 1, 1) + 0.3
    sd = np.concatenate([ours, theirs]).std()
    expected = wasserstein_distance(ours[:, 0], theirs[:, 0]) / sd
    assert against(ours, theirs).sliced_wasserstein.value == pytest.approx(expected, rel=1e-4)


def test_mmd_and_accuracy_by_definition():
    n = 60
    points = np.concatenate([normal(n, 2, 0), normal(n, 2, 1) + 0.8])
    labels = np.repeat([1, 0], n).astype(np.int8)
    distances = two_sample._squared_distances(points)
    squared = np.sum((points[:, None] - points) ** 2, axis=-1)
    kernel = np.exp(-squared / np.median(squared[:n, n:]))
    off = ~np.eye(n, dtype=bool)
    expected = kernel[:n, :n][off].mean() + kernel[n:, n:][off].mean() - 2 * kernel[:n, n:].mean()
    assert two_sample._mmd(distances, labels[None])[0] == pytest.approx(expected, abs=1e-5)
    _, nearest = cKDTree(points).query(points, k=two_sample.NEIGHBOURS + 1)
    right = (labels[nearest[:, 1:]].mean(axis=1) > 0.5) == labels
    assert two_sample._accuracy(distances, labels[None])[0] == pytest.approx(right.mean())


def test_small_differences_that_are_certain_are_close():
    found = against(normal(20_000, 1, 0) + 0.06, normal(20_000, 1, 1))
    assert "means" in found.beyond_chance
    assert found.verdict == "close"
    assert found.ok
    assert found.n_joint == JOINT_DRAWS
    assert str(found).startswith("close: beyond chance (means")


def test_the_table_is_cut_worst_first():
    rows = tuple(Parameter(f"p{i}", 0.0, 0.1, 0.5, 1.0, 0.1, (i + 1) / 40, 100.0) for i in range(25))
    nothing = Measure(0.0, 1.0, 1.0)
    text = str(Check(rows, nothing, nothing, nothing, 10, 10, 10, only_in_result=("x",), only_in_reference=("y",)))
    assert text.startswith("same: no difference beyond chance")
    assert "p19 " in text
    assert "p20 " not in text
    assert "… and 5 more, with p of at least 0.5" in text
    assert "only in the result, not compared: x" in text
    assert "only in the reference, not compared: y" in text


# -- a result


def known(target, loc, scale) -> bv.Result:
    """A result whose mixture is this one diagonal Normal: nothing has to be fitted."""
    family = DiagonalNormal()
    with jax.enable_x64(True):
        loc, scale = (jnp.asarray(values, dtype=jnp.float64)[None] for values in (loc, scale))
        mixture = Mixture(family.freeze(family.init(jax.random.key(0), loc, scale)), jnp.ones(1), family)
    return bv.Result(target, SimpleNamespace(best=mixture, seed=0), "max-steps")


Y = np.array([0.4, 1.2, 0.1])


def model(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    numpyro.deterministic("total", a.sum())
    numpyro.sample("y", dist.Normal(a[0], 1.0), obs=y)
    numpyro.sample("s", dist.Normal(jnp.log(scale), 0.5), obs=0.4)


LOC, SCALE = np.array([Y.sum() / 4, 0.0, 0.2]), np.array([0.5, 1.0, 1 / np.sqrt(8.0)])
"""The posterior of a[0] (precision 1 + 3), a[1] and ln(scale) (precision 4 + 4)."""


def posterior(n, seed):
    z = LOC + SCALE * normal(n, 3, seed)
    return {"a": z[:, :2], "scale": np.exp(z[:, 2]), "total": z[:, :2].sum(axis=1)}


@pytest.fixture(scope="module")
def result() -> bv.Result:
    return known(bv.from_numpyro(model, Y), LOC, SCALE)


class TestOfAModel:
    def test_the_posterior_is_the_same(self, result):
        found = result.check({**posterior(2000, 5), "other": np.zeros(3)}, seed=1)
        assert found.verdict == "same"
        assert {one.name for one in found.parameters} == {"a[0]", "a[1]", "scale", "total"}
        assert found.only_in_reference == ("other",)
        assert found.only_in_result == ()

    def test_only_common_sites_are_compared(self, result):
        found = result.check({"scale": posterior(500, 1)["scale"]}, n=500)
        assert [one.name for one in found.parameters] == ["scale"]
        assert set(found.only_in_result) == {"a", "total"}

    def test_chains_may_come_in_a_dict_or_from_arviz(self, result):
        xarray = pytest.importorskip("xarray")
        draws = {name: values.reshape(2, 400, *values.shape[1:]) for name, values in posterior(800, 2).items()}
        expected = result.check(draws, n=400)
        assert "2 chains" in expected.notes[0]
        dims = {"a": ("chain", "draw", "i")}
        data = xarray.Dataset({name: (dims.get(name, ("chain", "draw")), values) for name, values in draws.items()})
        for given in (data, data.transpose("i", "draw", "chain"), SimpleNamespace(posterior=data)):
            assert result.check(given, n=400).parameters == expected.parameters
        with pytest.raises(ValueError, match="must have the dimensions chain and draw"):
            result.check(data.isel(chain=0), n=400)

    @pytest.mark.parametrize(
        ("reference", "error", "message"),
        [
            ({"b": np.zeros(50)}, ValueError, "none of the result's sites: it has 'b', the result 'a', 'scale'"),
            (np.zeros((50, 3)), TypeError, "must be a dict of arrays with keys like 'a', 'scale', 'total'"),
            ({"a": np.zeros((50, 3))}, ValueError, r"\['a'\] must have shape \(n, 2\) or \(chains, draws, 2\)"),
            ({"a": np.zeros((50, 2)), "scale": np.ones(40)}, ValueError, "equally many draws of every site"),
            ({"a": np.full((50, 2), np.nan)}, ValueError, "site 'a' has 100 values that are not finite"),
            ({"a": np.zeros((5, 2))}, ValueError, "at least 20 draws, got 5"),
        ],
    )
    def test_what_cannot_be_compared_is_refused(self, result, reference, error, message):
        with pytest.raises(error, match=message):
            result.check(reference, n=50)

    def test_n_is_checked(self, result):
        with pytest.raises(ValueError, match="n must be an integer of at least 20"):
            result.check({"a": np.zeros((50, 2))}, n=3)


CENTRE, SD = np.array([0.2, -0.1]), 0.25


@pytest.fixture(scope="module")
def off() -> bv.Result:
    """Too wide and misplaced: its importance weights are sound."""
    return known(gaussian_mixture([1.0], [CENTRE], [[SD, SD]]), [0.0, 0.0], [0.6, 0.6])


def effective_share() -> float:
    """1/E[w²] of the weights p/q, by quadrature in each coordinate."""
    x = np.linspace(-3, 3, 20_001)
    squares = [np.sum(norm.pdf(x, c, SD) ** 2 / norm.pdf(x, 0.0, 0.6)) * (x[1] - x[0]) for c in CENTRE]
    return float(1 / np.prod(squares))


class TestOfAPlainTarget:
    reference = CENTRE + SD * normal(2000, 2, 3)

    def test_importance_mends_what_the_mixture_gets_wrong(self, off):
        plain = off.check(self.reference, n=500)
        mended = off.check(self.reference, n=500, importance=True)
        assert plain.verdict == "different"
        assert mended.verdict == "same"
        assert {one.name for one in mended.parameters} == {"z[0]", "z[1]"}
        expected = np.sqrt(1 / (5_000 * effective_share()) + 1 / 500 + 1 / 2000)  # weighting, resampling, theirs
        for one in mended.parameters:
            assert one.mean_se == pytest.approx(expected, rel=4 / np.sqrt(2 * 500))  # the error of the sd in it

    def test_an_array_by_chain_or_a_dict_of_coordinates(self, off):
        by_chain = off.check(self.reference.reshape(4, 500, 2), n=300)
        by_name = off.check({"z[0]": self.reference[:, 0].reshape(4, 500)}, n=300)
        one = {row.name: row.mean_difference for row in by_chain.parameters}
        assert by_name.parameters[0].mean_difference == pytest.approx(one["z[0]"])

    def test_another_dimension_is_refused(self, off):
        with pytest.raises(ValueError, match=r"shape \(n, 2\) or \(chains, draws, 2\), got \(50, 3\)"):
            off.check(np.zeros((50, 3)))

    def test_the_same_seed_gives_the_same_numbers(self, off):
        first, second = (off.check(self.reference, n=100, seed=4) for _ in range(2))
        assert first == second


def test_parameters_that_are_one_array_with_axes():
    target = bv.Target(lambda z: -0.5 * jnp.sum(z**2), np.zeros((2, 2)))
    found = known(target, np.zeros(4), np.ones(4)).check(normal(300, 4, 0).reshape(300, 2, 2), n=300)
    assert len(found.parameters) == 4
    assert found.ok


def test_weights_that_a_few_draws_carry_are_told():
    narrow = known(gaussian_mixture([1.0], [[6.0]], [[1.0]]), [0.0], [1.0])
    found = narrow.check(6.0 + normal(200, 1, 0), n=20, importance=True)
    assert found.verdict == "different"
    assert "a few draws carry the importance weights" in str(found)
