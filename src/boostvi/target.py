"""The target: an unnormalised log density on R^d, where to start from, and how to report in its own space."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import trees
from boostvi._jit import counted_jit, float64, host_generator, in_tiles, map_chunked
from boostvi._struct import struct
from boostvi.minibatch import Minibatch, Subsampled
from boostvi.model import Model
from boostvi.program import CHUNK_BYTES, MAX_TILE, first_line, or_no_mass, trace
from boostvi.warp import Warp

CHEAP_BYTES = 2**12
"""A target whose largest intermediate array for one draw is smaller than this is cheap (a regression on 500 rows)."""
START_TRIES = 64
"""Starting points tried before a target without a finite log density is refused."""

_STATIC = ("_program", "init", "constrain", "names", "chunk", "tile", "model", "unravel")
"""What of a target is compiled in."""

LogDensity = Callable[[Any], Float[Array, ""]]
Init = Callable[[Array], Any]


@jax.tree_util.register_pytree_node_class
class Target:
    """`log_density(z)` for z in R^dim, up to a constant.

    log_density: a JAX function from an array of shape (dim,) to a scalar. It is called with float64.
    dim: number of unconstrained parameters; or an example of them, a dictionary of arrays or any other pytree, which is
        then what log_density, init and constrain work with, and what `Result.sample` returns.
    init: `init(key) -> z` draws dispersed starting points; default N(0, I).
    constrain: `constrain(z) -> pytree` maps one draw to the model's own space; default the identity.
    names: one label per coordinate, for tables and pictures.
    model: what is known of the model behind the density, for reports in its own terms; see `Model`.
    minibatch: a `Minibatch`, which estimates log_density from some of the data.

    The function is traced once, here: what it closes over (the data) becomes an argument of the compiled programs
    instead of a constant inside each of them.
    """

    def __init__(
        self,
        log_density: LogDensity,
        dim: Any,
        init: Init | None = None,
        *,
        constrain: Callable[[Any], Any] | None = None,
        names: Sequence[str] | None = None,
        model: Model | None = None,
        minibatch: Minibatch | None = None,
    ):
        if not callable(log_density):
            raise TypeError(f"log_density must be a function of one array of shape (dim,), got {log_density!r}")
        self.unravel: Callable[[Any], Any] | None = None
        if _is_example(dim):
            names = trees.labels(dim) if names is None else names
            dim, self.unravel = trees.flattener(dim)
            log_density, init, constrain = _flat(self.unravel, log_density, init, constrain)
        if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        if init is not None and not callable(init):
            raise TypeError(f"init must be a function from a PRNG key to an array of shape ({dim},), got {init!r}")
        if names is not None and len(names) != dim:
            raise ValueError(f"names must hold one label for each of the {dim} coordinates, got {len(names)}")
        self._program, self._data = trace(log_density, (jax.ShapeDtypeStruct((int(dim),), np.float64),))
        self.init = init if init is not None else _StandardNormal(int(dim))
        self.constrain = constrain
        self.model = model
        self.minibatch = minibatch
        self.names = tuple(names) if names is not None else tuple(f"z[{i}]" for i in range(dim))
        self.chunk, self.tile = self._program.chunk, self._program.tile

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def is_costly(self) -> bool:
        """Whether one evaluation costs so much that searches make do with fewer of them."""
        return self.tile < MAX_TILE

    @property
    def is_cheap(self) -> bool:
        """Whether one evaluation costs so little that estimates may have four times as many draws."""
        small = self.chunk * CHEAP_BYTES >= CHUNK_BYTES
        return small and not self.is_costly and self.minibatch is None

    @property
    def is_float64(self) -> bool:
        """Whether the log density is computed with 64 bits."""
        return self._program.is_float64

    def __repr__(self) -> str:
        return f"Target(dim={self.dim})"

    def raw_log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """What the user's function returns at one point."""
        return self._program(self._data, z)

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """ln p(z) at one point. A NaN, or a +inf that no density has, counts as −inf: no mass there."""
        return or_no_mass(self.raw_log_density(z))

    @property
    def original(self) -> Target:
        """Itself; for what `through` gives, the target behind it."""
        return self

    def through(self, warp: Warp | None) -> Target:
        """The same target seen through a change of variables, a `Warped`; itself, if there is none."""
        return self if warp is None else Warped(self, warp)  # type: ignore[return-value]  # used as any target is

    def subsampled(self, key: Array) -> Subsampled | Target:
        """The same target seen through one minibatch; itself, if it has none."""
        return self if self.minibatch is None else Subsampled(self, key)

    def log_density_of(self, draws: Float[Array, "draws dim"]) -> Float[Array, " draws"]:
        """ln p at many points, in chunks that bound the memory."""
        return map_chunked(self.log_density, draws, self.chunk)

    def tree_flatten(self):
        return (self._data, self.minibatch), tuple(getattr(self, name) for name in _STATIC)

    @classmethod
    def tree_unflatten(cls, static, children):
        target = object.__new__(cls)
        for name, value in zip(_STATIC, static, strict=True):
            setattr(target, name, value)
        target._data, target.minibatch = children
        return target


@struct
class Warped:
    """The density of u where z = warp(u) has the density of `target`."""

    target: Target
    warp: Warp

    minibatch = None
    is_cheap = False

    def init(self, key: Array) -> Float[Array, " dim"]:
        return self.warp.backward(self.target.init(key))

    def subsampled(self, key: Array) -> Warped:
        return self

    @property
    def original(self) -> Target:
        return self.target

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def is_costly(self) -> bool:
        return self.target.is_costly

    @property
    def is_float64(self) -> bool:
        return self.target.is_float64

    @property
    def chunk(self) -> int:
        return self.target.chunk

    @property
    def tile(self) -> int:
        return self.target.tile

    def log_density(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        z, log_det = self.warp.forward(u)
        return or_no_mass(self.target.log_density(z) + log_det)

    def log_density_of(self, draws: Float[Array, "draws dim"]) -> Float[Array, " draws"]:
        return map_chunked(self.log_density, draws, self.chunk)


@counted_jit(runs_model=True)
def _log_density_of(target: Target, draws: Any) -> Array:
    return target.log_density_of(draws)


@float64
def log_densities(target: Target, draws: Any) -> np.ndarray:
    """ln p at the rows of `draws`. A small model's gradient costs less than compiling it again without."""
    if isinstance(target, Warped):
        z, log_det = target.warp.to_z(draws)
        with np.errstate(invalid="ignore"):
            return _or_none(log_densities(target.target, z) + log_det)
    if target.tile == MAX_TILE:
        return values_and_gradients(target, draws)[0]
    return np.asarray(_log_density_of(target, draws))


@counted_jit(runs_model=True)
def _tile(target: Target, z: Array) -> tuple[Array, Array]:
    return map_chunked(jax.value_and_grad(target.log_density), z, target.chunk)


@float64
def values_and_gradients(target: Target, z: Any) -> tuple[np.ndarray, np.ndarray]:
    """ln p and ∇ ln p at the rows of z, in tiles of one shape: however many rows, the model compiles once."""
    if isinstance(target, Warped):
        values, gradients = target.warp.composed(lambda own: values_and_gradients(target.target, own), z)
        return _or_none(values), gradients
    return in_tiles(lambda rows: _tile(target, rows), np.asarray(z, dtype=np.float64), target.tile)


def to_own(target: Target, u: np.ndarray) -> np.ndarray:
    """Points as the target behind a warp has them."""
    return target.warp.to_z(u)[0] if isinstance(target, Warped) else u


def from_own(target: Target, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The way back, and ln |det ∂z/∂u|."""
    return target.warp.to_u(z) if isinstance(target, Warped) else (z, np.zeros(len(z)))


def _or_none(values: np.ndarray) -> np.ndarray:
    """ln p, −inf where a warp overflows: there is no mass so far out."""
    return np.where(np.isnan(values) | (values == np.inf), -np.inf, values)


@dataclasses.dataclass(frozen=True)
class _StandardNormal:
    dim: int

    def __call__(self, key: Array) -> Float[Array, " dim"]:
        return jax.random.normal(key, (self.dim,))


def _is_example(dim: Any) -> bool:
    """Whether `dim` is a pytree of arrays and not a number (or something that is neither)."""
    leaves = jax.tree.leaves(dim)
    return len(leaves) > 0 and (leaves[0] is not dim or (isinstance(dim, (np.ndarray, Array)) and np.ndim(dim) > 0))


def _flat(unravel: Any, log_density: Any, init: Any, constrain: Any) -> tuple[Any, Any, Any]:
    """The same functions for flat vectors instead of trees."""
    if init is not None and not callable(init):
        raise TypeError(f"init must be a function from a PRNG key to parameters like `dim`, got {init!r}")
    to_own = unravel if constrain is None else lambda z: constrain(unravel(z))
    return lambda z: log_density(unravel(z)), None if init is None else lambda key: trees.ravel(init(key)), to_own


@counted_jit
def _starting_points(target: Target, key: Array) -> Array:
    return jax.vmap(target.init)(jax.random.split(key, START_TRIES)).astype(jnp.float64)


@float64
def starting_points(target: Target, key: Array) -> np.ndarray:
    """Dispersed starting points, as `init` draws them."""
    if isinstance(target, Warped):
        return from_own(target, starting_points(target.target, key))[0]
    if isinstance(target.init, _StandardNormal):  # nothing to compile
        return host_generator(key).standard_normal((START_TRIES, target.dim))
    return np.asarray(_starting_points(target, key))


@counted_jit
def _raw_densities(target: Target, starts: Any) -> Array:
    return map_chunked(target.raw_log_density, starts, target.chunk)


@float64
def validate_start(target: Target, key: Array) -> None:
    """Refuse, before any work, a target whose log density is finite at none of its starting points."""
    shape = jax.eval_shape(target.init, key).shape
    if shape != (target.dim,):
        raise ValueError(f"init must return an array of shape ({target.dim},), got {shape}")
    try:
        starts = starting_points(target, key)
        if np.isfinite(values_and_gradients(target, starts)[0]).any():
            return
        values = np.asarray(_raw_densities(target, starts))
    except Exception as error:  # the user's code again, now with numbers (a callback into another language, say)
        raise ValueError(
            f"log_density raised {type(error).__name__} at the starting points: {first_line(error)}"
        ) from error
    if np.isnan(values).any():
        cause = "NaN"
        floats = [d for d in target._data if jnp.issubdtype(d.dtype, jnp.floating)]
        remedy = (
            "the data it uses contain NaN: remove, impute or mask them"
            if any(np.isnan(d).any() for d in floats)
            else "look for the log of a negative number, 0/0 or inf − inf in it"
        )
    else:
        cause = "infinite"
        remedy = "pass init= with starting points inside the support, or transform the parameters to all of R^d"
    raise ValueError(f"log_density is {cause} at all {START_TRIES} starting points drawn from init; {remedy}")
