"""Entries of a matrix that is to be factorised: the user's own, or drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boostvi.cli import UsageError
from boostvi.cli.data import npz_arrays
from boostvi.reproduce import files
from boostvi.reproduce.experiments import Size

ROWS, COLUMNS = 50, 60
SEEN = 0.5


@dataclass(frozen=True)
class Entries:
    """values: NaN-free; seen, hidden: which of them the fit has, and which it is tested on; noise: standard deviation
    of an entry around its product; source: in words."""

    values: np.ndarray
    seen: np.ndarray
    hidden: np.ndarray
    rank: int
    noise: float
    source: str

    @property
    def dim(self) -> int:
        return sum(self.values.shape) * self.rank

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.values).tobytes())
        digest.update(np.ascontiguousarray(self.seen).tobytes())
        return digest.hexdigest()[:16]


def of(options: Mapping[str, Any]) -> Entries:
    """What the options of a command mean, in any process."""
    rank, noise = options["rank"], options["noise"]
    most = Size(*options["size"]).rows
    return load(Path(options["data"]), rank, noise, most) if options["data"] else drawn(0, rank, noise)


def drawn(seed: int, rank: int = 3, noise: float = 0.1) -> Entries:
    """R = U Vᵀ + noise with standard Normal factors, as the authors draw it."""
    rng = np.random.default_rng(seed)
    product = rng.standard_normal((ROWS, rank)) @ rng.standard_normal((COLUMNS, rank)).T
    values = product + noise * rng.standard_normal((ROWS, COLUMNS))
    seen = rng.random((ROWS, COLUMNS)) < SEEN
    source = f"{ROWS} × {COLUMNS} entries of rank {rank}, half of them seen, drawn by the command (seed {seed})"
    return Entries(values, seen, ~seen, rank, noise, source)


def load(path: Path, rank: int, noise: float, most: int | None = None) -> Entries:
    """A matrix, or images as its rows, in units of its spread; missing entries are neither seen nor tested on. most:
    rows, and columns, that a quick look takes."""
    matrix = _read(path)
    known = np.isfinite(matrix)
    if np.isinf(matrix).any() or not known.any():
        raise UsageError(f"--data {path}: entries must be numbers, or missing, but not infinite or all missing")
    rng, shape = np.random.default_rng(0), matrix.shape
    if most is not None:
        rows, columns = (np.sort(rng.permutation(n)[:most]) for n in shape)
        matrix, known = matrix[np.ix_(rows, columns)], known[np.ix_(rows, columns)]
    seen = known & (rng.random(matrix.shape) < SEEN)
    hidden = known & ~seen
    if not hidden.any() or not seen.any() or np.ptp(matrix[seen]) == 0.0:
        raise UsageError(f"--data {path}: too few different entries to hide half of them")
    values = np.where(known, (matrix - matrix[seen].mean()) / matrix[seen].std(), 0.0)
    part = "" if matrix.shape == shape else f"; only {matrix.shape[0]} × {matrix.shape[1]} of them"
    source = f"{path.name}: {shape[0]} × {shape[1]} entries{part}, {seen.sum()} of them seen, {hidden.sum()} hidden"
    return Entries(values, seen, hidden, rank, noise, source)


def _read(path: Path) -> np.ndarray:
    if not path.is_file():
        raise UsageError(f"--data {path}: there is no such file")
    if path.suffix == ".npz":
        arrays = npz_arrays(path)
        if "R" not in arrays and len(arrays) != 1:
            raise UsageError(
                f"--data {path}: the matrix must be the array R, or the only one; it has {', '.join(arrays)}"
            )
        found = arrays.get("R", next(iter(arrays.values())))
    else:
        found = files.numbers(path, files.rows_of(path)[1])
    if found.ndim == 3:  # images
        found = found.reshape(len(found), -1)
    if found.ndim != 2 or min(found.shape) < 2 or found.dtype.kind not in "fiub":
        raise UsageError(f"--data {path}: a matrix of numbers is wanted, got {found.dtype} of shape {found.shape}")
    return found.astype(np.float64)
