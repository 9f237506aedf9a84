"""What the page of a logistic regression is made of: the selected cells, and what was measured beside the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from boostvi.reproduce import select
from boostvi.reproduce.beyond import HELD_OUT, INTERCEPT
from boostvi.reproduce.data import Data
from boostvi.reproduce.held_out import ONE_SPLIT
from boostvi.reproduce.scores import auroc_se
from boostvi.reproduce.select import Cell
from boostvi.reproduce.store import Store
from boostvi.reproduce.studies import Study
from boostvi.reproduce.tables import Spread

COLUMNS = ("elbo", "train_ll", "train_lpd", "test_lpd", "test_auroc", "n_active", "n_params")


@dataclass(frozen=True)
class Record:
    """cells: of every method the one that the paper's rule selects; plain: plain VI, step 0 of them all; extra: what
    is no run of the grid."""

    store: Store
    data: Data
    study: Study
    cells: dict[str, Cell]
    plain: Cell
    extra: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return list(self.cells)

    @property
    def timing(self) -> list[dict[str, Any]]:
        """Seconds of single runs. (Records of earlier versions have those of fewer methods, as "timing".)"""
        return self.extra.get("times", self.extra.get("timing", []))

    def times(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(t["method"], t["draws"]): t for t in self.timing}

    def held_out(self) -> dict[str, dict[str, Any]]:
        """Scores on held-out rows, by method, with " + intercept" where there is one. (What earlier versions kept as
        "cv …" is not read: it may count rows of some folds as predicted by zero.)"""
        return {name.removeprefix(HELD_OUT): found for name, found in self.extra.items() if name.startswith(HELD_OUT)}

    def has_intercept(self) -> bool:
        return any(name.endswith(INTERCEPT) for name in self.held_out())

    def auroc(self, name: str) -> tuple[Spread, str]:
        """Of a method, of `auto` or of NUTS: ± standard error, and what it is from."""
        scores = self.held_out().get(name)
        if scores:
            return Spread(scores["auroc"], scores["auroc_se"], 3), scores["kind"]
        return self.split_auroc(name), ONE_SPLIT

    def split_auroc(self, name: str) -> Spread:
        """On the one split of the sweep: the mean over seeds, with the sampling error of the test rows."""
        area = self.cells[name].mean("test_auroc") if name in self.cells else self.extra[name]["test_auroc"]
        return Spread(area, auroc_se(area, self.data.y[self.data.test]), 3)

    def gave_up(self, name: str) -> float:
        """Share of all steps in which backtracking gave up."""
        return float(np.mean(self.store.curves("kind", name)[1][:, 1:] == "fallback"))


def read(store: Store, data: Data, study: Study) -> Record:
    cells = {name: select.best(store, name, "train_ll", COLUMNS) for name in select.methods_of(store)}
    ((config, runs),) = select.cells(store, "predefined", COLUMNS).items()
    del config
    plain = Cell({}, 0, runs.seeds, {name: array[:, 0] for name, array in runs.values.items()})
    return Record(store, data, study, cells, plain, store.results())
