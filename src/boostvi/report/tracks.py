"""Which component of a step is which of the step before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from boostvi.snapshot import Snapshot

SAME = 1.0
"""Mean square, over the coordinates, of the distance in standard deviations up to which a component that moved is
taken for the same one."""


def follow(snapshots: Sequence[Snapshot]) -> list[list[int]]:
    """A number for every component of every step, the same for the same component; new ones count up.

    A component that did not change is found again exactly. A joint refinement moves all of them, splits some and
    leaves no trace of which was which: those are matched by least distance, and one of a split keeps the number.
    """
    found: list[list[int]] = []
    count = 0
    for i, now in enumerate(snapshots):
        numbers = _continued(snapshots[i - 1], found[-1], now) if i else [-1] * now.weights.size
        for k, number in enumerate(numbers):
            if number < 0:
                numbers[k], count = count, count + 1
        found.append(numbers)
    return found


def _continued(before: Snapshot, numbers: list[int], now: Snapshot) -> list[int]:
    """Of each component the number that it had before, or −1."""
    kept = [-1] * now.weights.size
    unmoved: dict[bytes, list[int]] = {}
    for k in range(before.weights.size):
        unmoved.setdefault(before.loc[k].tobytes() + before.sd[k].tobytes(), []).append(k)
    left = set(range(before.weights.size))
    for k in range(now.weights.size):
        same = unmoved.get(now.loc[k].tobytes() + now.sd[k].tobytes())
        if same:
            kept[k] = numbers[same[0]]
            left.discard(same.pop(0))
    old, new = np.array(sorted(left), dtype=int), np.flatnonzero(np.array(kept) < 0)
    if old.size and new.size:
        far = _distances(before, old, now, new)
        for i, j in zip(*linear_sum_assignment(np.minimum(far, 1e6)), strict=True):
            if far[i, j] < SAME:
                kept[new[j]] = numbers[old[i]]
    return kept


def _distances(before: Snapshot, old: np.ndarray, now: Snapshot, new: np.ndarray) -> np.ndarray:
    far = np.empty((old.size, new.size))
    for row, k in enumerate(old):
        spread = before.sd[k] ** 2 + now.sd[new] ** 2
        wider = np.log(now.sd[new] / before.sd[k]) ** 2
        far[row] = np.mean((now.loc[new] - before.loc[k]) ** 2 / spread + wider, axis=1)
    return np.nan_to_num(far, nan=np.inf)
