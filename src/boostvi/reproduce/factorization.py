"""Bayesian matrix factorisation: an experiment of the authors' code that is not in the paper."""

from __future__ import annotations

import argparse
import contextlib
import math
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.cli import UsageError
from boostvi.reproduce import entries, figures, fits, methods, sweep
from boostvi.reproduce.compare import sd
from boostvi.reproduce.entries import Entries
from boostvi.reproduce.experiments import Size, execute
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.page import Report, made_by
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Spread, Table, minus

SIZES = {"full": Size(50, 10, 1000, 1000), "quick": Size(8, 3, 100, 500, rows=60), "smoke": Size(2, 2, 30, 50, 100, 30)}
"""rows: and columns, of the user's own matrix."""
AUTO_SECONDS = {"full": 120.0, "quick": 30.0}
"""Budget of `auto`, which no smoke run has: rotations of the factors are modes without end."""
NAMES = {
    "full": (*methods.PAPER, "adafw-exact-fallback", "fully-corrective", "mixture-elbo"),
    "quick": (*methods.PAPER, "mixture-elbo"),
    "smoke": ("adaafw", "predefined"),
}


def problem(found: Entries) -> Any:
    """U, V ~ N(0, 1); mean squared error of the mean prediction on seen and on hidden entries."""
    import jax
    import jax.numpy as jnp

    from boostvi.families import DiagonalNormal
    from boostvi.reproduce.batch import Problem
    from boostvi.target import Target

    (rows, columns), rank = found.values.shape, found.rank
    with jax.enable_x64(True):
        held = jnp.asarray(found.values)
        seen, hidden = jnp.asarray(found.seen, jnp.float64), jnp.asarray(found.hidden, jnp.float64)

    def factors(z):
        return z[..., : rows * rank].reshape(-1, rows, rank), z[..., rows * rank :].reshape(-1, columns, rank)

    def log_density(z):
        (u,), (v,) = factors(z)
        likelihood = jax.scipy.stats.norm.logpdf(held, u @ v.T, found.noise)
        return jnp.sum(seen * likelihood) + jnp.sum(jax.scipy.stats.norm.logpdf(z))

    def measure(target, draws):
        predicted = jnp.einsum("nik,njk->ij", *factors(draws)) / len(draws)
        errors = (held - predicted) ** 2
        return {
            "train_mse": jnp.sum(seen * errors) / jnp.sum(seen),
            "test_mse": jnp.sum(hidden * errors) / jnp.sum(hidden),
        }

    def summarise(measured, i):
        return {name: float(value) for name, value in measured.items()}

    return Problem(Target(log_density, found.dim), DiagonalNormal(), measure, summarise)


def run(arguments: argparse.Namespace, argv: list[str]) -> Path:
    size, names = SIZES[arguments.mode], NAMES[arguments.mode]
    if arguments.rank < 1:
        raise UsageError(f"--rank must be at least 1, got {arguments.rank}")
    if not 0.0 < arguments.noise < math.inf:
        raise UsageError(f"--noise must be positive, got {arguments.noise:g}")
    options = {
        "data": str(arguments.data.resolve()) if arguments.data else None,  # workers may be in another folder
        "rank": arguments.rank,
        "noise": arguments.noise,
        "size": astuple(size),
    }
    found = entries.of(options)
    options["fingerprint"] = found.fingerprint
    print(f"data: {found.source}")
    grid = {name: [METHODS[name].winner] for name in names}
    settings = {
        "experiment": "matrix-factorization",
        "grid": {k: list(map(dict, v)) for k, v in grid.items()},
        **{name: value for name, value in options.items() if name != "data"},
    }
    report = Report("Matrix factorisation", arguments.out, arguments.mode)
    with contextlib.closing(Store(arguments.out / "sweep.sqlite", settings)) as store:
        tasks = sweep.plan(store, "matrix-factorization", options, grid, size.seeds, size.seeds)
        sweep.run(tasks, store, execute, size.steps, jobs=arguments.jobs, ray=arguments.ray, quiet=arguments.quiet)
        budget = AUTO_SECONDS.get(arguments.mode)
        auto = store.result("auto", lambda: fits.default(problem(found), budget)) if budget else None
        columns = ("elbo", "test_mse", "n_active", "n_params")
        curves = {name: {column: store.curves(column, name)[1] for column in columns} for name in names}
        made = made_by(store)
    report.facts |= {
        "data": found.source,
        "model": f"rank {found.rank}, noise {found.noise:g} (in units of the spread of the entries, if they are yours)",
        "sizes": f"{size.steps} steps, {size.seeds} seeds, {size.n_draws} draws, {size.iterations} Adam iterations",
        **made,
    }
    labels = {name: METHODS[name].marked for name in names}
    report.table(_table(curves, labels, auto))
    reference = {"auto †": auto["elbo"]} if auto else {}
    elbo = {name: c["elbo"] for name, c in curves.items()}
    report.figure(
        "elbo", figures.bands(elbo, labels, "ELBO", reference),
        "ELBO per step, mean ± standard deviation over seeds."
        + figures.below(elbo, list(reference.values())),
    )  # fmt: skip
    best, name = max((float(of[:, -1].mean()), name) for name, of in elbo.items())
    report.findings.append(
        minus(
            f"After {size.steps} steps the highest mean ELBO is {best:.0f} ({labels[name]}); plain VI, the first "
            f"component, has {elbo['predefined'][:, 0].mean():.0f}; predefined steps end at "
            f"{elbo['predefined'][:, -1].mean():.0f}"
            + (f"; auto † reaches {auto['elbo']:.0f} in {auto['seconds']:.0f} s ({auto['status']})." if auto else ".")
        )
    )
    report.caveats.append(
        "The authors' code calls the pairwise rule for away steps here; both are what they say in this table."
    )
    return report.write(argv)


def _table(curves: dict[str, dict[str, np.ndarray]], labels: dict[str, str], auto: dict[str, Any] | None) -> Table:
    def spread(values: np.ndarray, digits: int) -> Spread:
        return Spread(float(values.mean()), sd(values), digits)

    rows: list[list[Any]] = []
    for name, c in curves.items():
        sizes = (f"{c[column][:, -1].mean():,.{digits}f}" for column, digits in (("n_active", 1), ("n_params", 0)))
        rows.append(
            [labels[name], *(spread(c["elbo"][:, t], 0) for t in (0, -1)),
             *(spread(c["test_mse"][:, t], 4) for t in (0, -1)), float(c["test_mse"].min(axis=1).mean()), *sizes]
        )  # fmt: skip
    if auto:
        nothing = Spread(math.nan)
        rows.append(
            [f"auto † ({auto['family']})", nothing, Spread(auto["elbo"], auto["elbo_se"], 0), nothing,
             Spread(auto["test_mse"]), auto["test_mse"], str(auto["n_active"]), f"{auto['n_params']:,}"]
        )  # fmt: skip
    return Table(
        "mse", "ELBO and mean squared error of hidden entries (mean ± sd over seeds)",
        ["Method", "ELBO, step 0 ± sd", "ELBO, last step ± sd", "MSE, step 0 ± sd", "MSE, last step ± sd", "best MSE",
         "components", "parameters"],
        rows,
        ["Factors are identified up to rotation only: a mean over modes predicts worse than one mode."
         + (" auto: one fit, ± the standard error of its ELBO." if auto else "")],
        digits=4,
    )  # fmt: skip
