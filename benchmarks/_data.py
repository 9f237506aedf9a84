"""What the benchmarks share: a logistic regression of any size, a line about the machine, records and tables."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

import boostvi as bv

CHEM10 = Path(__file__).resolve().parents[2] / "shared" / "data" / "chem10.npz"
"""Real ChemReact rows, when they lie beside the repository."""
POSITIVES = 0.035
"""Share of positive labels in ChemReact."""
SEED = 20210


@dataclass(frozen=True)
class Regression:
    """A design without intercept, its 0/1 labels, and where both come from."""

    X: np.ndarray
    y: np.ndarray
    source: str


def chemreact_like(rows: int, file: Path = CHEM10) -> Regression:
    """`rows` × 100 in the image of ChemReact: its covariance and a model fitted to it, if `file` exists."""
    if not file.exists():
        return gaussian_design(rows, 100)
    rng = np.random.default_rng(SEED)
    with np.load(file) as real:
        observed, w, b = real["X"].astype(np.float64), real["synthetic_w"], float(real["synthetic_b"])
    values, vectors = np.linalg.eigh(np.cov(observed, rowvar=False))  # eigh: the columns are nearly collinear
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    X = observed.mean(axis=0) + rng.normal(size=(rows, w.size)) @ root.T
    y = rng.random(rows) < expit(X @ w + b)
    return Regression(X, y, f"generated from the covariance of {len(observed):,} ChemReact rows and a model of them")


def gaussian_design(rows: int, dim: int) -> Regression:
    """Independent N(0, 1) columns; the intercept of the labels is set so that 3.5 % of them are positive."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(rows, dim))
    logits = X @ (rng.normal(size=dim) * 2.0 / np.sqrt(dim))
    b = brentq(lambda b: expit(logits + b).mean() - POSITIVES, -50.0, 50.0)
    return Regression(X, rng.random(rows) < expit(logits + b), "a plain seeded Gaussian design")


def target_of(data: Regression, dtype: type = np.float32) -> bv.Target:
    """ln p(y | X, z) + ln N(z; 0, I).

    A one-draw gradient reads the design twice and does little else, so it is bound by memory, and how the design is
    stored decides its price. Adam iterations at 26,733 × 100 on 2 cores, in ms:

        y·Xz − softplus(Xz), X float64                  3.9
        log_sigmoid(Sz), S = ±X (the label's sign)      2.6
        log_sigmoid(z Sᵀ), Sᵀ stored by columns         1.9
        the same, float32 with z cast to float32        0.65    the default here
        S float32 with z left as it is                  3.0     converts S to float64 at every gradient

    The library calls log densities with float64 and leaves the rest to them: a float32 design has to cast z itself,
    and the sum over rows is kept in float64 (5e-4 nats of rounding at ln p = −10⁵). float32 is the stricter choice for
    a benchmark of overheads, too: the cheaper the model, the larger the share of everything else.
    """
    signs = np.where(data.y, 1.0, -1.0)
    with jax.enable_x64(True):
        columns = jnp.asarray(np.ascontiguousarray((data.X * signs[:, None]).T), dtype)

    def log_density(z):
        log_likelihood = jax.nn.log_sigmoid(z.astype(dtype) @ columns)
        return jnp.sum(log_likelihood.astype(z.dtype)) - 0.5 * jnp.sum(z**2)

    return bv.Target(log_density, data.X.shape[1])


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load average {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{cores} cores ({platform.machine()}){load}; Python {platform.python_version()}, jax {jax.__version__} on "
        f"{jax.default_backend()}, boostvi {bv.__version__}"
    )


def record(file: Path, run: dict[str, Any]) -> None:
    """One run, one line: what has ended is kept, whatever becomes of the rest."""
    with file.open("a") as out:
        out.write(json.dumps(run) + "\n")


def records(file: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, file.read_text().splitlines())) if file.exists() else []


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table whose source lines up, too; the first column holds words, the others numbers."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        aligned = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return "| " + " | ".join(aligned) + " |"

    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])
