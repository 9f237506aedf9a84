"""A log density as a program: traced once, evaluated at many points, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Float

from boostvi._jit import float64

CHUNK_BYTES = 2**25
"""Draws are evaluated in chunks whose largest intermediate array has about this size (32 MB)."""
MIN_TILE = 16
MAX_TILE = 128
TILE_BYTES = 2**22
"""Gradients at many points are computed in tiles of 16 to 128 rows, smaller where a row of the model is larger: a small
batch is padded to a whole tile, which must not cost much."""
ROW_BY_ROW = {"cholesky", "triangular_solve", "lu", "qr", "eigh", "eig", "svd", "pure_callback", "io_callback"}
"""What a CPU does for one row after the other: nothing is gained by many rows, and padding is paid in full."""


class Program:
    """The traced log density. Hashed by identity: a target compiles once, however often it is fitted."""

    def __init__(self, jaxpr: Any):
        self.jaxpr = jaxpr

    def __call__(self, data: list[Array], z: Float[Array, " dim"], *args: Array) -> Float[Array, ""]:
        """What the user's function returns at one point; `data` is what it closes over."""
        (value,) = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, data))(z, *args)
        return value.astype(z.dtype)

    @property
    def chunk(self) -> int:
        """Draws that are evaluated at once."""
        return max(1, CHUNK_BYTES // _largest_intermediate(self.jaxpr))

    @property
    def tile(self) -> int:
        """Rows of the one compiled program that computes ln p and its gradient at many points."""
        if _goes_row_by_row(self.jaxpr):
            return MIN_TILE
        rows = self.chunk * TILE_BYTES // CHUNK_BYTES
        return int(min(MAX_TILE, max(MIN_TILE, 1 << max(rows, 1).bit_length() - 1)))

    @property
    def is_float64(self) -> bool:
        return bool(self.jaxpr.outvars[0].aval.dtype == jnp.float64)


@float64
def trace(log_density: Callable[..., Any], like: tuple[Any, ...]) -> tuple[Program, list[Array]]:
    try:
        closed, shape = jax.make_jaxpr(log_density, return_shape=True)(*like)
    except Exception as error:  # whatever the user's code raises, in their words
        raise ValueError(
            f"log_density raised {type(error).__name__} when called with an array of shape {like[0].shape}: "
            f"{first_line(error)}. Check `dim`, and that the function is written with jax.numpy."
        ) from error
    leaves = jax.tree.leaves(shape)
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        found = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise ValueError(f"log_density must return one real number, got {found}; sum over the observations")
    return Program(closed.jaxpr), [jnp.asarray(value) for value in closed.consts]


def _largest_intermediate(jaxpr: Any) -> int:
    """Bytes of the largest array that the program, or one inside it (jit, scan, …), makes for one draw."""
    arrays = [v.aval for e in jaxpr.eqns for v in e.outvars if hasattr(v.aval, "size")]
    return max([512, *(a.size * a.dtype.itemsize for a in arrays), *map(_largest_intermediate, _inside(jaxpr))])


def _inside(jaxpr: Any) -> list[Any]:
    """The programs inside a program."""
    parts = [part for e in jaxpr.eqns for value in e.params.values() for part in jax.tree.leaves(value)]
    return [getattr(part, "jaxpr", part) for part in parts if hasattr(getattr(part, "jaxpr", part), "eqns")]


def _goes_row_by_row(jaxpr: Any) -> bool:
    return any(e.primitive.name in ROW_BY_ROW for e in jaxpr.eqns) or any(map(_goes_row_by_row, _inside(jaxpr)))


def first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else "no message"


def or_no_mass(value: Float[Array, ""]) -> Float[Array, ""]:
    """ln p. A NaN, or a +inf that no density has, counts as −inf: no mass there."""
    return jnp.where(jnp.isnan(value) | (value == jnp.inf), -jnp.inf, value)
