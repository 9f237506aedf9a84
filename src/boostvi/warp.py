"""Warps: changes of variables in which a posterior is closer to a Normal.

A layer maps u to z = loc + A x with

    x_i = exp(s_i(u_<i)) · (f_i(u_i) + m_i(u_<i)),        f_i(u) = sinh(exp(tail_i)·asinh(u) + skew_i),

m_i and s_i polynomials of the coordinates before i, or of the first few. It is a bijection with a triangular
Jacobian, whatever the coefficients, so that densities are exact. Around the identity the polynomials of degree D and
D − 1 stand for the cumulants of order D + 1 (skewness along and across all axes for D = 2), but those that have their
highest coordinate more than twice, of which f_i has its own (Jones & Pewsey 2009). A warp is a chain of layers; the
last is applied first.

The polynomials see every coordinate clipped to where a Normal has mass. Beyond it a layer is as tame as a straight
line: a mode that is far away has a place in u from which there is a way back, and can be seen to be missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi._struct import struct
from boostvi.polynomials import Features, Packed, Polynomial, zero

MOST_LOG_SCALE = 10.0
"""Bound on |s_i|: a bounded factor keeps every draw finite."""
REACH = 4.0
"""Coordinates are clipped to this for the polynomials."""
FARTHEST = 1e50
"""Inverses are looked for among |u_i| up to this: their squares are finite."""
BLOCK, BLOCK_NUMBERS = 512, 2**22
"""Points that pass through a warp at once; fewer if a layer has so many numbers for them (32 MB)."""


@struct
class Layer:
    """One layer; see the head of this file."""

    loc: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]
    inverse: Float[Array, "dim dim"]
    log_volume: Float[Array, ""]
    shift: Polynomial
    log_scale: Polynomial
    skew: Float[Array, " dim"]
    tail: Float[Array, " dim"]

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z and ln |det ∂z/∂u| at one point."""
        shift, s = self._polynomials(u)
        bent = jnp.exp(self.tail) * jnp.arcsinh(u) + self.skew
        log_slope = self.tail + _log_cosh(bent) - 0.5 * jnp.log1p(u**2)
        x = jnp.exp(s) * (jnp.sinh(bent) + shift)
        return self.loc + x @ self.factor.T, jnp.sum(s + log_slope) + self.log_volume

    def backward(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The u of one point; traceable. Coordinate i needs those before it alone, so repeating the formula for all of
        them at once ends after dim times."""
        x = (z - self.loc) @ self.inverse.T

        def improved(_, u):
            shift, s = self._polynomials(u)
            bent = jnp.arcsinh(x * jnp.exp(-s) - shift)
            return jnp.clip(jnp.sinh((bent - self.skew) * jnp.exp(-self.tail)), -FARTHEST, FARTHEST)

        return jax.lax.fori_loop(0, x.shape[0], improved, jnp.zeros_like(x))

    def _polynomials(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """m and s."""
        near = jnp.clip(u, -REACH, REACH)
        return self.shift(near), jnp.clip(self.log_scale(near), -MOST_LOG_SCALE, MOST_LOG_SCALE)


class Prepared:
    """A layer for many points at once, on the host. Points are columns inside."""

    def __init__(self, layer: Layer):
        self.layer: Layer = jax.tree.map(np.asarray, layer)
        self.shift, self.log_scale = Packed(self.layer.shift), Packed(self.layer.log_scale)
        self.seen = len(self.shift.pairs)
        self.skew, self.tail = self.layer.skew[:, None], self.layer.tail[:, None]

    def forward(self, u: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray, Callable[..., np.ndarray]]:
        """z at the rows of u, ln |det ∂z/∂u|, and the map from ∇_z f to ∇_u of f(z) + ln |det ∂z/∂u|."""
        layer, u = self.layer, np.ascontiguousarray(u.T)
        features = self._features(u.shape[1])
        for c, near in enumerate(np.clip(u[: self.seen], -REACH, REACH)):
            features.learn(c, near)
        shift, shift_slopes = self.shift.values(features)
        s, s_slopes = self.log_scale.values(features)
        scale = np.exp(_bounded(s))
        bent = np.exp(self.tail) * np.arcsinh(u) + self.skew
        x = scale * (np.sinh(bent) + shift)
        log_slope = self.tail + _log_cosh(bent) - 0.5 * np.log1p(u**2)

        def pull_back(gradient: Float[np.ndarray, "n dim"]) -> np.ndarray:
            by_x = layer.factor.T @ gradient.T
            by_s, by_shift = (by_x * x + 1.0) * (np.abs(s) <= MOST_LOG_SCALE), by_x * scale
            by_u = (by_shift * np.cosh(bent) + np.tanh(bent)) * np.exp(self.tail) / np.sqrt(1.0 + u**2)
            by_near, by_feature = np.zeros_like(u), features.no_slopes()
            self.shift.pull_back(by_shift, features, shift_slopes, by_feature, by_near)
            self.log_scale.pull_back(by_s, features, s_slopes, by_feature, by_near)
            features.pull_back(by_feature, by_near)
            return (by_u - u / (1.0 + u**2) + by_near * (np.abs(u) <= REACH)).T

        log_det = np.sum(_bounded(s) + log_slope, axis=0) + layer.log_volume
        return layer.loc + x.T @ layer.factor.T, log_det, pull_back

    def backward(self, z: Float[np.ndarray, "n dim"]) -> np.ndarray:
        """u at the rows of z, coordinate by coordinate: each needs those before it."""
        x = self.layer.inverse @ (z - self.layer.loc).T
        u, (dim, n) = np.empty_like(x), x.shape
        features = self._features(n)
        shift, s = (np.tile(of.constant, (1, n)) for of in (self.shift, self.log_scale))
        for c in range(dim):
            bent = np.arcsinh(x[c] * np.exp(-_bounded(s[c])) - shift[c])
            u[c] = np.clip(np.sinh((bent - self.skew[c]) * np.exp(-self.tail[c])), -FARTHEST, FARTHEST)
            if c < self.seen:
                features.learn(c, np.clip(u[c], -REACH, REACH))
                self.shift.add(shift, features, c)
                self.log_scale.add(s, features, c)
        return u.T

    def _features(self, n: int) -> Features:
        return Features(n, self.layer.shift.inputs, self.shift.degree - 1)


def _bounded(s: np.ndarray) -> np.ndarray:
    return np.clip(s, -MOST_LOG_SCALE, MOST_LOG_SCALE)


@struct
class Warp:
    """z = layers[0](layers[1](… u))."""

    layers: tuple[Layer, ...]

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z and ln |det ∂z/∂u| at one point; traceable."""
        log_det = jnp.zeros((), u.dtype)
        for layer in reversed(self.layers):
            u, more = layer.forward(u)
            log_det = log_det + more
        return u, log_det

    def backward(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The u of one point; traceable."""
        for layer in self.layers:
            z = layer.backward(z)
        return z

    def to_z(self, u: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
        """z at the rows of u, and ln |det ∂z/∂u|."""
        layers = [Prepared(layer) for layer in self.layers]
        return _in_blocks(lambda rows: _forward(layers, rows)[:2], u, layers)

    def to_u(self, z: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
        """u at the rows of z, and ln |det ∂z/∂u| there."""
        layers = [Prepared(layer) for layer in self.layers]
        return _in_blocks(lambda rows: _backward(layers, rows), z, layers)

    def composed(
        self, function: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], u: Float[np.ndarray, "n dim"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """f(z) + ln |det ∂z/∂u| and its gradient at the rows of u, from a function that gives f and ∇f at rows of z."""
        layers = [Prepared(layer) for layer in self.layers]

        def values_and_gradients(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            z, log_det, pull_back = _forward(layers, rows)
            values, gradients = function(z)
            return values + log_det, pull_back(gradients)

        return _in_blocks(values_and_gradients, u, layers)

    @property
    def n_params(self) -> int:
        """Numbers that describe it."""
        dim = self.layers[0].loc.shape[0]
        own = len(self.layers) * (3 * dim + dim * (dim + 1) // 2)
        return own + sum(layer.shift.n_params + layer.log_scale.n_params for layer in self.layers)


@np.errstate(over="ignore", invalid="ignore")  # far out a warp overflows: there is no mass
def _forward(
    layers: list[Prepared], u: Float[np.ndarray, "n dim"]
) -> tuple[np.ndarray, np.ndarray, Callable[..., np.ndarray]]:
    """z, ln |det ∂z/∂u|, and the map from ∇_z f to ∇_u of f(z) + ln |det ∂z/∂u|."""
    ways, log_det = [], np.zeros(len(u))
    for layer in reversed(layers):
        u, more, way = layer.forward(u)
        log_det = log_det + more
        ways.append(way)

    @np.errstate(over="ignore", invalid="ignore")
    def pull_back(gradient: Float[np.ndarray, "n dim"]) -> np.ndarray:
        for way in reversed(ways):
            gradient = way(gradient)
        return gradient

    return u, log_det, pull_back


@np.errstate(over="ignore", invalid="ignore")
def _backward(layers: list[Prepared], z: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
    for layer in layers:
        z = layer.backward(z)
    return z, _forward(layers, z)[1]


def _in_blocks(function: Callable[..., Any], rows: Any, layers: list[Prepared]) -> tuple[np.ndarray, np.ndarray]:
    """Both results of `function`, some rows at a time: their features must fit into a cache."""
    rows = np.asarray(rows, dtype=np.float64)
    largest = max(layer.shift.pairs[-1].stop if layer.seen else 1 for layer in layers)
    size = max(1, min(BLOCK, BLOCK_NUMBERS // largest))
    parts = [function(rows[i : i + size]) for i in range(0, max(len(rows), 1), size)]
    first, second = (np.concatenate([part[j] for part in parts]) for j in (0, 1))
    return first, second


def append(warp: Warp | None, layer: Layer) -> Warp:
    """The warp with one more layer, which is applied first."""
    return Warp((*(warp.layers if warp is not None else ()), layer))


def identity(loc: Any, factor: Any, degree: int, inputs: int) -> Layer:
    """The layer z = loc + factor·u, with room for polynomials of `degree` of the first `inputs` coordinates."""
    dim = len(loc)
    return Layer(
        loc=loc,
        factor=factor,
        inverse=np.linalg.inv(factor),  # type: ignore[arg-type]
        log_volume=np.asarray(np.linalg.slogdet(factor)[1]),  # type: ignore[arg-type]
        shift=zero(dim, degree, inputs),
        log_scale=zero(dim, degree - 1, inputs),
        skew=np.zeros(dim),  # type: ignore[arg-type]
        tail=np.zeros(dim),  # type: ignore[arg-type]
    )


def _log_cosh(x: Any) -> Any:
    xp = x.__array_namespace__()
    return xp.abs(x) + xp.log1p(xp.exp(-2.0 * xp.abs(x))) - math.log(2.0)
