"""Components found by climbing: a mode, its curvature, and natural-gradient VI from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from boostvi import diagnostics, natural_gradient
from boostvi import mixture as mixtures
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily
from boostvi.linear_mixture import distances, draws_of_each, join, kl_between, log_own, take
from boostvi.target import Target, values_and_gradients
from boostvi.wide import wide_draws

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
MIN_DRAWS = 64
"""Local VI draws at least so many points of each component per round: 4·d up to 50 dimensions, 2·d + 100 beyond."""
FEWEST_FITTED, FITTED_DIMS = 2, 1000
"""In very many dimensions few components are fitted at once: so many, or all that have so many coordinates together."""
FEWEST_MODES, MODE_DIMS, TRIES = 4, 5000, 4
"""Likewise, components made at modes, out of so many times as many that are looked at."""
ROUGH_DRAWS = 64
RATIO_DRAWS = 1024
"""Draws behind the judgement of one component."""
ARRIVED = 1e-6
"""Nats; local VI stops when no component moves further than this in a round."""
WINDOW = 5
"""Rounds whose ELBO estimates are averaged."""
RISING = 0.1
"""Nats that these averages must differ by for an ELBO to be rising."""
KEPT_WITHIN = 12.0
"""Nats below the best ELBO up to which a mode is kept: e⁻¹² of the mass."""
CATCH_UP = 3.0
"""A component may be expected to gain so many times what it gained in the last few rounds."""
AVERAGING = 10
"""Rounds with smaller and smaller steps at the end."""
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
    root, inverse = ((axes * by[:, None]) @ axes.swapaxes(1, 2) for by in (sd, 1.0 / sd))
    return stored(points, root / unit[:, :, None], inverse * unit[:, None, :], np.log(sd).sum(1) - np.log(unit).sum(1))


def modes_at(
    model: CountedTarget, points: Float[np.ndarray, "n dim"], values: Float[np.ndarray, " n"], most: int,
    least_mass: float = -np.inf, smooth: bool = True,
) -> Params | None:  # fmt: skip
    """Components at the distinct of these local maxima, highest first: at most `most`, with a Laplace mass above
    `least_mass` and, if `smooth`, where ln p is more than rounding error; None if there are none, or not among the
    first few."""
    most = min(most, max(FEWEST_MODES, MODE_DIMS // points.shape[1]))
    found: list[Params] = []
    left, tried = np.argsort(-values)[: int(np.isfinite(values).sum())], 0
    while left.size and len(found) < most and tried < TRIES * most:
        tried += 1
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


def draws_per_component(dim: int) -> int:
    return max(MIN_DRAWS, min(4 * dim, 2 * dim + 100))


def draws_of(
    model: CountedTarget, family: LinearFamily, params: Params, rng: np.random.Generator, n: int | None = None
) -> tuple[Float[np.ndarray, "components n dim"], Float[np.ndarray, "components n"], Float[np.ndarray, "components n"]]:
    """Fresh draws of each component, with ln p and its own ln s there."""
    count, dim = params["loc"].shape
    z, noise = draws_of_each(family, params, n or draws_per_component(dim), rng)
    return z, model(z.reshape(-1, dim))[0].reshape(count, -1), log_own(family, params, noise)


def promising(model: CountedTarget, family: LinearFamily, params: Params, rng: np.random.Generator) -> Params:
    """The components by their rough ELBO, highest first; only a few where a fit of each would cost much."""
    elbos = rough_elbos(model, family, params, rng)
    order = np.argsort(-elbos)[: max(FEWEST_FITTED, FITTED_DIMS // params["loc"].shape[1])]
    return take(params, order)


def rough_elbos(
    model: CountedTarget, family: LinearFamily, params: Params, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """The ELBO of each component as it is, from few draws."""
    _, log_target, log_own = draws_of(model, family, params, rng, ROUGH_DRAWS)
    elbos = np.mean(log_target - log_own, axis=1)
    return np.where(np.isnan(elbos), -np.inf, elbos)


def log_ratios(
    model: CountedTarget, family: LinearFamily, one: Params, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """ln p − ln q at draws of one component."""
    _, log_target, log_q = draws_of(model, family, one, rng, max(RATIO_DRAWS, draws_per_component(one["loc"].shape[1])))
    return (log_target - log_q)[0]


def visible_kl(model: CountedTarget, family: LinearFamily, one: Params, rng: np.random.Generator) -> float:
    """KL of one component on the region that it visits, and somewhat around it."""
    n = max(RATIO_DRAWS, draws_per_component(one["loc"].shape[1]))
    z, log_target, log_q = (of[0] for of in draws_of(model, family, one, rng, n))
    alone = mixtures.of(family, one, np.ones(1))
    wide = wide_draws(lambda points: model(points)[0], alone, z, rng, n)
    return diagnostics.evaluate(log_target, log_q, wide).kl_estimate


@dataclass(frozen=True)
class Fitted:
    """Components after local VI: those that stayed in the race, where they were among the starts, the ELBO of each, and
    whether it has stopped rising."""

    params: Params
    origins: Int[np.ndarray, " n"]
    elbos: Float[np.ndarray, " n"]
    settled: Bool[np.ndarray, " n"]

    @property
    def best(self) -> Params:
        return take(self.params, [int(np.argmax(self.elbos))])

    @property
    def distinct(self) -> np.ndarray:
        """Indices, best first, of the settled components, and the best, that are no near-duplicates of a better one.
        One that is still on its way has no place of its own yet."""
        arrived = self.settled | (np.arange(self.elbos.size) == np.argmax(self.elbos))
        return distinct(self.params, np.where(arrived, self.elbos, -np.inf))


def local_vi(
    model: CountedTarget, family: LinearFamily, params: Params, rounds: int, rng: np.random.Generator,
    least: float = -np.inf,
) -> Fitted:  # fmt: skip
    """Each component fitted to the target on its own, all at once: rounds with full steps until no ELBO rises any more,
    then some that average the noise away; at most `rounds` in all. On the way those are dropped that have become
    duplicates of others, or will not come near the best, or near `least`; the best one stays."""
    count, dim = params["loc"].shape
    n, origins = draws_per_component(dim), np.arange(count)
    elbos = np.zeros((0, count))
    averaging = 0
    while len(elbos) < rounds and averaging <= AVERAGING:
        z, noise = draws_of_each(family, params, n, rng)
        values, gradients = model(z.reshape(-1, dim))
        moments = natural_gradient.local_moments(
            family, params, noise, values.reshape(-1, n), gradients.reshape(-1, n, dim)
        )
        params, moved = natural_gradient.step(params, moments, 1.0 / (1.0 + averaging / 2.0))
        elbos = np.concatenate([elbos, moments.residual[None]])
        if moved.max() < ARRIVED:
            return Fitted(params, origins, elbos[-1], np.ones(origins.size, dtype=bool))
        if averaging or not _rising(elbos).any():
            averaging += 1
        if origins.size > 1 and len(elbos) % WINDOW == 0:
            kept = _in_the_race(params, elbos, least)
            params, origins, elbos = take(params, kept), origins[kept], elbos[:, kept]
    return Fitted(params, origins, elbos[-WINDOW:].mean(axis=0), ~_rising(elbos))


def _in_the_race(params: Params, elbos: Float[np.ndarray, "rounds n"], least: float) -> np.ndarray:
    """Indices of the components that are not yet known to be of no use."""
    now = np.where(np.isfinite(elbos[-1]), elbos[-1], -np.inf)
    with np.errstate(invalid="ignore"):
        gain = now - elbos[-WINDOW]
    reach = now + CATCH_UP * np.where(np.isfinite(gain), np.maximum(gain, 0.0), 0.0)
    first = distinct(params, now)
    if not first.size:
        return np.arange(now.size)
    hopeful = reach[first] > max(now.max() - KEPT_WITHIN, least)
    return np.sort(first[hopeful if hopeful.any() else slice(1)])


def _rising(elbos: Float[np.ndarray, "rounds n"]) -> Bool[np.ndarray, " n"]:
    """Whether the ELBO of each component was still rising in the last rounds."""
    if len(elbos) < 2 * WINDOW:
        return np.ones(elbos.shape[1], dtype=bool)
    with np.errstate(invalid="ignore"):  # −inf: a component without an ELBO does not rise
        return elbos[-WINDOW:].mean(axis=0) - elbos[-2 * WINDOW : -WINDOW].mean(axis=0) > RISING


def distinct(params: Params, score: Float[np.ndarray, " n"]) -> np.ndarray:
    """Indices, best score first, of components that are not near-duplicates of a better one."""
    kl, distance = kl_between(params), distances(params)
    dim = params["loc"].shape[1]
    near = np.maximum(distance, distance.T) < SAME_PLACE * np.sqrt(dim)
    same = near | (kl < SAME_SHAPE * max(1.0, dim / 10))
    kept: list[int] = []
    for j in np.argsort(-score):
        if np.isfinite(score[j]) and not same[j, kept].any():
            kept.append(int(j))
    return np.array(kept, dtype=int)
