"""Which component of a step is which of the step before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

SAME = 1.0
"""Mean square, over the coordinates, of the distance in standard deviations up to which a component that moved is
taken for the same one."""


class Components(Protocol):
    """The components after a step, on R^d."""

    @property
    def loc(self) -> Float[np.ndarray, "components dim"]: ...
    @property
    def sd(self) -> Float[np.ndarray, "components dim"]: ...


def follow(steps: Sequence[Components]) -> list[list[int]]:
    """A number for every component of every step, the same for the same component; new ones count up.

    A component that did not change is found again exactly, and a step that leaves one as it is leaves all of them: the
    others are new. A joint refinement moves all of them, splits some and leaves no trace of which was which: those are
    matched by least distance, and one of a split keeps the number.
    """
    found: list[list[int]] = []
    count = 0
    for i, now in enumerate(steps):
        numbers = [-1] * len(now.loc)
        for k, before in partners(steps[i - 1], now).items() if i else ():
            numbers[k] = found[-1][before]
        for k, number in enumerate(numbers):
            if number < 0:
                numbers[k], count = count, count + 1
        found.append(numbers)
    return found


def partners(before: Components, now: Components) -> dict[int, int]:
    """Place of a component now → its place before; those that have come are left out."""
    unmoved: dict[bytes, list[int]] = {}
    for k, identity in enumerate(_identities(before)):
        unmoved.setdefault(identity, []).append(k)
    same = {k: unmoved[i].pop(0) for k, i in enumerate(_identities(now)) if unmoved.get(i)}
    if same:
        return same
    far = distances(before, now)
    pairs = zip(*linear_sum_assignment(np.minimum(far, 2.0 * SAME)), strict=True)  # a lost cause bends no other
    return {int(k): int(j) for j, k in pairs if far[j, k] < SAME}


def _identities(components: Components) -> list[bytes]:
    return [loc.tobytes() + sd.tobytes() for loc, sd in zip(components.loc, components.sd, strict=True)]


def distances(before: Components, now: Components) -> Float[np.ndarray, "before now"]:
    far = np.empty((len(before.loc), len(now.loc)))
    for row, (loc, sd) in enumerate(zip(before.loc, before.sd, strict=True)):
        wider = np.log(now.sd / sd) ** 2
        far[row] = np.mean((now.loc - loc) ** 2 / (sd**2 + now.sd**2) + wider, axis=1)
    return np.nan_to_num(far, nan=np.inf)
