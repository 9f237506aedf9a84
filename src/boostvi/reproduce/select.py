"""The paper's rule for the numbers of its tables: the best cell by median train log likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.store import Store

BOOTSTRAP = 1000


@dataclass(frozen=True)
class Cell:
    """One (configuration, step) of a method, with the values of its seeds there."""

    config: dict[str, float]
    step: int
    values: dict[str, np.ndarray]

    def median(self, name: str) -> float:
        return float(np.median(self.values[name]))

    def median_se(self, name: str) -> float:
        """Bootstrap standard deviation of the median over seeds, as in the paper's table; NaN of one seed."""
        values, rng = self.values[name], np.random.default_rng(0)
        if len(values) < 2:
            return math.nan
        draws = rng.choice(values, size=(BOOTSTRAP, len(values)))
        return float(np.std(np.median(draws, axis=1)))

    def mean(self, name: str) -> float:
        return float(np.mean(self.values[name]))

    def sd(self, name: str) -> float:
        return float(np.std(self.values[name], ddof=1)) if len(self.values[name]) > 1 else math.nan


def methods_of(store: Store) -> list[str]:
    """The methods with finished runs, in the order of our tables."""
    there = store.methods()
    return [name for name in METHODS if name in there]


def cells(store: Store, method: str, columns: tuple[str, ...]) -> dict[str, dict[str, np.ndarray]]:
    """Per configuration, arrays (seeds, steps) of every column."""
    found: dict[str, dict[str, Any]] = {}
    for column in columns:
        runs, values = store.curves(column, method)
        for config in dict.fromkeys(config for config, _ in runs):
            found.setdefault(config, {})[column] = values[[i for i, (c, _) in enumerate(runs) if c == config]]
    return found


def best(store: Store, method: str, by: str, columns: tuple[str, ...], from_step: int = 1) -> Cell:
    """The cell with the best across-seed median of `by`, from a given step on (0 is plain VI, before any boosting)."""
    chosen: tuple[float, str, int] | None = None
    table = cells(store, method, tuple(dict.fromkeys((by, *columns))))
    for config, arrays in table.items():
        medians = np.median(arrays[by], axis=0)
        step = from_step + int(np.argmax(np.where(np.isnan(medians), -np.inf, medians)[from_step:]))
        if chosen is None or medians[step] > chosen[0]:
            chosen = float(medians[step]), config, step
    assert chosen is not None
    _, config, step = chosen
    values = {name: array[:, step] for name, array in table[config].items()}
    return Cell(json.loads(config), step, values)
