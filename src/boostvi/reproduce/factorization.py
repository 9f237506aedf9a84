"""Bayesian matrix factorisation on synthetic data: an experiment of the authors' code that is not in the paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.reproduce import figures, methods, sweep
from boostvi.reproduce.experiments import Size, execute
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.page import Report
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Table, plus_minus

ROWS, COLUMNS, RANK, SEEN = 50, 60, 3, 0.5
NOISE = 0.1
"""Standard deviation of an entry around its product, in the data and in the model."""
SIZES = {"full": Size(50, 10, 1000, 1000), "quick": Size(8, 3, 100, 500), "smoke": Size(2, 2, 30, 50, 100)}
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
    store = Store(arguments.out / "sweep.sqlite", settings)
    tasks = sweep.plan(store, "matrix-factorization", options, grid, size.seeds, size.seeds)
    sweep.run(tasks, store, execute, size.steps, jobs=arguments.jobs, ray=arguments.ray, quiet=arguments.quiet)
    report = Report("Matrix factorisation on synthetic data", arguments.out, arguments.mode == "full")
    report.facts |= {
        "data": f"{ROWS} × {COLUMNS}, rank {RANK}, noise {NOISE}, {SEEN:.0%} of the entries seen (seed 0)",
        "sizes": f"{size.steps} steps, {size.seeds} seeds, {size.n_draws} draws, {size.iterations} Adam iterations",
    }
    labels = {name: METHODS[name].label for name in names}
    curves = {n: {c: store.curves(c, n)[1] for c in ("elbo", "train_mse", "test_mse", "n_active")} for n in names}
    store.close()
    rows = []
    for name in names:
        c = curves[name]
        rows.append(
            [labels[name], *(plus_minus(c["elbo"][:, t].mean(), c["elbo"][:, t].std(), 0) for t in (0, -1)),
             plus_minus(c["test_mse"][:, 0].mean(), c["test_mse"][:, 0].std()),
             plus_minus(c["test_mse"][:, -1].mean(), c["test_mse"][:, -1].std()),
             float(c["test_mse"].min(axis=1).mean()), f"{c['n_active'][:, -1].mean():.1f}"]
        )  # fmt: skip
    report.table(
        Table("mse", "ELBO and mean squared error of hidden entries (mean ± sd over seeds)",
              ["Method", "ELBO, step 0", "ELBO, last step", "MSE, step 0", "MSE, last step", "best MSE", "components"],
              rows,
              ["Factors are identified up to rotation only: a mean over modes predicts worse than one mode."],
              digits=4)
    )  # fmt: skip
    report.figure("elbo", figures.bands({n: c["elbo"] for n, c in curves.items()}, labels, "ELBO"), "ELBO per step.")
    best = max((c["elbo"][:, -1].mean(), n) for n, c in curves.items())
    vi = curves["predefined"]["elbo"][:, 0].mean()
    report.findings.append(
        f"After {size.steps} steps the highest mean ELBO is {best[0]:.0f} ({labels[best[1]]}); plain "
        "VI, the first component, "
        f"has {vi:.0f}; predefined steps end at {curves['predefined']['elbo'][:, -1].mean():.0f}."
    )
    report.caveats.append(
        "The authors' code calls the pairwise rule for away steps here; both are what they say in this table."
    )
    return report.write(argv)
