"""Data files as named columns: csv, npz, json and parquet.

A column is looked at only when it is used, so that a date or a gap in a column that nobody asked for is no error.
"""

from __future__ import annotations

import csv
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.cli.columns import Column, from_array, from_text
from boostvi.cli.errors import UsageError

DELIMITERS = ",;\t|"
NAMELESS = "(no name)"
"""A column without a name: the row numbers that pandas' to_csv writes."""


class Data:
    """Columns by name. `raw` has the cells as they were read, `place` says where row i is."""

    def __init__(self, file: Path, raw: Mapping[str, Any], place: Callable[[int], str] | None = None):
        self.file, self.raw = file, raw
        self.place = place or (lambda row: f"{file}, row {row + 1}")
        self.column = cache(self._column)

    @property
    def names(self) -> list[str]:
        return list(self.raw)

    def _column(self, name: str) -> Column:
        if name not in self.raw:
            raise UsageError(f"{self.file} has no column {name!r}; {self.suggest(name)}")
        values = self.raw[name]
        if isinstance(values, list):
            return from_text(name, values, self.place)
        return from_array(name, values, self.place)

    def suggest(self, name: str) -> str:
        by_case = {known.casefold(): known for known in self.names}
        near = get_close_matches(name.casefold(), by_case, 1)
        return f"did you mean {by_case[near[0]]!r}?" if near else f"it has {', '.join(self.names)}"


def read(file: Path) -> Data:
    if not file.exists():
        raise UsageError(f"there is no data file {file}")
    if not file.is_file():
        raise UsageError(f"the data must be a file, but {file} is a folder")
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UsageError(f"{file}: data come as {', '.join(READERS)}, not {file.suffix or 'without a suffix'}")
    try:
        data = reader(file)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#x}"
        ) from error
    if not data.raw:
        raise UsageError(f"{file} is empty")
    return data


def _csv(file: Path) -> Data:
    (_, first), *body = csv_rows(file) or [(0, [])]
    header, lines, rows = [name.strip() or NAMELESS for name in first], [line for line, _ in body], [r for _, r in body]
    _check_header(file, header, rows)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise UsageError(f"{file}, line {line} has {len(row)} cells, but the header names {len(header)} columns")
    cells = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return Data(file, cells, lambda row: f"{file}, line {lines[row]} (row {row + 1})")


def csv_rows(file: Path, errors: str = "strict") -> list[tuple[int, list[str]]]:
    """The cells of every row that has any, and the line it ends in; of commas, semicolons, tabs and bars the delimiter
    is the one that the first line has most. errors: what to do with bytes that are no UTF-8."""
    with file.open(encoding="utf-8-sig", newline="", errors=errors) as stream:
        first = stream.read(65536).split("\n", 1)[0]
        stream.seek(0)
        delimiter = "\t" if file.suffix.lower() == ".tsv" else max(DELIMITERS, key=first.count)
        reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True)
        try:
            return [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise UsageError(f"{file}, line {reader.line_num}: {error}") from error


def _check_header(file: Path, header: list[str], rows: list[list[str]]) -> None:
    if header and all(_is_number(name) for name in header):
        raise UsageError(f"{file} must begin with a line of column names, but its first line has only numbers")
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise UsageError(f"{file} has two columns called {sorted(twice)[0]!r}; rename one")
    if header and not rows:
        raise UsageError(f"{file} has a header but no rows")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _npz(file: Path) -> Data:
    return Data(file, npz_arrays(file))


def npz_arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise UsageError(f"{file} is not an npz file, but holds a single array: save it by np.savez")
        with found as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{file} is not an npz file of plain arrays: {error}") from error


def _json(file: Path) -> Data:
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}, line {error.lineno}: {error.msg}") from error
    if isinstance(content, list) and content and all(isinstance(record, dict) for record in content):
        names = list(dict.fromkeys(name for record in content for name in record))
        content = {name: [record.get(name) for record in content] for name in names}
    if not isinstance(content, dict):
        raise UsageError(f"{file} must hold an object of name: values, or a list of records")
    return Data(file, {name: _nested(file, name, value) for name, value in content.items()})


def _nested(file: Path, name: str, value: Any) -> Any:
    """A list of words stays a list, to be read like cells of a csv; numbers become an array of their shape."""
    if isinstance(value, list) and any(isinstance(item, str) for item in value):
        return ["" if item is None else str(item) for item in value]
    try:
        return np.array(value)
    except ValueError as error:
        raise UsageError(f"{file}: the lists in {name!r} differ in length") from error


def _parquet(file: Path) -> Data:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise UsageError("parquet files need pyarrow: pip install 'boostvi[parquet]'") from error
    try:
        table = parquet.read_table(file)
    except (ArrowException, OSError) as error:
        raise UsageError(f"{file} is not a parquet file: {error}") from error
    raw: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_string(kind) or types.is_large_string(kind):
            raw[name] = ["" if cell is None else cell for cell in column.to_pylist()]
        elif column.null_count:
            raw[name] = np.array(column.to_pylist(), dtype=object)
        else:
            raw[name] = column.to_numpy()
    return Data(file, raw)


READERS: dict[str, Callable[[Path], Data]] = {
    ".csv": _csv, ".tsv": _csv, ".npz": _npz, ".json": _json, ".parquet": _parquet,
}  # fmt: skip
