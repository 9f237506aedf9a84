"""The tables of a logistic regression, from its record."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from boostvi.reproduce.beyond import INTERCEPT
from boostvi.reproduce.compare import sd
from boostvi.reproduce.held_out import ONE_SPLIT
from boostvi.reproduce.methods import METHODS, OURS_MARK, config_label
from boostvi.reproduce.record import Record
from boostvi.reproduce.select import Cell
from boostvi.reproduce.studies import Published
from boostvi.reproduce.tables import Spread, Table

NOTHING = Spread(math.nan)
BESIDE = {"auto": f"auto {OURS_MARK}", "nuts": f"NUTS {OURS_MARK}"}
"""Rows that are no method of the grid."""


def label(name: str) -> str:
    return METHODS[name].marked if name in METHODS else BESIDE[name]


def published(record: Record) -> Table:
    """The paper's table with what was measured beside it, and rows that it does not have."""
    times = {method: t for (method, draws), t in record.times().items() if draws == "table"}
    rows = []
    for name, cell in record.cells.items():
        time = times.get(name, {"step": math.nan, "subproblem": math.nan})
        train_ll = Spread(cell.median("train_ll"), cell.median_se("train_ll"))
        seconds = time["step"], time["step"] + time["subproblem"]
        rows.append(_published_row(record, name, config_label(cell.config), cell.step, train_ll, *seconds))
    for name in BESIDE:
        found = record.extra.get(name)
        if found:
            rows.append(_published_row(record, name, "–", "–", Spread(found["train_ll"]), math.nan, found["seconds"]))
    columns = ["Method", "selected", "step", "Train LL ± sd", "published LL ± sd", "LL difference", "Test AUROC ± se",
               "AUROC from", "published AUROC ± sd", "AUROC difference", "step-size s", "with subproblem s",
               "published s ± sd"]  # fmt: skip
    title = f"{record.study.where}: published beside measured"
    if not record.study.published:
        kept = [i for i, name in enumerate(columns) if not name.startswith("published") and "difference" not in name]
        columns, rows = [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]
        title = "In the form of the paper's tables"
    timed = "Seconds were not measured"
    if record.timing:
        timed = (
            f"Seconds are those of the timing table: single runs of {record.timing[0]['steps']} steps with the "
            "configurations there, trials on stored draws"
        )
    others = " and ".join(name for key, name in BESIDE.items() if key in record.extra)
    return Table(
        "published", title, columns, rows,
        [
            "Selected: the configuration and step with the best median train LL over seeds, as in the paper. Train LL: "
            "median ± bootstrap sd of the median. AUROC on folds: mean ± se over folds; on one split: mean over seeds "
            "± the sampling error of its test rows (Hanley & McNeil 1982)."
            + (" The paper's ± of AUROC and of seconds are sds over runs." if record.study.published else "")
            + f" {OURS_MARK} not in the paper.",
            timed + (f"; of {others} they are those of the whole fit, with its compilation." if others else "."),
        ],
    )  # fmt: skip


def _published_row(
    record: Record, name: str, selected: str, step: Any, train_ll: Spread, step_seconds: float, seconds: float
) -> list[Any]:
    told = record.study.published.get(name, Published(NOTHING, NOTHING, NOTHING))
    auroc, kind = record.auroc(name)
    return [
        label(name), selected, step, train_ll, told.train_ll, train_ll.value - told.train_ll.value, auroc, kind,
        told.auroc, auroc.value - told.auroc.value, step_seconds, seconds, told.seconds,
    ]  # fmt: skip


def elbo(record: Record) -> Table:
    def row(name: str, cell: Cell) -> list[Any]:
        predictions: list[Any] = [cell.mean(column) for column in ("train_ll", "train_lpd", "test_lpd")]
        predictions.append(Spread(cell.mean("test_auroc"), cell.sd("test_auroc"), 3))
        sizes = [f"{cell.mean('n_active'):.1f}", f"{cell.mean('n_params'):,.0f}"]
        return [name, cell.step, Spread(cell.mean("elbo"), cell.sd("elbo"), 2), *predictions, *sizes]

    def row_beside(name: str, found: dict[str, Any]) -> list[Any]:
        predictions: list[Any] = [found[column] for column in ("train_ll", "train_lpd", "test_lpd")]
        predictions.append(Spread(found["test_auroc"], digits=3))
        if name == "nuts":
            return [label(name), "–", NOTHING, *predictions, "–", "–"]
        value = Spread(found["elbo"], found["elbo_se"], 2)
        sizes = [str(found["n_active"]), f"{found['n_params']:,}"]
        return [f"{label(name)} ({found['family']})", "–", value, *predictions, *sizes]

    beside = [name for name in BESIDE if name in record.extra]
    rows = [row("Plain VI (step 0)", record.plain)]
    rows += [row(label(name), cell) for name, cell in record.cells.items()]
    rows += [row_beside(name, record.extra[name]) for name in beside]
    folds = record.held_out() and not _is_one_split(record)
    return Table(
        "elbo",
        " and ".join(["ELBO and predictions of plain VI", "the selected cells", *(BESIDE[name] for name in beside)]),
        [
            "Method",
            "step",
            "ELBO ± sd",
            "Train LL",
            "Train LPD",
            "Test LPD",
            "Test AUROC ± sd",
            "components",
            "parameters",
        ],
        rows,
        [
            "Means (± sd) over seeds. LPD: log predictive density per row, ln of the averaged likelihood."
            + (" auto: one fit, ± its standard error." if "auto" in beside else "")
            + " The test columns are of one split"
            + ("; the table of held-out rows has all." if folds else ".")
        ],
    )


def _is_one_split(record: Record) -> bool:
    return all(found["kind"] == ONE_SPLIT for found in record.held_out().values())


def held_out(record: Record) -> Table:
    rows = []
    for name, found in record.held_out().items():
        method, plus, _ = name.partition(INTERCEPT)
        rows.append(
            [label(method) + plus, Spread(found["auroc"], found["auroc_se"], 3), found["auroc_pooled"],
             Spread(found["lpd"], found["lpd_se"]), found["calibration"], found["train_ll"]]
        )  # fmt: skip
    one, kind = _is_one_split(record), next(iter(record.held_out().values()))["kind"]
    errors = "sampling errors of the test rows" if one else "those of the mean over folds"
    return Table(
        "held-out",
        f"Held-out rows ({kind if one else f'cross-validation, {kind}'}): AUROC, log predictive density, calibration",
        ["Method", "AUROC ± se", "AUROC pooled", "LPD ± se", "calibration error", "Train LL"],
        rows,
        [
            f"Standard errors are {errors}. Calibration error: mean |predicted − observed| share of positives over ten "
            "equally filled bins. The selected cell's configuration and number of steps, one run "
            + ("(seed 0)." if one else "per fold; the cell was selected on the training rows of the one split.")
        ],
    )


def timing(record: Record) -> Table:
    base, study = record.times()["predefined", "table"], record.study
    rows = [
        [
            METHODS[t["method"]].marked + (", fresh draws (the paper's way)" if t["draws"] == "fresh" else ""),
            config_label(t.get("config", METHODS[t["method"]].winner)), t["steps"],
            Spread(t["step"], sd(t.get("repeats", ())), 3), f"{t['step'] / base['step']:.1f}×",
            f"{t['subproblem']:.1f}",
            f"{(t['step'] + t['subproblem']) / (base['step'] + base['subproblem']):.2f}×", t["evals"],
        ]
        for t in record.timing
    ]  # fmt: skip
    note = (
        "The least time of every step over repeated runs counts, ± the sd of the runs; q_0 is left out. A correction "
        "of the weights belongs to the step. The residual ELBO is one program for all methods: differences in its "
        "seconds are noise. Configurations are the winners of the paper's grid on ChemReact, or the selected ones "
        "where the grid is another."
    )
    if study.published:
        slower = [study.slower(name) for name in ("adaafw", "adapfw", "adafw")]
        note += (
            f" Published step-size times ({study.where}): adaptive {min(slower):.1f}–{max(slower):.1f}×, line search "
            f"{study.slower('line-search'):.1f}× those of predefined steps; the paper's text says 2–5× and 7–39×."
        )
    return Table(
        "timing",
        "Seconds of single runs, compiled beforehand",
        [
            "Method",
            "configuration",
            "steps",
            "step-size s ± sd",
            "vs predefined",
            "subproblem s",
            "both vs predefined",
            "evaluations",
        ],
        rows,
        [note],
    )


def line_search(record: Record) -> Table:
    """What line search returns, per b₀: the paper tuned it, and found no value that works on eICU."""
    rows = []
    runs, gammas = record.store.curves("gamma", "line-search")
    elbos, lls = (record.store.curves(column, "line-search")[1][:, -1] for column in ("elbo", "train_ll"))
    for config in dict.fromkeys(c for c, _ in runs):
        mine = [i for i, (c, _) in enumerate(runs) if c == config]
        chosen = gammas[mine][:, 1:]
        rows.append(
            [config_label(json.loads(config)), len(mine), f"{np.mean(chosen <= 0):.0%}", f"{np.mean(chosen >= 1):.0%}",
             float(np.median(chosen)), Spread(float(elbos[mine].mean()), sd(elbos[mine]), 1),
             float(np.median(lls[mine]))]
        )  # fmt: skip
    return Table(
        "line-search",
        "Line search by its only hyperparameter",
        ["b₀", "seeds", "steps with γ = 0", "steps with γ = 1", "median γ", "final ELBO ± sd", "final train LL"],
        rows,
    )
