"""Bayesian matrix factorisation on synthetic data: an experiment of the authors' code that is not in the paper."""

from __future__ import annotations

import argparse
import functools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.reproduce import figures, methods, sweep
from boostvi.reproduce.compare import sd
from boostvi.reproduce.experiments import Size, execute
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.page import Report, made_by
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Spread, Table, minus

ROWS, COLUMNS, RANK, SEEN = 50, 60, 3, 0.5
NOISE = 0.1
"""Standard deviation of an entry around its product, in the data and in the model."""
SIZES = {"full": Size(50, 10, 1000, 1000), "quick": Size(8, 3, 100, 500), "smoke": Size(2, 2, 30, 50, 100)}
AUTO_SECONDS = {"full": 120.0, "quick": 30.0}
"""Budget of `auto`, which no smoke run has: rotations of the factors are modes without end."""
AUTO_DRAWS = 1000
NAMES = {
    "full": (*methods.PAPER, "adafw-exact-fallback", "fully-corrective", "mixture-elbo"),
    "quick": (*methods.PAPER, "mixture-elbo"),
    "smoke": ("adaafw", "predefined"),
}


def entries(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """R = U Vᵀ + noise, and which entries are seen."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((ROWS, RANK)) @ rng.standard_normal((COLUMNS, RANK)).T
    return factors + NOISE * rng.standard_normal((ROWS, COLUMNS)), rng.random((ROWS, COLUMNS)) < SEEN


def problem(entries_seed: int) -> Any:
    """U, V ~ N(0, 1); mean squared error of the mean prediction on seen and on hidden entries."""
    import jax
    import jax.numpy as jnp

    from boostvi.families import DiagonalNormal
    from boostvi.reproduce.batch import Problem
    from boostvi.target import Target

    values, seen = entries(entries_seed)
    with jax.enable_x64(True):
        held, mask = jnp.asarray(values), jnp.asarray(seen, jnp.float64)

    def product(z):
        return z[: ROWS * RANK].reshape(ROWS, RANK) @ z[ROWS * RANK :].reshape(COLUMNS, RANK).T

    def log_density(z):
        likelihood = jax.scipy.stats.norm.logpdf(held, product(z), NOISE)
        return jnp.sum(mask * likelihood) + jnp.sum(jax.scipy.stats.norm.logpdf(z))

    def measure(target, draws):
        predicted = jnp.mean(jax.vmap(product)(draws), axis=0)
        errors = (held - predicted) ** 2
        return {
            "train_mse": jnp.sum(mask * errors) / jnp.sum(mask),
            "test_mse": jnp.sum((1 - mask) * errors) / jnp.sum(1 - mask),
        }

    def summarise(measured, i):
        return {name: float(value) for name, value in measured.items()}

    return Problem(Target(log_density, (ROWS + COLUMNS) * RANK), DiagonalNormal(), measure, summarise)


def run(arguments: argparse.Namespace, argv: list[str]) -> Path:
    size, names = SIZES[arguments.mode], NAMES[arguments.mode]
    print(f"data: {ROWS} × {COLUMNS} entries of rank {RANK}, half of them seen, drawn by the command (seed 0)")
    grid = {name: [METHODS[name].winner] for name in names}
    options = {
        "entries_seed": 0,
        "size": (size.steps, size.seeds, size.n_draws, size.iterations, size.elbo_draws, None),
    }
    settings = {
        "experiment": "matrix-factorization",
        "grid": {k: list(map(dict, v)) for k, v in grid.items()},
        **options,
    }
    report = Report("Matrix factorisation on synthetic data", arguments.out, arguments.mode)
    store = Store(arguments.out / "sweep.sqlite", settings)
    tasks = sweep.plan(store, "matrix-factorization", options, grid, size.seeds, size.seeds)
    sweep.run(tasks, store, execute, size.steps, jobs=arguments.jobs, ray=arguments.ray, quiet=arguments.quiet)
    budget = AUTO_SECONDS.get(arguments.mode)
    auto = store.result("auto", functools.partial(fit_auto, budget)) if budget else None
    report.facts |= {
        "data": f"{ROWS} × {COLUMNS}, rank {RANK}, noise {NOISE}, {SEEN:.0%} of the entries seen (seed 0)",
        "sizes": f"{size.steps} steps, {size.seeds} seeds, {size.n_draws} draws, {size.iterations} Adam iterations",
        **made_by(store),
    }
    labels = {name: METHODS[name].marked for name in names}
    curves = {n: {c: store.curves(c, n)[1] for c in ("elbo", "test_mse", "n_active", "n_params")} for n in names}
    store.close()
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


def fit_auto(max_seconds: float, entries_seed: int = 0) -> dict[str, Any]:
    """The default recipe on the same entries, measured as the sweep measures its mixtures."""
    import boostvi as bv
    from boostvi.reproduce.held_out import measured

    made = problem(entries_seed)
    begin = time.perf_counter()
    result = bv.fit(made.target, seed=0, max_seconds=max_seconds, progress=False)
    seconds = time.perf_counter() - begin
    errors = made.summarise(measured(made, made.target, result.mixture.sample(AUTO_DRAWS, seed=1)), 0)
    return {
        **errors, "elbo": result.elbo, "elbo_se": result.elbo_se, "n_active": int(result.mixture.n_active),
        "n_params": int(result.history["n_params"][-1]), "family": result.mixture.family_name,
        "status": result.status, "verdict": result.verdict, "seconds": seconds,
    }  # fmt: skip


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
