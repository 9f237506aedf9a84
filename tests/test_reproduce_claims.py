"""Claims and sentences of the logistic regressions, from records whose every number is known; no fit is made here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boostvi.reproduce import (
    beyond,
    caveats,
    claims,
    data,
    findings,
    held_out,
    record,
    regression_figures,
    regression_tables,
)
from boostvi.reproduce.compare import CONTRADICTED, HOLDS, NOT_CONTRADICTED, NOT_SEEN, UNKNOWN
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.methods import METHODS, PAPER
from boostvi.reproduce.page import Report
from boostvi.reproduce.store import Store
from boostvi.reproduce.studies import STUDIES

STEPS, SEEDS = 2, 10
LEVEL = {"adaafw": 3.0, "adapfw": 0.0, "adafw": -3.0, "predefined": 0.0, "line-search": 1.0}
"""Of a method's ELBO, above that of predefined steps."""
NOISE = np.random.default_rng(0).normal(size=(len(LEVEL), SEEDS))
DATA = data.stand_in(300, 3, 0.1)
HELD_OUT = {"kind": "10 folds", "auroc_pooled": 0.8, "lpd": -0.3, "lpd_se": 0.1, "calibration": 0.1, "train_ll": -0.3}
AUTO = {
    "elbo": -90.0, "elbo_se": 0.1, "train_ll": -0.3, "train_lpd": -0.3, "test_lpd": -0.3, "test_auroc": 0.9,
    "n_active": 1, "n_params": 10_000, "seconds": 5.0, "status": "converged", "family": "full-rank-normal",
}  # fmt: skip


def run(method: str, seed: int, kind: str = "frank-wolfe", spread: float = 0.0) -> list[dict]:
    """ELBOs −100 + level + a part that is the seed's own + noise; train LL a hundredth of them, less one; AdaAFW
    drops a component."""
    noise = 0.1 * NOISE[list(LEVEL).index(method), seed] + spread
    rows = []
    for t in range(STEPS + 1):
        elbo = -100.0 + 5.0 * seed + (LEVEL[method] + noise if t else 0.0)
        active = t + 1 - (method == "adaafw" and t == STEPS)
        rows.append(
            {"step": t, "kind": kind if t else "init", "elbo": elbo, "gamma": 0.0,
             "gap": 2.0 if t == 1 else -1.0, "train_ll": elbo / 100 - 1,
             "train_lpd": elbo / 100, "test_lpd": elbo / 100, "test_auroc": 0.8 + 0.01 * LEVEL[method],
             "n_active": active, "n_params": 6 * active}
        )  # fmt: skip
    return rows


def make(path, extra=None, seeds=SEEDS, kinds=None, study="chemreact", of=DATA, spread=None):
    """A record with two configurations of every adaptive method; `spread` parts them."""
    store = Store(path / "sweep.sqlite", {})
    for method in PAPER:
        configs = [{"tau": 2.0, "shrink": 0.1, "initial": i} for i in (1.0, 2.0)] if method.startswith("ada") else [{}]
        configs = [{"b0": 0.1}] if method == "line-search" else configs
        kind = (kinds or {}).get(method, "frank-wolfe")
        apart = (spread or {}).get(method, 0.0)
        store.add_all(
            [(method, config, seed, run(method, seed, kind, (2 * i - 1) * apart))
             for seed in range(seeds) for i, config in enumerate(configs)]
        )  # fmt: skip
    for name, value in (extra or {}).items():
        store.result(name, lambda value=value: value)
    return record.read(store, of, STUDIES[study])


@pytest.fixture
def made(tmp_path):
    records = []

    def of(**options):
        records.append(make(tmp_path, **options))
        return records[-1]

    yield of
    for one in records:
        one.store.close()


def judged(found):
    return {row[0]: row for row in claims.table(found).rows}


def words(found):
    table = claims.table(found)
    return " ".join([*findings.findings(found, table), *caveats.caveats(found)])


# -- the table of claims


def test_each_verdict_is_that_of_the_record(made):
    """Seeds differ by more than methods do: only paired differences can tell."""
    rows = judged(made())
    for name, other, verdict in (
        ("AdaAFW", "predefined steps", HOLDS), ("AdaPFW", "predefined steps", NOT_SEEN),
        ("AdaFW", "predefined steps", CONTRADICTED), ("AdaAFW", "line search", HOLDS),
        ("AdaPFW", "line search", CONTRADICTED),
    ):  # fmt: skip
        assert rows[f"ELBO of {name} is higher than that of {other}"][-1] == verdict
    difference = 3.0 + 0.1 * (NOISE[0] - NOISE[3])
    told = f"+{difference.mean():.1f} ± {difference.std(ddof=1) / np.sqrt(SEEDS):.1f} nats (10 seeds)"
    assert rows["ELBO of AdaAFW is higher than that of predefined steps"][2] == told
    assert rows["Train LL of AdaAFW is higher than that of predefined steps"][1:] == [
        "−0.669 ± 0.0005 against −0.676 ± 0.0007", f"+{difference.mean() / 100:.4f} ± 0.0004 (10 seeds)", HOLDS,
    ]  # fmt: skip
    assert rows["Train LL of AdaFW is higher than that of predefined steps"][-1] == CONTRADICTED
    assert rows["Train LL of AdaAFW is at least that of line search"][-1] == HOLDS
    size = rows["AdaAFW keeps fewer components and parameters than predefined steps"]
    assert size[2] == "2.0 components, 12 parameters against 3.0 components, 18 parameters; fewer by +6 ± 0 (10 seeds)"
    assert size[-1] == HOLDS


def test_stability_is_the_spread_over_configurations_and_seeds(made):
    rows = judged(made(spread={"adaafw": 40.0, "line-search": 0.0}))
    claim = "{} is more stable than line search (sd of the final ELBO over configurations and seeds)"
    assert rows[claim.format("AdaAFW")][-1] == CONTRADICTED
    assert rows[claim.format("AdaPFW")][-1] == NOT_SEEN
    sd = np.sqrt(10 / 9) * np.std(np.add.outer([-40.0, 40.0], 5.0 * np.arange(10) + 0.1 * NOISE[0]))
    assert rows[claim.format("AdaAFW")][2].startswith(f"sd {sd:.1f} against ")


def test_one_seed_says_nothing(made):
    verdicts = {claim: row[-1] for claim, row in judged(made(seeds=1)).items()}
    assert {verdict for claim, verdict in verdicts.items() if not claim.startswith("AUROC")} == {UNKNOWN}


def test_a_variant_that_always_gave_up_is_predefined_steps(made):
    found = made(kinds={"adafw": "fallback"})
    rows = judged(found)
    same = "backtracking always gave up: these are predefined steps"
    assert same in rows["ELBO of AdaFW is higher than that of predefined steps"][2]
    assert same not in rows["ELBO of AdaPFW is higher than that of predefined steps"][2]
    assert "0% (AdaAFW), 0% (AdaPFW), 100% (AdaFW) of all steps; AdaFW with 100% did" in words(found)


def test_auroc_by_fold_and_of_one_split(made):
    """Folds differ by more than methods do."""
    folds = np.linspace(0.6, 0.9, 10)
    wave = 0.001 * np.tile([1.0, -1.0], 5)
    areas = {"adaafw": folds + 0.01 + wave, "predefined": folds, "line-search": np.append(folds[:9], math.nan)}
    extra = {
        f"held-out {name}": {**HELD_OUT, "aurocs": list(v), "auroc": float(np.nanmean(v)), "auroc_se": 0.03}
        for name, v in areas.items()
    }
    found = made(extra=extra)
    rows = judged(found)
    claim = "AUROC of {} is comparable with that of {}, or higher"
    assert rows[claim.format("AdaAFW", "predefined steps")][2:] == ["+0.010 ± 0.000 (10 folds)", HOLDS]
    assert "(9 folds)" in rows[claim.format("AdaAFW", "line search")][2]
    assert rows[claim.format("AdaFW", "predefined steps")][2].endswith("(one split, its sampling error)")
    assert rows[claim.format("AdaFW", "predefined steps")][3] == NOT_CONTRADICTED
    table = regression_tables.published(found)
    at = {name: table.columns.index(name) for name in ("Test AUROC ± se", "AUROC from")}
    told = {row[0]: (str(row[at["Test AUROC ± se"]]), row[at["AUROC from"]]) for row in table.rows}
    assert told["AdaAFW"] == ("0.760 ± 0.030", "10 folds")
    assert told["AdaFW"][1] == "one split"


def timed(method, draws, step, repeats=(0.99, 1.0, 1.01), subproblem=100.0):
    return {"method": method, "draws": draws, "steps": 50, "step": step, "subproblem": subproblem, "evals": 1,
            "repeats": [step * r for r in repeats]}  # fmt: skip


def test_times_are_judged_by_the_step_size_alone(made):
    """With the subproblem all ratios are near one: that refutes nothing."""
    times = [timed("predefined", "table", 1.0), timed("adafw", "fresh", 4.0, (1.0, 1.01, 0.99)),
             timed("adafw", "table", 1.0, (1.01, 0.99, 1.0)), timed("line-search", "fresh", 40.0),
             timed("line-search", "table", 1.2)]  # fmt: skip
    rows = judged(made(extra={"times": times}))
    fresh = rows["AdaFW is at least 2× faster than line search (fresh draws, the paper's way)"]
    assert fresh[1:] == ["6.5×", "10.00 ± 0.10× (1.35× with the subproblem)", HOLDS]
    assert rows["AdaFW is at least 2× faster than line search (stored draws)"][-1] == CONTRADICTED
    cost = "{} takes at {}× the step-size time of predefined steps (fresh draws, the paper's way)"
    assert rows[cost.format("AdaFW", "most 5.6")][-1] == HOLDS
    assert rows[cost.format("line search", "least 36.4")][-1] == HOLDS
    assert not any("AdaAFW" in claim and "draws" in claim for claim in rows)  # not timed


def test_old_times_have_no_error(made):
    times = [{**timed(name, "table", step), "repeats": None} for name, step in (("predefined", 1.0), ("adafw", 4.0))]
    for time in times:
        del time["repeats"]
    found = made(extra={"timing": times})
    (row,) = (row for claim, row in judged(found).items() if "draws" in claim)
    assert row[2:] == ["4.00× (1.03× with the subproblem)", UNKNOWN]
    assert len(regression_tables.timing(found).rows) == 2


# -- what is measured beside the sweep


@pytest.mark.parametrize(("mode", "rows"), [("full", 6000), ("full", 100), ("quick", 6000), ("smoke", 6000)])
def test_what_is_measured_beside_the_sweep(made, monkeypatch, mode, rows):
    """AdaAFW is the best adaptive variant here, and has fits with an intercept. NUTS is run once, not once per fold."""
    monkeypatch.setattr(held_out, "CV_ROWS", rows)
    asked = {}
    monkeypatch.setattr(beyond, "_store", lambda store, parts, quiet: asked.update(parts))
    found = made()
    found.store.add_all([("mixture-elbo", {}, seed, run("predefined", seed)) for seed in range(SEEDS)])
    beyond.after(found.store, DATA, mode, Size(STEPS, SEEDS, 10, 10), quiet=True)
    shown = {"full": [*PAPER, "mixture-elbo", "auto"], "quick": ["adaafw"], "smoke": []}[mode]
    with_intercept = {"full": ["adaafw", "mixture-elbo", "auto"], "quick": ["adaafw"], "smoke": []}[mode]
    if rows == 100:
        shown, with_intercept = [*shown, "nuts"], [*with_intercept, "nuts"]
    scored = {f"held-out {name}" for name in shown} | {f"held-out {name} + intercept" for name in with_intercept}
    beside = {
        "full": {"auto", "times", "nuts", beyond.PARITY, beyond.ENTROPY},
        "quick": {"auto", "times"},
        "smoke": set(),
    }[mode]
    assert set(asked) == scored | beside


# -- sentences that are true of the record only


def test_auto_may_be_below(made):
    above = words(made(extra={"auto": AUTO}))
    assert "1 component (full-rank-normal), 10,000 parameters" in above
    ahead = 90.0 - (100.0 - 22.5 - 3.0)
    assert f"{ahead - 0.1 * NOISE[0].mean():.1f} nats below the best diagonal-Laplace variant" in above


def test_line_search_that_has_not_settled(made):
    """At γ = 0 a positive gap is a slope that points forward: of the two steps the first has one."""
    parity = {"b0": 0.1, "steps": 2, "elbo": {"25": -100.0, "24": -300.0}}
    said = words(made(extra={beyond.PARITY: parity}))
    assert "γ = 0 in 100% of its steps, and in 100% of its runs in all of them, which keeps plain VI (in 50%" in said
    assert "the slope there points forward" in said
    assert "ELBO after 2 steps is −100.0 with 25, −300.0 with 24 iterations" in said


def test_the_entropy_weight_of_the_code(made):
    """Paired with the runs of the same configuration and seed, and then with each other."""
    ends = -100.0 + 5.0 * np.arange(SEEDS)
    config = {"tau": 2.0, "shrink": 0.1, "initial": 1.0}
    found = {
        "adaafw": {"config": config, "elbo": list(ends + LEVEL["adaafw"] + 0.1 * NOISE[0] - 7.0)},
        "predefined": {"config": {}, "elbo": list(ends + 0.1 * NOISE[3] - 1.0)},
    }
    said = words(made(extra={beyond.ENTROPY: found}))
    assert "by −7.0 ± 0.0 nats (10 seeds) for AdaAFW; −1.0 ± 0.0 nats (10 seeds) for predefined steps" in said
    gap = 3.0 - 6.0 + 0.1 * (NOISE[0] - NOISE[3])
    assert f"−{-gap.mean():.1f} ± {gap.std(ddof=1) / np.sqrt(SEEDS):.1f} nats (10 seeds) for AdaAFW: contra" in said


def test_the_highest_curve_sets_the_axis_of_fig_2(made, tmp_path):
    report = Report("", tmp_path)
    regression_figures.fill(report, made(extra={"auto": AUTO}))
    captions = dict(report.parts)
    assert captions["parameters"].startswith("Fig. 2: number of parameters per step")
    assert captions["parameters"].endswith(
        "Not on the axis: auto †, 1 component (full-rank-normal), 10,000 parameters."
    )


def test_captions_of_wine_have_no_numbers_of_the_paper(made, tmp_path):
    report = Report("", tmp_path)
    found = made(study="wine", extra={"auto": {**AUTO, "n_params": 20}})
    regression_figures.fill(report, found)
    captions = dict(report.parts)
    assert not any("Fig." in text for text in captions.values())
    assert captions["parameters"].endswith("Dotted: auto †, 1 component (full-rank-normal), 20 parameters.")
    assert {row[1] for row in claims.table(found).rows} == {"–"}
    assert regression_tables.published(found).columns == [
        "Method", "selected", "step", "Train LL ± sd", "Test AUROC ± se", "AUROC from", "step-size s",
        "with subproblem s",
    ]  # fmt: skip


def test_caveats_tell_what_is_there(made):
    """Train LL is far from ln ½ here, nothing was held out, nothing timed, and the first step gains."""
    text = words(made())
    assert "stand-in" in text
    assert "(10.0% positive) cannot be fitted." in text
    assert "ln ½" not in text
    assert "table of held-out rows" not in text
    assert "timing table" not in text
    assert "†" not in text.split("Rows marked")[0]
    change = 0.1 * NOISE[3]
    told = f"changes the ELBO by {change.mean():+.1f} ± {change.std(ddof=1) / np.sqrt(SEEDS):.1f} nats (10 seeds)"
    assert told.replace("-", "−") in text


def test_caveats_of_other_records(made):
    even = data._split(DATA.X, np.arange(300) % 2, "made", True, {})
    rows = even.X.copy()
    rows[even.test[:4]] = rows[even.train[0]]
    repeated = data.Data(rows, even.y, even.train, even.test, even.fold, "made", True)
    extra = {"held-out mixture-elbo + intercept": {**HELD_OUT, "aurocs": [0.8], "auroc": 0.8, "auroc_se": 0.1}}
    text = words(made(of=repeated, extra=extra))
    assert "stand-in" not in text
    assert "300 rows, not the paper's 26,733" in text
    assert f"4 of the {len(even.test)} test rows" in text
    assert "base rate" not in text
    assert "The table of held-out rows has fits with an intercept too." in text


def test_what_ours_change_is_told_of_those_that_are_there(tmp_path):
    store = Store(tmp_path / "sweep.sqlite", {})
    for method in PAPER:
        config = {"tau": 2.0, "shrink": 0.1, "initial": 1.0} if method.startswith("ada") else {}
        store.add_all([(method, config, seed, run(method, seed)) for seed in range(2)])
    store.add_all([("exact", {}, seed, run("predefined", seed)) for seed in range(2)])
    text = words(record.read(store, DATA, STUDIES["chemreact"]))
    store.close()
    assert METHODS["exact"].changes in text
    assert METHODS["mixture-elbo"].changes not in text


def test_what_earlier_versions_kept_of_folds_is_not_read(made):
    """They may have counted whole folds as predicted by zero."""
    found = made(extra={"cv adaafw": {**HELD_OUT, "auroc": 0.2, "auroc_se": 0.1}})
    assert found.held_out() == {}
    assert found.auroc("adaafw")[1] == "one split"


def test_rows_beside_the_methods(made):
    """`auto` and NUTS are rows of the paper's table too, with whole fits as their seconds."""
    nuts = {name: AUTO[name] for name in ("train_ll", "train_lpd", "test_lpd", "test_auroc")}
    found = made(extra={"auto": AUTO, "nuts": {**nuts, "seconds": math.nan, "draws": 2000}})
    table = regression_tables.published(found)
    beside = {row[0]: row for row in table.rows}
    at = table.columns.index("with subproblem s")
    assert beside["auto †"][at] == 5.0
    assert math.isnan(beside["NUTS †"][at])
    assert regression_tables.elbo(found).rows[-1][0] == "NUTS †"
    assert "1 (10,000)." in words(found)


@pytest.mark.parametrize(("kind", "areas"), [("10 folds", [0.8] * 10), ("one split", [0.8])])
def test_the_table_of_held_out_rows_says_what_they_are(made, kind, areas):
    scores = {**HELD_OUT, "kind": kind, "aurocs": areas, "auroc": 0.8, "auroc_se": 0.03}
    names = ("adaafw", "adaafw + intercept", "mixture-elbo", "auto", "auto + intercept", "nuts")
    table = regression_tables.held_out(made(extra={f"held-out {name}": scores for name in names}))
    assert (f"cross-validation, {kind}" if len(areas) > 1 else f"({kind})") in table.title
    assert [row[0] for row in table.rows] == [
        "AdaAFW", "AdaAFW + intercept", "Mixture ELBO, same family †", "auto †", "auto † + intercept", "NUTS †",
    ]  # fmt: skip
    assert str(table.rows[0][1]) == "0.800 ± 0.030"
