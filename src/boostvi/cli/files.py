"""Names of files as people write them, and files that are there as a whole or as they were before."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_whole(file: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write beside the file and give it its name at the end."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as stream:
            write(stream)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def shown(path: Path) -> Path:
    """As a person would write it: relative, where that is shorter."""
    relative = os.path.relpath(path)
    return min(Path(relative), path, key=lambda way: len(str(way)))
