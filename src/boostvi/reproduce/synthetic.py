"""Fig. 1 (left): how unstable line search is, in numbers; and Theorem 1 along a run where everything in it is known."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.reproduce import figures, line_search_paths, one_step, theorem
from boostvi.reproduce.one_step import RULES
from boostvi.reproduce.page import Report, made_by
from boostvi.reproduce.store import Store
from boostvi.reproduce.sweep import Progress
from boostvi.reproduce.synthetic_findings import AT_END, Results, findings, is_better
from boostvi.reproduce.tables import Spread, Table

SIZES = {
    "full": {"dims": [1, 2, 5, 10, 20, 50], "runs": 200, "n_draws": 1000, "atom_steps": 200},
    "quick": {"dims": [1, 2, 10, 50], "runs": 100, "n_draws": 1000, "atom_steps": 100},
    "smoke": {"dims": [2], "runs": 40, "n_draws": 200, "atom_steps": 40},
}
BOXES = ("adaptive-zero", "adaptive", "line-search", "predefined", "adaptive-exact", "exact", "fully-corrective")


def run(arguments: argparse.Namespace, argv: list[str]) -> Path:
    size: dict[str, Any] = SIZES[arguments.mode]
    print("data: drawn by the command (seed 0)")
    store = Store(arguments.out / "sweep.sqlite", {"experiment": "synthetic", **size})
    done = {(method, config) for method, config, _ in store.finished()}
    missing = [dim for dim in size["dims"] if ("start", f'{{"dim": {dim}}}') not in done]
    progress = Progress(len(missing) * size["runs"], arguments.quiet)
    for dim in missing:
        found = one_step.run(dim, size["runs"], size["n_draws"])
        store.add_all(
            [
                (rule, {"dim": dim}, i, [{"step": 1, "kind": str(v["kind"][i]), "gamma": float(v["gamma"][i]),
                                         "kl": float(v["kl"][i])}])
                for rule, v in found.items() for i in range(size["runs"])
            ]
        )  # fmt: skip
        progress.add(size["runs"])
    progress.close()
    report = Report("Synthetic targets: Fig. 1 (left), and Theorem 1", arguments.out, arguments.mode)
    results = {rule: _by_dim(store, rule, size["dims"]) for rule in ("start", *RULES)}
    paths = {}
    if arguments.mode != "smoke":  # one more program for every dimension
        for dim in size["dims"]:
            follow = functools.partial(line_search_paths.follow, dim, size["runs"], size["n_draws"])
            paths[dim] = store.result(f"line-search paths {dim}", follow)
    made = made_by(store)
    store.close()
    fill(report, results, size)
    if paths:
        line_search_paths.fill(report, paths)
    report.facts |= made
    theorem.fill(report, size["atom_steps"])
    return report.write(argv)


def _by_dim(store: Store, rule: str, dims: list[int]) -> dict[int, dict[str, np.ndarray]]:
    columns = {name: store.curves(name, rule) for name in ("kl", "gamma", "kind")}
    runs = columns["kl"][0]
    at = {dim: [i for i, (config, _) in enumerate(runs) if config == f'{{"dim": {dim}}}'] for dim in dims}
    return {dim: {name: values[1][rows, 0] for name, values in columns.items()} for dim, rows in at.items()}


def fill(report: Report, results: Results, size: dict[str, Any]) -> None:
    dims, labels = size["dims"], {"start": "Before the step"} | {name: label for name, (label, _) in RULES.items()}
    report.facts |= {
        "targets": "two diagonal Normals, weights Dirichlet(1, 1), means N(0, 1), scales softplus(N(0, "
        "1)), drawn anew per run",
        "sizes": f"{size['runs']} paired runs per dimension (seed 0), {size['n_draws']} draws per estimate, KL from "
        f"{one_step.KL_DRAWS} fresh draws; τ = 2, 1/η = 0.1, L₋₁ = 10, b₀ = 0.1",
    }
    report.figure(
        "kl-boxes",
        figures.boxes(
            {name: [results[name][dim]["kl"] for dim in dims] for name in BOXES}, [str(d) for d in dims], labels,
            "KL(q‖p) after one step, nats",
        ),
        "Fig. 1 (left): KL to the target after one step, per rule and dimension (symmetric-log axis).",
    )  # fmt: skip
    report.table(_against_line_search(results, dims))
    kl_rows, gamma_rows = [], []
    for dim in dims:
        for name in ("start", *RULES):
            kl, gamma, kind = (results[name][dim][column] for column in ("kl", "gamma", "kind"))
            quartiles = np.percentile(kl, [25, 50, 75])
            kl_rows.append([dim, labels[name], *map(float, quartiles), float(kl.mean()), float(kl.std(ddof=1))])
            if name not in ("start", "predefined"):
                gamma_rows.append(
                    [dim, labels[name], f"{np.mean(gamma <= AT_END):.0%}", f"{np.mean(gamma >= 1 - AT_END):.0%}",
                     float(np.var(gamma, ddof=1)), f"{np.mean(kind == 'fallback'):.0%}",
                     f"{np.mean(kl > results['start'][dim]['kl'] + 0.01):.0%}"]
                )  # fmt: skip
    report.table(
        Table(
            "kl", "KL(q‖p) after one step towards a random component", ["D", "rule", "25 %", "median", "75 %", "mean",
             "sd"],
            kl_rows, ["The paper shows box plots without numbers. † not in the paper."],
        )
    )  # fmt: skip
    report.table(
        Table(
            "gamma", "What the rules return: the instability of line search in numbers",
            ["D", "rule", "γ = 0", "γ = 1", "variance of γ", "gave up", "KL made worse by > 0.01"], gamma_rows,
            digits=4,
        )
    )  # fmt: skip
    report.findings += findings(results, dims)
    report.caveats += [
        "In the authors' experiment the adaptive rule returns γ = 0 when it gives up, and is compared with rules that "
        "always move. With the fallback of Algorithm 2 as printed, 2/(t+2), the trials are the same. Both are shown.",
        "Fresh draws at every trial, as in the paper; rows with † share the draws of a table.",
    ]


def _against_line_search(results: Results, dims: list[int]) -> Table:
    """One row per dimension: median and quartile range of KL, and how often adaptive is better in a paired run."""
    shown = ("start", "adaptive-zero", "adaptive", "line-search", "exact")
    rows = []
    for dim in dims:
        kl = {name: results[name][dim]["kl"] for name in shown}
        spread = {name: float(np.subtract(*np.percentile(values, [75, 25]))) for name, values in kl.items()}
        gamma = results["line-search"][dim]["gamma"]
        rows.append(
            [dim, *(Spread(float(np.median(kl[name])), spread[name], 2, form="{} ({})") for name in shown),
             *(f"{is_better(kl[name], kl['line-search']).mean():.0%}" for name in ("adaptive-zero", "adaptive")),
             f"{np.mean(gamma <= AT_END):.0%}", f"{np.mean(gamma >= 1 - AT_END):.0%}"]
        )  # fmt: skip
    return Table(
        "against-line-search", "Adaptive steps against line search: median KL (quartile range) in nats",
        ["D", "before the step", "adaptive, γ = 0 on failure", "adaptive, 2/(t+2) on failure", "line search", "exact †",
         "adaptive better, γ = 0", "adaptive better, 2/(t+2)", "line search at γ = 0", "at γ = 1"],
        rows, ["Adaptive better: share of paired runs in which its KL is below that of line search; ties count half."],
    )  # fmt: skip
