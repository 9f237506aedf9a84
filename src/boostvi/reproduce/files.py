"""A user's file with features and labels, csv or npz, as plain arrays."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np

from boostvi.cli import UsageError

LABEL_NAMES = ("y", "label", "class", "target", "out", "output", "mortality", "activity")
"""Header of the label column; without one of these the last column is the label."""
MISSING = ("", "na", "nan", "?", "null")
"""Cells without a value, in small letters: neither words nor numbers."""


def read(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """X, y and what else an npz holds; and in words how the file was read."""
    return (_read_npz(path), "") if path.suffix == ".npz" else _read_csv(path)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"--data {path}: this is no npz archive of plain arrays") from error
    missing = {"X", "y"} - set(arrays)
    if missing:
        raise UsageError(f"--data {path}: the npz lacks {' and '.join(sorted(missing))}; it has {', '.join(arrays)}")
    return arrays


def _read_csv(path: Path) -> tuple[dict[str, np.ndarray], str]:
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        raise UsageError(f"--data {path}: the file has no rows")
    header, body = (rows[0], rows[1:]) if has_header(rows) else (None, rows)
    width = len(body[0])
    if header and len(header) != width:
        raise UsageError(f"--data {path}: the header has {len(header)} columns, the first data row has {width}")
    for i, row in enumerate(body):
        if len(row) != width:
            raise UsageError(f"--data {path}: data row {i + 1} has {len(row)} columns, the first has {width}")
    named = [i for i, name in enumerate(header or []) if name.strip().lower() in LABEL_NAMES]
    label = named[0] if named else width - 1
    features = [i for i in range(width) if i != label]
    for i, row in enumerate(body):
        text = next((row[j] for j in features if is_word(row[j])), None)
        if text is not None:
            raise UsageError(f"--data {path}: data row {i + 1} has {text!r} where a number is wanted")
    X = np.array([[np.nan if _is_missing(row[i]) else float(row[i]) for i in features] for row in body])
    labels = [row[label].strip() for row in body]
    without = next((i for i, text in enumerate(labels) if _is_missing(text)), None)
    if without is not None:
        raise UsageError(f"--data {path}: data row {without + 1} has no label ({labels[without]!r})")
    y = np.array(labels) if any(map(is_word, labels)) else np.array([float(text) for text in labels])
    return {"X": X, "y": y}, ", with a header" if header else ", without a header"


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
