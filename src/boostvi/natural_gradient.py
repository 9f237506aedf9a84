"""Natural-gradient rounds: every component of a mixture, and its weights, moved together.

With R = ln p − ln q, z = loc + A u and averages over the draws that belong to a component, Stein's identity gives the
whitened estimates g = E[Aᵀ∇R] and H = −E[(Aᵀ∇R − g) score(u)ᵀ] = E[∇²R] (made symmetric), for any density of u; for a
Normal score(u) = −u. A Normal's natural-gradient step is

    Σ⁻¹ ← Σ⁻¹ − β E[∇²R],   loc ← loc + β Σ' E[∇R],        in whitened terms   A ← A (1 − βH)^(−1/2),

and Student-t components take the same step: their score is bounded, so that heavy tails do not spoil the estimates.
β is the largest of cap·(1, ½, ¼, …) for which the step stays within a trust region of KL(new‖old) and the precision
positive definite. Weights move by mirror descent.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, in_tiles
from boostvi._struct import replace, struct
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily
from boostvi.mixture import Mixture

TRUST = 0.5
"""Nats of KL(new‖old) that one round may move a component."""
LEAST_USABLE = 0.5
"""Share of its draws at which ln p must be finite for a component to have an ELBO at all while it is fitted."""
MIN_FACTOR = 0.05
"""The precision along any direction keeps at least this share of itself in one round."""
HALVINGS = 10
MAX_WEIGHT_STEP = 1.0
"""Nats that one round may move a log weight."""
BLOCK = 512
"""Draws of a joint round are made, evaluated and summed in blocks of this size: it bounds the memory, and any number
of draws needs one compilation."""

TILE = 128
"""Rows of the one program that computes ln q and its gradient at any points."""


@struct
class Moments:
    """Per component: mean of R, whitened mean gradient, whitened mean Hessian."""

    residual: Float[Array, " slots"]
    gradient: Float[Array, "slots dim"]
    hessian: Float[Array, "slots dim dim"]


def local_moments(family: LinearFamily, params: Params, noise: Array, log_target: Array, gradient: Array) -> Moments:
    """Of components that do not know of one another: R = ln p − ln s_k on k's own draws (slots, draws, …)."""
    log_own = family.log_base(noise) - params["log_volume"][:, None]
    usable = jnp.isfinite(log_target) & jnp.all(jnp.isfinite(gradient), axis=-1)
    share = usable / jnp.maximum(jnp.sum(usable, axis=1, keepdims=True), 1)
    residual = jnp.where(usable, log_target - log_own, 0.0)
    whitened = jnp.where(usable[..., None], gradient @ params["factor"] - family.score(noise), 0.0)
    mean = jnp.einsum("ks,ksi->ki", share, whitened)
    hessian = -jnp.einsum("ks,ksi,ksj->kij", share, whitened - mean[:, None], family.score(noise))
    alive = jnp.mean(usable, axis=1) > LEAST_USABLE
    return Moments(jnp.where(alive, jnp.sum(share * residual, axis=1), -jnp.inf), mean, hessian)


@struct
class Sums:
    """Sums over draws, each weighted by s_k/Σ_j s_j for component k: every draw serves every component."""

    share: Float[Array, " slots"]
    residual: Float[Array, " slots"]
    residual_squared: Float[Array, " slots"]
    gradient: Float[Array, "slots dim"]
    score: Float[Array, "slots dim"]
    outer: Float[Array, "dim slots*dim"]


def densities(mixture: Mixture, z: Float[Array, "n dim"]) -> tuple[Array, Array, Array, Array]:
    """At every draw: the score of its noise u under each component, ln s_k, ln q and ∇ ln q. Slots without weight have
    s_k = 0."""
    family: LinearFamily = mixture.family  # type: ignore[assignment]  # the callers have checked
    params, slots, dim = mixture.params, mixture.capacity, mixture.dim
    log_w, active = mixtures.log_weights(mixture.weights), mixture.weights > 0
    inverse = params["inverse"].reshape(slots * dim, dim)
    offset = jnp.einsum("kij,kj->ki", params["inverse"], params["loc"]).ravel()
    u = (z @ inverse.T - offset).reshape(-1, slots, dim)
    log_s = jnp.where(active, family.log_base(u) - params["log_volume"], -jnp.inf)
    log_q = jax.nn.logsumexp(log_s + log_w, axis=1)
    within = jnp.where(active, jnp.exp(log_s + log_w - log_q[:, None]), 0.0)
    score = family.score(u)
    return score, log_s, log_q, (within[:, :, None] * score).reshape(-1, slots * dim) @ inverse


def sums_of(mixture: Mixture, z: Array, log_target: Array, gradient: Array) -> Sums:
    """Of one block of draws. A draw with a non-finite gradient is left out."""
    score, log_s, log_q, gradient_q = densities(mixture, z)
    usable = jnp.isfinite(log_target) & jnp.all(jnp.isfinite(gradient), axis=-1)
    residual = jnp.where(usable, log_target - log_q, 0.0)
    gradient = jnp.where(usable[:, None], gradient - gradient_q, 0.0)
    share = jnp.exp(log_s - jax.nn.logsumexp(log_s, axis=1, keepdims=True)) * usable[:, None]
    shared = share[:, :, None] * score
    return Sums(
        share=jnp.sum(share, axis=0),
        residual=share.T @ residual,
        residual_squared=share.T @ residual**2,
        gradient=share.T @ gradient,
        score=jnp.sum(shared, axis=0),
        outer=gradient.T @ shared.reshape(score.shape[0], -1),
    )


def joint_moments(mixture: Mixture, sums: Sums) -> Moments:
    slots, dim, factor = mixture.capacity, mixture.dim, mixture.params["factor"]
    total = jnp.maximum(sums.share, jnp.finfo(sums.share.dtype).tiny)
    gradient = jnp.einsum("kji,kj->ki", factor, sums.gradient / total[:, None])
    outer = sums.outer.reshape(dim, slots, dim).transpose(1, 0, 2) / total[:, None, None]
    centre = gradient[:, :, None] * (sums.score / total[:, None])[:, None, :]
    return Moments(sums.residual / total, gradient, centre - jnp.einsum("kji,kjl->kil", factor, outer))


def step(params: Params, moments: Moments, cap: Float[Array, ""]) -> tuple[Params, Float[Array, " slots"]]:
    """The components after one natural-gradient step, and how far each moved (its KL)."""
    hessian = 0.5 * (moments.hessian + moments.hessian.swapaxes(1, 2))
    sound = jnp.all(jnp.isfinite(hessian), axis=(1, 2)) & jnp.all(jnp.isfinite(moments.gradient), axis=1)
    curvature, axes = jnp.linalg.eigh(jnp.where(sound[:, None, None], hessian, 0.0))
    slope = jnp.einsum("kij,ki->kj", axes, jnp.where(sound[:, None], moments.gradient, 0.0))

    def moved(beta):
        kept = 1.0 - beta * curvature
        positive = jnp.min(kept, axis=-1) > MIN_FACTOR
        kept = jnp.maximum(kept, MIN_FACTOR)
        along = beta * slope / kept
        kl = 0.5 * jnp.sum(1.0 / kept - 1.0 + jnp.log(kept) + along**2, axis=-1)
        return jnp.where(positive, kl, jnp.inf)

    betas = cap * 0.5 ** jnp.arange(HALVINGS)
    kls = jax.vmap(moved)(betas)
    allowed = kls <= TRUST
    chosen = jnp.argmax(allowed, axis=0)
    beta = jnp.where(jnp.any(allowed, axis=0) & sound, betas[chosen], 0.0)[:, None]
    kept = 1.0 - beta * curvature
    along = jnp.einsum("kij,kj->ki", axes, beta * slope / kept)
    grow = jnp.einsum("kij,kj,klj->kil", axes, kept**-0.5, axes)
    shrink = jnp.einsum("kij,kj,klj->kil", axes, kept**0.5, axes)
    new = {
        "loc": params["loc"] + jnp.einsum("kij,kj->ki", params["factor"], along),
        "factor": params["factor"] @ grow,
        "inverse": shrink @ params["inverse"],
        "log_volume": params["log_volume"] - 0.5 * jnp.sum(jnp.log(kept), axis=-1),
    }
    return new, jnp.where(beta[:, 0] > 0, kls[chosen, jnp.arange(chosen.size)], 0.0)


@counted_jit(static_argnums=(0, 3))
def local_draws(family: LinearFamily, params: Params, key: Array, n: int) -> tuple[Array, Array, Array]:
    """n draws of each component, their noise, and their own log density."""
    noise = family.noise(key, (params["loc"].shape[0], n, params["loc"].shape[1]))
    z = params["loc"][:, None] + jnp.einsum("ksj,kij->ksi", noise, params["factor"])
    return z, noise, family.log_base(noise) - params["log_volume"][:, None]


@counted_jit(static_argnums=0)
def local_round(
    family: LinearFamily, params: Params, noise: Array, log_target: Array, gradient: Array, cap: Array
) -> tuple[Params, Array, Array]:
    """One step of components that do not know of one another; their ELBOs before it, and how far each moved."""
    moments = local_moments(family, params, noise, log_target, gradient)
    new, moved = step(params, moments, cap)
    return new, moments.residual, moved


def joint_round(model: Any, mixture: Mixture, n: int, cap: float, key: Array) -> tuple[Mixture, Array]:
    """One step of all components and weights of a mixture, from at least n fresh draws, which `model` evaluates; and
    the spread of R under each component."""
    sums = _no_sums(mixture.capacity, mixture.dim)
    for block in range(-(-n // BLOCK)):
        z, _ = block_of_draws(mixture, key, jnp.asarray(block))
        values, gradients = model(z)
        sums = _add_block(mixture, sums, z, values, gradients)
    return _apply(mixture, sums, jnp.asarray(cap))


@counted_jit
def block_of_draws(mixture: Mixture, key: Array, block: Int[Array, ""]) -> tuple[Array, Array]:
    """A block of draws and their slots: the active components taken in turn, on from block to block."""
    order = jnp.argsort(mixture.weights <= 0, stable=True)
    rows = block * BLOCK + jnp.arange(BLOCK)
    slot = order[rows % jnp.maximum(jnp.sum(mixture.weights > 0), 1)]
    noise = mixture.family.noise(jax.random.fold_in(key, block), (BLOCK, mixture.dim))
    return mixture.params["loc"][slot] + jnp.einsum("nj,nij->ni", noise, mixture.params["factor"][slot]), slot


def shares_of(mixture: Mixture, slots: np.ndarray) -> np.ndarray:
    """Weights (they sum to 1) that make a block of draws, balanced over the components, one of the mixture."""
    counts = np.bincount(slots, minlength=mixture.capacity)
    share = np.asarray(mixture.weights)[slots] / counts[slots]
    return share / share.sum()


def _no_sums(slots: int, dim: int) -> Sums:
    shapes = ((slots,), (slots,), (slots,), (slots, dim), (slots, dim), (dim, slots * dim))
    return Sums(*(np.zeros(shape) for shape in shapes))  # type: ignore[arg-type]


@counted_jit
def _add_block(mixture: Mixture, sums: Sums, z: Array, log_target: Array, gradient: Array) -> Sums:
    return jax.tree.map(jnp.add, sums, sums_of(mixture, z, log_target, gradient))


@counted_jit
def _apply(mixture: Mixture, sums: Sums, cap: Array) -> tuple[Mixture, Array]:
    moments = joint_moments(mixture, sums)
    new, _ = step(mixture.params, moments, cap)
    weights, active = mixture.weights, mixture.weights > 0
    mean = jnp.sum(jnp.where(active, weights * moments.residual, 0.0))
    change = cap * jnp.clip(moments.residual - mean, -MAX_WEIGHT_STEP, MAX_WEIGHT_STEP)
    log_w = mixtures.log_weights(weights) + jnp.where(active, change, 0.0)

    def where_active(new: Array, old: Array) -> Array:
        return jnp.where(jnp.expand_dims(active, range(1, new.ndim)), new, old)

    params = jax.tree.map(where_active, new, mixture.params)
    variance = sums.residual_squared / jnp.maximum(sums.share, 1e-300) - moments.residual**2
    return replace(mixture, params=params, weights=jax.nn.softmax(log_w)), jnp.sqrt(jnp.maximum(variance, 0.0))


def log_q_and_gradient(mixture: Mixture, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln q and its gradient at the rows of z."""
    return in_tiles(lambda rows: _tile(mixture, rows), z, TILE)


@counted_jit
def _tile(mixture: Mixture, z: Any) -> tuple[Array, Array]:
    return densities(mixture, z)[2:]
