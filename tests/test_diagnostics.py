"""Numbers about the fit: closed forms, honest infinities, and importance weights with a known tail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import boostvi as bv
from boostvi import diagnostics
from boostvi.families.base import to_raw
from boostvi.next_component import FirstComponent, Proposal

LOG_Z = -1234.5
N = 20_000


def log_ratios(loc: float, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """ln p and ln q at draws of q = N(0, 1), for p = e^LOG_Z·N(loc, scale²)."""
    z = np.random.default_rng(seed).normal(size=N)
    return scipy.stats.norm.logpdf(z, loc, scale) + LOG_Z, scipy.stats.norm.logpdf(z)


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 1.1), (0.3, 1.0), (-0.2, 1.3), (0.5, 1.5)])
def test_evaluate_gaussians(loc, scale):
    """KL(N(0,1)‖N(m,s²)) = ln s + (1 + m²)/(2s²) − ½; every number within 4 of its own errors, and the errors right."""
    found = diagnostics.evaluate(*log_ratios(loc, scale))
    kl = np.log(scale) + (1 + loc**2) / (2 * scale**2) - 0.5
    assert abs(found.elbo - (LOG_Z - kl)) < 4 * found.elbo_se
    assert abs(found.log_evidence - LOG_Z) < 4 * found.log_evidence_se
    assert abs(found.kl_estimate - kl) < 4 * found.kl_se
    assert found.nonfinite == 0
    # ln p/q = a z² + b z + c has variance 2a² + b².
    a, b = 0.5 - 0.5 / scale**2, loc / scale**2
    assert found.elbo_se == pytest.approx(np.sqrt((2 * a**2 + b**2) / N), rel=0.05)


def test_reported_errors_are_the_spread_over_repetitions():
    runs = [diagnostics.evaluate(*log_ratios(0.4, 1.2, seed)) for seed in range(200)]
    for name in ("elbo", "log_evidence", "kl_estimate"):
        spread = np.std([getattr(run, name) for run in runs], ddof=1)
        error = np.mean([getattr(run, f"{name}_se" if name != "kl_estimate" else "kl_se") for run in runs])
        # A standard deviation over 200 runs has a relative error of 1/√400 = 5 %.
        assert spread == pytest.approx(error, rel=4 * 0.05)


def test_the_target_itself():
    log_q = scipy.stats.norm.logpdf(np.random.default_rng(1).normal(size=100))
    found = diagnostics.evaluate(log_q + LOG_Z, log_q)
    assert found.elbo == pytest.approx(LOG_Z)
    assert found.log_evidence == pytest.approx(LOG_Z)
    assert found.kl_estimate == pytest.approx(0.0, abs=1e-9)
    assert found.elbo_se == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("missed", [1, 30])
def test_draws_without_mass_are_counted_and_make_the_elbo_infinite(missed):
    log_target, log_q = log_ratios(0.2, 1.1)
    log_target[:missed] = -np.inf
    found = diagnostics.evaluate(log_target, log_q)
    assert found.elbo == -np.inf
    assert found.kl_estimate == np.inf
    assert found.nonfinite == missed
    # They count as ratio 0 in the evidence: n, not n − missed, is what the mean divides by.
    assert found.log_evidence == pytest.approx(scipy.special.logsumexp(log_target - log_q) - np.log(N))
    assert not np.isnan([getattr(found, field) for field in found.__dataclass_fields__]).any()


def test_no_mass_anywhere():
    found = diagnostics.evaluate(np.full(50, -np.inf), np.zeros(50))
    assert (found.elbo, found.log_evidence, found.kl_estimate, found.nonfinite) == (-np.inf, -np.inf, np.inf, 50)
    assert diagnostics.importance(np.full(50, -np.inf))[1:] == (np.inf, 0.0)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.7, 1.0])
def test_khat_of_pareto_ratios(shape):
    """e^{kE} with E exponential is Pareto of shape k. The 3√n = 424 largest make k̂; its error is (1 + k)/√424."""
    log_ratio = shape * np.random.default_rng(0).exponential(size=N)
    weights, khat, ess = diagnostics.importance(log_ratio)
    tail = 3 * np.sqrt(N)
    # k̂ is drawn towards ½ with the weight of 10 draws.
    expected = (tail * shape + 10 * 0.5) / (tail + 10)
    assert abs(khat - expected) < 4 * (1 + shape) / np.sqrt(tail)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert ess == pytest.approx(1 / np.sum(weights**2))
    # Larger ratios weigh more, and outside the smoothed tail the weights are the plain ones.
    order = np.argsort(log_ratio)
    assert (np.diff(weights[order]) >= -1e-15).all()
    body = order[: N // 2]
    np.testing.assert_allclose(np.diff(np.log(weights[body])), np.diff(log_ratio[body]), atol=1e-8)


def test_importance_weights_give_the_targets_moments():
    z = np.random.default_rng(2).normal(size=N)
    log_ratio = scipy.stats.norm.logpdf(z, 0.5, 0.9) - scipy.stats.norm.logpdf(z)
    weights, khat, ess = diagnostics.importance(log_ratio)
    assert khat < 0.5
    assert abs(weights @ z - 0.5) < 4 * np.sqrt(weights**2 @ (z - 0.5) ** 2)
    # E_q[(p/q)²] for N(m, s²) against N(0, 1): s⁻²·(2/s² − 1)^(−1/2)·exp(m²/(2 − s²)).
    exact = N / (0.9**-2 * (2 / 0.9**2 - 1) ** -0.5 * np.exp(0.25 / (2 - 0.81)))
    assert ess == pytest.approx(exact, rel=0.05)


def test_draws_without_mass_get_no_weight():
    log_ratio = np.random.default_rng(3).normal(size=500)
    log_ratio[::5] = -np.inf
    weights, khat, _ = diagnostics.importance(log_ratio)
    assert (weights[::5] == 0).all()
    assert weights.sum() == pytest.approx(1.0)
    assert np.isfinite(khat)


def test_equal_ratios_need_no_smoothing():
    weights, khat, ess = diagnostics.importance(np.full(100, LOG_Z))
    np.testing.assert_allclose(weights, 0.01)
    assert (khat, ess) == (-np.inf, 100.0)


class TestShifts:
    """Between draws of N(0, 1) and the same draws weighted to N(m, s²)."""

    @staticmethod
    def shifts(loc: float, scale: float, n: int) -> tuple[float, float]:
        z = np.random.default_rng(1).normal(size=(n, 1))
        weights = np.exp(scipy.stats.norm.logpdf(z, loc, scale) - scipy.stats.norm.logpdf(z))[:, 0]
        return diagnostics._shifts(z, z, weights / weights.sum())

    def test_what_is_certain(self):
        mean, sd = self.shifts(0.3, 0.8, 100_000)
        assert 0.9 * 0.3 / 0.8 < mean < 0.3 / 0.8
        assert 0.9 * 0.25 < sd < 0.25

    def test_noise_is_none(self):
        assert max(self.shifts(0.0, 1.0, 1000)) < 1e-12
        assert max(self.shifts(0.02, 1.02, 500)) < 0.02


class TestRoundedRatios:
    """A mixture that is the target, but for the digits of a large ln p."""

    @pytest.mark.parametrize("size", [1e6, 1e8, 1e12])
    def test_what_is_left_is_rounding(self, size):
        ratios = -size + 1e-16 * size * np.random.default_rng(0).integers(-3, 4, 5000)
        weights, khat, ess = diagnostics.importance(ratios)
        np.testing.assert_allclose(weights, 1 / 5000)
        assert (khat, ess) == (-np.inf, 5000.0)

    def test_steps_in_single_precision(self):
        """Ratios of 20,000 with the digits of float32: the tail is a few steps, and the weights are all but equal."""
        ratios = -2e4 + 1e-3 * np.random.default_rng(0).normal(size=5000)
        weights, khat, ess = diagnostics.importance(ratios.astype(np.float32).astype(np.float64))
        assert np.isfinite(weights).all()
        assert ess > 4990
        assert khat < 0.7

    def test_a_tail_that_is_one_value(self):
        ratios = np.where(np.arange(1000) < 500, 0.0, -np.random.default_rng(0).exponential(size=1000))
        weights, khat, _ = diagnostics.importance(ratios)
        np.testing.assert_allclose(weights, np.exp(ratios) / np.exp(ratios).sum())
        assert khat == -np.inf


def test_errors_know_of_one_more_large_weight():
    """One weight of 1,000 among 10,000 of 1 has a share of 1000/11000, and so has the next one like it."""
    log_target = np.zeros(10_000)
    log_target[0] = np.log(1000.0)
    found = diagnostics.evaluate(log_target, np.zeros(10_000))
    assert found.log_evidence_se == pytest.approx(np.hypot(1000 / 11_000, 1000 / 11_000), rel=0.01)
    same = diagnostics.evaluate(np.zeros(100), np.zeros(100))
    assert (same.kl_estimate, same.kl_se) == (0.0, 0.0)


def test_keys_of_evaluations_differ():
    keys = [
        jax.random.key_data(diagnostics.key_for(seed, purpose, t)).tolist()
        for seed in (0, 1)
        for purpose in diagnostics.PURPOSES
        for t in range(3)
    ]
    assert len(set(map(tuple, keys))) == len(keys)


class Shifted(FirstComponent):
    """A component that is known to be wrong: off by (0.5, 0) and too wide."""

    name = "shifted"

    def __call__(self, target, family, key):
        params = {"loc": jnp.asarray([1.5, -1.0]), "raw_scale": to_raw(jnp.asarray([1.3, 0.7]))}
        return Proposal(params, jnp.asarray(jnp.nan), jnp.asarray(0), jnp.asarray(0))


MEAN, SD = np.array([1.0, -1.0]), np.array([1.0, 0.5])


@pytest.fixture(scope="module")
def shifted() -> bv.Result:
    target = bv.Target(lambda z: jnp.sum(-0.5 * ((z - MEAN) / SD) ** 2), 2)
    return bv.fit(target, recipe="bbbvi", family="diagonal-normal", first=Shifted(), max_steps=0)


class TestResult:
    def test_every_number_is_the_closed_form(self, shifted):
        scale = np.array([1.3, 0.7])
        kl = np.sum(np.log(SD / scale) + (scale**2 + np.array([0.5, 0.0]) ** 2) / (2 * SD**2) - 0.5)
        log_z = np.sum(np.log(SD * np.sqrt(2 * np.pi)))
        assert abs(shifted.elbo - (log_z - kl)) < 4 * shifted.elbo_se
        assert abs(shifted.log_evidence - log_z) < 4 * shifted.evaluation.log_evidence_se
        assert abs(shifted.kl_estimate - kl) < 4 * shifted.kl_se
        assert shifted.khat < 0.7
        assert 1 < shifted.ess < 10_000
        assert shifted.verdict == "usable"

    def test_importance_resampling_corrects_the_shift(self, shifted):
        n = 4000
        plain, corrected = shifted.sample(n, seed=1), shifted.sample(n, seed=1, importance=True)
        assert plain.shape == corrected.shape == (n, 2)
        assert abs(plain[:, 0].mean() - 1.0) > 10 * 1.3 / np.sqrt(n)  # the shift shows without
        # n draws with replacement from 10 n weighted ones: variance 1/n + 1/ess, with ess the effective share of 10 n.
        error = SD * np.sqrt(1 / n + 1 / (10 * n * shifted.ess / 10_000))
        assert (np.abs(corrected.mean(axis=0) - MEAN) < 4 * error).all()
        # The standard deviation of a Normal has relative error 1/√(2n).
        assert (np.abs(corrected.std(axis=0) / SD - 1) < 4 * error / SD / np.sqrt(2)).all()

    def test_samples_are_decided_by_their_seed(self, shifted):
        for importance in (False, True):
            one = shifted.sample(100, seed=1, importance=importance)
            np.testing.assert_array_equal(one, shifted.sample(100, seed=1, importance=importance))
            assert not np.array_equal(one, shifted.sample(100, seed=2, importance=importance))

    def test_final_numbers_do_not_use_the_draws_of_the_history(self, shifted):
        assert shifted.elbo != shifted.history["elbo"][0]

    def test_summary_is_printed_and_returned(self, shifted, capsys):
        text = shifted.summary()
        assert capsys.readouterr().out == text + "\n"
        for word in ("usable", "ELBO", "k̂", "1 component ", "max-steps", "z[0]", "z[1]"):
            assert word in text
        assert "usable" in repr(shifted)

    def test_summary_reports_the_parameters(self, shifted):
        row = next(line for line in shifted.summary().splitlines() if line.startswith("z[0]"))
        mean, sd = map(float, row.split()[1:3])
        assert mean == pytest.approx(1.5, abs=5 * 1.3 / np.sqrt(4000))
        assert sd == pytest.approx(1.3, rel=5 / np.sqrt(8000))


@pytest.fixture(scope="module")
def half_line() -> bv.Result:
    """A Normal first component on a target that has no mass below 0: its ELBO is −inf."""
    target = bv.Target(lambda z: jnp.where(z[0] > 0, -0.5 * jnp.sum(z**2), -jnp.inf), 2)
    return bv.fit(target, recipe="bbbvi", family="diagonal-normal", first=Shifted(), max_steps=0)


def test_infinite_elbo_reaches_the_user(half_line):
    outside = scipy.stats.norm.cdf(-1.5 / 1.3)
    assert half_line.elbo == half_line.history["elbo"][0] == -np.inf
    count = half_line.evaluation.nonfinite
    assert abs(count - 10_000 * outside) < 4 * np.sqrt(10_000 * outside)
    assert half_line.verdict == "unreliable"
    assert str(count) in half_line.reasons[0]
    assert "unreliable" in half_line.summary()


def test_importance_resampling_stays_where_the_mass_is(half_line):
    draws = half_line.sample(500, importance=True)
    assert (draws[:, 0] > 0).all()
