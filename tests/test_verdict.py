"""The verdict: which word, and which reasons, for which findings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from boostvi.diagnostics import Evaluation
from boostvi.missed import Missed
from boostvi.next_component.look import Found, Level
from boostvi.probes import Probes
from boostvi.verdict import judge, runaway

LEVEL = Level(0.0, 0.0, 3.0, -10.0)
NOTHING = Probes(
    64, Found({}, np.zeros(0), np.nan, None, 0, False, LEVEL, 1000, 0), Missed(), np.zeros((0, 2)), 0.01, 0.01, 1000
)
NEAR = Evaluation(0.0, 0.1, 0.01, 0.1, 0.01, 0.001, 0, pool_khat=0.3, pool_ess=0.9)
FAR = dataclasses.replace(NEAR, kl_estimate=0.5, kl_se=0.01)


def with_missed(by_mixture: float, by_pool: float, proposed: int = 0) -> Probes:
    found = dataclasses.replace(NOTHING.found, elbos=np.zeros(proposed))
    return dataclasses.replace(NOTHING, missed=Missed(by_mixture, by_pool), locations=np.zeros((1, 2)), found=found)


def test_good():
    verdict, reasons = judge(NEAR, 0.3, 0.9, NOTHING)
    assert verdict == "good"
    assert "0.01" in reasons[0]
    assert "64 climbs found no mode" in reasons[1]
    assert "cannot be seen" in reasons[1]


@pytest.mark.parametrize(
    ("evaluation", "khat", "share", "probes", "word"),
    [
        (FAR, 0.3, 0.9, NOTHING, "0.1 nats"),
        (dataclasses.replace(NEAR, pool_khat=0.8), 0.8, 0.95, NOTHING, "tails are too thin"),
        (NEAR, 0.3, 0.4, NOTHING, "effective"),
        (NEAR, 0.3, 0.9, dataclasses.replace(NOTHING, drift=1.0), "chains"),
        (NEAR, 0.3, 0.9, dataclasses.replace(NOTHING, drift=0.2, drift_se=0.2), "chains"),
        (dataclasses.replace(NEAR, sd_shift=0.3), 0.3, 0.9, NOTHING, "30 %"),
        (dataclasses.replace(NEAR, mean_shift=np.nan), 0.3, 0.9, NOTHING, "moves a mean"),
        (NEAR, 0.3, 0.9, with_missed(0.25, 0.001), "20 %"),
    ],
    ids=["far", "thin", "few", "drift", "a-few-chains", "moved", "nan", "outside"],
)  # fmt: skip
def test_usable_says_what_is_short(evaluation, khat, share, probes, word):
    verdict, reasons = judge(evaluation, khat, share, probes)
    assert verdict == "usable"
    assert word in reasons[1]
    assert len(reasons) == 3


def test_thin_tails_are_no_fault_where_wide_draws_have_seen_them():
    assert judge(NEAR, 0.8, 0.95, NOTHING)[0] == "good"


def test_without_a_search_nothing_is_good():
    verdict, reasons = judge(NEAR, 0.3, 0.9, None)
    assert verdict == "usable"
    assert "no search" in reasons[-1]


def test_little_that_is_missed_is_told():
    verdict, reasons = judge(NEAR, 0.3, 0.9, with_missed(0.002, 0.0))
    assert verdict == "good"
    assert "about 0.2 % of the mass" in reasons[1]


class TestUnreliable:
    @pytest.mark.parametrize(("proposed", "advised"), [(1, True), (0, False)])
    def test_mass_that_importance_weights_miss_too(self, proposed, advised):
        verdict, reasons = judge(NEAR, 0.3, 0.9, with_missed(0.25, 0.25, proposed))
        assert verdict == "unreliable"
        assert "a region that the mixture misses, with about 20 % of the mass" in reasons[0]
        assert ("resume" in reasons[0]) == advised

    def test_mass_that_few_draws_carry(self):
        verdict, reasons = judge(NEAR, 0.3, 0.9, with_missed(0.002, 0.2))
        assert verdict == "unreliable"
        assert "0.2 to 17 % of the mass" in reasons[0]

    def test_points_without_a_gradient(self):
        probes = dataclasses.replace(NOTHING, found=dataclasses.replace(NOTHING.found, no_gradient=7))
        verdict, reasons = judge(NEAR, 0.3, 0.9, probes)
        assert verdict == "unreliable"
        assert "7 points" in reasons[0]
        assert "jnp.where" in reasons[0]

    @pytest.mark.parametrize(
        ("khat", "share", "nonfinite", "word"),
        [
            (0.9, 0.4, 0, "Pareto"), (np.inf, 0.4, 0, "Pareto"), (0.3, 0.01, 0, "effective"),
            (0.3, np.nan, 0, "digits"), (0.3, 0.9, 7, "7"),
        ],
    )  # fmt: skip
    def test_weights_that_do_not_serve(self, khat, share, nonfinite, word):
        """Those of the mixture's draws and of wider ones: the mixture's own may look all the same."""
        seen = dataclasses.replace(NEAR, pool_khat=khat, pool_ess=share, nonfinite=nonfinite)
        verdict, reasons = judge(seen, 0.1, 1.0, NOTHING)
        assert verdict == "unreliable"
        assert len(reasons) == 1
        assert word in reasons[0]


def test_a_mixture_that_has_run_away():
    starts = np.random.default_rng(0).normal(size=(64, 2))
    assert runaway(100.0 * starts, starts, ("a", "b")) is None
    text = runaway(starts * np.array([1.0, 1e6]), starts, ("a", "b"))
    assert "along b" in text
    assert "proper prior" in text
