"""Cells of a column as numbers: what is missing, mixed or a date is told with its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from boostvi.cli.errors import UsageError

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
TRUTH = {"true": 1, "false": 0}
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
MOST_LABELS = 6
"""Labels that are listed in a line of text."""

Place = Callable[[int], str]


@dataclass(frozen=True)
class Column:
    """Numbers, and the labels if they are codes of text."""

    values: np.ndarray
    labels: tuple[str, ...] | None = None


class DateColumnError(UsageError):
    """Left out where columns are collected, an error where one is asked for."""


def from_text(name: str, cells: Sequence[str], place: Place) -> Column:
    """Numbers if all cells are; 1 and 0 for true and false; otherwise codes 0, 1, … of the sorted labels."""
    cells = [cell.strip() for cell in cells]
    for row, cell in enumerate(cells):
        if cell.casefold() in MISSING:
            raise _missing(name, place(row), cell)
    numbers = [_number(cell) for cell in cells]
    texts = [row for row, number in enumerate(numbers) if number is None]
    if not texts:
        return from_array(name, _integers_or_floats(cells, numbers), place)
    if {cell.casefold() for cell in cells} <= set(TRUTH):
        return Column(np.array([TRUTH[cell.casefold()] for cell in cells]))
    first = texts[0]
    if all(DATE.fullmatch(cell) for cell in cells):
        raise _date(name, place(first), cells[first])
    if all(DECIMAL_COMMA.fullmatch(cells[row]) for row in texts):
        raise UsageError(f"{place(first)}: {name!r} has {cells[first]!r}; write decimals with a point, not a comma")
    if len(texts) < len(cells):
        raise UsageError(
            f"{place(first)}: {name!r} has {cells[first]!r}, but other rows have numbers; correct it, or remove the row"
        )
    return coded(cells)


def from_array(name: str, values: np.ndarray, place: Place) -> Column:
    """Numbers of any shape, refused with their place if they are not finite."""
    values = np.asarray(values)
    kind = values.dtype.kind
    if kind == "O":
        gaps = [i for i, cell in enumerate(values.ravel().tolist()) if cell is None]
        if gaps:
            raise _missing(name, place(int(np.unravel_index(gaps[0], values.shape)[0]) if values.ndim else 0), "null")
    if kind == "M":
        raise _date(name, place(0), str(values.ravel()[0]))
    if kind in "US":
        return from_text(name, [str(cell) for cell in np.atleast_1d(values).ravel()], place)
    if kind not in "iufb":
        raise UsageError(f"{place(0)}: {name!r} must hold numbers or text, got {values.dtype}")
    if kind == "f":
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            cell = values[tuple(bad[0])]
            row = place(int(bad[0][0]) if values.ndim else 0)
            if np.isnan(cell):
                raise _missing(name, row, "nan")
            raise UsageError(f"{row}: {name!r} is {cell}; only finite numbers can be used")
    return Column(values)


def coded(cells: Sequence[str] | np.ndarray) -> Column:
    """Codes 0, 1, … of the sorted values, which are kept as labels."""
    labels, codes = np.unique(np.asarray(cells), return_inverse=True)
    return Column(codes.astype(np.int64), tuple(str(label) for label in labels))


def listed(labels: Sequence[str]) -> str:
    """`a = 0, b = 1, …`"""
    shown = [f"{label} = {code}" for code, label in enumerate(labels[:MOST_LABELS])]
    return ", ".join([*shown, "…"] if len(labels) > MOST_LABELS else shown)


def _number(cell: str) -> float | None:
    if "_" in cell:  # float() would take 1_000
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _integers_or_floats(cells: Sequence[str], numbers: Sequence[float | None]) -> np.ndarray:
    floats = np.array(numbers, dtype=np.float64)
    whole = all(cell.lstrip("+-").isdigit() for cell in cells)
    return floats.astype(np.int64) if whole and np.abs(floats).max() < 2**53 else floats


def _missing(name: str, place: str, cell: str) -> UsageError:
    said = f" ({cell})" if cell else ""
    return UsageError(f"{place}: {name!r} is missing{said}; remove the row or fill it in")


def _date(name: str, place: str, cell: str) -> DateColumnError:
    return DateColumnError(
        f"{place}: {name!r} holds dates ({cell}); turn them into numbers first, days since the first one, say"
    )
