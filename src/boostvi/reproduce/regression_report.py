"""Tables, figures and findings of a logistic-regression study, from its record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from boostvi.reproduce import figures, methods, select
from boostvi.reproduce.claims import findings
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.methods import METHODS, config_label
from boostvi.reproduce.page import Report
from boostvi.reproduce.regression import PAPER_CAVEATS, Study
from boostvi.reproduce.select import Cell
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Table, plus_minus

COLUMNS = ("elbo", "train_ll", "train_lpd", "test_lpd", "test_auroc", "n_active")
OURS_MARK = "†"


def label(name: str) -> str:
    return METHODS[name].label + (f" {OURS_MARK}" if METHODS[name].ours else "")


def fill(
    report: Report, store: Store, data: Data, study: Study, size: Size, mode: str, done: int, runs: int
) -> None:  # fmt: skip
    """Everything the record has: `done` of its `runs`, and what was measured beside them."""
    names, extra = select.methods_of(store), store.results()
    labels = {name: label(name) for name in names}
    cells = {name: select.best(store, name, "train_ll", COLUMNS) for name in names}
    plain = _step_zero(store, "predefined")
    report.facts |= {
        "data": data.source,
        "rows": f"{len(data.train)} train, {len(data.test)} test, {data.y.mean():.1%} positive",
        "sizes": f"{size.steps} steps, {size.seeds} seeds (0 … {size.seeds - 1}), {size.n_draws} draws per component, "
        f"{size.iterations} Adam iterations per subproblem, ELBO from {size.elbo_draws} fresh draws",
        "record": f"sweep.sqlite: {done} of {runs} runs",
    }
    if mode != "full":
        report.facts["slice"] = (
            f"--{mode}: fewer steps, seeds, draws and configurations than the paper; not its protocol"
        )
    if done < runs:
        seeds = ", ".join(f"{METHODS[name].label} {_seeds(store, name)}" for name in names)
        report.findings.append(
            f"The sweep is not finished: {done} of {runs} runs ({done / runs:.0%}) are in the record and on this page "
            f"(seeds with finished runs, of {size.seeds}: {seeds})."
        )
    report.caveats += list(PAPER_CAVEATS)
    if not data.is_real:
        report.caveats.insert(0, "The data are a stand-in: these numbers say nothing about the paper's table.")
    elif len(data.train) < 10_000 and study.published:
        report.caveats.insert(
            0,
            f"The rows are real, but {len(data.train)} train rows are not the paper's 26,733: its numbers are for "
            "orientation. AUROC on few test positives is noise; the cross-validation table is the one to read."
        )  # fmt: skip
    report.table(_published_table(cells, study, labels, extra.get("timing", ())))
    report.table(_elbo_table(cells, plain, extra, labels))
    if any(name.startswith("cv ") for name in extra):
        report.table(_cv_table(extra))
    if extra.get("timing"):
        report.table(_timing_table(extra["timing"]))
    report.table(_line_search_table(store))
    _figures(report, store, names, labels, extra)
    report.findings += findings(store, cells, plain, extra)


def _seeds(store: Store, method: str) -> int:
    return len({seed for _, seed in store.curves("step", method)[0]})


def _step_zero(store: Store, method: str) -> dict[str, np.ndarray]:
    """Plain VI: the first component, before any boosting."""
    return {column: store.curves(column, method)[1][:, 0] for column in COLUMNS}


def _published_table(
    cells: dict[str, Cell], study: Study, labels: dict[str, str], timing: Sequence[dict[str, Any]]
) -> Table:
    times = {t["method"]: t for t in timing if t["draws"] == "table"}
    steps = f" ({timing[0]['steps']} steps)" if timing else ""
    rows = []
    for name, cell in cells.items():
        ll, auroc, seconds = study.published.get(name, (math.nan,) * 3)
        time = times.get(name, {"step": math.nan, "subproblem": math.nan})
        rows.append(
            [
                labels[name], config_label(cell.config), cell.step,
                plus_minus(cell.median("train_ll"), cell.median_se("train_ll")), ll, cell.median("train_ll") - ll,
                plus_minus(cell.mean("test_auroc"), cell.sd("test_auroc"), 3), auroc, cell.mean("test_auroc") - auroc,
                time["step"], time["step"] + time["subproblem"], f"{seconds:.0f}" if not math.isnan(seconds) else "–",
            ]
        )  # fmt: skip
    columns = ["Method", "selected", "step", "Train LL", "published", "difference", "Test AUROC", "published",
               "difference", f"step-size s{steps}", "with subproblem s", "published s"]  # fmt: skip
    title = f"{study.where}: published beside measured"
    if not study.published:
        kept = [i for i, name in enumerate(columns) if not name.startswith(("published", "difference"))]
        columns, rows = [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]
        title = "In the form of the paper's tables"
    return Table(
        "published", title, columns, rows,
        [
            "Selected: the configuration and step with the best median train LL over seeds, as in the "
            "paper. Train LL: median "
            "± bootstrap sd of the median; AUROC: mean ± sd over seeds, on one split. † not in the paper.",
            "Seconds are those of the timing table: single runs with the paper's winners, trials on stored draws.",
        ],
    )  # fmt: skip


def _elbo_table(
    cells: dict[str, Cell], plain: dict[str, np.ndarray], extra: dict[str, Any], labels: dict[str, str]
) -> Table:
    def row(name: str, values: dict[str, np.ndarray], step: Any) -> list[Any]:
        return [
            name, step, plus_minus(float(np.mean(values["elbo"])), float(np.std(values["elbo"])), 2),
            float(np.mean(values["train_ll"])), float(np.mean(values["train_lpd"])), float(np.mean(values["test_lpd"])),
            float(np.mean(values["test_auroc"])), f"{np.mean(values['n_active']):.1f}",
        ]  # fmt: skip

    rows = [row("Plain VI (step 0)", plain, 0)]
    rows += [row(labels[name], cell.values, cell.step) for name, cell in cells.items()]
    if "auto" in extra:
        a = extra["auto"]
        rows.append(
            [f"auto † ({a['family']})", "–", plus_minus(a["elbo"], a["elbo_se"], 2), a["train_ll"], a["train_lpd"],
             a["test_lpd"], a["test_auroc"], str(a["n_active"])]
        )  # fmt: skip
    if "nuts" in extra:
        n = extra["nuts"]
        rows.append(["NUTS", "–", "–", n["train_ll"], n["train_lpd"], n["test_lpd"], n["test_auroc"], "–"])
    return Table(
        "elbo",
        "ELBO and predictions of the selected cells, beside plain VI, the default and NUTS",
        ["Method", "step", "ELBO (mean ± sd)", "Train LL", "Train LPD", "Test LPD", "Test AUROC", "components"],
        rows,
        [
            "LPD: log predictive density per row, ln of the averaged likelihood. One split; see the "
            "cross-validation table."
        ],
    )


def _cv_table(extra: dict[str, Any]) -> Table:
    rows = []
    for name, found in extra.items():
        if name.startswith("cv "):
            method, *intercept = name.removeprefix("cv ").split(" + ")
            title = label(method) if method in METHODS else f"{method} {OURS_MARK}"
            rows.append(
                [title + (" + intercept" if intercept else ""), plus_minus(found["auroc"], found["auroc_se"], 3),
                 found["auroc_pooled"], plus_minus(found["lpd"], found["lpd_se"], 4), found["calibration"],
                 found["train_ll"]]
            )  # fmt: skip
    return Table(
        "cross-validation",
        "Ten-fold cross-validation: AUROC, log predictive density and calibration on held-out rows",
        ["Method", "AUROC (mean ± se of folds)", "AUROC pooled", "LPD ± se", "calibration error", "Train LL"],
        rows,
        ["Calibration error: mean |predicted − observed| share of positives over ten equally filled bins. The selected "
         "cell's configuration and number of steps; every fold's rows had no say in its fit, but the "
         "cell was selected on the "
         "training split of the same data."],
    )  # fmt: skip


def _timing_table(timing: list[dict[str, Any]]) -> Table:
    base = next(t for t in timing if t["method"] == "predefined")
    rows = [
        [
            METHODS[t["method"]].label + (", fresh draws (the paper's way)" if t["draws"] == "fresh" else ""),
            t["steps"],
            f"{t['step']:.2f}", f"{t['step'] / base['step']:.1f}×", f"{t['subproblem']:.1f}",
            f"{(t['step'] + t['subproblem']) / (base['step'] + base['subproblem']):.2f}×", t["evals"],
        ]
        for t in timing
    ]  # fmt: skip
    return Table(
        "timing",
        "Seconds of single runs (winners of the paper's grid), compiled beforehand",
        ["Method", "steps", "step-size s", "vs predefined", "subproblem s", "both vs predefined", "evaluations"],
        rows,
        [
            "The least time of every step over repeated runs counts, q_0 is left out. The subproblem is one "
            "program for all methods: differences in its seconds are noise. Published step-size times: "
            "adaptive 5.6–14.7×, line search 36× those of predefined steps."
        ],
    )


def _line_search_table(store: Store) -> Table:
    """What line search returns, per b₀: the paper tuned it, and found no value that works on eICU."""
    rows = []
    runs, gammas = store.curves("gamma", "line-search")
    elbos, lls = store.curves("elbo", "line-search")[1], store.curves("train_ll", "line-search")[1]
    for config in dict.fromkeys(c for c, _ in runs):
        mine = [i for i, (c, _) in enumerate(runs) if c == config]
        chosen = gammas[mine][:, 1:]
        rows.append(
            [config_label(json.loads(config)), f"{np.mean(chosen <= 0):.0%}", f"{np.mean(chosen >= 1):.0%}",
             float(np.median(chosen)), plus_minus(elbos[mine][:, -1].mean(), elbos[mine][:, -1].std(), 1),
             float(np.median(lls[mine][:, -1]))]
        )  # fmt: skip
    return Table(
        "line-search",
        "Line search by its only hyperparameter",
        ["b₀", "steps with γ = 0", "steps with γ = 1", "median γ", "final ELBO (mean ± sd)", "final train LL"],
        rows,
    )


def _components(auto: dict[str, Any]) -> str:
    n = auto["n_active"]
    return f"{n} {auto['family']} component{'s' if n > 1 else ''}"


def heat_grids(store: Store) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Median final ELBO over seeds, the best L₋₁, for τ (rows) × 1/η (columns), as far as the grid has them."""
    finals = {
        name: [(json.loads(text), float(np.median(arrays["elbo"][:, -1])))
               for text, arrays in select.cells(store, name, ("elbo",)).items()]
        for name in methods.ADAPTIVE
    }  # fmt: skip
    taus, shrinks = (sorted({c[key] for of in finals.values() for c, _ in of}) for key in ("tau", "shrink"))
    grids = {name: np.full((len(taus), len(shrinks)), np.nan) for name in finals}
    for name, of_method in finals.items():
        for config, value in of_method:
            at = taus.index(config["tau"]), shrinks.index(config["shrink"])
            grids[name][at] = np.fmax(grids[name][at], value)
    return taus, shrinks, grids


def _figures(report: Report, store: Store, names: list[str], labels: dict[str, str], extra: dict[str, Any]) -> None:
    elbo = {name: store.curves("elbo", name)[1] for name in names}
    paper = {name: elbo[name] for name in names if not METHODS[name].ours}
    report.figure(
        "elbo-paper", figures.bands(paper, labels, "ELBO"),
        "Fig. 1: ELBO per step, mean ± standard deviation over all configurations and seeds. The axis "
        "starts below the means "
        "from step 3 on; the first steps of the paper's algorithm fall far below it.",
    )  # fmt: skip
    reference = {"auto": extra["auto"]["elbo"]} if "auto" in extra else {}
    report.figure(
        "elbo-all", figures.bands(elbo, labels, "ELBO", reference),
        "The same with our variants in the same family (†) and the default recipe's ELBO.",
    )  # fmt: skip
    size = {f"auto, {_components(extra['auto'])}": extra["auto"]["n_params"]} if "auto" in extra else {}
    counts = {name: store.curves("n_params", name)[1] for name in names}
    report.figure(
        "parameters", figures.parameters(counts, labels, size),
        "Fig. 2: number of parameters per step, mean over all configurations and seeds; dotted, those of the default.",
    )  # fmt: skip
    kinds = {name: store.curves("kind", name)[1] for name in names if name in methods.ADAPTIVE}
    report.figure(
        "step-kinds", figures.step_kinds(kinds, labels),
        "Share of step kinds over all configurations and seeds; “predefined” is the fallback after "
        "backtracking gave up.",
    )  # fmt: skip
    taus, shrinks, grids = heat_grids(store)
    report.figure(
        "heat-map", figures.heat_maps(grids, taus, shrinks, labels, "median final ELBO"),
        "Median ELBO after the last step over seeds, best L₋₁, per τ and 1/η (empty: not in this run's grid).",
    )  # fmt: skip
