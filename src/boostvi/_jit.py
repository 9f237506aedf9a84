"""Compilation and precision, in one place.

All of the library's own arithmetic is float64, inside a scope: a user's float32 code before, between and after
our calls keeps its precision, because the global switch is never touched.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

P = ParamSpec("P")
R = TypeVar("R")

MAX_ROWS = 8192
"""Rows evaluated at once. jaxlib 0.10 gives wrong values for sum((A @ z)²) vmapped over more than 16,384 rows."""

trace_counts: Counter[str] = Counter()
"""How often each jitted function of the library was traced (and so compiled) in this process."""

_inlined: ContextVar[bool] = ContextVar("inlined", default=False)

QUICK: dict[str, Any] = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
"""Compile in half the time; the library's own programs run no slower for it."""


def counted_jit(function: Callable[P, R] | None = None, *, runs_model: bool = False, **options: Any) -> Any:
    """`jax.jit` that counts its traces in `trace_counts` under the function's name.

    runs_model: the program is mostly the user's model, and is worth the compiler's full effort.
    """
    if function is None:
        return functools.partial(counted_jit, runs_model=runs_model, **options)

    @functools.wraps(function)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        trace_counts[function.__qualname__] += 1
        return function(*args, **kwargs)

    @functools.cache
    def compiled() -> Callable[P, R]:
        return jax.jit(traced, compiler_options=None if runs_model else quick_options(), **options)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs) if _inlined.get() else compiled()(*args, **kwargs)

    return call


def compile_without_optimisation() -> None:
    """For a process whose programs hardly run; before the first of them is compiled."""
    QUICK["xla_backend_optimization_level"] = 0


@functools.cache
def quick_options() -> dict[str, Any]:
    """Those of QUICK that the installed XLA knows: it drops options without notice. Asked at the first call of a
    program, because asking needs a device."""

    def is_known(name: str) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: QUICK[name]}).lower().compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in QUICK.items() if is_known(name)}


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """For a function that is traced as a whole: what it calls becomes part of it instead of a program of its own.

    JAX allows compiler options for outermost programs only.
    """

    @functools.wraps(function)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _inlined.set(True)
        try:
            return function(*args, **kwargs)
        finally:
            _inlined.reset(token)

    return scoped


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with 64-bit arithmetic switched on for its duration only."""

    @functools.wraps(function)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return scoped


def map_chunked(function: Callable[..., Any], xs: Any, chunk: int) -> Any:
    """`vmap` over the leading axis, in chunks of at most `chunk` rows, which bounds the memory.

    Rows are padded to whole chunks (`lax.map` would compile `function` a second time for the remainder).
    """
    n = jax.tree.leaves(xs)[0].shape[0]
    chunk = min(chunk, MAX_ROWS)
    if n <= chunk:
        return jax.vmap(function)(xs)
    n_chunks = -(-n // chunk)
    chunk = -(-n // n_chunks)
    rows = jnp.minimum(jnp.arange(n_chunks * chunk), n - 1).reshape(n_chunks, chunk)
    out = jax.lax.map(lambda row: jax.vmap(function)(jax.tree.map(lambda leaf: leaf[row], xs)), rows)
    return jax.tree.map(lambda leaf: leaf.reshape(n_chunks * chunk, *leaf.shape[2:])[:n], out)


def in_tiles(function: Callable[[Any], tuple[Any, Any]], rows: np.ndarray, tile: int) -> tuple[np.ndarray, np.ndarray]:
    """Both results of `function` for all rows, called with `tile` rows at a time: one shape, one compilation."""
    n = rows.shape[0]
    if n == 0:
        return np.zeros(0), np.zeros(rows.shape)
    padded = np.concatenate([rows, np.repeat(rows[-1:], -n % tile, axis=0)])
    parts = [function(padded[i : i + tile]) for i in range(0, n, tile)]
    first, second = (np.concatenate([np.asarray(part[j]) for part in parts])[:n] for j in (0, 1))
    return first, second


def new_key(seed: int) -> Array:
    """A typed key of XLA's own generator: its programs compile ten times faster than threefry's."""
    return jax.random.key(seed, impl="rbg")


def host_generator(key: Array) -> np.random.Generator:
    """A NumPy generator for work outside jit, seeded by the key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def sub_keys(key: Array, n: int) -> list[Array]:
    """n independent keys; outside jit every n costs the same one small compilation, which `split` does not."""
    return [jax.random.fold_in(key, i) for i in range(n)]
