"""Components found by climbing: a mode, its curvature, and natural-gradient VI from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import diagnostics, natural_gradient
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily
from boostvi.target import Target, values_and_gradients

SCALES = (-1.0, 1.5)
"""log10 of the spread of dispersed starts: nothing is known of the posterior's size yet."""
DIFFERENCE = 1e-5
"""Relative step of the central differences behind a Hessian; the gradients are exact, so this is not delicate."""
DIFFERENCE_FLOAT32 = 1e-2
MIN_CURVATURE = 1e-8
"""Smallest |eigenvalue| of the Hessian in units of its own diagonal: a flat direction gets a finite spread."""
MAX_SHAPE = 1e12
"""Bound on Hessian entries in units of its diagonal: beyond it, at a point far out, eigenvalues no longer converge."""
MIN_DIAGONAL = 1e-12
NEIGHBOURS = 8
NEARBY = 1e-3
NEARBY_RELATIVE = 1e-6
"""Between points at which a density must look smooth: standard deviations, and the relative size of a step."""
ROUGH = 0.3
"""Nats by which ln p may differ between two of them from what its gradients say."""
DIGITS, DIGITS_FLOAT32 = 1e-12, 1e-6
"""And this share of its value, in double and in single precision: a huge value has large last digits."""
DRAWS_PER_DIM = 4
MIN_DRAWS = 64
"""Local VI draws max(64, 4·d) points of each component per round."""
LANES = (16, 64)
LANES_LARGE = (4, 16, 64)
LARGE = 40
"""Components optimised at once are padded to one of these numbers, so that few programs are compiled; in more than 40
dimensions the padding itself would cost."""
ARRIVED = 1e-6
"""Nats; local VI stops when no component moves further than this in a round."""
AVERAGED = 5
"""Rounds whose ELBO estimates are averaged at the end."""
SAME_PLACE = 0.5
"""Two components whose centres are closer than this times √d, in both their own units, are the same."""
SAME_SHAPE = 0.5
"""So are two whose KL divergence is below this times max(1, d/10) nats."""


@dataclass
class CountedTarget:
    """ln p and its gradient at many points, counted."""

    target: Target
    evals: int = field(default=0)
    nonfinite: int = field(default=0)

    def __call__(self, z: Any) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = values_and_gradients(self.target, z)
        self.evals += values.size
        self.nonfinite += int(np.sum(~(np.isfinite(values) & np.isfinite(gradients).all(axis=1))))
        return values, gradients

    def add(self, other: CountedTarget) -> None:
        """Count what another one did, too."""
        self.evals += other.evals
        self.nonfinite += other.nonfinite


def gaussians_at(model: CountedTarget, points: Float[np.ndarray, "n dim"]) -> Params:
    """Components at `points` with |Hessian|⁻¹ as scale matrix.

    The Hessian comes from central differences of the gradient: nothing more to compile. Its matrix root is symmetric in
    units of the diagonal, so that families with axes of their own start along the coordinates.
    """
    n, dim = points.shape
    relative = DIFFERENCE if model.target.is_float64 else DIFFERENCE_FLOAT32
    width = relative * (1.0 + np.abs(points))
    shift = width[:, :, None] * np.eye(dim)
    both = np.stack([points[:, None] + shift, points[:, None] - shift], axis=1)
    gradients = model(both.reshape(-1, dim))[1].reshape(n, 2, dim, dim)
    with np.errstate(over="ignore", invalid="ignore"):  # far out, where gradients are infinite
        hessian = (gradients[:, 1] - gradients[:, 0]) / (2.0 * width[:, :, None])
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    hessian = 0.5 * (hessian + hessian.transpose(0, 2, 1))
    unit = np.sqrt(np.maximum(np.abs(np.diagonal(hessian, axis1=1, axis2=2)), MIN_DIAGONAL))
    shape = np.clip(hessian / unit[:, :, None] / unit[:, None, :], -MAX_SHAPE, MAX_SHAPE)
    eigenvalues, axes = np.linalg.eigh(shape)
    sd = np.maximum(np.abs(eigenvalues), MIN_CURVATURE) ** -0.5
    root = np.einsum("nij,nj,nkj->nik", axes, sd, axes)
    inverse = np.einsum("nij,nj,nkj->nik", axes, 1.0 / sd, axes)
    return stored(points, root / unit[:, :, None], inverse * unit[:, None, :], np.log(sd).sum(1) - np.log(unit).sum(1))


def modes_at(
    model: CountedTarget, points: Float[np.ndarray, "n dim"], values: Float[np.ndarray, " n"], most: int,
    least_mass: float = -np.inf, smooth: bool = True,
) -> Params | None:  # fmt: skip
    """Components at the distinct of these local maxima, highest first: at most `most`, with a Laplace mass above
    `least_mass` and, if `smooth`, where ln p is more than rounding error; None if there are none."""
    found: list[Params] = []
    left = np.argsort(-values)[: int(np.isfinite(values).sum())]
    while left.size and len(found) < most:
        one = gaussians_at(model, points[left[:1]])
        mass = values[left[0]] + one["log_volume"][0] + 0.5 * points.shape[1] * np.log(2.0 * np.pi)
        if mass > least_mass and not (smooth and is_noise(model, one)):
            found.append(one)
        with np.errstate(over="ignore"):  # a point far out of a narrow mode is just far
            distance = np.linalg.norm((points[left] - one["loc"]) @ one["inverse"][0].T, axis=1)
        left = left[1:][distance[1:] > SAME_PLACE * np.sqrt(points.shape[1])]
    return join(*found) if found else None


def is_noise(model: CountedTarget, one: Params) -> bool:
    """Whether ln p is rounding error around a component's centre, in most of a few pairs of points close to it.

    Far out, terms that cancel leave errors of any size: lgamma(a + n) − lgamma(a) at a = 10¹⁹ is off by thousands, and
    a search for maxima goes there. The gradients tell: a smooth function changes as they say.
    """
    loc, noise = one["loc"][0], np.random.default_rng(0).standard_normal((2, NEIGHBOURS, one["loc"].shape[1]))
    steps = NEARBY * noise[0] @ one["factor"][0].T + NEARBY_RELATIVE * (1.0 + np.abs(loc)) * noise[1]
    values, gradients = model(loc + steps)
    with np.errstate(over="ignore", invalid="ignore"):
        promised = np.sum((gradients[1:] + gradients[:-1]) * np.diff(steps, axis=0), axis=1) / 2.0
        surprise = np.abs(np.diff(values) - promised)
    surprise = surprise[np.isfinite(surprise)]
    digits = DIGITS if model.target.is_float64 else DIGITS_FLOAT32
    rounding = digits * np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return not surprise.size or bool(np.median(surprise) > ROUGH + rounding)


def wide_points(rng: np.random.Generator, n: int, dim: int) -> Float[np.ndarray, "n dim"]:
    """Points around the origin, at scales from 0.1 to 30."""
    return 10.0 ** rng.uniform(*SCALES, (n, 1)) * rng.standard_normal((n, dim))


def isotropic(points: Float[np.ndarray, "n dim"], scales: Float[np.ndarray, " n"]) -> Params:
    unit = np.broadcast_to(np.eye(points.shape[1]), (points.shape[0], points.shape[1], points.shape[1]))
    scale = scales[:, None, None]
    return stored(points, unit * scale, unit / scale, points.shape[1] * np.log(scales))


def stored(loc: Any, factor: Any, inverse: Any, log_volume: Any) -> Params:
    return {"loc": loc, "factor": factor, "inverse": inverse, "log_volume": log_volume}


def take(params: Params, which: Any) -> Params:
    return {name: np.asarray(leaf)[which] for name, leaf in params.items()}


def join(*several: Params) -> Params:
    return {name: np.concatenate([np.asarray(p[name]) for p in several]) for name in several[0]}


def in_lanes(params: Params) -> tuple[Params, int]:
    """The components repeated to a usual number of lanes, and the draws of each per round."""
    count, dim = params["loc"].shape
    lanes = next((n for n in (LANES if dim <= LARGE else LANES_LARGE) if n >= count), count)
    return take(params, np.resize(np.arange(count), lanes)), max(MIN_DRAWS, DRAWS_PER_DIM * dim)


def draws_of(
    model: CountedTarget, family: LinearFamily, params: Params, key: Array
) -> tuple[Float[np.ndarray, "n draws dim"], Float[np.ndarray, "n draws"]]:
    """Fresh draws of each component, and ln p there."""
    (count, dim), (padded, n) = params["loc"].shape, in_lanes(params)
    z = np.asarray(natural_gradient.local_draws(family, padded, key, n)[0])[:count]
    return z, model(z.reshape(-1, dim))[0].reshape(count, n)


def log_ratios(model: CountedTarget, family: LinearFamily, params: Params, key: Array) -> Float[np.ndarray, " n"]:
    """ln p − ln q at draws of one component."""
    padded, n = in_lanes(params)
    z, _, log_q = natural_gradient.local_draws(family, padded, key, n)
    log_target, _ = model(np.asarray(z).reshape(-1, padded["loc"].shape[1]))
    return log_target - np.asarray(log_q).ravel()


def visible_kl(model: CountedTarget, family: LinearFamily, params: Params, key: Array) -> float:
    """KL of one component on the region that it visits."""
    ratios = log_ratios(model, family, params, key)
    return diagnostics.evaluate(ratios, np.zeros_like(ratios)).kl_estimate


def local_vi(
    model: CountedTarget, family: LinearFamily, params: Params, rounds: int, key: Array
) -> tuple[Params, Float[np.ndarray, " n"]]:
    """Each component fitted to the target on its own, all at once; and the ELBO of each."""
    count, dim = params["loc"].shape
    padded, n = in_lanes(params)
    lanes = padded["loc"].shape[0]
    elbos: list[np.ndarray] = []
    for i in range(rounds):
        z, noise, _ = natural_gradient.local_draws(family, padded, jax.random.fold_in(key, i), n)
        values, gradients = model(np.asarray(z)[:count].reshape(-1, dim))
        values = np.resize(values.reshape(count, n), (lanes, n))
        gradients = np.resize(gradients.reshape(count, n, dim), (lanes, n, dim))
        padded, elbo, moved = natural_gradient.local_round(family, padded, noise, values, gradients, jnp.asarray(1.0))
        elbos.append(np.asarray(elbo)[:count])
        if np.asarray(moved)[:count].max() < ARRIVED:
            return take(padded, np.arange(count)), elbos[-1]
    return take(padded, np.arange(count)), np.mean(elbos[-AVERAGED:], axis=0)


def distinct(params: Params, score: Float[np.ndarray, " n"]) -> np.ndarray:
    """Indices, best score first, of components that are not near-duplicates of a better one."""
    kl, distance = kl_between(params), _distances(params)
    dim = params["loc"].shape[1]
    near = np.maximum(distance, distance.T) < SAME_PLACE * np.sqrt(dim)
    same = near | (kl < SAME_SHAPE * max(1.0, dim / 10))
    kept: list[int] = []
    for j in np.argsort(-score):
        if np.isfinite(score[j]) and not same[j, kept].any():
            kept.append(int(j))
    return np.array(kept, dtype=int)


def kl_between(params: Params) -> Float[np.ndarray, "n n"]:
    """KL(j‖i) of the Normals with these scale matrices, [j, i]."""
    dim = params["loc"].shape[1]
    volume, columns = np.asarray(params["log_volume"]), []
    for i, inverse in enumerate(np.asarray(params["inverse"])):
        trace = np.sum((inverse @ np.asarray(params["factor"])) ** 2, axis=(1, 2))
        columns.append(0.5 * (trace - dim) + volume[i] - volume)
    return np.stack(columns, axis=1) + 0.5 * _distances(params) ** 2


def _distances(params: Params) -> Float[np.ndarray, "n n"]:
    """Distance of centre j from centre i in the units of component i, [j, i]."""
    loc = np.asarray(params["loc"])
    with np.errstate(over="ignore"):  # of a component far away, or very narrow: just far
        columns = [np.linalg.norm((loc - loc[i]) @ inverse.T, axis=1) for i, inverse in enumerate(params["inverse"])]
    return np.stack(columns, axis=1)
