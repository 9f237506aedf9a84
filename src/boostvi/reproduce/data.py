"""Data sets of the experiments: the user's own file, the real rows beside the project, or a seeded stand-in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boostvi.cli import UsageError
from boostvi.reproduce import files

TEST_SHARE = 0.1
FOLDS = 10
MIN_OF_CLASS = 2
"""Of one of them the test set would have it, and the training rows one class only."""
SPLIT_SEED = 2021
"""Of the split into train and test rows where a file does not bring one, of folds, and of stand-ins."""


@dataclass(frozen=True)
class Data:
    """Standardised features, labels 0/1, a split, folds, and in words where they come from."""

    X: np.ndarray
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray
    fold: np.ndarray
    source: str
    is_real: bool

    @property
    def fingerprint(self) -> str:
        return _digest(self.X, self.y, self.train, self.test)

    @property
    def folds(self) -> str:
        """A fingerprint of the folds, which the sweep itself does not see."""
        return _digest(self.fold)

    @property
    def repeated(self) -> int:
        """Test rows whose features a train row has too: on them a prediction is no prediction."""
        X = self.X + 0.0  # −0 is 0
        seen = {row.tobytes() for row in X[self.train]}
        return sum(row.tobytes() in seen for row in X[self.test])


def _digest(*parts: np.ndarray) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def beside(name: str) -> Path | None:
    """A file in `../shared/data`, seen from the working directory or from the project that this code is in."""
    for root in (Path.cwd(), Path(__file__).resolve().parents[3]):
        path = root.parent / "shared" / "data" / name
        if path.is_file():
            return path
    return None


def load(path: Path, columns: int | None = None, standardise: bool = True, label: str | None = None) -> Data:
    """A csv (features and a label column) or an npz (X, y, and if there are any train_index, test_index, fold). label:
    the name of the column, or of the array, if it is none that is looked for."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"--data {path}: there is no such file")
    arrays, how = files.read(path, label)
    if arrays["X"].dtype.kind not in "fiub":
        raise UsageError(f"--data {path}: X must hold real numbers, it is an array of {arrays['X'].dtype}")
    X, y = np.asarray(arrays["X"], dtype=np.float64), np.asarray(arrays["y"])
    if X.ndim != 2 or y.shape != (len(X),):
        raise UsageError(
            f"--data {path}: X must be rows × columns and y one label per row, got {X.shape} and {y.shape}"
        )
    if columns is not None and X.shape[1] != columns:
        raise UsageError(
            f"--data {path}: {columns} feature columns and one label are wanted, got {X.shape[1]} features"
        )
    if not X.shape[1]:
        raise UsageError(f"--data {path}: there is a label, but no feature column")
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise UsageError(
            f"--data {path}: feature {column + 1} of row {row + 1} is NaN or infinite "
            f"({int((~np.isfinite(X)).any(axis=1).sum())} such rows); remove or impute them"
        )
    y = _two_classes(path, y)
    index: dict[str, np.ndarray] = {
        name: np.asarray(arrays[name]) for name in ("train_index", "test_index", "fold") if name in arrays
    }
    _check_index(path, y, index)
    index = {name: values.astype(int) for name, values in index.items()}
    return _split(X, y, f"{path.name}: {len(X)} rows × {X.shape[1]} columns{how}", True, index, standardise)


def _check_index(path: Path, y: np.ndarray, index: dict[str, np.ndarray]) -> None:
    """A split and folds that a file brings must be ones of its rows."""
    for name, values in index.items():
        top = len(values) if name == "fold" else len(y)
        fits = values.shape == y.shape if name == "fold" else values.ndim == 1 and len(values) > 0
        if not fits or values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= top:
            wanted = "a fold number, from 0 on, for each row" if name == "fold" else f"row numbers from 0 to {top - 1}"
            raise UsageError(f"--data {path}: {name} must hold {wanted}")
        if name != "fold" and len(np.unique(values)) < len(values):
            raise UsageError(f"--data {path}: {name} holds a row number twice")
        if name == "fold" and (values.max() < 1 or len(np.unique(values)) < values.max() + 1):
            raise UsageError(f"--data {path}: fold must hold every number from 0 to K − 1, with K at least 2")
    both = np.intersect1d(index.get("train_index", []), index.get("test_index", []))
    if len(both):
        raise UsageError(f"--data {path}: row {int(both[0])} is in train_index and in test_index")


def _split(X: np.ndarray, y: np.ndarray, source: str, is_real: bool, index: dict, standardise: bool = True) -> Data:
    fold = index["fold"] if "fold" in index else _folds(y, FOLDS)
    rows, train, test = np.arange(len(y)), index.get("train_index"), index.get("test_index")
    if test is None:
        drawn = np.flatnonzero(_folds(y, round(1 / TEST_SHARE)) == 0)
        test = drawn if train is None else np.setdiff1d(rows, train)
    if train is None:
        train = np.setdiff1d(rows, test)
    if not len(test):
        raise UsageError(f"{source}: train_index has every row, none is left for the test")
    if len(np.unique(y[train])) < 2:
        raise UsageError(f"{source}: the {len(train)} train rows have one class only")
    if standardise:
        sd = X[train].std(axis=0)
        X = (X - X[train].mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    return Data(X, y, train, test, fold, source, is_real)


def _folds(y: np.ndarray, n: int) -> np.ndarray:
    """Stratified: each fold has its share of either class."""
    rng, fold = np.random.default_rng(SPLIT_SEED), np.zeros(len(y), dtype=int)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        fold[rows] = np.arange(len(rows)) % n
    return fold


def _two_classes(path: Path, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise UsageError(f"--data {path}: row {int(np.flatnonzero(np.isnan(y))[0]) + 1} has no label (NaN)")
    classes = np.unique(y)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:4])) + (", …" if len(classes) > 4 else "")
        raise UsageError(f"--data {path}: the label must have two classes, it has {len(classes)} ({shown})")
    rarest = min(np.count_nonzero(y == c) for c in classes)
    if rarest < MIN_OF_CLASS:
        raise UsageError(f"--data {path}: each class needs {MIN_OF_CLASS} rows, one has {rarest}")
    return (y == classes[1]).astype(int)


def stand_in(
    rows: int, columns: int, positive: float, like: Path | None = None, seed: int = SPLIT_SEED, what: str = ""
) -> Data:
    """Seeded rows from a logistic model: with the covariance and the fitted weights of the real rows in `like`, or
    with a decaying spectrum of its own. The intercept is set for the share of positives.

    For scale and speed; it is no evidence that the paper's table replicates.
    """
    rng = np.random.default_rng(seed)
    if like is None:
        basis = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
        factor = basis * np.sqrt(1.0 / (1.0 + np.arange(columns)))
        weights = rng.standard_normal(columns) * 0.6
        origin = "a decaying spectrum"
    else:
        arrays, _ = files.read(like)
        real = np.asarray(arrays["X"], dtype=np.float64)
        values, vectors = np.linalg.eigh(np.cov(real, rowvar=False))
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        weights = arrays.get("synthetic_w", rng.standard_normal(columns) * 0.6)
        origin = "the covariance of the real rows"
    X = rng.standard_normal((rows, columns)) @ factor.T
    logits = X / X.std(axis=0) @ weights
    u = rng.logistic(size=rows)
    score = logits + u
    y = (score > np.quantile(score, 1.0 - positive)).astype(int)
    source = f"stand-in{what}: {rows} × {columns} seeded rows with {origin}, {positive:.1%} positive; no real data"
    return _split(X, y, source, False, {})


def part(data: Data, rows: int) -> Data:
    """Some of the rows, split anew, with both classes in their shares but enough of either to be in train and test; for
    a quick look at data that are too large for one."""
    if rows >= len(data.y):
        return data
    parts = max(2, len(data.y) // rows)
    kept = [
        np.flatnonzero((data.y == label) & (_folds(data.y, parts) == 0))
        if np.count_nonzero(data.y == label) >= parts * MIN_OF_CLASS
        else np.flatnonzero(data.y == label)[:MIN_OF_CLASS]
        for label in (0, 1)
    ]
    some = np.sort(np.concatenate(kept))
    source = f"{data.source}; only {len(some)} of the rows, split anew"
    return _split(data.X[some], data.y[some], source, data.is_real, {})
