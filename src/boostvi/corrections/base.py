"""After line 6 of Algorithm 1: improve the components that are there, or only their weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from boostvi import table as tables
from boostvi._jit import counted_jit
from boostvi._struct import replace, scalar, struct
from boostvi.mixture import Mixture
from boostvi.table import Table, TableEstimates
from boostvi.target import Target


@struct
class Corrected:
    """The mixture after a correction, its table (empty when components moved: their draws say nothing any more), and
    what it cost."""

    mixture: Mixture
    table: Table
    evals: Int[Array, ""]
    nonfinite: Int[Array, ""]


class Correction(ABC):
    """`correction.apply(target, mixture, table, arrived, kl, key, out_of_time) -> Corrected`.

    moves_components: the draws of a table say nothing after it, and a proposal that knows its share needs none.
    """

    name: ClassVar[str]
    moves_components: ClassVar[bool] = False

    @abstractmethod
    def apply(
        self, target: Target, mixture: Mixture, table: Table, arrived: bool, kl: float, key: Array,
        out_of_time: Callable[[], bool],
    ) -> Corrected:  # fmt: skip
        """A better mixture. `arrived`: it has a new component; `kl`: the last estimate of how far it was. Long work
        stops when `out_of_time()`."""


class WeightCorrection(Correction):
    """`correction(estimates, weights, filled) -> weights`; `filled` marks the slots that have draws."""

    @abstractmethod
    def __call__(
        self, estimates: TableEstimates, weights: Float[Array, " slots"], filled: Bool[Array, " slots"]
    ) -> Float[Array, " slots"]:
        """Weights that are no worse on the table."""

    def apply(self, target, mixture, table, arrived, kl, key, out_of_time):
        if not np.any(table.filled):  # nothing to go by yet
            return Corrected(mixture, table, scalar(0), scalar(0))
        weights = _correct(self, table, mixture.weights)
        return Corrected(replace(mixture, weights=weights), table, scalar(0), scalar(0))


@counted_jit
def _correct(correction: WeightCorrection, table: Table, weights: Float[Array, " slots"]) -> Float[Array, " slots"]:
    return correction(tables.estimates(table, weights), weights, table.filled)
