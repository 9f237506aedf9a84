"""The record of a sweep: one SQLite file, one row per run and step, one transaction per finished batch of runs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.cli import UsageError


class Store:
    """Tables `settings` (name, value), `runs` (id, method, config as JSON, seed), `steps` (run, step, kind, elbo, …).

    A run is there as a whole or not at all, whenever the process is killed.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path = path
        self.connection = sqlite3.connect(path)
        try:
            self._prepare(path, settings)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise UsageError(f"{path} is not a record of a sweep ({error}); give another --out") from error
            raise

    def _prepare(self, path: Path, settings: Mapping[str, Any]) -> None:
        with self.connection as db:
            db.execute("CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, method TEXT NOT NULL, config TEXT NOT NULL, "
                "seed INTEGER NOT NULL, UNIQUE (method, config, seed))"
            )
            there = {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM settings")}
            now = json.loads(json.dumps(dict(settings)))
            if there:
                _refuse_other(path, there, now)
            else:
                db.executemany("INSERT INTO settings VALUES (?, ?)", [(k, json.dumps(v)) for k, v in now.items()])

    def finished(self) -> set[tuple[str, str, int]]:
        return set(self.connection.execute("SELECT method, config, seed FROM runs"))

    def add_all(self, runs: Sequence[tuple[str, Mapping[str, float], int, Sequence[Mapping[str, Any]]]]) -> None:
        """Several runs in one transaction: all of them, or none."""
        row = runs[0][3][0]
        names, kinds = list(row), ["TEXT" if isinstance(value, str) else "NUMERIC" for value in row.values()]
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True))
        listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * (len(names) + 1))
        with self.connection as db:
            db.execute(f"CREATE TABLE IF NOT EXISTS steps (run INTEGER REFERENCES runs (id), {columns})")
            db.execute("CREATE INDEX IF NOT EXISTS steps_of_run ON steps (run)")
            for method, config, seed, rows in runs:
                run = db.execute(
                    "INSERT INTO runs (method, config, seed) VALUES (?, ?, ?)", (method, config_text(config), seed)
                ).lastrowid
                db.executemany(
                    f"INSERT INTO steps (run, {listed}) VALUES ({marks})",
                    [(run, *(_or_null(row[name]) for name in names)) for row in rows],
                )

    def curves(self, column: str, method: str) -> tuple[list[tuple[str, int]], np.ndarray]:
        """(config, seed) of every run of a method, and the column as an array (runs, steps); NaN where nothing is."""
        runs = list(
            self.connection.execute(
                "SELECT id, config, seed FROM runs WHERE method = ? ORDER BY config, seed", [method]
            )
        )
        values = [
            [row[0] for row in self.connection.execute(
                f'SELECT "{column}" FROM steps WHERE run = ? ORDER BY step', [run]
            )]
            for run, *_ in runs
        ]  # fmt: skip
        if values and isinstance(values[0][0], str):
            return [(config, seed) for _, config, seed in runs], np.array(values)
        filled = [[math.nan if v is None else v for v in row] for row in values]
        return [(config, seed) for _, config, seed in runs], np.array(filled, dtype=float)

    def result(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that is no run (a fit of `auto`, a cross-validation), computed once and kept as JSON."""
        there = self.results()
        if name not in there:
            text = json.dumps(compute())
            with self.connection as db:
                db.execute("INSERT INTO results VALUES (?, ?)", (name, text))
            there[name] = json.loads(text)
        return there[name]

    def results(self) -> dict[str, Any]:
        """All values that were computed so far."""
        with self.connection as db:
            db.execute("CREATE TABLE IF NOT EXISTS results (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        return {name: json.loads(value) for name, value in self.connection.execute("SELECT * FROM results")}

    def methods(self) -> set[str]:
        return {row[0] for row in self.connection.execute("SELECT DISTINCT method FROM runs")}

    def close(self) -> None:
        self.connection.close()


def config_text(config: Mapping[str, float]) -> str:
    return json.dumps(dict(config), sort_keys=True)


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_other(path: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    other = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    if other:
        told = "; ".join(f"{name} was {there.get(name)!r}, is {now.get(name)!r}" for name in other)
        told = told if len(told) < 300 else ", ".join(other)
        raise UsageError(f"{path} holds a sweep with other settings ({told}); give another --out or the same settings")
