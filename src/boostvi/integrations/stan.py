"""Stan models, through BridgeStan's interface: `log_density_gradient` and `param_constrain` of a compiled model."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi._jit import float64
from boostvi.target import Target

UNIFORM_RADIUS = 2.0
"""Starting points are uniform on (−2, 2) in unconstrained space, as Stan's are."""
START_TRIES = 64
"""Points at which Stan may fail before the model is refused."""
STEP = 6e-6
"""Of the differences of gradients that stand for second derivatives, about the cube root of the machine precision."""
METHODS = ("param_unc_num", "log_density_gradient", "param_names", "param_constrain")
STAN_ERRORS = (RuntimeError, ValueError, ArithmeticError)
"""What a model raises where its density does not exist; BridgeStan raises RuntimeError."""

Rows = Callable[[np.ndarray], np.ndarray]


def from_stan(model: Any) -> Target:
    """The posterior of a Stan model with its data, a `bridgestan.StanModel` or anything with the same methods.

    Stan computes ln p and its gradient in one call, on the CPU, one point after the other. Constants are kept, so that
    the evidence is that of other libraries. A point where Stan raises has no mass. Draws come back constrained, with
    transformed parameters and, if the model has `new_rng`, generated quantities: arrays indexed from 0.
    """
    missing = [name for name in METHODS if not callable(getattr(model, name, None))]
    if missing:
        raise TypeError(
            f"model must have BridgeStan's methods, but {type(model).__name__} lacks {', '.join(missing)}; compile the "
            "program with bridgestan.StanModel"
        )
    return _target(model)


@float64
def _target(model: Any) -> Target:
    dim = int(model.param_unc_num())
    if dim < 1:
        raise ValueError("the Stan model has no parameters")
    stan = _Stan(model, dim)
    stan.check()
    both = _differenced(_calls(stan.values_and_gradients, dim + 1))

    @jax.custom_jvp
    def log_density(z: jax.Array) -> jax.Array:
        return both(z)[0]

    @log_density.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        out = both(primals[0])
        return out[0], out[1:] @ tangents[0]

    flat = _calls(stan.constrained, len(stan.names))
    sites = _sites(stan.names)

    def constrain(z: jax.Array) -> dict[str, jax.Array]:
        values = flat(z)
        return {name: values[places] for name, places in sites.items()}

    return Target(
        log_density,
        dim,
        lambda key: jax.random.uniform(key, (dim,), minval=-UNIFORM_RADIUS, maxval=UNIFORM_RADIUS),
        constrain=constrain,
        names=[_label(name) for name in model.param_unc_names()] if hasattr(model, "param_unc_names") else None,
    )


class _Stan:
    """The model's functions for many points at once. A lock, as JAX may call from several threads."""

    def __init__(self, model: Any, dim: int):
        self.model, self.dim = model, dim
        self.with_generated = callable(getattr(model, "new_rng", None))
        self.names = list(model.param_names(include_tp=True, include_gq=self.with_generated))
        self.lock = threading.Lock()

    def check(self) -> None:
        """One starting point at least must do; otherwise what Stan says is the most useful thing to know."""
        rng = np.random.default_rng(0)
        for _ in range(START_TRIES):
            point = rng.uniform(-UNIFORM_RADIUS, UNIFORM_RADIUS, self.dim)
            try:
                _, gradient = self._call(point)
            except STAN_ERRORS as error:
                failure = error
                continue
            if np.shape(gradient) != (self.dim,):
                raise ValueError(
                    f"log_density_gradient must return a gradient of shape ({self.dim},), got {gradient!r}"
                )
            return
        raise ValueError(f"Stan raised at all {START_TRIES} starting points: {failure}") from failure

    def _call(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        return self.model.log_density_gradient(point, propto=False, jacobian=True)

    def values_and_gradients(self, points: np.ndarray) -> np.ndarray:
        """Rows of ln p and its gradient; −inf and zeros where there is no density."""
        out = np.zeros((len(points), 1 + self.dim))
        with self.lock, np.errstate(all="ignore"):  # a model in Python overflows far out, which is no news
            for i, point in enumerate(points):
                if i and np.array_equal(point, points[i - 1]):  # the padding of a tile
                    out[i] = out[i - 1]
                    continue
                try:
                    value, gradient = self._call(point)
                except STAN_ERRORS:
                    out[i, 0] = -np.inf
                    continue
                out[i, 0] = value if np.isfinite(value) else -np.inf
                out[i, 1:] = gradient if np.isfinite(value) else 0.0
        return out

    def constrained(self, points: np.ndarray) -> np.ndarray:
        """Rows of everything that the model writes; NaN where Stan raises."""
        out = np.full((len(points), len(self.names)), np.nan)
        with self.lock:
            options: dict[str, Any] = {"include_tp": True}
            if self.with_generated:  # the same draws give the same generated quantities
                options |= {"include_gq": True, "rng": self.model.new_rng(zlib.crc32(points.tobytes()))}
            failures = []
            for i, point in enumerate(points):
                try:
                    out[i] = self.model.param_constrain(point, **options)
                except STAN_ERRORS as error:
                    failures.append(error)
            if len(failures) == len(points):
                raise failures[0]
        return out


def _calls(rows: Rows, size: int) -> Callable[[jax.Array], jax.Array]:
    """A JAX function z -> (size,) that calls `rows` once for a whole batch.

    float64 travels as pairs of 32-bit integers: JAX calls back from a thread of its own, which a scope of 64-bit
    arithmetic does not reach, and would round.
    """

    def call(bits: Any) -> np.ndarray:
        words = np.ascontiguousarray(bits, dtype=np.uint32)
        points = words.view(np.float64)[..., 0]
        out = rows(points.reshape(-1, points.shape[-1]))
        return out.view(np.uint32).reshape(*points.shape[:-1], size, 2)

    def function(z: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((size, 2), jnp.uint32)
        bits = jax.lax.bitcast_convert_type(z.astype(jnp.float64), jnp.uint32)
        out = jax.pure_callback(call, shape, bits, vmap_method="expand_dims")
        return jax.lax.bitcast_convert_type(out, jnp.float64)

    return function


def _differenced(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """The function with central differences for its derivative: second derivatives of ln p, which Laplace needs."""
    differenced = jax.custom_jvp(function)

    @differenced.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (z,), (tangent,) = primals, tangents
        length = jnp.max(jnp.abs(tangent))
        step = STEP * jnp.maximum(1.0, jnp.max(jnp.abs(z))) / jnp.where(length > 0, length, 1.0)
        slope = (function(z + step * tangent) - function(z - step * tangent)) / (2.0 * step)
        return differenced(z), slope

    return differenced


def _sites(names: list[str]) -> dict[str, np.ndarray]:
    """Where the entries of each variable stand: `m.2.1` at [1, 0] of `m`, in whatever order Stan writes them."""
    entries: dict[str, dict[tuple[int, ...], int]] = {}
    for place, name in enumerate(names):
        site, index = _parsed(name)
        entries.setdefault(site, {})[index] = place
    sites = {}
    for site, places in entries.items():
        sites[site] = np.zeros(tuple(np.max(list(places), axis=0) + 1) if () not in places else (), dtype=int)
        for index, place in places.items():
            sites[site][index] = place
    return sites


def _parsed(name: str) -> tuple[str, tuple[int, ...]]:
    found = re.fullmatch(r"(.*?)((?:\.\d+)*)", name)
    assert found is not None  # everything matches
    return found[1], tuple(int(part) - 1 for part in found[2].split(".")[1:])


def _label(name: str) -> str:
    site, index = _parsed(name)
    return f"{site}[{','.join(map(str, index))}]" if index else site
