"""Boosting where the answer is known, examples of the authors' code: where the residual ELBO goes wrong."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.reproduce import figures, fits, methods, sweep
from boostvi.reproduce.compare import sd
from boostvi.reproduce.experiments import Size, execute
from boostvi.reproduce.methods import METHODS, OURS_MARK
from boostvi.reproduce.page import Report, made_by
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Spread, Table
from boostvi.reproduce.toy_targets import TOYS

SIZES = {"full": Size(25, 10, 1000, 1000), "quick": Size(10, 5, 500, 500), "smoke": Size(2, 2, 50, 50, 200)}
PIXELS = {1: 2000, 2: 300}
"""Points along each side of the picture of a target, by its dimension."""
SHOWN = {
    "full": list(TOYS),
    "quick": ["two modes", "two modes, very different scales", "logistic regression, bimodal"],
    "smoke": ["two modes"],
}
VISIBLE = 1e-3
"""Share of the highest density from which on it is in the picture."""
MARGIN = 0.05
"""Share of that part on either side."""
NAMES = {
    "full": (*methods.PAPER, "adafw-exact-fallback", "fully-corrective", "mixture-elbo"),
    "quick": ("adafw", "predefined", "line-search", "mixture-elbo"),
    "smoke": ("adafw", "predefined"),
}


def problem(toy: str) -> Any:
    from boostvi.families import DiagonalNormal
    from boostvi.reproduce.batch import Problem

    return Problem(TOYS[toy].target(), DiagonalNormal(), lambda target, draws: {}, lambda measured, i: {})


def run(arguments: argparse.Namespace, argv: list[str]) -> Path:
    size, names = SIZES[arguments.mode], NAMES[arguments.mode]
    toys = SHOWN[arguments.mode]
    print("data: targets with a known answer, no data")
    grid = {name: [METHODS[name].winner] for name in names}
    report = Report("Toy mixtures and regressions: KL to a known target", arguments.out, arguments.mode)
    report.facts["sizes"] = (
        f"{size.steps} steps, {size.seeds} seeds, {size.n_draws} draws, {size.iterations} Adam iterations"
    )
    rows: list[list[Any]] = []
    for toy in toys:
        log_z, file = TOYS[toy].log_z(), toy.replace(" ", "-").replace(",", "")
        options = {"toy": toy, "size": astuple(size)}
        settings = {"experiment": "toy-mixtures", "grid": {k: list(map(dict, v)) for k, v in grid.items()}, **options}
        with contextlib.closing(Store(arguments.out / f"{file}.sqlite", settings)) as store:
            tasks = sweep.plan(store, "toy-mixtures", options, grid, size.seeds, size.seeds)
            sweep.run(tasks, store, execute, size.steps, jobs=arguments.jobs, ray=arguments.ray, quiet=arguments.quiet)
            default = functools.partial(fits.default, problem(toy))
            auto = store.result("auto", default) if arguments.mode != "smoke" else None
            curves = {name: log_z - store.curves("elbo", name)[1] for name in names}
            active = {name: store.curves("n_active", name)[1][:, -1] for name in names}
            report.facts |= {f"{what}, {toy}": told for what, told in made_by(store).items()}
        for name, kl in curves.items():
            told = [Spread(float(kl[:, t].mean()), sd(kl[:, t]), 3) for t in (0, 1, -1)]
            rows.append([toy, METHODS[name].marked, *told,
                         float(np.median(kl.min(axis=1))), f"{active[name].mean():.1f}"])  # fmt: skip
        if auto:
            nothing = Spread(math.nan)
            kl = log_z - auto["elbo"]
            rows.append([toy, "auto †", nothing, nothing, Spread(kl, auto["elbo_se"]), kl, str(auto["n_active"])])
        labels = {name: METHODS[name].marked for name in names}
        report.figure(
            f"kl-{file}", _figure(toy, curves, labels), f"{toy}: the target, and KL(q‖p) per step (mean over seeds)."
        )
    report.table(
        Table("kl", "KL(q‖p), mean ± sd over seeds",
              ["target", "method", "step 0 (VI) ± sd", "step 1 ± sd", "last step ± sd", "median best", "components"],
              rows,
              ["Paper's winners of the ChemReact grid as hyperparameters. † not in the paper.",
               *(["auto: one fit (seed 0), ± its standard error."] if arguments.mode != "smoke" else [])])
    )  # fmt: skip
    report.findings += [_finding(toy, {row[1]: row for row in rows if row[0] == toy}) for toy in toys]
    return report.write(argv)


def _finding(toy: str, rows: dict[str, list[Any]]) -> str:
    _, _, first, second, last, *_ = rows["Predefined"]
    ours = [f"; {method} ends at {row[4]}" for method, row in rows.items() if OURS_MARK in method]
    return f"{toy}: predefined steps go from KL {first} to {second} at once, and end at {last}{''.join(ours)}."


def _figure(toy: str, curves: dict[str, np.ndarray], labels: dict[str, str]) -> Any:
    figure, (left, right) = figures.new(2, width=4.6, height=3.6)
    grid, log_density = TOYS[toy].on_grid(PIXELS[len(TOYS[toy].low)])
    density = np.exp(log_density - TOYS[toy].log_z())
    if len(grid) == 1:
        left.plot(grid[0], density, color="k")
    else:
        left.contour(*grid, density.T, levels=8, cmap="cividis")
    seen = [side[of] for side, of in zip(grid, np.nonzero(density > VISIBLE * density.max()), strict=True)]
    for side, limits in zip(seen, (left.set_xlim, left.set_ylim), strict=False):
        room = MARGIN * np.ptp(side)
        limits(side.min() - room, side.max() + room)
    left.set_title("target")
    for i, (name, kl) in enumerate(curves.items()):
        style = figures.DASHES[i % len(figures.DASHES)]
        right.plot(kl.mean(axis=0), color=figures.COLOURS[name], ls=style, label=labels[name])
    right.set_yscale("symlog", linthresh=0.01)
    right.set_ylim(bottom=0)
    right.set(xlabel="boosting step", ylabel="KL(q‖p), nats")
    right.xaxis.get_major_locator().set_params(integer=True)
    figures.legend_below(figure, right)
    return figure
