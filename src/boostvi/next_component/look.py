"""Looking for mass of the posterior that a mixture misses.

A point is uncovered when ln p − ln q there is far above the mixture's ELBO, and above its value at any draw of q. Such
points are the ends of climbs, the ends of tempered chains, and draws of the widened mixture. Components are put where
they are, one at each mode and one over all of them, and fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi._jit import host_generator
from boostvi._struct import replace, scalar
from boostvi.families.base import Params
from boostvi.families.linear import FullRankStudentT, LinearFamily, StudentT
from boostvi.linear_mixture import join, take
from boostvi.mixture import Mixture
from boostvi.next_component.base import Proposal
from boostvi.next_component.chains import tempered
from boostvi.next_component.climb import climb
from boostvi.next_component.local import (
    CountedTarget,
    draws_of,
    local_vi,
    modes_at,
    promising,
    stored,
    wide_points,
)
from boostvi.target import Target, from_own, starting_points, to_own, values_and_gradients
from boostvi.wide import widened

SCREENED, CHEAP_SCREENED = 8, 256
"""Points evaluated per climb; more of them where an evaluation costs next to nothing: a needle is seldom hit."""
FLOOR = 10.0
INFLATIONS = (1.0, 2.0)
LOCAL_INFLATIONS = (2.0, 4.0, 8.0)
"""Points are drawn with the mixture's standard deviation, and with a component's own, times these."""
FAR = (0.0, 3.0)
"""log10 of the distances, in standard deviations of the mixture, at which other points are drawn around it."""
TEMPERED = 4
"""One of so many climbs begins at the end of a tempered chain."""
WIDE_DRAWS = 512
DEFLATED_ITERATIONS = 25
DEFLATION_DF, LIGHTER = 5.0, 1.5
"""Degrees of freedom of the Student-t components that stand for q in the deflated residual: these, or the family's own
times this. A Normal's tails fall so fast that climbs would run away; tails as heavy as p's leave nothing to climb: of
64 climbs on a mixture of ten Student-t components with df 2, one of them missed, 50 find it with df 3, 5 with df 2."""
MAX_ITERATIONS = 100
STRAGGLERS = 0.03
"""The climbs end when no more than this share of them is still on its way."""
UNCOVERED = 3.0
"""Nats by which ln p − ln q must exceed the ELBO where the mixture has missed something: a region that it covers badly
is a matter for refinement."""
WORTH = 9.0
"""Nats below the mixture's ELBO down to which a component's own ELBO counts: e⁻⁹ of the mass."""
GAP = 2.0
"""Nats by which a component's own mean of ln p − ln q must exceed the ELBO: the Frank-Wolfe gap towards it."""
LAPLACE_SLACK = 40.0
"""Nats by which the Laplace mass of a heavy-tailed mode may be too low before local VI has seen it."""
RESIDUAL_DRAWS = 512
"""Draws of the mixture behind its ELBO and the highest residual that counts as covered."""
ROUNDS = 20
MOST = 16
"""Components fitted to new modes at once."""
LEAST_SPREAD = 0.02
"""Mass outside, relative to the mixture's and beyond what its own draws know to be amiss, from which on one component
is put over all of it: less is a matter of tails."""


@dataclass(frozen=True)
class Level:
    """Of a mixture, on fresh draws: the ELBO, half the variance of ln p − ln q, from where on a point is uncovered, and
    the least ln q."""

    elbo: float
    misfit: float
    covered: float
    least_log_q: float


@dataclass(frozen=True)
class Found:
    """What a search found that a mixture misses, and what that cost.

    components: fitted, and worth proposing, best first, with their ELBOs.
    gap: the Frank-Wolfe gap towards the first.
    places: all components that were put where something is uncovered, also poor ones; None if nothing is.
    no_gradient: uncovered points at which ln p is finite and its gradient is not: no climb can begin there.
    lonely: nothing was found, but some of the modes that are known were reached by one climb only.
    """

    components: Params
    elbos: Float[np.ndarray, " n"]
    gap: float
    places: Params | None
    no_gradient: int
    lonely: bool
    level: Level
    evals: int
    nonfinite: int

    @property
    def proposal(self) -> Proposal:
        """The components that are worth it, as what a search gives to line 4 of Algorithm 1."""
        evals, nonfinite = scalar(self.evals), scalar(self.nonfinite)
        if not self.elbos.size:
            return Proposal(None, scalar(np.nan), evals, nonfinite)
        best, *others = (take(self.components, i) for i in range(self.elbos.size))
        shares: Any = self.shares
        return Proposal(best, scalar(self.elbos[0]), evals, nonfinite, tuple(others), shares, gap=scalar(self.gap))

    @property
    def shares(self) -> Float[np.ndarray, " n"]:
        """Of the mass of all, mixture and components: exact where these do not overlap."""
        top = max(self.level.elbo, self.elbos.max(initial=-np.inf))
        mass, rest = np.exp(self.elbos - top), np.exp(self.level.elbo - top)
        return mass / (mass.sum() + rest)


def look(
    target: Target, mixture: Mixture, n: int, key: Array, evals: int = 0,
    hints: Float[np.ndarray, "m dim"] | None = None,
) -> Found:  # fmt: skip
    """Look for mass of p that `mixture` misses, by n climbs and more, after `evals` evaluations elsewhere. hints:
    points that may be uncovered."""
    if not isinstance(mixture.family, LinearFamily):
        raise ValueError(
            f"next_component='explore' needs a full-rank family, got {mixture.family.name!r}; use "
            "next_component='mixture-elbo' with this one"
        )
    rng, mixture = host_generator(key), linear_mixture.compact(mixture)
    model = CountedTarget(target, evals)
    level = _level(model, mixture, rng)
    seen = _Seen(model, mixture, level)

    ends = tempered(model, mixture, n // TEMPERED, rng)
    wide, log_wide, _ = linear_mixture.draw(widened(mixture), rng, WIDE_DRAWS)
    excess = seen.excess(wide)
    outside = seen.mass(wide, excess, log_wide)
    beyond = seen.uncovered(wide, excess)
    if hints is not None:
        beyond = np.concatenate([seen.uncovered(hints, seen.excess(hints)), beyond])
    candidates = _candidates(target, mixture, (CHEAP_SCREENED if target.is_cheap else SCREENED) * n, rng, key)
    starts = _starts(seen, candidates, n - len(ends), rng)
    points, values = _climbed(model, mixture, starts, np.concatenate([ends, beyond[:MOST]]))
    missed = np.isfinite(values)
    missed[missed] &= values[missed] - linear_mixture.log_prob(mixture, points[missed]) > level.covered
    modes = modes_at(model, points[missed], values[missed], MOST, level.elbo - LAPLACE_SLACK)
    far = outside > LEAST_SPREAD + level.misfit
    all_over = _over(np.concatenate([beyond, seen.uncovered(ends, seen.excess(ends))])) if far else None
    found = _fitted(model, mixture, [places for places in (modes, all_over) if places is not None], level, rng)
    lonely = not found[1].size and _any_lonely(mixture, points[np.isfinite(values) & ~missed])
    return Found(*found, seen.no_gradient, lonely, level, model.evals, model.nonfinite)


def _climbed(
    model: CountedTarget, mixture: Mixture, starts: np.ndarray, more: np.ndarray
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
    """Local maxima of p reached from `starts`, every other one by way of the deflated residual, and from `more`; with
    ln p there."""
    target, covered = model.target, replace(mixture, family=_deflating(mixture.family))  # type: ignore[arg-type]

    def residual(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = model(z)
        log_q, gradient_q = linear_mixture.log_prob_and_gradient(covered, z)
        with np.errstate(invalid="ignore"):  # both may be −inf far out: not a place to climb to
            return values - log_q, gradients - gradient_q

    starts[::2], _ = climb(residual, starts[::2], DEFLATED_ITERATIONS, STRAGGLERS)
    # ln p is climbed in its own coordinates: what a warp makes of it far out is no landscape to climb in.
    own = CountedTarget(target.original)
    points, values = climb(own, to_own(target, np.concatenate([starts, more])), MAX_ITERATIONS, STRAGGLERS)
    model.add(own)
    points, log_det = from_own(target, points)
    return points, values + log_det


@dataclass
class _Seen:
    """ln p − ln q at points, and how many uncovered ones have no gradient."""

    model: CountedTarget
    mixture: Mixture
    level: Level
    no_gradient: int = 0

    def excess(self, points: np.ndarray, floor: float = np.inf) -> np.ndarray:
        """ln p − ln q; −inf where there is no ln p, or no gradient. ln q counts as no less than `floor` below its least
        value at a draw of q: far out in the tails a large ratio p/q means nothing."""
        values, gradients = self.model(points)
        log_q = linear_mixture.log_prob(self.mixture, points)
        usable = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        with np.errstate(invalid="ignore"):
            stuck = np.isfinite(values) & ~usable & (values - log_q > self.level.covered)
        if stuck.any():  # unless it is a warp that has no slope so far out
            own = values_and_gradients(self.model.target.original, to_own(self.model.target, points[stuck]))[1]
            self.no_gradient += int(np.sum(~np.isfinite(own).all(axis=1)))
        log_q = np.maximum(log_q, self.level.least_log_q - floor)
        return np.where(usable, np.where(usable, values, 0.0) - log_q, -np.inf)

    def mass(self, points: np.ndarray, excess: np.ndarray, log_density: np.ndarray) -> float:
        """Mass of p at uncovered points, relative to the mixture's, by draws of this density."""
        with np.errstate(over="ignore", invalid="ignore"):
            log_target = excess + linear_mixture.log_prob(self.mixture, points)
            mass = np.exp(log_target - log_density - self.level.elbo)
        return float(np.mean(np.where(excess > self.level.covered, mass, 0.0)))

    def uncovered(self, points: np.ndarray, excess: np.ndarray) -> np.ndarray:
        """Those of the points that are, the highest ln p − ln q first."""
        order = np.argsort(-excess)
        return points[order[excess[order] > self.level.covered]]


def _level(model: CountedTarget, mixture: Mixture, rng: np.random.Generator) -> Level:
    """From as many draws of each component."""
    each = -(-RESIDUAL_DRAWS // mixture.n_active)
    z, _ = linear_mixture.draws_of_each(mixture.family, mixture.params, each, rng)  # type: ignore[arg-type]
    values, _ = model(z.reshape(-1, mixture.dim))
    log_q = linear_mixture.log_prob(mixture, z.reshape(-1, mixture.dim))
    residuals, weights = values - log_q, np.repeat(mixture.weights, each)
    usable = np.isfinite(values)
    residuals, weights = residuals[usable], weights[usable] / weights[usable].sum()
    elbo = float(weights @ residuals)
    misfit = 0.5 * float(weights @ (residuals - elbo) ** 2)
    return Level(elbo, misfit, max(elbo + UNCOVERED, float(residuals.max())), float(log_q.min()))


def _candidates(target: Target, mixture: Mixture, n: int, rng: np.random.Generator, key: Array) -> np.ndarray:
    """Prior draws, wide draws around the origin and around the mixture, and draws from the inflated mixture: as a
    whole, and one by one."""
    prior = starting_points(target, key)[: n // 5]
    each = (n - prior.shape[0]) // 4
    wide, _ = from_own(target, wide_points(rng, each, target.dim))
    weights, loc, factor = mixture.weights, mixture.params["loc"], mixture.params["factor"]
    mean = weights @ loc
    sd = np.sqrt(weights @ ((loc - mean) ** 2 + np.sum(factor**2, axis=2)))
    around = mean + 10.0 ** rng.uniform(*FAR, (each, 1)) * sd * rng.standard_normal((each, target.dim))
    # A Gaussian with the mixture's covariance, without a Cholesky factor: random combinations of the centres.
    between = (rng.standard_normal((each, weights.size)) * np.sqrt(weights)) @ (loc - mean)
    owners = rng.choice(weights.size, size=(2, each), p=weights / weights.sum())
    noise = rng.standard_normal((2, each, target.dim))
    within, own = (linear_mixture.by_owner(factor, of, rows) for of, rows in zip(owners, noise, strict=True))
    whole = mean + rng.choice(INFLATIONS, size=(each, 1)) * (between + within)
    one = loc[owners[1]] + rng.choice(LOCAL_INFLATIONS, size=(each, 1)) * own
    return np.concatenate([prior, wide, around, whole, one])


def _starts(seen: _Seen, candidates: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n of the candidates to climb from: half at random, half where ln p is highest above ln q."""
    n = min(n, len(candidates))
    best = np.argsort(-seen.excess(candidates, FLOOR))[: n // 2]
    rest = rng.choice(np.setdiff1d(np.arange(len(candidates)), best), size=n - best.size, replace=False)
    return candidates[rng.permutation(np.concatenate([best, rest]))]


def _any_lonely(mixture: Mixture, ends: np.ndarray) -> bool:
    """Whether a component was reached by one climb only: then others were probably reached by none (Good 1953)."""
    if not len(ends) or mixture.n_active == 1:
        return False
    reached = np.concatenate([at.log_s.argmax(axis=1) for _, at in linear_mixture.blocks(mixture, ends)])
    return bool((np.bincount(reached) == 1).any())


def _deflating(family: LinearFamily) -> LinearFamily:
    if isinstance(family, StudentT):
        return type(family)(LIGHTER * family.df)
    return FullRankStudentT(DEFLATION_DF)


@np.errstate(over="ignore", invalid="ignore")
def _over(points: np.ndarray) -> Params | None:
    """One component with the mean and the covariance of these points, which few points say little of: the fewer there
    are, the more of it is the variances alone. None if they have no such thing."""
    n, dim = points.shape
    centred = points - points.mean(axis=0)
    variances = np.mean(centred**2, axis=0)
    if n < 2 or not (np.isfinite(variances) & (variances > 0)).all():
        return None
    sd, share = np.sqrt(variances), n / (n + dim + 1.0)
    standard = centred / sd
    root = np.linalg.cholesky(share * standard.T @ standard / n + (1.0 - share) * np.eye(dim))
    log_volume = np.log(np.diagonal(root)).sum() + np.log(sd).sum()
    return stored(
        points.mean(axis=0)[None], (sd[:, None] * root)[None], (np.linalg.inv(root) / sd)[None], np.array([log_volume])
    )


def _fitted(
    model: CountedTarget, mixture: Mixture, places: list[Params], level: Level, rng: np.random.Generator
) -> tuple[Params, np.ndarray, float, Params | None]:
    """The first four fields of `Found`. Fitted are the first of the places: modes, or, where there are none that were
    missed, what is all over the points that were."""
    if not places:
        return {}, np.zeros(0), np.nan, None
    family: LinearFamily = mixture.family  # type: ignore[assignment]  # `look` has checked
    fitted = local_vi(model, family, promising(model, family, places[0], rng), ROUNDS, rng, level.elbo - WORTH)
    every, kept = join(*places, fitted.params), fitted.distinct
    kept = kept[fitted.elbos[kept] > level.elbo - WORTH]
    if not kept.size:
        return {}, np.zeros(0), np.nan, every
    # The fit may have walked from a spike into what is covered.
    z, log_target, _ = draws_of(model, family, take(fitted.params, kept), rng)
    log_q = linear_mixture.log_prob(mixture, z.reshape(-1, z.shape[-1])).reshape(log_target.shape)
    gaps = np.mean(log_target - log_q, axis=1) - level.elbo
    worth = gaps > GAP
    gap = float(gaps[worth][0]) if worth.any() else np.nan
    return take(fitted.params, kept[worth]), fitted.elbos[kept[worth]], gap, every
