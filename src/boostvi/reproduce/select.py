"""The paper's rule for the numbers of its tables: the best cell by median train log likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np

from boostvi.cli import UsageError
from boostvi.reproduce.compare import sd
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.store import Store

BOOTSTRAP = 1000


@dataclass(frozen=True)
class Cell:
    """One (configuration, step) of a method, with the values of its seeds there."""

    config: dict[str, float]
    step: int
    seeds: tuple[int, ...]
    values: dict[str, np.ndarray]

    def median(self, name: str) -> float:
        return float(np.median(self.values[name]))

    def median_se(self, name: str) -> float:
        """Bootstrap standard deviation of the median over seeds, as in the paper's table; NaN of one seed."""
        values, rng = self.values[name], np.random.default_rng(0)
        if len(values) < 2:
            return math.nan
        draws = rng.choice(values, size=(BOOTSTRAP, len(values)))
        return sd(np.median(draws, axis=1))

    def mean(self, name: str) -> float:
        return float(np.mean(self.values[name]))

    def sd(self, name: str) -> float:
        return sd(self.values[name])

    def by_seed(self, name: str) -> dict[int, float]:
        return dict(zip(self.seeds, self.values[name].tolist(), strict=True))


@dataclass(frozen=True)
class Runs:
    """All runs of one configuration: their seeds, and arrays (seeds, steps)."""

    seeds: tuple[int, ...]
    values: dict[str, np.ndarray]


def methods_of(store: Store) -> list[str]:
    """The methods with finished runs, in the order of our tables."""
    there = store.methods()
    return [name for name in METHODS if name in there]


def cells(store: Store, method: str, columns: tuple[str, ...]) -> dict[str, Runs]:
    """Per configuration its runs."""
    found: dict[str, Runs] = {}
    for column in columns:
        runs, values = store.curves(column, method)
        for config in dict.fromkeys(config for config, _ in runs):
            rows = [i for i, (c, _) in enumerate(runs) if c == config]
            own = found.setdefault(config, Runs(tuple(runs[i][1] for i in rows), {}))
            own.values[column] = values[rows]
    return found


def best(store: Store, method: str, by: str, columns: tuple[str, ...], from_step: int = 1) -> Cell:
    """The cell with the best across-seed median of `by`, from a given step on (0 is plain VI, before any boosting). A
    median that is NaN never wins."""
    table = cells(store, method, tuple(dict.fromkeys((by, *columns))))
    medians = {config: np.median(runs.values[by], axis=0)[from_step:] for config, runs in table.items()}
    highest = {config: float(np.nanmax(of)) for config, of in medians.items() if not np.isnan(of).all()}
    if not highest:
        raise UsageError(f"{method}: no configuration has a median {by} that is a number")
    config = max(highest, key=lambda name: highest[name])
    step = from_step + int(np.nanargmax(medians[config]))
    values = {name: array[:, step] for name, array in table[config].values.items()}
    return Cell(json.loads(config), step, table[config].seeds, values)


def last_by_seed(store: Store, method: str, column: str) -> dict[int, np.ndarray]:
    """After the last step, all configurations of every seed that has them all."""
    runs, values = store.curves(column, method)
    of_seed: dict[int, dict[str, float]] = {}
    for (config, seed), curve in zip(runs, values, strict=True):
        of_seed.setdefault(seed, {})[config] = float(curve[-1])
    most = max(of_seed.values(), key=len).keys()
    return {seed: np.array(list(of.values())) for seed, of in sorted(of_seed.items()) if of.keys() == most}
