"""After line 6 of Algorithm 1: improve the weights of the components that are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Array, Bool, Float

from boostvi.table import TableEstimates


class Correction(ABC):
    """`correction(estimates, weights, filled) -> weights`; `filled` marks the slots that have draws."""

    name: ClassVar[str]

    @abstractmethod
    def __call__(
        self, estimates: TableEstimates, weights: Float[Array, " slots"], filled: Bool[Array, " slots"]
    ) -> Float[Array, " slots"]:
        """Weights that are no worse on the table."""
