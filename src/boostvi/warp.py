"""Warps: changes of variables in which a posterior is closer to a Normal.

A layer maps u to z = loc + A x with

    x_i = exp(s_i(u_<i)) · (f_i(u_i) + m_i(u_<i)),        f_i(u) = sinh(exp(tail_i)·asinh(u) + skew_i),

m_i and s_i polynomials of the coordinates before i. It is a bijection with a triangular Jacobian, whatever the
coefficients, so that densities are exact. Around the identity the polynomials of degree D and D − 1 stand for the
cumulants of order D + 1 (skewness along and across all axes for D = 2), but those that have their highest coordinate
more than twice, of which f_i has its own (Jones & Pewsey 2009). A warp is a chain of layers; the last is applied first.

The polynomials see every coordinate clipped to where a Normal has mass. Beyond it a layer is as tame as a straight
line: a mode that is far away has a place in u from which there is a way back, and can be seen to be missed.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi._jit import counted_jit, float64, in_tiles
from boostvi._struct import struct
from boostvi.polynomials import Polynomial, zero

MOST_LOG_SCALE = 10.0
"""Bound on |s_i|: a bounded factor keeps every draw finite."""
REACH = 4.0
"""Coordinates are clipped to this for the polynomials."""
FARTHEST = 1e50
"""Inverses are looked for among |u_i| up to this: their squares are finite."""
CONVERGED = 1e-12
TILE = 128


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

    def backward(self, z: Float[Array, " dim"], differentiable: bool) -> Float[Array, " dim"]:
        """The u of one point. Coordinate i needs those before it alone, so repeating the formula for all of them at
        once ends after dim times, and mostly much sooner. differentiable: all dim times."""
        x = (z - self.loc) @ self.inverse.T

        def improved(u):
            shift, s = self._polynomials(u)
            bent = jnp.arcsinh(x * jnp.exp(-s) - shift)
            return jnp.clip(jnp.sinh((bent - self.skew) * jnp.exp(-self.tail)), -FARTHEST, FARTHEST)

        if differentiable:
            return jax.lax.fori_loop(0, x.shape[0], lambda _, u: improved(u), jnp.zeros_like(x))

        def unsettled(carry):
            i, change, _ = carry
            return (i < x.shape[0]) & (change > CONVERGED)

        def again(carry):
            i, _, u = carry
            new = improved(u)
            return i + 1, jnp.max(jnp.abs(new - u) / (1.0 + jnp.abs(u))), new

        return jax.lax.while_loop(unsettled, again, (0, jnp.asarray(jnp.inf, x.dtype), jnp.zeros_like(x)))[2]

    def _polynomials(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """m and s."""
        near = jnp.clip(u, -REACH, REACH)
        return self.shift(near), jnp.clip(self.log_scale(near), -MOST_LOG_SCALE, MOST_LOG_SCALE)


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

    def backward(self, z: Float[Array, " dim"], differentiable: bool = True) -> Float[Array, " dim"]:
        """The u of one point; traceable."""
        for layer in self.layers:
            z = layer.backward(z, differentiable)
        return z

    @float64
    def to_z(self, u: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
        """z at the rows of u, and ln |det ∂z/∂u|."""
        log_det, z = in_tiles(lambda rows: _forward(self, rows), np.asarray(u, dtype=np.float64), TILE)
        return z, log_det

    @float64
    def to_u(self, z: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
        """u at the rows of z, and ln |det ∂z/∂u| there."""
        log_det, u = in_tiles(lambda rows: _backward(self, rows), np.asarray(z, dtype=np.float64), TILE)
        return u, log_det

    @float64
    def pulled_back(self, u: Float[np.ndarray, "n dim"], gradient: Float[np.ndarray, "n dim"]) -> np.ndarray:
        """∇_u of f(z) + ln |det ∂z/∂u| at the rows of u, from ∇_z f."""
        both = np.concatenate([u, gradient], axis=1)
        return in_tiles(lambda rows: _pull_back(self, rows), both, TILE)[1]

    @property
    def n_params(self) -> int:
        """Numbers that describe it."""
        dim = self.layers[0].loc.shape[0]
        own = len(self.layers) * (3 * dim + dim * (dim + 1) // 2)
        return own + sum(layer.shift.n_params + layer.log_scale.n_params for layer in self.layers)


@counted_jit
def _forward(warp: Warp, u: Array) -> tuple[Array, Array]:
    z, log_det = jax.vmap(warp.forward)(u)
    return log_det, z


@counted_jit
def _pull_back(warp: Warp, u_and_gradient: Array) -> tuple[Array, Array]:
    def one(both):
        u, gradient = jnp.split(both, 2)
        (_, log_det), pull = jax.vjp(warp.forward, u)
        return log_det, pull((gradient, jnp.ones((), u.dtype)))[0]

    return jax.vmap(one)(u_and_gradient)


@counted_jit
def _backward(warp: Warp, z: Array) -> tuple[Array, Array]:
    u = jax.vmap(lambda one: warp.backward(one, differentiable=False))(z)
    return jax.vmap(warp.forward)(u)[1], u


def append(warp: Warp | None, layer: Layer) -> Warp:
    """The warp with one more layer, which is applied first."""
    return Warp((*(warp.layers if warp is not None else ()), layer))


def identity(loc: Any, factor: Any, degree: int) -> Layer:
    """The layer z = loc + factor·u, with room for polynomials of `degree`."""
    dim = len(loc)
    return Layer(
        loc=loc,
        factor=factor,
        inverse=np.linalg.inv(factor),  # type: ignore[arg-type]
        log_volume=np.asarray(np.linalg.slogdet(factor)[1]),  # type: ignore[arg-type]
        shift=zero(dim, degree),
        log_scale=zero(dim, degree - 1),
        skew=np.zeros(dim),  # type: ignore[arg-type]
        tail=np.zeros(dim),  # type: ignore[arg-type]
    )


def _log_cosh(x: Array) -> Array:
    return jnp.abs(x) + jnp.log1p(jnp.exp(-2.0 * jnp.abs(x))) - math.log(2.0)
