"""Inverses of triangular matrices by matrix products.

XLA's batched triangular solves can wait for each other for ever on a CPU with few cores (two of them in one program are
enough), so the families use none.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def unit_lower_inverse(matrix: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """(I + N)⁻¹ for the strictly lower part N of `matrix`, by block inversion.

    Blocks double in size: [[A, 0], [C, B]]⁻¹ = [[A⁻¹, 0], [−B⁻¹ C A⁻¹, B⁻¹]], all blocks of one size at once.
    """
    dim = matrix.shape[-1]
    size = 1 << (dim - 1).bit_length()
    padded = jnp.zeros((size, size)).at[:dim, :dim].set(matrix)
    inverses = jnp.ones((size, 1, 1))
    width = 1
    while width < size:
        n = size // (2 * width)
        diagonal = padded.reshape(n, 2 * width, n, 2 * width)[jnp.arange(n), :, jnp.arange(n), :]
        upper, lower = inverses[0::2], inverses[1::2]
        corner = -lower @ diagonal[:, width:, :width] @ upper
        top = jnp.concatenate([upper, jnp.zeros_like(corner)], axis=2)
        inverses = jnp.concatenate([top, jnp.concatenate([corner, lower], axis=2)], axis=1)
        width *= 2
    return inverses[0, :dim, :dim]


def lower_inverse(matrix: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """L⁻¹ of a lower triangular L with a positive diagonal."""
    diagonal = jnp.diagonal(matrix)
    return unit_lower_inverse(matrix / diagonal[:, None]) / diagonal
