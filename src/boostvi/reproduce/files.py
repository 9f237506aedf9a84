"""A user's file with features and labels, csv or npz, as plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from boostvi.cli import UsageError
from boostvi.cli.data import csv_rows, npz_arrays

LABEL_NAMES = (
    "y", "label", "class", "target", "out", "output", "activity", "mortality", "hospital_mortality", "icu_mortality",
    "hospitaldischargestatus", "unitdischargestatus",
)  # fmt: skip
"""Headers of label columns, the last ones of eICU; without one of these the last column is the label."""
MISSING = ("", "na", "nan", "?", "null")
"""Cells without a value, in small letters: neither words nor numbers."""


def read(path: Path, label: str | None = None) -> tuple[dict[str, np.ndarray], str]:
    """X, y and what else an npz holds; and in words how the file was read. label: the column of a csv, or the array of
    an npz, that is y."""
    return (_read_npz(path, label or "y"), "") if path.suffix == ".npz" else _read_csv(path, label)


def _read_npz(path: Path, label: str) -> dict[str, np.ndarray]:
    arrays = npz_arrays(path)
    missing = {"X", label} - set(arrays)
    if missing:
        raise UsageError(f"--data {path}: the npz lacks {' and '.join(sorted(missing))}; it has {', '.join(arrays)}")
    return {**arrays, "y": arrays[label]}


def _read_csv(path: Path, label: str | None) -> tuple[dict[str, np.ndarray], str]:
    header, body = rows_of(path)
    width = len(body[0])
    names = [name.strip() for name in header or []]
    at, others = _label_columns(path, names, width, label)
    features = [i for i in range(width) if i not in (at, *others)]
    X = numbers(path, [[row[i] for i in features] for row in body])
    labels = [row[at].strip() for row in body]
    without = next((i for i, text in enumerate(labels) if _is_missing(text)), None)
    if without is not None:
        raise UsageError(f"--data {path}: data row {without + 1} has no label ({labels[without]!r})")
    y = np.array(labels) if any(map(is_word, labels)) else np.array([float(text) for text in labels])
    how = f", label {names[at]}" + "".join(f", {names[i]} left out" for i in others) if header else ""
    return {"X": X, "y": y}, f", {'with' if header else 'without'} a header{how}"


def rows_of(path: Path) -> tuple[list[str] | None, list[list[str]]]:
    """The header of a csv, if it has one, and its rows, which are equally long."""
    rows = [row for _, row in csv_rows(path, errors="replace")]
    if len(rows) < 2:
        raise UsageError(f"--data {path}: the file has no rows")
    header, body = (rows[0], rows[1:]) if has_header(rows) else (None, rows)
    width = len(body[0])
    if header and len(header) != width:
        raise UsageError(f"--data {path}: the header has {len(header)} columns, the first data row has {width}")
    for i, row in enumerate(body):
        if len(row) != width:
            raise UsageError(f"--data {path}: data row {i + 1} has {len(row)} columns, the first has {width}")
    return header, body


def numbers(path: Path, body: list[list[str]]) -> np.ndarray:
    """The cells, NaN where a value is missing."""
    for i, row in enumerate(body):
        text = next((cell for cell in row if is_word(cell)), None)
        if text is not None:
            raise UsageError(f"--data {path}: data row {i + 1} has {text!r} where a number is wanted")
    return np.array([[np.nan if _is_missing(cell) else float(cell) for cell in row] for row in body])


def _label_columns(path: Path, names: list[str], width: int, label: str | None) -> tuple[int, list[int]]:
    """The label's column, and others that look like labels: as a feature they would give the answer away."""
    alike = [i for i, name in enumerate(names) if name.lower() in LABEL_NAMES]
    if label is not None:
        if label not in names:
            told = f"its columns are {', '.join(names)}" if names else "it has no header"
            raise UsageError(f"--label {label}: {path} has no such column; {told}")
        at = names.index(label)
    elif len(alike) > 1:
        found = ", ".join(names[i] for i in alike)
        raise UsageError(f"--data {path}: several columns may be the label ({found}); choose one by --label")
    else:
        at = alike[0] if alike else width - 1
    return at, [i for i in alike if i != at]


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first row has a word above a column without any. (Labels may be words in every row.)"""
    first, *body = rows
    return any(
        is_word(cell) and not any(is_word(row[j]) for row in body if j < len(row)) for j, cell in enumerate(first)
    )


def is_word(cell: str) -> bool:
    """Neither a number nor missing."""
    try:
        float(cell)
    except ValueError:
        return not _is_missing(cell)
    return False


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING
