"""Flat vectors and the trees of named arrays that people think in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from boostvi._jit import float64


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves with their names, "a.b" for nested ones, in the order of the flat vector."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(".".join(_part(key) for key in path) or "z", leaf) for path, leaf in leaves]


def labels(tree: Any) -> tuple[str, ...]:
    """One label per number in the tree."""
    return tuple(label for name, leaf in named_leaves(tree) for label in _indexed(name, np.shape(leaf)))


def columns(draws: Any) -> dict[str, np.ndarray]:
    """Stacked draws as scalar columns, named by site and index."""
    found: dict[str, np.ndarray] = {}
    for name, leaf in named_leaves(draws):
        values = np.asarray(leaf, dtype=np.float64)
        found.update(zip(_indexed(name, values.shape[1:]), values.reshape(len(values), -1).T, strict=True))
    return found


@float64
def flattener(example: Any) -> tuple[int, Callable[[Any], Any]]:
    """How many numbers a tree like `example` holds, and the function that makes one of a flat vector."""
    for name, leaf in named_leaves(example):
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if not (np.issubdtype(dtype, np.floating) or np.issubdtype(dtype, np.integer)):
            raise TypeError(f"parameter {name!r} must hold real numbers, got {dtype}")
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), example))
    return flat.size, unravel


def ravel(tree: Any) -> Any:
    return ravel_pytree(tree)[0]


def _part(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _indexed(name: str, shape: tuple[int, ...]) -> list[str]:
    return [f"{name}[{','.join(map(str, index))}]" if index else name for index in np.ndindex(shape)]
