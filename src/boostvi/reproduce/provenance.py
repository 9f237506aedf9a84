"""Which code made a number, where and when: kept beside every batch and every result of a record."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Made(NamedTuple):
    """boostvi: version and a digest of the source, which changes between releases; at: UTC, to the second."""

    boostvi: str
    jax: str
    machine: str
    at: str

    @property
    def where(self) -> str:
        return f"boostvi {self.boostvi}, jax {self.jax}, {self.machine}"


def here() -> Made:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Made(code(), importlib.metadata.version("jax"), machine(), now)


@functools.cache
def code() -> str:
    """Call it early: it reads the files, which may change while a sweep runs the code that it has imported."""
    root, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{importlib.metadata.version('boostvi')} (source {digest.hexdigest()[:8]})"


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def told(made: Sequence[tuple[Made, int]], unknown: int) -> str:
    """What made how many, one part per code and machine, with the span of time; and of how many it is not recorded."""
    by_place: dict[str, list[tuple[str, int]]] = {}
    for one, count in made:
        by_place.setdefault(one.where, []).append((one.at, count))
    parts = [
        f"{where}: {sum(count for _, count in of)} ({min(of)[0]} to {max(of)[0]} UTC)" for where, of in by_place.items()
    ]
    return "; ".join(parts + ([f"not recorded: {unknown}"] if unknown else [])) or "–"
