"""Predictions for rows that had no say in the fit: of ten folds, or of the one test set where the data are large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import boostvi as bv
from boostvi.reproduce import batch, fits, logistic, methods, programs
from boostvi.reproduce.compare import mean_and_se
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.scores import auroc, auroc_se, calibration_error

CV_ROWS = 6_000
"""Up to this many rows every method is fitted once per fold; beyond, one split has enough positives."""
ONE_SPLIT = "one split"

Scores = dict[str, Any]


@dataclass(frozen=True)
class Splits:
    """Rows, and per fit which of them are held out. kind: in words."""

    X: np.ndarray
    y: np.ndarray
    held_out: np.ndarray
    kind: str

    @property
    def are_folds(self) -> bool:
        return len(self.held_out) > 1


def splits(data: Data) -> Splits:
    if len(data.y) <= CV_ROWS:
        count = int(data.fold.max()) + 1
        return Splits(data.X, data.y, data.fold == np.arange(count)[:, None], f"{count} folds")
    rows = np.concatenate([data.train, data.test])
    return Splits(data.X[rows], data.y[rows], (np.arange(len(rows)) >= len(data.train))[None], ONE_SPLIT)


def scores(found: Splits, predicted: dict[str, np.ndarray], train_ll: list[float]) -> Scores:
    """AUROC, log predictive density and calibration on held-out rows. Of folds the standard errors are those of the
    folds' mean; of one split they are the sampling errors of its test rows."""
    out = found.held_out.any(axis=0)
    y, prob, lpd = found.y[out], predicted["prob"][out], predicted["lpd"][out]
    areas = [auroc(predicted["logit"][rows], found.y[rows]) for rows in found.held_out]
    densities = [float(predicted["lpd"][rows].mean()) for rows in found.held_out]
    if found.are_folds:
        defined = np.array(areas)[np.isfinite(areas)]  # a fold may lack a class
        area, area_se = mean_and_se(defined)
        lpd_se = mean_and_se(np.array(densities))[1]
    else:
        area, area_se = areas[0], auroc_se(areas[0], y)
        lpd_se = mean_and_se(lpd)[1]
    return {
        "kind": found.kind,
        "auroc": area,
        "auroc_se": area_se,
        "auroc_pooled": auroc(predicted["logit"][out], y),
        "aurocs": areas,
        "lpd": float(lpd.mean()),
        "lpd_se": lpd_se,
        "lpds": densities,
        "calibration": calibration_error(prob, y),
        "train_ll": float(np.mean(train_ll)),
    }


def of_method(
    data: Data, method: str, config: dict[str, float], step: int, size: Size, intercept: bool = False
) -> Scores:
    """The selected cell, fitted without the held-out rows; all folds in one batch."""
    found = splits(data)
    problem, predicted = logistic.held_out_problem(found.X, found.y, found.held_out, intercept=intercept)
    count = len(found.held_out)
    parts = [methods.parts(method, config, size.iterations)] * count
    rows = batch.run(problem, parts, range(count), batch.Settings(step, size.n_draws, size.elbo_draws))
    return scores(found, predicted, [run[-1]["train_ll"] for run in rows])


def of_auto(data: Data, intercept: bool = False, max_seconds: float | None = None) -> Scores:
    return one_by_one(data, intercept, lambda target, k: _auto_draws(target, k, max_seconds))


def _auto_draws(target: bv.Target, seed: int, max_seconds: float | None) -> np.ndarray:
    result = fits.whole(target, seed=seed, max_seconds=max_seconds)
    return np.asarray(result.mixture.sample(fits.DRAWS, seed=seed))


def one_by_one(data: Data, intercept: bool, draws_of: Callable[[bv.Target, int], np.ndarray]) -> Scores:
    """Fits of any kind: a function of a target and a seed that returns draws."""
    found = splits(data)
    problem, predicted = logistic.held_out_problem(found.X, found.y, found.held_out, intercept=intercept)
    train_ll = []
    for k in range(len(found.held_out)):
        with jax.enable_x64(True):
            target = programs.target_of(problem.target, problem.axes, k)
        train_ll.append(problem.summarise(fits.measured(problem, target, draws_of(target, k)), k)["train_ll"])
    return scores(found, predicted, train_ll)
