"""Following components through a run: which one of this step is which one of the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from boostvi.fit import Step
    from boostvi.mixture import Mixture

FAR = 4.0
"""Mean squared shift per coordinate, in units of the scale, beyond which a moved component counts as another one."""
EARLIER = "before the record"
"""In place of the kind of step that brought a component in, if that step was not seen."""


@dataclass(frozen=True)
class Row:
    """The components after one step."""

    step: int
    kind: str
    identities: tuple[bytes, ...]
    weights: np.ndarray
    loc: Float[np.ndarray, "components dim"]
    scale: Float[np.ndarray, "components dim"]


@dataclass(frozen=True)
class Lineage:
    """weights: 0 where a component is not there, components in the order of their arrival. entered: the kind of step
    that brought each in. order: the components side by side, each next to the one that it was nearest to on arrival."""

    weights: Float[np.ndarray, "steps components"]
    entered: list[str]
    order: list[int]


class WeightRecorder:
    """A callback that keeps every component's weight after every step: `fit(..., callbacks=[record])`.

    Components that stay as they are (the paper's recipes) are told by their parameters. Where a refinement moves all
    of them at once (`auto`), those of this step are paired with those of the last such that the shifts are smallest;
    what has no partner within two scales or so has arrived, or left. Half of a split component goes on as that
    component, the other half arrives.
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
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(mixture.params)]
    identities = [b"".join(leaf[k].tobytes() for leaf in leaves) for k in range(mixture.capacity)]
    places = {identity: k for k, identity in reversed(list(enumerate(identities)))}  # of several equal ones, the first
    weights = np.zeros(mixture.capacity)
    np.add.at(weights, [places[identity] for identity in identities], np.asarray(mixture.weights))
    kept = sorted(places.values())
    loc = np.asarray(mixture.params["loc"], dtype=float)
    return Row(
        step.step, str(step.row["kind"]), tuple(identities[k] for k in kept), weights[kept], loc[kept],
        _scale(mixture)[kept],
    )  # fmt: skip


def _scale(mixture: Mixture) -> np.ndarray:
    """A size for each component and coordinate, to measure shifts in; 1 for families that do not say."""
    params = mixture.params
    loc = np.asarray(params["loc"], dtype=float)
    if "raw_scale" in params:
        return np.logaddexp(0.0, np.asarray(params["raw_scale"], dtype=float))
    if "factor" in params:
        return np.sqrt(np.sum(np.square(np.asarray(params["factor"], dtype=float)), axis=-1))
    return np.ones_like(loc)


def follow(rows: Sequence[Row]) -> Lineage:
    entered: list[str] = []
    order: list[int] = []
    tracks: list[list[int]] = []  # of every row, the component that each of its places is
    for number, row in enumerate(rows):
        before = rows[number - 1] if number else None
        costs = None if before is None else _shifts(row, before)
        partners = {} if before is None or costs is None else _partners(row, before, costs)
        track = []
        for k in range(len(row.weights)):
            if k in partners:
                track.append(tracks[-1][partners[k]])
                continue
            component = len(entered)
            entered.append(row.kind if number or not row.step else EARLIER)
            near = None if costs is None else tracks[-1][int(np.argmin(costs[k]))]
            order.insert(len(order) if near is None else order.index(near) + 1, component)
            track.append(component)
        tracks.append(track)
    weights = np.zeros((len(rows), len(entered)))
    for number, (row, track) in enumerate(zip(rows, tracks, strict=True)):
        weights[number, track] = row.weights
    return Lineage(weights, entered, order)


def _shifts(row: Row, before: Row) -> Float[np.ndarray, "new old"]:
    """Mean over the coordinates of the squared shift, in units of the two scales."""
    unit = 0.5 * (row.scale[:, None] ** 2 + before.scale[None] ** 2)
    costs = np.mean((row.loc[:, None] - before.loc[None]) ** 2 / unit, axis=-1)
    return np.minimum(np.nan_to_num(costs, nan=np.inf), 1e12)  # the assignment takes no infinities


def _partners(row: Row, before: Row, costs: np.ndarray) -> dict[int, int]:
    """Place in this row → place in the last one."""
    places = {identity: k for k, identity in enumerate(before.identities)}
    same = {k: places[identity] for k, identity in enumerate(row.identities) if identity in places}
    if same:  # a step that leaves one component as it is leaves all of them
        return same
    new, old = linear_sum_assignment(np.minimum(costs, 2 * FAR))  # one lost cause must not bend the others
    return {int(i): int(j) for i, j in zip(new, old, strict=True) if costs[i, j] <= FAR}
