"""Draws as the page shows them: one column per number, in the model's own space where the model is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from boostvi import trees
from boostvi.report.facts import has_model
from boostvi.summary import DRAWS

if TYPE_CHECKING:
    from boostvi.result import Result

BINS = 24
TAIL = 0.005
"""Share of the draws on either side that a small histogram leaves out: one far draw must not squeeze the rest."""


def in_own_space(result: Result) -> bool:
    """Whether the page can show the model's own space: without the model only if that is R^d anyway."""
    return has_model(result) or not result.target.constrained  # type: ignore[attr-defined]


def columns_of(result: Result, z: Float[np.ndarray, "n dim"]) -> dict[str, np.ndarray]:
    """Draws on R^d as named columns. In blocks as large as those of `summary`, for which it is compiled already."""
    if not in_own_space(result) or result.target.constrain is None:
        return dict(zip(result.target.names, z.T, strict=True))
    padded = np.concatenate([z, np.repeat(z[-1:], -len(z) % DRAWS, axis=0)])
    blocks = [result.in_own_space(padded[i : i + DRAWS]) for i in range(0, len(padded), DRAWS)]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(z)], *blocks)
    return trees.columns(joined)


@dataclass(frozen=True)
class Row:
    """What the draws say of a parameter."""

    name: str
    numbers: tuple[float, ...]  # mean, sd, and the quantiles 5 %, 50 %, 95 %
    heights: tuple[float, ...]  # of a histogram, the highest 1; none if there is nothing to show
    left_out: int  # draws that are not finite


def rows(columns: dict[str, np.ndarray]) -> list[Row]:
    return [_row(name, values) for name, values in columns.items()]


def _row(name: str, values: np.ndarray) -> Row:
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return Row(name, (np.nan,) * 5, (), values.size)
    with np.errstate(over="ignore"):
        numbers = (finite.mean(), finite.std(), *np.quantile(finite, [0.05, 0.5, 0.95]))
    return Row(name, tuple(map(float, numbers)), heights(finite), values.size - finite.size)


def heights(values: np.ndarray, bins: int = BINS) -> tuple[float, ...]:
    """A histogram between the extreme quantiles, its highest bin 1."""
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    if not high > low or not np.isfinite(high - low):
        return ()
    counts, _ = np.histogram(values, bins=bins, range=(low, high))
    return tuple(float(count) for count in counts / counts.max())
