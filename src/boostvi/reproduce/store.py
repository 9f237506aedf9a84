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
from boostvi.reproduce import provenance
from boostvi.reproduce.provenance import Made

Run = tuple[str, Mapping[str, float], int, Sequence[Mapping[str, Any]]]
"""Method, configuration, seed, and a row per step."""


class Store:
    """Tables `settings` (name, value), `runs` (id, method, config as JSON, seed), `steps` (run, step, kind, elbo, …),
    `results` (name, value) and `made` (which code made runs and results, where and when; older records lack it).

    A run is there as a whole or not at all, whenever the process is killed.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path = path
        provenance.code()
        try:
            self.connection = sqlite3.connect(path)
        except sqlite3.OperationalError as error:
            raise UsageError(f"cannot open {path} ({error}); give another --out") from error
        try:
            self._prepare(path, settings)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError):  # locked, read-only, a full disk
                raise UsageError(f"cannot read or write {path} ({error}); try again, or give another --out") from error
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
            new = [(name, json.dumps(value)) for name, value in now.items() if name not in there]
            db.executemany("INSERT INTO settings VALUES (?, ?)", new)

    def finished(self) -> set[tuple[str, str, int]]:
        return set(self.connection.execute("SELECT method, config, seed FROM runs"))

    def add_all(self, runs: Sequence[Run], made: Made | None = None) -> None:
        """Several runs in one transaction: all of them, or none. A run that is there, because another command in the
        same folder was faster, stays as it is. made: by what, if not by this process."""
        row = runs[0][3][0]
        names, kinds = list(row), ["TEXT" if isinstance(value, str) else "NUMERIC" for value in row.values()]
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True))
        listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * (len(names) + 1))
        with self.connection as db:
            db.execute(f"CREATE TABLE IF NOT EXISTS steps (run INTEGER REFERENCES runs (id), {columns})")
            db.execute("CREATE INDEX IF NOT EXISTS steps_of_run ON steps (run)")
            there = {column for _, column, *_ in db.execute("PRAGMA table_info(steps)")}
            for name, kind in zip(names, kinds, strict=True):
                if name not in there:  # a record of an earlier version
                    db.execute(f'ALTER TABLE steps ADD COLUMN "{name}" {kind}')
            ids = []
            for method, config, seed, rows in runs:
                added = db.execute(
                    "INSERT OR IGNORE INTO runs (method, config, seed) VALUES (?, ?, ?)",
                    (method, config_text(config), seed),
                )
                if not added.rowcount:
                    continue
                run = added.lastrowid
                ids.append(run)
                db.executemany(
                    f"INSERT INTO steps (run, {listed}) VALUES ({marks})",
                    [(run, *(_or_null(row[name]) for name in names)) for row in rows],
                )
            if ids:
                self._sign(made or provenance.here(), ids[0], ids[-1], None)

    def _sign(self, made: Made, first_run: int | None, last_run: int | None, result: str | None) -> None:
        """Within the transaction of what was made."""
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS made (first_run INTEGER, last_run INTEGER, result TEXT, boostvi TEXT, "
            "jax TEXT, machine TEXT, at TEXT)"
        )
        self.connection.execute("INSERT INTO made VALUES (?, ?, ?, ?, ?, ?, ?)", (first_run, last_run, result, *made))

    def made(self) -> tuple[str, str]:
        """In words, what made the runs and what made the results."""
        count = lambda query: int(self.connection.execute(query).fetchone()[0])  # noqa: E731
        runs, results = count("SELECT count(*) FROM runs"), len(self.results())
        if not count("SELECT count(*) FROM sqlite_master WHERE name = 'made'"):
            return provenance.told([], runs), provenance.told([], results)
        select, origin = "SELECT boostvi, jax, machine, at, count(*)", "GROUP BY made.rowid ORDER BY at"
        of_runs, of_results = (
            [(Made(*row[:4]), row[4]) for row in self.connection.execute(f"{select} FROM made JOIN {what} {origin}")]
            for what in ("runs ON id BETWEEN first_run AND last_run", "results ON name = result")
        )
        rest = runs - sum(n for _, n in of_runs), results - sum(n for _, n in of_results)
        return provenance.told(of_runs, rest[0]), provenance.told(of_results, rest[1])

    def curves(self, column: str, method: str) -> tuple[list[tuple[str, int]], np.ndarray]:
        """(config, seed) of every run of a method, and the column as an array (runs, steps); NaN where nothing is."""
        found = self.connection.execute(
            f'SELECT id, config, seed, steps."{column}" FROM runs JOIN steps ON steps.run = id WHERE method = ? '
            "ORDER BY config, seed, step",
            [method],
        )
        runs: dict[int, tuple[str, int]] = {}
        values: dict[int, list[Any]] = {}
        for run, config, seed, value in found:
            runs[run] = config, seed
            values.setdefault(run, []).append(value)
        rows = list(values.values())
        if rows and isinstance(rows[0][0], str):
            return list(runs.values()), np.array(rows)
        filled = [[math.nan if v is None else v for v in row] for row in rows]
        return list(runs.values()), np.array(filled, dtype=float)

    def result(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that is no run (a fit of `auto`, a cross-validation), computed once and kept as JSON."""
        if name not in self.results():
            text = json.dumps(compute())
            with self.connection as db:
                if db.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (name, text)).rowcount:
                    self._sign(provenance.here(), None, None, name)
        return self.results()[name]

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
    """An ELBO of −∞ stays one: left out of a mean it would make it look better."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _refuse_other(path: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A setting that the record does not have is one that its version did not know."""
    other = [name for name, value in there.items() if now.get(name) != value]
    if other:
        told = "; ".join(f"{name} was {there[name]!r}, is {now.get(name)!r}" for name in other)
        told = told if len(told) < 300 else ", ".join(other)
        raise UsageError(f"{path} holds a sweep with other settings ({told}); give another --out or the same settings")
