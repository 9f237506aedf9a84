"""Saving, loading, and the checkpoints of a fit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

from boostvi.recipes import Recipe
from boostvi.result import Result
from boostvi.run import Run, check_target
from boostvi.storage import archive
from boostvi.storage.codec import encode, own_classes
from boostvi.storage.loaded import LoadedResult, NoTarget
from boostvi.storage.run import contents, evaluation_of, read
from boostvi.summary import summary
from boostvi.target import Target


def save(result: Result, path: str | os.PathLike[str], evaluate: bool = True) -> None:
    """See `Result.save`."""
    file, target = archive.writable("path", path), result.target
    if isinstance(result, LoadedResult):
        constrained, text = target.constrained, result.stored_summary  # type: ignore[attr-defined]
    else:
        constrained, text = target.constrain is not None, summary(result) if evaluate else None
    archive.write(file, *contents(result.run, target.names, constrained, result.status, evaluation_of(result), text))


def load(path: str | os.PathLike[str], *, target: Target | None = None, classes: Iterable[type] = ()) -> Result:
    """The result that a file holds, or the last complete step of a run that never ended.

    target: what was fitted. Without it the result samples, evaluates ln q and reports what was stored; with it all
        else works too, and it is checked to be the same one.
    classes: your own families, rules and other parts that the run used.
    """
    if target is not None and not isinstance(target, Target):
        raise TypeError(f"target must be a boostvi.Target, got {type(target).__name__}")
    file = archive.file_of("path", path)
    run, known, manifest = read(file, classes)
    status = manifest["status"] or "interrupted"
    if target is None:
        missing = NoTarget(file, manifest["names"], manifest["constrained"])
        return LoadedResult(missing, run, status, known, manifest["summary"])
    check_target(f"{file}", run, target)
    result = Result(target, run, status)
    vars(result).update({name: value for name, value in known.items() if name != "_importance"})  # it has no weights
    return result


class Checkpoint:
    """The file that a fit writes after each step; refused, before any work, if it cannot be written."""

    def __init__(self, path: Any, target: Target):
        self.file = archive.writable("checkpoint", path)
        self.target = target
        self.complete = False  # whether the file says how the run ended
        self.warned = False

    def found(self, recipe: Recipe) -> Run | None:
        """The run that is there already; classes of the user's own are those of this recipe."""
        encode(recipe)  # raises if it cannot be stored
        if not self.file.exists():
            return None
        run, _, manifest = read(self.file, own_classes(recipe))
        self.complete = manifest["status"] is not None
        return run

    def write(self, run: Run, status: str | None = None) -> None:
        """A failure is no more than a warning: the fit is worth more than its checkpoint."""
        try:
            archive.write(self.file, *contents(run, self.target.names, self.target.constrain is not None, status))
            self.complete = status is not None
        except OSError as error:
            if not self.warned:
                self.warned = True
                warnings.warn(f"{error}; the fit goes on and tries again after each step", RuntimeWarning, stacklevel=4)

    def close(self, run: Run, status: str) -> None:
        """Note how the run ended, unless that is there already."""
        if not self.complete:
            self.write(run, status)
