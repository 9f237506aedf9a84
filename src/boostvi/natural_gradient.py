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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from boostvi import linear_mixture
from boostvi._struct import replace
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily
from boostvi.mixture import Mixture

TRUST, TRUST_PER_DIM = 0.5, 0.05
"""The trust region: 0.5 nats, and from ten dimensions on so many for each."""
LEAST_USABLE = 0.5
"""Share of its draws at which ln p must be finite for a component to have an ELBO at all while it is fitted."""
MOST_CHANGE = 4.0
"""The precision along any direction changes at most by this factor in one round: it stays positive, and one direction
of which the estimate is noise does not hold up the others."""
HALVINGS = 16
MAX_WEIGHT_STEP = 1.0
"""Nats that one round may move a log weight."""

Model = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Moments:
    """Per component: mean of R, whitened mean gradient, whitened mean Hessian."""

    residual: Float[np.ndarray, " components"]
    gradient: Float[np.ndarray, "components dim"]
    hessian: Float[np.ndarray, "components dim dim"]


@np.errstate(over="ignore", invalid="ignore")  # what is too large makes a step that is not taken
def local_moments(
    family: LinearFamily, params: Params, noise: np.ndarray, log_target: np.ndarray, gradient: np.ndarray
) -> Moments:
    """Of components that do not know of one another: R = ln p − ln s_k on k's own draws (components, draws, …)."""
    usable = np.isfinite(log_target) & np.isfinite(gradient).all(axis=-1)
    share = usable / np.maximum(usable.sum(axis=1, keepdims=True), 1)
    residual = np.where(usable, log_target - linear_mixture.log_own(family, params, noise), 0.0)
    score = family.score(noise)
    whitened = np.where(usable[..., None], gradient, 0.0) @ params["factor"] - np.where(usable[..., None], score, 0.0)
    mean = np.einsum("ks,ksi->ki", share, whitened)
    weighted = (whitened - mean[:, None]) * share[..., None]
    alive = usable.mean(axis=1) > LEAST_USABLE
    average = np.where(alive, np.sum(share * residual, axis=1), -np.inf)
    return Moments(average, mean, -weighted.swapaxes(1, 2) @ score)


@np.errstate(over="ignore", invalid="ignore")
def joint_moments(
    mixture: Mixture, counts: np.ndarray, z: np.ndarray, log_target: np.ndarray, gradient: np.ndarray
) -> tuple[Moments, Float[np.ndarray, " components"], Float[np.ndarray, " components"]]:
    """Of the components of a compact mixture: R = ln p − ln q, each draw weighted by s_k/Σ_j counts_j s_j for component
    k, so that every draw serves every component; the spread of R; and how many draws of its own each component would
    have needed for as much. A draw with a non-finite gradient is left out."""
    factor, (slots, dim) = mixture.params["factor"], mixture.params["loc"].shape
    usable = np.isfinite(log_target) & np.isfinite(gradient).all(axis=-1)
    total, squares, residual, squared = np.zeros((4, slots))
    slope, score = np.zeros((2, slots, dim))
    outer = np.zeros((slots, dim, dim))
    for rows, at in linear_mixture.blocks(mixture, z):
        ratio, log_q = at.ratios()
        ok = usable[rows]
        R = np.where(ok, log_target[rows] - log_q, 0.0)
        G = np.where(ok[:, None], gradient[rows] - at.gradient_q(ratio), 0.0)
        share = linear_mixture.shares(ratio, counts) * ok[:, None]
        total += share.sum(axis=0)
        squares += np.einsum("nk,nk->k", share, share)
        residual += share.T @ R
        squared += share.T @ R**2
        slope += share.T @ G
        of_block = at.sums(share, G)
        score += of_block[0]
        outer += of_block[1]
    total = np.maximum(total, np.finfo(float).tiny)
    residual, squared = residual / total, squared / total
    slope = np.einsum("kji,kj->ki", factor, slope / total[:, None])
    centre = slope[:, :, None] * (score / total[:, None])[:, None, :]
    hessian = centre - factor.swapaxes(1, 2) @ (outer / total[:, None, None])
    spread = np.sqrt(np.maximum(squared - residual**2, 0.0))
    return Moments(residual, slope, hessian), spread, total**2 / np.maximum(squares, np.finfo(float).tiny)


def trust_region(dim: int) -> float:
    """Nats of KL(new‖old) that one round may move a component."""
    return max(TRUST, TRUST_PER_DIM * dim)


@np.errstate(over="ignore", invalid="ignore")
def step(params: Params, moments: Moments, cap: float) -> tuple[Params, Float[np.ndarray, " components"]]:
    """The components after one natural-gradient step, and how far each moved (its KL)."""
    hessian = 0.5 * (moments.hessian + moments.hessian.swapaxes(1, 2))
    sound = np.isfinite(hessian).all(axis=(1, 2)) & np.isfinite(moments.gradient).all(axis=1)
    curvature, axes = np.linalg.eigh(np.where(sound[:, None, None], hessian, 0.0))
    slope = np.einsum("kij,ki->kj", axes, np.where(sound[:, None], moments.gradient, 0.0))

    betas = cap * 0.5 ** np.arange(HALVINGS)[:, None, None]
    kept = np.clip(1.0 - betas * curvature, 1.0 / MOST_CHANGE, MOST_CHANGE)  # by β, component and direction
    moved = 0.5 * np.sum(1.0 / kept - 1.0 + np.log(kept) + (betas * slope / kept) ** 2, axis=-1)
    allowed = moved <= trust_region(slope.shape[-1])
    chosen, every = np.argmax(allowed, axis=0), np.arange(len(slope))
    stays = ~(allowed.any(axis=0) & sound)
    kept = np.where(stays[:, None], 1.0, kept[chosen, every])
    beta = np.where(stays, 0.0, betas[chosen, 0, 0])[:, None]

    along = np.einsum("kij,kj->ki", axes, beta * slope / kept)
    transposed = axes.swapaxes(1, 2)
    grow, shrink = (axes * kept[:, None] ** -0.5) @ transposed, (axes * kept[:, None] ** 0.5) @ transposed
    new = {
        "loc": params["loc"] + np.einsum("kij,kj->ki", params["factor"], along),
        "factor": params["factor"] @ grow,
        "inverse": shrink @ params["inverse"],
        "log_volume": params["log_volume"] - 0.5 * np.sum(np.log(kept), axis=-1),
    }
    return new, np.where(stays, 0.0, moved[chosen, every])


@dataclass(frozen=True)
class Round:
    """A compact mixture after a step of all its components and weights; the ELBO that it had before, with its error; by
    component the spread of R, and the draws that it had, shared ones included; and how far the components moved, on
    average (their KL)."""

    mixture: Mixture
    elbo: float
    elbo_se: float
    spread: Float[np.ndarray, " components"]
    effective: Float[np.ndarray, " components"]
    moved: float


def joint_round(model: Model, mixture: Mixture, counts: np.ndarray, cap: float, rng: np.random.Generator) -> Round:
    """One step of a compact mixture, from so many fresh draws of each component, which `model` evaluates."""
    z = linear_mixture.draws_by_count(mixture.family, mixture.params, counts, rng)  # type: ignore[arg-type]
    moments, spread, effective = joint_moments(mixture, counts, z, *model(z))
    params, moved = step(mixture.params, moments, cap)
    elbo = float(mixture.weights @ moments.residual)
    elbo_se = float(np.sqrt(np.sum((mixture.weights * spread) ** 2 / np.maximum(effective, 1.0))))
    weights = mixture.weights * np.exp(cap * np.clip(moments.residual - elbo, -MAX_WEIGHT_STEP, MAX_WEIGHT_STEP))
    new = replace(mixture, params=params, weights=weights / weights.sum())
    return Round(new, elbo, elbo_se, spread, effective, float(mixture.weights @ moved))
