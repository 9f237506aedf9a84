"""A target seen through some of its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from boostvi._jit import new_key
from boostvi._struct import struct
from boostvi.program import or_no_mass, trace

if TYPE_CHECKING:
    from boostvi.target import Target


@jax.tree_util.register_pytree_node_class
class Minibatch:
    """`log_density(z, key)`: ln p(z) estimated without bias from the `share` of the data that the key picks.

    Reparameterised gradients of components (Adam) use it; whatever is compared or reported uses all data.
    """

    def __init__(self, log_density: Callable[[Any, Array], Any], dim: int, share: float):
        point = jax.ShapeDtypeStruct((dim,), np.float64)
        self._program, self._data = trace(log_density, (point, jax.eval_shape(lambda: new_key(0))))
        self.share = share

    def log_density(self, z: Float[Array, " dim"], key: Array) -> Float[Array, ""]:
        return self._program(self._data, z, key)

    def tree_flatten(self):
        return (self._data,), (self._program, self.share)

    @classmethod
    def tree_unflatten(cls, static, children):
        minibatch = object.__new__(cls)
        minibatch._program, minibatch.share = static
        (minibatch._data,) = children
        return minibatch


@struct
class Subsampled:
    """A target seen through one minibatch."""

    target: Target
    key: Array

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def chunk(self) -> int:
        return self.target.chunk

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        assert self.target.minibatch is not None
        return or_no_mass(self.target.minibatch.log_density(z, self.key))
