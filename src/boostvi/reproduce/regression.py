"""Tables 1 and 2 with their figures: Bayesian logistic regression on ChemReact, eICU and wine."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from boostvi.cli import UsageError
from boostvi.reproduce import data as datasets
from boostvi.reproduce import methods, sweep
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size, execute
from boostvi.reproduce.page import Report
from boostvi.reproduce.store import Store
from boostvi.reproduce.studies import STUDIES

CHEM_ROWS, CHEM_COLUMNS, CHEM_POSITIVE = 26_733, 100, 0.03
EICU_ROWS, EICU_COLUMNS, EICU_POSITIVE = 71_366, 70, 0.07


def load(experiment: str, options: Mapping[str, Any]) -> Data:
    """The user's file, the rows beside the project, or the stand-in; fewer of them where the size says so."""
    given, rows = options["data"], Size(*options["size"]).rows
    if given:
        columns = CHEM_COLUMNS if experiment == "chemreact" else None
        found = datasets.load(Path(given), columns, label=options["label"])
    else:
        found = {"chemreact": _chemreact, "eicu": _eicu, "wine": _wine}[experiment](options)
    return found if rows is None else datasets.part(found, rows)


def _chemreact(options: Mapping[str, Any]) -> Data:
    beside = datasets.beside("chem10.npz")
    if beside and not options["full_size"]:
        return datasets.load(beside, CHEM_COLUMNS, standardise=False)
    return datasets.stand_in(CHEM_ROWS, CHEM_COLUMNS, CHEM_POSITIVE, beside, what=" for ChemReact at full size")


def _eicu(options: Mapping[str, Any]) -> Data:
    return datasets.stand_in(EICU_ROWS, EICU_COLUMNS, EICU_POSITIVE, what=" for eICU, which needs credentials")


def _wine(options: Mapping[str, Any]) -> Data:
    beside = datasets.beside("wine.npz")
    return datasets.load(beside) if beside else datasets.stand_in(6_497, 12, 0.25, what=" for the wine data")


def run(experiment: str, arguments: argparse.Namespace, argv: list[str]) -> Path:
    """The whole command: sweep (or its rest), what goes beyond it, tables, figures and the page."""
    from boostvi.reproduce import beyond, regression_report

    study = STUDIES[experiment]
    size = study.sizes[arguments.mode]
    options = {
        "data": str(arguments.data.resolve()) if arguments.data else None,  # workers may be in another folder
        "label": arguments.label,
        "full_size": bool(getattr(arguments, "full_size", False)),
        "size": astuple(size),
    }
    data = load(experiment, options)
    options["fingerprint"] = data.fingerprint
    grid = study.grid(arguments.mode)
    print(f"data: {data.source}")
    settings = {
        "experiment": experiment, "mode": arguments.mode, "data": data.fingerprint, "folds": data.folds,
        "size": options["size"],
        "grid": {name: list(map(dict, configs)) for name, configs in grid.items()},
    }  # fmt: skip
    report = Report(study.title, arguments.out, arguments.mode)
    with contextlib.closing(Store(arguments.out / "sweep.sqlite", settings)) as store:
        batch = sweep.batch_size(arguments.jobs, arguments.ray)
        tasks = sweep.plan(store, experiment, options, grid, size.seeds, batch)
        runs = sum(len(configs) for configs in grid.values()) * size.seeds
        done = runs - sum(len(task.seeds) for task in tasks)
        print(f"sweep: {runs} runs of {size.steps} steps, {done} of them done before")
        if not arguments.render:
            beyond.before(store, data, arguments.mode, arguments.quiet)
            sweep.run(tasks, store, execute, size.steps, jobs=arguments.jobs, ray=arguments.ray, quiet=arguments.quiet)
            beyond.after(store, data, arguments.mode, size, arguments.quiet)
            done = runs
        elif not store.methods() >= set(methods.PAPER):
            raise UsageError("there is nothing to render yet: not every method has a finished run")
        regression_report.fill(report, store, data, study, size, done, runs)
    return report.write(argv)
