"""Which column goes to which argument of the model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from boostvi.cli.columns import DateColumnError, coded, listed
from boostvi.cli.data import NAMELESS, Data
from boostvi.cli.errors import UsageError

MATRIX = "X"
"""The argument that takes all numeric columns which no other argument took."""
CODES = ":codes"
ALL = "*"
SHOWN_COLUMNS = 8


@dataclass
class Bound:
    """Values for the model, where each came from (for fit.json), and how to tell it (for people)."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def columns(self) -> set[str]:
        return {name for source in self.sources.values() for name in source.get("columns", ())}


def bind(function: Callable[..., Any], data: Data | None, given: Sequence[str]) -> Bound:
    """Arguments named on the command line, then columns that have an argument's name, then X from all the rest."""
    parameters = {
        name: parameter for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }  # fmt: skip
    anything = any(p.kind == p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    bound, rest = Bound(), []
    for name, text in _split(given).items():
        if name not in parameters and not anything:
            raise UsageError(f"--arg {name}: the model takes {_listed(parameters)}, and no {name!r}")
        if text == ALL:
            rest.append(name)
        else:
            _explicit(bound, name, text, data)
    missing = []
    for name, parameter in parameters.items():
        if name in bound.values or name in rest:
            continue
        if data is not None and name in data.names:
            _from_columns(bound, data, name, [name])
        elif parameter.default is not parameter.empty:
            bound.sources[name] = {"default": repr(parameter.default)}
            bound.told[name] = f"its default, {parameter.default!r}"
        elif name == MATRIX and data is not None:
            rest.append(name)
        else:
            missing.append(name)
    if missing:
        raise UsageError(_advice(missing, data, bound.columns()))
    if len(rest) > 1:
        raise UsageError(f"only one argument can take all the other columns, got {', '.join(rest)}")
    if rest:
        _all_others(bound, data, rest[0])
    bound.told = {name: bound.told[name] for name in [*parameters, *bound.told] if name in bound.told}
    return bound


def call(function: Callable[..., Any], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The values as positional (where there is no other way) and keyword arguments."""
    only = [p.name for p in inspect.signature(function).parameters.values() if p.kind == p.POSITIONAL_ONLY]
    args = [values[name] for name in only if name in values]
    return args, {name: value for name, value in values.items() if name not in only}


def _split(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise UsageError(f"--arg takes name=column, name=column,column or name=value, got {text!r}")
        if name in found:
            raise UsageError(f"--arg {name} is given twice")
        found[name] = value
    return found


def _explicit(bound: Bound, name: str, text: str, data: Data | None) -> None:
    if data is not None:
        if text in data.names:
            return _from_columns(bound, data, name, [text])
        base = text.removesuffix(CODES)
        if base != text:
            return _from_codes(bound, data, name, base)
        pieces = [piece.strip() for piece in text.split(",")]
        columns = [piece for piece in pieces if piece]
        if "," in text and any(piece in data.names for piece in columns):
            return _from_columns(bound, data, name, columns, matrix=True)
    try:
        value = _literal(text)
    except ValueError:
        hint = f"{data.file} has no such column; {data.suggest(text)}" if data else "there is no --data to take it from"
        raise UsageError(f"--arg {name}={text}: {hint}") from None
    bound.values[name], bound.sources[name], bound.told[name] = value, {"value": text}, text


def _literal(text: str) -> Any:
    """A number, true, false, null, a "word" or a list of numbers; ValueError for anything else."""
    words = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    try:
        return float(text) if text.startswith((".", "+", "-.")) else _array_if_list(json.loads(text))
    except json.JSONDecodeError:
        return float(text)


def _array_if_list(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value


def _from_columns(bound: Bound, data: Data, name: str, columns: list[str], matrix: bool = False) -> None:
    found = [data.column(column) for column in columns]
    bound.sources[name] = {"columns": columns}
    if not matrix:
        (column,) = found
        _keep(bound, name, columns[0], column.values, column.labels)
        return
    for column_name, column in zip(columns, found, strict=True):
        if column.labels is not None:
            raise UsageError(
                f"--arg {name}: {column_name!r} holds text ({listed(column.labels)}); a matrix needs numbers, so give "
                "it to an argument of its own, or write indicator columns"
            )
        if column.values.ndim != 1 or len(column.values) != len(found[0].values):
            raise UsageError(f"--arg {name}: {columns[0]!r} and {column_name!r} are no columns of one length")
    values = np.column_stack([column.values.astype(np.float64) for column in found])
    shown = ", ".join(columns[:SHOWN_COLUMNS]) + (", …" if len(columns) > SHOWN_COLUMNS else "")
    bound.values[name] = values
    bound.told[name] = f"{_shape(values)} from {shown}"


def _from_codes(bound: Bound, data: Data, name: str, column_name: str) -> None:
    column = data.column(column_name)
    if column.labels is None:
        column = coded(column.values)
    bound.sources[name] = {"columns": [column_name], "codes": True}
    _keep(bound, name, column_name, column.values, column.labels)


def _keep(bound: Bound, name: str, column: str, values: np.ndarray, labels: tuple[str, ...] | None) -> None:
    bound.values[name] = values[()] if values.ndim == 0 else values
    origin = "" if column == name else f" from {column}"
    if labels is not None:
        bound.labels[name] = labels
        bound.told[name] = f"{len(values)} codes of {len(labels)} labels{origin}: {listed(labels)}"
        return
    bound.told[name] = f"{_shape(values)}{origin}"
    if values.ndim == 1 and values.dtype.kind in "iu" and _counts_from_one(values):
        bound.notes.append(
            f"{name} holds the whole numbers 1 … {values.max()}. If the model uses it as an index it must begin at 0, "
            f"or JAX silently takes wrong rows: --arg {name}={column}{CODES} makes it so"
        )


def _all_others(bound: Bound, data: Data | None, name: str) -> None:
    if data is None:
        raise UsageError(f"--arg {name}={ALL} needs --data")
    used = bound.columns()
    chosen: list[str] = []
    left: list[str] = []
    rows = max((np.shape(value)[0] for value in bound.values.values() if np.ndim(value)), default=None)
    for column_name in data.names:
        if column_name in used:
            continue
        try:
            column = data.column(column_name)
        except DateColumnError:
            left.append(column_name)
            continue
        fits = column.values.ndim == 1 and (rows is None or len(column.values) == rows)
        numeric = fits and column.labels is None and column_name != NAMELESS
        (chosen if numeric else left).append(column_name)
    if not chosen:
        raise UsageError(f"no numeric columns are left for {name}; name them: --arg {name}=column,column")
    _from_columns(bound, data, name, chosen, matrix=True)
    if left:
        bound.notes.append(f"not in {name}, because they are not numbers: {', '.join(left)}")


def _advice(missing: list[str], data: Data | None, used: set[str]) -> str:
    names = _listed(missing)
    if data is None:
        return f"the model needs {names}: give --data FILE, or --arg {missing[0]}=value"
    free = [name for name in data.names if name not in used]
    return (
        f"the model needs {names}, and {data.file} has no such column; it has {', '.join(free) or 'no others'}: "
        f"say which with --arg {missing[0]}={free[0] if len(free) == 1 else 'column'}"
    )


def _counts_from_one(values: np.ndarray) -> bool:
    found = np.unique(values)
    return len(found) > 1 and np.array_equal(found, np.arange(1, len(found) + 1))


def _shape(values: np.ndarray) -> str:
    kind = {"i": "whole numbers", "u": "whole numbers", "b": "truth values"}.get(values.dtype.kind, "numbers")
    return f"{' × '.join(map(str, values.shape))} {kind}" if values.ndim else f"the number {values[()]}"


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "no arguments"
