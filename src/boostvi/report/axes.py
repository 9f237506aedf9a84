"""Axes of the explorer: the range of a column, and how it hangs together with a coordinate of R^d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

OUTSIDE = 255
"""Stands for a draw outside the picture; 0 to 254 divide an axis evenly."""
KNOTS = 33
"""Points on the curve from a coordinate to its column, evenly in the draws and evenly in the coordinate."""
PROBED = 1000
"""Draws at which a column is compared with the coordinates."""
BEYOND = 0.75
"""How far, in widths of the final draws, an axis may stretch to show where earlier steps were."""
MARGIN = 0.06


@dataclass(frozen=True)
class Axis:
    """A column of draws. Where it is a monotone function of one coordinate, components can be drawn along it."""

    name: str
    low: float
    high: float
    coordinate: int  # −1: the column depends on several, or on none
    knots: tuple[np.ndarray, np.ndarray] | None  # of that function; None: it is the coordinate itself
    interest: float

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Values in 8 bits."""
        inside = np.isfinite(values) & (values >= self.low) & (values <= self.high)
        share = (np.where(inside, values, self.low) - self.low) / (self.high - self.low)
        return np.where(inside, np.round(share * (OUTSIDE - 1)), OUTSIDE).astype(np.uint8)

    def as_json(self, coordinates: np.ndarray) -> dict[str, Any]:
        place = np.flatnonzero(coordinates == self.coordinate)
        return {
            "name": self.name,
            "low": self.low,
            "high": self.high,
            "coordinate": int(place[0]) if place.size else None,
            "knots": None if self.knots is None else [[float(f"{v:.7g}") for v in side] for side in self.knots],
        }


def axes_of(
    z: np.ndarray, columns: dict[str, np.ndarray], moved: np.ndarray, step_columns: dict[str, np.ndarray],
    interest: np.ndarray,
) -> list[Axis]:  # fmt: skip
    """z, columns: final draws on R^d and as columns. moved, step_columns: those of the steps."""
    known = _coordinates(z, columns)
    axes = []
    for (name, values), coordinate in zip(columns.items(), known, strict=True):
        low, high = _range(values, step_columns[name])
        knots = None
        if coordinate >= 0:
            from_z = np.concatenate([z[:, coordinate], moved[:, coordinate]])
            knots = _knots(from_z, np.concatenate([values, step_columns[name]]))
        axes.append(Axis(name, low, high, coordinate, knots, interest[coordinate] if coordinate >= 0 else 0.0))
    return axes


def _coordinates(z: np.ndarray, columns: dict[str, np.ndarray]) -> list[int]:
    """For each column the coordinate that it is a monotone function of, or −1."""
    probed = slice(0, PROBED)
    places = {_order(z[probed, i]): i for i in range(z.shape[1])}
    found = []
    for values in columns.values():
        seen = values[probed]
        usable = np.isfinite(seen).all() and np.unique(seen).size == len(seen)
        found.append(places.get(_order(seen), places.get(_order(-seen), -1)) if usable else -1)
    return found


def _order(values: np.ndarray) -> bytes:
    return np.argsort(values, kind="stable").tobytes()


def _knots(z: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if np.array_equal(z, x):
        return None
    finite = np.isfinite(z) & np.isfinite(x)
    order = np.argsort(z[finite], kind="stable")
    z, x = z[finite][order], x[finite][order]
    in_draws = np.linspace(0, z.size - 1, KNOTS).astype(int)
    in_z = np.searchsorted(z, np.linspace(z[0], z[-1], KNOTS)).clip(0, z.size - 1)
    chosen = np.union1d(in_draws, in_z)
    chosen = chosen[np.concatenate([[True], np.diff(z[chosen]) > 0])]
    return z[chosen], x[chosen]


def _range(final: np.ndarray, steps: np.ndarray) -> tuple[float, float]:
    """Where the final draws are, and some of where the steps' draws were."""
    final, steps = final[np.isfinite(final)], steps[np.isfinite(steps)]
    if final.size == 0:
        return 0.0, 1.0
    low, high = np.quantile(final, [0.002, 0.998])
    reach = BEYOND * (high - low)
    if steps.size:
        early = np.quantile(steps, [0.01, 0.99])
        low, high = max(min(low, early[0]), low - reach), min(max(high, early[1]), high + reach)
    width = high - low if high > low else max(abs(low), 1.0)
    return float(low - MARGIN * width), float(high + MARGIN * width)
