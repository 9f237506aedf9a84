"""The parts of the library that the commands hand their work to, each imported here and nowhere else."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any


def tracer(folder: Path) -> list[Any]:
    """The callback that keeps every step for the report's explorer."""
    return [_trace().Trace(folder)] if _trace() else []


def load_trace(folder: Path) -> Any:
    """What the callback kept; None for a run without it."""
    kept = folder.is_dir() and any(folder.iterdir())
    return _trace().Trace.load(folder) if _trace() and kept else None


def write_report(result: Any, trace: Any, path: Path, *, title: str, command: str | None) -> Path:
    return Path(importlib.import_module("boostvi.report").write(result, trace, path, title=title, command=command))


def compare_picture(results: dict[str, Any]) -> Any:
    """A figure of several runs."""
    return importlib.import_module("boostvi.plots").compare(results)


def _trace() -> Any:
    return importlib.import_module("boostvi.trace") if importlib.util.find_spec("boostvi.trace") else None
