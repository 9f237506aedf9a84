"""Bayesian logistic regression as the paper measures it, and as it should be measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi._jit import float64
from boostvi.families import FAMILIES
from boostvi.reproduce.batch import Problem
from boostvi.reproduce.scores import auroc
from boostvi.target import Target

INTERCEPT_SD = 10.0
"""Prior of the intercept, where there is one: wide, the base rate is for the data to say."""


def target_of(X: np.ndarray, labels: np.ndarray, intercept: bool = False) -> Target:
    """w ~ N(0, 1), y ~ Bernoulli(sigmoid(x·w)). `labels` are −1 or 1, and 0 for a row that has no say."""
    with jax.enable_x64(True):
        rows, signs = jnp.asarray(X, jnp.float64), jnp.asarray(labels, jnp.float64)
    prior_sd = np.ones(X.shape[1])
    if intercept:
        prior_sd[0] = INTERCEPT_SD

    def log_density(w):
        log_likelihood = jnp.sum(jnp.abs(signs) * log_sigmoid(signs * (w @ rows.T)))
        return log_likelihood + jnp.sum(jax.scipy.stats.norm.logpdf(w, 0.0, prior_sd))

    return Target(log_density, X.shape[1])


def log_sigmoid(x: Any) -> Any:
    """ln σ(x), never overflowing. JAX's own takes three times as long, and half the time of a gradient goes there."""
    return jnp.minimum(x, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(x)))


def with_intercept(X: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


def problem(
    X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, family: str = "diagonal-laplace"
) -> Problem:
    """One split for every run: train log likelihood, and AUROC and log predictive density on the test rows."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    signs = 2.0 * y - 1.0
    with jax.enable_x64(True):
        rows = {part: (jnp.asarray(X[index]), jnp.asarray(signs[index])) for part, index in
                (("train", train), ("test", test))}  # fmt: skip

    def measure(target, draws):
        return {f"{part}_{name}": value for part in rows for name, value in predictions(draws, *rows[part]).items()}

    def summarise(measured: Mapping[str, np.ndarray], i: int) -> dict[str, float]:
        del i
        return {
            "train_ll": float(np.mean(measured["train_ll"])),
            "train_lpd": float(np.mean(measured["train_lpd"])),
            "test_ll": float(np.mean(measured["test_ll"])),
            "test_lpd": float(np.mean(measured["test_lpd"])),
            "test_auroc": auroc(measured["test_logit"], y[test]),
            "test_accuracy": float(np.mean((measured["test_prob"] > 0.5) == (y[test] == 1))),
        }

    return Problem(target_of(X[train], signs[train]), FAMILIES[family](), measure, summarise)


@float64
def held_out_problem(
    X: np.ndarray, y: np.ndarray, held_out: np.ndarray, family: str = "diagonal-laplace", intercept: bool = False
) -> tuple[Problem, dict[str, np.ndarray]]:
    """One run per row of `held_out` (runs × rows), whose rows have no say in it; and the predictions for held-out rows,
    which every step of a run overwrites."""
    X = with_intercept(X) if intercept else np.asarray(X, dtype=np.float64)
    signs = 2.0 * np.asarray(y) - 1.0
    masked = np.where(held_out, 0.0, signs)
    target = target_of(X, masked[0], intercept)
    leaves, tree = jax.tree.flatten(target)
    axes = tuple(0 if leaf.shape == (len(y),) else None for leaf in leaves)
    if axes.count(0) != 1:
        raise RuntimeError("the labels are not one array of the target: its log density was traced differently")
    batched = [leaf if axis is None else jnp.asarray(masked) for leaf, axis in zip(leaves, axes, strict=True)]
    all_rows, all_signs = jnp.asarray(X), jnp.asarray(signs)
    latest = {name: np.full(len(y), np.nan) for name in ("logit", "lpd", "prob")}

    def measure(target, draws):
        return predictions(draws, all_rows, all_signs)

    def summarise(measured: Mapping[str, np.ndarray], i: int) -> dict[str, float]:
        out = held_out[i]
        for name, values in latest.items():
            values[out] = measured[name][out]
        return {
            "train_ll": float(np.mean(measured["ll"][~out])),
            "test_lpd": float(np.mean(measured["lpd"][out])),
            "test_auroc": auroc(measured["logit"][out], np.asarray(y)[out]),
        }

    return Problem(jax.tree.unflatten(tree, batched), FAMILIES[family](), measure, summarise, axes), latest


def predictions(draws: Any, X: Any, signs: Any) -> dict[str, Any]:
    """For each row: mean logit, ln p(y|x, w) averaged over draws, ln of the averaged p(y|x, w), and averaged p(1|x, w).

    "ll" is what the paper calls train log likelihood; "lpd" is the log predictive density.
    """
    logits = draws @ X.T
    log_likelihood = log_sigmoid(signs * logits)
    return {
        "logit": jnp.mean(logits, axis=0),
        "ll": jnp.mean(log_likelihood, axis=0),
        "lpd": jax.nn.logsumexp(log_likelihood, axis=0) - jnp.log(draws.shape[0]),
        "prob": jnp.mean(jax.nn.sigmoid(logits), axis=0),
    }
