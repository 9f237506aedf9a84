"""How good predicted probabilities are: AUROC with its sampling error, and calibration."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import rankdata

CALIBRATION_BINS = 10


def auroc(scores: np.ndarray, y: np.ndarray) -> float:
    """Share of (positive, negative) pairs in the right order, ties counting half; NaN with one class only."""
    y = np.asarray(y).astype(bool)
    n_pos, n_neg = int(y.sum()), int((~y).sum())
    if n_pos == 0 or n_neg == 0 or not np.isfinite(scores).all():
        return float("nan")
    return float((rankdata(scores)[y].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def auroc_se(area: float, y: np.ndarray) -> float:
    """Standard error of an AUROC over test sets like this one (Hanley & McNeil 1982): with Q₁ = A/(2 − A) and
    Q₂ = 2A²/(1 + A), its square is (A(1 − A) + (n₊ − 1)(Q₁ − A²) + (n₋ − 1)(Q₂ − A²)) / (n₊ n₋). An area at the
    end is taken as ½/(m + 1) away from it, m rows being in the smaller class: that few are in order is no certainty."""
    n_pos = int(np.sum(y))
    n_neg = len(y) - n_pos
    if n_pos == 0 or n_neg == 0:
        return math.nan
    end = 0.5 / (min(n_pos, n_neg) + 1)
    area = min(max(area, end), 1 - end)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n_pos - 1) * (q1 - area**2) + (n_neg - 1) * (q2 - area**2)
    return math.sqrt(variance / (n_pos * n_neg))


def calibration_error(prob: np.ndarray, y: np.ndarray, bins: int = CALIBRATION_BINS) -> float:
    """Mean |predicted − observed| share of positives over equally filled bins of the predicted probability."""
    order = np.array_split(np.argsort(prob, kind="stable"), bins)
    return float(sum(len(b) * abs(prob[b].mean() - np.asarray(y)[b].mean()) for b in order if len(b)) / len(prob))
