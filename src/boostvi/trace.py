"""The record of how a mixture grew: one small file per step, for the slider of the report."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi.directions.base import Kind
from boostvi.snapshot import Snapshot, pairs, snapshot
from boostvi.storage import archive
from boostvi.storage.archive import StorageError, require
from boostvi.storage.codec import as_count, as_float, number

if TYPE_CHECKING:
    from boostvi.fit import Step
    from boostvi.history import History

FORMAT = "boostvi trace"
VERSION = 1
NAME = re.compile(r"step-(\d{6,})\.bvt")
ARRAYS = ("weights", "loc", "sd", "correlations", "draws", "owners")
SIMPLEX_TOLERANCE = 1e-6


class Trace:
    """A callback that keeps what the mixture looked like after every step: `fit(..., callbacks=[trace])`.

    folder: where a file is written after each step; it is created. A run that was killed and goes on from its
        checkpoint ends with the same files as one that nobody killed: what a lost future, or another run, left there is
        removed. Without a folder the trace is kept in memory.

    `snapshots` has them in the order of the steps; `Trace.load(folder)` reads them back.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None):
        self.folder = None if folder is None else Path(folder)
        self._kept: dict[int, Snapshot] = {}
        self._last: int | None = None  # the step seen last by this object
        self._warned = False
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            archive.writable("folder", self.folder / _name(0))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Trace:
        """The trace in a folder. A missing folder, or one without a trace, is an error; so is a damaged file."""
        path = Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no trace in {path}: it is no folder; fit with callbacks=[Trace(folder)]")
        trace = cls()
        trace._kept = {one.step: one for one in _read_all(path)}
        if not trace._kept:
            raise StorageError(f"there is no trace in {path}: it has no file step-000000.bvt; fit with Trace(folder)")
        return trace

    @property
    def snapshots(self) -> list[Snapshot]:
        if self.folder is not None:
            return _read_all(self.folder)
        return [self._kept[step] for step in sorted(self._kept)]

    def __call__(self, step: Step) -> None:
        if self._last is None or step.step <= self._last:  # the first step, a resumed run, or another run
            self._forget(step.step, step.history)
        self._last = step.step
        taken = snapshot(step)
        if self.folder is None:
            self._kept[taken.step] = taken
            return
        try:
            archive.write(self.folder / _name(taken.step), *_contents(taken))
        except OSError as error:  # the fit is worth more than its trace
            if not self._warned:
                self._warned = True
                warnings.warn(f"{error}; the fit goes on, and its trace has a gap", RuntimeWarning, stacklevel=2)

    def resumed(self, step: Step) -> None:
        """The step that a run goes on from: a kill may have come between its checkpoint and its trace."""
        self(step)

    def _forget(self, start: int, history: History) -> None:
        """Keep only what this run did before `start`."""
        if self.folder is None:
            past = {step: one for step, one in self._kept.items() if step < start}
            self._kept = {step: one for step, one in past.items() if _belongs(one, history)}
            return
        for step, file in _files(self.folder):
            if step >= start or not _is_past_of(file, history):
                file.unlink()

    def __repr__(self) -> str:
        where = "memory" if self.folder is None else str(self.folder)
        return f"Trace({len(self._kept) if self.folder is None else len(_files(self.folder))} steps in {where})"


def _belongs(one: Snapshot, history: History) -> bool:
    return one.step < len(history.rows) and one.elbo == history.rows[one.step]["elbo"]


def _is_past_of(file: Path, history: History) -> bool:
    """Whether a file is of this run: its ELBO says so. A damaged one, of a machine that died, is not."""
    try:
        return _belongs(_read(file), history)
    except StorageError:
        return False


def _name(step: int) -> str:
    return f"step-{step:06d}.bvt"


def _files(folder: Path) -> list[tuple[int, Path]]:
    found = [(NAME.fullmatch(file.name), file) for file in folder.iterdir()]
    return sorted((int(match[1]), file) for match, file in found if match)


def _contents(taken: Snapshot) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "step": taken.step,
        "kind": taken.kind,
        "elbo": number(taken.elbo),
    }
    return manifest, {f"{name}.npy": getattr(taken, name) for name in ARRAYS}


def _read_all(folder: Path) -> list[Snapshot]:
    found = [_read(file) for _, file in _files(folder)]
    _check_dims(found)
    return found


def _read(file: Path) -> Snapshot:
    """Whatever is wrong with a file: one clear error."""
    remedy = "delete it to have a trace without this step"
    try:
        manifest, arrays = archive.read(file, _check_format)
        require(arrays.keys() == {f"{name}.npy" for name in ARRAYS}, "its arrays are others")
        taken = Snapshot(
            as_count(manifest["step"]), manifest["kind"], as_float(manifest["elbo"]),
            **{name: arrays[f"{name}.npy"] for name in ARRAYS},
        )  # fmt: skip
        require(file.name == _name(taken.step), "its name is of another step")
        _check(taken)
        return taken
    except StorageError as error:
        raise StorageError(f"cannot load {file}: {error}; {remedy}") from error.__cause__
    except OSError:
        raise
    except Exception as error:  # there is nothing that a damaged file could not provoke in what parses it
        raise StorageError(f"cannot load {file}: it is damaged, or no trace ({error!s:.200}); {remedy}") from error


def _check_format(manifest: dict[str, Any]) -> None:
    require(manifest.get("format") == FORMAT, "it is no trace of boostvi")
    require(as_count(manifest["version"]) <= VERSION, "a later boostvi wrote it: upgrade this one")


def _check(taken: Snapshot) -> None:
    n, dim = taken.loc.shape
    count = len(pairs(dim)[0])
    require(taken.kind in {kind.label for kind in Kind}, "its step is of no known kind")
    require(taken.weights.shape == (n,) and n > 0 and (taken.weights >= 0).all(), "its weights are none")
    require(abs(taken.weights.sum() - 1) < SIMPLEX_TOLERANCE, "its weights are no shares of 1")
    require(taken.sd.shape == (n, dim), "its standard deviations are of another shape")
    require(taken.correlations.shape in ((n, 0), (n, count)), "its correlations are of another shape")
    require(taken.correlations.dtype == np.int8, "its correlations are of another type")
    require(taken.draws.ndim == 2 and taken.draws.shape[1] == dim, "its draws are of another shape")
    require(taken.owners.shape == taken.draws.shape[:1], "its draws have no components")
    require(((taken.owners >= 0) & (taken.owners < n)).all(), "its draws are of components that are not there")


def _check_dims(found: Sequence[Snapshot]) -> None:
    dims = {one.loc.shape[1] for one in found}
    if len(dims) > 1:
        raise StorageError(f"the trace has steps of {sorted(dims)} parameters: they are of several runs; fit anew")
