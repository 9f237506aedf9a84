"""Following components through a run: which one of this step is which one of the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from boostvi import tracks
from boostvi.snapshot import standard_deviations

if TYPE_CHECKING:
    from boostvi.fit import Step

EARLIER = "before the record"
"""In place of the kind of step that brought a component in, if that step was not seen."""


@dataclass(frozen=True)
class Row:
    """The components after one step."""

    step: int
    kind: str
    weights: np.ndarray
    loc: Float[np.ndarray, "components dim"]
    sd: Float[np.ndarray, "components dim"]


@dataclass(frozen=True)
class Lineage:
    """weights: 0 where a component is not there, components in the order of their arrival. entered: the kind of step
    that brought each in. order: the components side by side, each next to the one that it was nearest to on arrival."""

    weights: Float[np.ndarray, "steps components"]
    entered: list[str]
    order: list[int]


class WeightRecorder:
    """A callback that keeps every component's weight after every step: `fit(..., callbacks=[record])`.

    Components that stay as they are (the paper's recipes) are told by their moments. Where a refinement moves all of
    them at once (`auto`), those of this step are paired with those of the last such that the shifts are smallest; what
    has no partner near by has arrived, or left. Half of a split component goes on as that component, the other half
    arrives.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def __call__(self, step: Step) -> None:
        if self._rows and step.step <= self._rows[-1].step:
            self._rows.clear()  # another run has begun
        self._rows.append(_row(step))

    @property
    def steps(self) -> np.ndarray:
        return np.array([row.step for row in self._rows], dtype=int)

    @property
    def weights(self) -> Float[np.ndarray, "steps components"]:
        """0 where a component is not there; components in the order of their arrival."""
        return self.lineage().weights

    @property
    def entered(self) -> list[str]:
        """For each component, the kind of step that brought it in."""
        return self.lineage().entered

    def lineage(self) -> Lineage:
        """The components of all steps, followed."""
        return follow(self._rows)


def _row(step: Step) -> Row:
    mixture = step.mixture
    weights, loc = (np.asarray(leaf, dtype=float) for leaf in (mixture.weights, mixture.centres))
    return Row(step.step, str(step.row["kind"]), weights, loc, standard_deviations(mixture))


def follow(rows: Sequence[Row]) -> Lineage:
    numbers = tracks.follow(rows)
    entered: list[str] = []
    order: list[int] = []
    for i, row in enumerate(rows):
        for k, component in enumerate(numbers[i]):
            if component < len(entered):
                continue
            entered.append(row.kind if i or not row.step else EARLIER)
            near = int(np.argmin(tracks.distances(rows[i - 1], row)[:, k])) if i else None
            order.insert(len(order) if near is None else order.index(numbers[i - 1][near]) + 1, component)
    weights = np.zeros((len(rows), len(entered)))
    for i, row in enumerate(rows):
        weights[i, numbers[i]] = row.weights
    return Lineage(weights, entered, order)
