"""The figures of a logistic regression, from its record."""

from __future__ import annotations

import json

import numpy as np

from boostvi.reproduce import figures, methods, select
from boostvi.reproduce.findings import components
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.page import Report
from boostvi.reproduce.record import Record
from boostvi.reproduce.store import Store

OFF_SCALE = 2.0
"""A number of parameters this many times the highest curve would flatten all curves: it is told in words."""


def fill(report: Report, record: Record) -> None:
    store, names, study = record.store, record.names, record.study
    labels = {name: METHODS[name].marked for name in names}
    elbo = {name: store.curves("elbo", name)[1] for name in names}
    paper = {name: elbo[name] for name in names if not METHODS[name].ours}
    report.figure(
        "elbo-paper", figures.bands(paper, labels, "ELBO"),
        _numbered(study.elbo_figure, "ELBO per step, mean ± standard deviation over all configurations and seeds.")
        + figures.below(paper),
    )  # fmt: skip
    auto = record.extra.get("auto")
    reference = {"auto †": auto["elbo"]} if auto else {}
    report.figure(
        "elbo-all", figures.bands(elbo, labels, "ELBO", reference),
        "The same with our variants in the same family (†)"
        + (" and the default recipe's ELBO." if auto else ".")
        + figures.below(elbo, list(reference.values())),
    )  # fmt: skip
    counts = {name: store.curves("n_params", name)[1] for name in names}
    highest = max(float(values.mean(axis=0).max()) for values in counts.values())
    caption = _numbered(study.size_figure, "number of parameters per step, mean over all configurations and seeds.")
    level = {}
    if auto:
        if auto["n_params"] <= OFF_SCALE * highest:
            level = {"auto †": auto["n_params"]}
        caption += f" {'Dotted' if level else 'Not on the axis'}: auto †, {components(auto)}."
    report.figure("parameters", figures.parameters(counts, labels, level), caption)
    kinds = {name: store.curves("kind", name)[1] for name in names if name in methods.ADAPTIVE}
    report.figure(
        "step-kinds", figures.step_kinds(kinds, labels),
        "Share of step kinds over all configurations and seeds; “predefined” is the fallback after backtracking gave "
        "up.",
    )  # fmt: skip
    taus, shrinks, grids = heat_grids(store)
    report.figure(
        "heat-map", figures.heat_maps(grids, taus, shrinks, labels, "median final ELBO"),
        "Median ELBO after the last step over seeds, best L₋₁, per τ and 1/η (empty: not in this run's grid).",
    )  # fmt: skip


def _numbered(where: str, caption: str) -> str:
    """With the number that the figure has in the paper, if it has one."""
    return f"{where}: {caption}" if where else caption[0].upper() + caption[1:]


def heat_grids(store: Store) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Median final ELBO over seeds, the best L₋₁, for τ (rows) × 1/η (columns), as far as the grid has them."""
    finals = {
        name: [(json.loads(text), float(np.median(runs.values["elbo"][:, -1])))
               for text, runs in select.cells(store, name, ("elbo",)).items()]
        for name in methods.ADAPTIVE
    }  # fmt: skip
    taus, shrinks = (sorted({c[key] for of in finals.values() for c, _ in of}) for key in ("tau", "shrink"))
    grids = {name: np.full((len(taus), len(shrinks)), np.nan) for name in finals}
    for name, of_method in finals.items():
        for config, value in of_method:
            at = taus.index(config["tau"]), shrinks.index(config["shrink"])
            grids[name][at] = np.fmax(grids[name][at], value)
    return taus, shrinks, grids
