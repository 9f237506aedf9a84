"""Simulation-based calibration: its tests are exact, its targets the model's own, and it finds what is too narrow."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.infer.util import potential_energy
from scipy.stats import binom, ks_2samp, norm

import boostvi as bv
from boostvi import calibration as module
from boostvi import plots
from boostvi._jit import trace_counts
from boostvi.calibration import Calibration, _p_excursion, _p_symmetric, _rank
from boostvi.families import DiagonalNormal
from boostvi.mixture import Mixture
from boostvi.next_component import Adam, PlainVI
from boostvi.simulation import Simulation

UNLIKELY = 1e-4


def calibration_of(scores, verdicts=None) -> Calibration:
    """From Φ⁻¹(P(draw < truth)): standard Normal if calibrated."""
    names = tuple(f"p{i}" for i in range(scores.shape[1]))
    return Calibration(names, norm.cdf(scores), verdicts or ("good",) * len(scores))


def scores(n, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((n, dim))


# -- the tests of one parameter


@pytest.mark.parametrize("reach", [0, 1, 3, 6, 10, 11])
def test_excursions_are_counted_exactly(reach):
    walks = np.cumsum(list(itertools.product([-1, 1], repeat=10)), axis=1)
    expected = np.mean(np.abs(walks).max(axis=1) >= reach)
    assert _p_excursion(10, reach) == pytest.approx(expected, abs=1e-12)


def test_symmetry_is_kolmogorov_smirnov_between_p_and_its_mirror_image():
    p = np.random.default_rng(3).beta(2.0, 1.5, size=37)
    reach = round(ks_2samp(p, 1 - p).statistic * p.size)
    assert _p_symmetric(p) == _p_excursion(p.size, reach)


def test_ties_do_not_count_as_steps_one_by_one():
    p = np.array([0.9, 0.9, 0.1, 0.1])  # as symmetric as can be
    assert _p_symmetric(p) == 1.0


@pytest.mark.parametrize("test", ["p_bias", "p_width", "p_uniform"])
def test_calibrated_parameters_are_flagged_no_more_than_promised(test):
    count, level = 300, 0.1
    found = [getattr(one, test) for one in calibration_of(scores(50, count)).parameters]
    low, high = binom.isf(1 - UNLIKELY, count, level), binom.isf(UNLIKELY, count, level)
    assert (0 if test == "p_bias" else low) <= np.sum(np.array(found) < level) <= high  # walks are discrete: fewer


def test_all_together_are_rarely_flagged():
    flagged = sum(not calibration_of(scores(40, 4, seed)).ok for seed in range(100))
    assert flagged <= binom.isf(UNLIKELY, 100, 0.05)


def test_faults_are_measured_and_named():
    n = 400
    z = scores(n, 4)
    z[:, 0] = 2.0 * z[:, 0]
    z[:, 1] = 0.5 * z[:, 1]
    z[:, 2] = z[:, 2] + 0.5  # the truth is above the draws
    found = calibration_of(z)
    rows = {one.name: one for one in found.parameters}
    for name, width in (("p0", 0.5), ("p1", 2.0), ("p2", 1.0)):
        assert np.log(rows[name].width) == pytest.approx(np.log(width), abs=4 / np.sqrt(2 * n))
    assert rows["p2"].off == pytest.approx(-0.5, abs=4 / np.sqrt(n))
    assert rows["p0"].words.startswith("too narrow (sd × 0.5")
    assert rows["p1"].words.startswith("too wide (sd × ")
    assert rows["p2"].words.startswith("too low (by 0.5") or rows["p2"].words.startswith("too low (by 0.4")
    assert rows["p3"].words == ""
    assert {one.name for one in found.flagged} == {"p0", "p1", "p2"}
    assert found.parameters[-1].name == "p3"
    assert not found.ok
    assert found.p_values["p3"] == rows["p3"].p > 0.05
    text = str(found)
    assert text.startswith("not calibrated: ")
    assert "adjusted for all 12 tests" in text


def test_another_shape_is_named_too():
    p = np.concatenate([np.full(100, 0.2), np.full(100, 0.8)]) + np.linspace(-0.04, 0.04, 200)
    (row,) = Calibration(("a",), p[:, None], ("good",) * 200).parameters
    assert row.p < 0.05
    assert row.words  # the width of Φ⁻¹ may agree, the shape does not


def test_ranks_are_counts_with_half_a_draw_on_either_side():
    values = np.array([[1.0], [2.0], [3.0], [3.0]])
    for truth, below in ((0.0, 0.0), (2.5, 2.0), (3.0, 3.0), (9.0, 4.0)):
        assert _rank(values, np.array([truth]), None)[0] == pytest.approx((below + 0.5) / 5)
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    assert _rank(values, np.array([1.5]), weights)[0] == pytest.approx((2 * 0.5 + 0.5) / 3)


def test_histograms_have_binomial_bands():
    found = calibration_of(scores(200, 1))
    counts, low, high = found.histogram("p0", bins=8)
    assert counts.sum() == 200
    assert binom.cdf(high, 200, 1 / 8) - binom.cdf(low - 1, 200, 1 / 8) >= 0.95
    with pytest.raises(ValueError, match="name must be one of 'p0'"):
        found.histogram("q")
    with pytest.raises(ValueError, match="bins must be"):
        found.histogram("p0", bins=1)


def test_fits_can_be_told_by_their_verdicts():
    z = np.concatenate([scores(60, 2), 3.0 * scores(40, 2, 1)])
    found = calibration_of(z, ("good",) * 60 + ("unreliable",) * 40)
    assert not found.ok
    good = found.only("good")
    assert good.ok
    assert good.n == 60
    assert found.only("good", "unreliable").n == 100
    assert "100 fits (60 good, 0 usable, 40 unreliable)" in str(found)
    with pytest.raises(ValueError, match="only 0 of 100 fits are usable"):
        found.only("usable")
    with pytest.raises(ValueError, match="verdicts must be among 'good'"):
        found.only("bad")


def test_the_picture_has_a_panel_for_each_of_the_worst():
    z = scores(100, 6)
    z[:, 4] *= 3.0
    figure = plots.calibration(calibration_of(z), most=5)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 5
    assert shown[0].get_title().startswith("p4\ntoo narrow (sd × 0.3")
    heights, edges, _ = shown[0].patches[-1].get_data()
    assert heights.sum() == 100
    assert edges.size == 11
    assert "100 fits" in figure.get_supxlabel()
    assert "1 more parameters" in figure.get_supxlabel()
    figure.canvas.draw()


# -- simulated data


def conjugate(y):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    with numpyro.plate("rows", 4):
        y = numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    numpyro.deterministic("gap", y.mean() - mu)


def counts_and_levels(counts, levels, x):
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("counts", dist.Poisson(rate * x), obs=counts)
    numpyro.sample("levels", dist.Normal(mean, rate).to_event(1), obs=levels)


STEPS = 5


def walk(y):
    """y feeds back into the next step: it has to be simulated inside the scan."""
    rho = numpyro.sample("rho", dist.Uniform(-1.0, 1.0))

    def step(last, now):
        new = numpyro.sample("y", dist.Normal(rho * last, 0.1), obs=now)
        return new, None

    scan(step, jnp.asarray(1.0), y, length=STEPS)


X = np.array([1.0, 2.0, 5.0])
CALLS = {  # model, arguments without data, and with them
    "plate": (conjugate, (None,), lambda data: (data["y"],)),
    "counts": (counts_and_levels, (None, None, X), lambda data: (data["counts"], data["levels"], X)),
    "scan": (walk, (None,), lambda data: (data["y"],)),
}
OBSERVED = {"plate": ["y"], "counts": ["counts", "levels"], "scan": ["y"]}


def simulation(name) -> Simulation:
    model, args, _ = CALLS[name]
    return Simulation(model, args, {}, OBSERVED[name], None)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CALLS)
def test_each_target_is_the_posterior_of_its_data(name):
    simulated = simulation(name)
    _, data = simulated.draw(3, seed=1)
    model, _, with_data = CALLS[name]
    expected = jax.jit(lambda data, z: -potential_energy(model, with_data(data), {}, z))
    density = jax.jit(lambda target, z: target.log_density(z))
    for row, target in zip(data, simulated.targets(data), strict=True):
        z = np.random.default_rng(0).normal(size=target.dim)
        own = expected(simulated.unravel_data(row), target.unravel(z))
        assert density(target, z) == pytest.approx(float(own), rel=1e-9)
    assert density._cache_size() == 1  # they share what is compiled


@pytest.mark.usefixtures("x64")
def test_parameters_come_from_the_prior_and_data_from_the_model():
    n = 2000
    truths, data = simulation("plate").draw(n, seed=0)
    assert truths["mu"].mean() == pytest.approx(1.0, abs=4 * 2 / np.sqrt(n))
    assert truths["mu"].std() == pytest.approx(2.0, rel=4 / np.sqrt(2 * n))
    _, few = simulation("plate").draw(2, seed=0)
    np.testing.assert_array_equal(few, data[:2])  # more data sets begin with the same ones
    noise = np.asarray(data) - truths["mu"][:, None]
    assert noise.mean() == pytest.approx(0.0, abs=4 / np.sqrt(4 * n))
    assert noise.std() == pytest.approx(1.0, rel=4 / np.sqrt(8 * n))
    truths, data = simulation("scan").draw(n, seed=0)
    before = np.concatenate([np.ones((n, 1)), np.asarray(data)[:, :-1]], axis=1)
    noise = np.asarray(data) - truths["rho"][:, None] * before
    assert noise.std() == pytest.approx(0.1, rel=4 / np.sqrt(2 * STEPS * n))


@pytest.mark.usefixtures("x64")
def test_what_is_derived_from_the_data_sees_those_of_its_fit():
    simulated = Simulation(conjugate, (np.zeros(4),), {}, None, ["gap", "mu"])
    assert simulated.observed == ["y"]
    truths, data = simulated.draw(2, seed=0)
    np.testing.assert_allclose(truths["gap"], np.asarray(data).mean(axis=1) - truths["mu"])
    list(simulated.targets(data))
    values = simulated.columns(data[1], np.array([[0.5], [2.0]]))
    np.testing.assert_allclose(values["gap"], float(data[1].mean()) - np.array([0.5, 2.0]))
    np.testing.assert_allclose(values["mu"], [0.5, 2.0])


# -- what is fitted


N_FITS = 20


@pytest.fixture(scope="module")
def exact():
    """Fits that are the posterior, and what they traced."""
    before = trace_counts.copy()
    found = bv.calibrate(conjugate, np.zeros(4), n=N_FITS, fit_options={"max_steps": 0}, seed=5)
    return found, trace_counts - before


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_ranks_are_those_of_the_posterior(exact):
    found, _ = exact
    truths, data = Simulation(conjugate, (np.zeros(4),), {}, None, None).draw(N_FITS, seed=5)
    precision = 1 / 4 + 4
    mean = (1 / 4 + np.asarray(data).sum(axis=1)) / precision
    expected = norm.cdf((truths["mu"] - mean) * np.sqrt(precision))
    error = np.sqrt(expected * (1 - expected) / module.DRAWS) + 1 / module.DRAWS
    assert found.names == ("mu",)
    assert (np.abs(found.probabilities[:, 0] - expected) < 5 * error).all()


def test_the_posterior_is_calibrated(exact):
    found, _ = exact
    assert found.ok
    assert set(found.verdicts) == {"good"}
    assert found.failures == ()
    assert str(found).startswith("calibrated: ")
    assert f"{N_FITS} fits ({N_FITS} good, 0 usable, 0 unreliable), 1000 draws each" in str(found)


def test_all_fits_share_their_programs(exact):
    _, counts = exact
    assert counts["_tile"] == 1
    assert max(counts.values()) < 5  # not one for each of 20 data sets


def ridge(y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(b.sum(), 0.2), obs=y)


@pytest.fixture(scope="module")
def independent():
    """Independent Normals on a posterior of correlation −0.96: their sd is √(1 − ρ²) = 0.28 of the right one, which
    ranks among 1000 draws cannot tell from 0.4."""
    options = {
        "recipe": "bbbvi", "family": "diagonal-normal", "first": PlainVI(Adam(steps=200, draws=8)),
        "max_steps": 0, "n_draws": 10, "elbo_draws": 100,
    }  # fmt: skip
    return bv.calibrate(ridge, None, observed="y", n=20, fit_options=options)


def test_fits_that_are_too_narrow_are_found(independent):
    assert not independent.ok
    assert {one.name for one in independent.flagged} == {"b[0]", "b[1]"}
    for one in independent.parameters:
        assert one.words.startswith("too narrow")
        assert 0.1 < one.width < 0.6
        counts, _, _ = independent.histogram(one.name, bins=5)
        assert counts[0] + counts[-1] > binom.isf(1e-2, independent.n, 2 / 5)  # ∪
    assert "good" not in independent.verdicts


# -- fits that are no fits


@pytest.fixture
def pretend(monkeypatch):
    """Fits that cost nothing: `pretend(what)` makes fit number i do `what(i)` and return a standard Normal."""
    family = DiagonalNormal()
    with jax.enable_x64(True):
        mixture = Mixture(family.init(jax.random.key(0), jnp.zeros((1, 1)), jnp.ones((1, 1))), jnp.ones(1), family)
    calls = itertools.count()

    def install(what):
        def fake(target, *, seed, progress, **options):
            status = what(next(calls)) or "max-steps"
            result = bv.Result(target, SimpleNamespace(best=mixture), status)
            vars(result)["_judgement"] = ("usable", ())
            return result

        monkeypatch.setattr(module, "fit", fake)

    return install


def test_failed_fits_are_counted_and_told(pretend):
    def every_third(i):
        if i % 3 == 1:
            raise ValueError("no luck")

    pretend(every_third)
    found = bv.calibrate(conjugate, np.zeros(4), n=18)
    assert found.n == 12
    assert found.failures == ("ValueError: no luck",) * 6
    assert "6 of 18 fits failed and are left out; 6 with: ValueError: no luck" in str(found)


def test_if_nothing_works_the_error_is_raised(pretend):
    def never(i):
        raise ValueError("no luck")

    pretend(never)
    with pytest.raises(RuntimeError, match="the first 3 fits failed; the last one with ValueError: no luck"):
        bv.calibrate(conjugate, np.zeros(4), n=20)


def test_too_few_fits_are_no_calibration(pretend):
    def few(i):
        if i > 4:
            raise ValueError("no luck")

    pretend(few)
    with pytest.raises(RuntimeError, match="only 5 of 20 fits came to an end"):
        bv.calibrate(conjugate, np.zeros(4), n=20)


def test_an_interruption_ends_with_what_there_is(pretend):
    pretend(lambda i: "interrupted" if i == 12 else None)
    assert bv.calibrate(conjugate, np.zeros(4), n=20).n == 12


def test_data_that_are_not_finite_are_failures(pretend):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(jnp.sqrt(mu), 1.0), obs=y)

    pretend(lambda i: None)
    found = bv.calibrate(model, np.array(0.5), n=40)
    assert found.n + len(found.failures) == 40
    assert 40 * 0.5 - 4 * np.sqrt(10) < len(found.failures) < 40 * 0.5 + 4 * np.sqrt(10)
    assert "not finite" in found.failures[0]


def test_importance_is_that_of_the_target(pretend):
    """Standard Normals weighted by p/q give the posterior's own probabilities, where they reach it."""
    pretend(lambda i: None)
    found = bv.calibrate(conjugate, np.zeros(4), n=20, importance=True, seed=5)
    with jax.enable_x64(True):
        truths, data = Simulation(conjugate, (np.zeros(4),), {}, None, None).draw(20, seed=5)
    mean = (1 / 4 + np.asarray(data).sum(axis=1)) / (1 / 4 + 4)
    expected = norm.cdf((truths["mu"] - mean) * np.sqrt(1 / 4 + 4))
    near = np.abs(mean) < 1.0
    assert near.sum() >= 3
    assert (np.abs(found.probabilities[near, 0] - expected[near]) < 0.15).all()
    assert "1000 reweighted draws each" in str(found)


# -- what cannot be simulated


def improper(y):
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def factored(y):
    conjugate(y)
    numpyro.factor("pull", 1.0)


def scaled(y):
    with numpyro.handlers.scale(scale=2.0):
        conjugate(y)


def discrete(y):
    k = numpyro.sample("k", dist.Poisson(1.0))
    numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(k, 1.0), obs=y)


Y = np.zeros(4)


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        (improper, (1.0,), {}, "the prior of 'mu' is improper"),
        (factored, (Y,), {}, "site 'pull' is a factor"),
        (scaled, (Y,), {}, "log density of site 'mu' is scaled"),
        (discrete, (1.0,), {}, "site 'k' is a discrete latent variable"),
        (walk, (np.zeros(STEPS),), {}, r"observed inside a scan or cond, .* observed=\['y'\]"),
        (conjugate, (None,), {}, "no observed site; pass its data, or name the data sites with observed="),
        (conjugate, (Y,), {"observed": "z"}, "observed='z' is not a sample site; the model has 'mu', 'y'"),
        (counts_and_levels, (np.ones(3), np.ones(3), X), {"observed": ["counts"]}, "observes 'levels' too"),
        (conjugate, (Y,), {"sites": ["tau"]}, "sites='tau' is not known; choose among 'mu', 'gap'"),
        (conjugate, (Y,), {"n": 3}, "n must be an integer of at least 10"),
        (conjugate, (Y,), {"seed": -1}, "seed must be an integer of at least 0"),
        (conjugate, (Y,), {"fit_options": {"seed": 3}}, r"fit_options\['seed'\] cannot be given"),
        (conjugate, (Y,), {"fit_options": {"steps": 3}}, r"fit_options\['steps'\] cannot be given; .*max_steps"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(model, args, options, message):
    with pytest.raises(ValueError, match=message):
        bv.calibrate(model, *args, **options)


def test_a_model_is_a_function():
    with pytest.raises(TypeError, match="model must be a NumPyro model function"):
        bv.calibrate(3.0)
