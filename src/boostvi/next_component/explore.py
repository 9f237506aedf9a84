"""New components where the mixture misses mass: found by looking."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi._jit import host_generator
from boostvi._struct import check_count, replace, scalar, static, struct
from boostvi.families.base import Params
from boostvi.families.linear import FullRankStudentT, LinearFamily, StudentT
from boostvi.linear_mixture import take
from boostvi.mixture import Mixture
from boostvi.next_component.base import NextComponent, Proposal
from boostvi.next_component.climb import climb
from boostvi.next_component.local import CountedTarget, draws_of, local_vi, modes_at, promising, wide_points
from boostvi.target import Target, from_own, starting_points, to_own

SCREENED = 8
"""Points evaluated per climb."""
FLOOR = 10.0
INFLATIONS = (1.0, 2.0)
LOCAL_INFLATIONS = (2.0, 4.0, 8.0)
"""Points are drawn with the mixture's standard deviation, and with a component's own, times these."""
DEFLATED_ITERATIONS = 25
DEFLATION_DF, LIGHTER = 5.0, 1.5
"""Degrees of freedom of the Student-t components that stand for q in the deflated residual: these, or the family's own
times this. A Normal's tails fall so fast that climbs would run away; tails as heavy as p's leave nothing to climb: of
64 climbs on a mixture of ten Student-t components with df 2, one of them missed, 50 find it with df 3, 5 with df 2."""
MAX_ITERATIONS = 100
STRAGGLERS = 0.03
"""The climbs end when no more than this share of them is still on its way."""
UNCOVERED = 3.0
"""Nats by which ln p − ln q must exceed the ELBO, and at all the value at any draw of q, at a local maximum of p that
the mixture has missed: a mode that it covers badly is a matter for refinement."""
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
LONGER = 3
"""A search that found nothing, but hardly found what is known, is repeated with so many times as many starts."""


@struct
class Explore(NextComponent):
    """Climbs from `n_starts` points, chosen from prior draws, wide draws and draws of the inflated mixture; from a
    quarter of them behind a warp, or if the model is costly and that many find nothing. Every other climb first goes up
    the deflated residual ln p − ln q, away from what is covered. A local maximum of p that the mixture has missed is
    fitted by natural-gradient VI, and proposed if its ELBO says that it has mass."""

    n_starts: int = static(default=128)

    name = "explore"
    exhaustible = True

    def __post_init__(self):
        check_count("n_starts", self.n_starts)

    def __call__(self, target, mixture, table, t, key):
        # Fewer starts for what was alone after a search and then straightened.
        first, fewer = mixture.warp is None, -(-self.n_starts // 4)
        found = look(target, mixture, self.n_starts if first and not target.is_costly else fewer, key)
        if first and (found.elbos.size > 0 if target.is_costly else found.lonely):  # worth a longer look
            longer = self.n_starts if target.is_costly else LONGER * self.n_starts
            found = look(target, mixture, longer, jax.random.fold_in(key, 1), found.evals)
        evals, nonfinite = scalar(found.evals), scalar(found.nonfinite)
        if not found.elbos.size:
            return Proposal(None, scalar(np.nan), evals, nonfinite)
        best, *others = (take(found.components, i) for i in range(found.elbos.size))
        return Proposal(
            best, scalar(found.elbos[0]), evals, nonfinite, tuple(others), found.shares, gap=scalar(found.gap)
        )


@dataclass(frozen=True)
class Found:
    """Components at modes that a mixture has missed, best first, and what the search cost."""

    components: Params
    elbos: Float[np.ndarray, " n"]
    gap: float  # the Frank-Wolfe gap towards the first
    lonely: bool  # nothing was found, but some of the modes that are known were reached by one climb only
    elbo: float  # of the mixture
    evals: int
    nonfinite: int

    @property
    def shares(self) -> Float[np.ndarray, " n"]:
        """Of the mass of all, mixture and components: exact where these do not overlap."""
        mass = np.exp(self.elbos - max(self.elbo, self.elbos.max(initial=-np.inf)))
        rest = np.exp(self.elbo - max(self.elbo, self.elbos.max(initial=-np.inf)))
        return mass / (mass.sum() + rest)


def look(
    target: Target, mixture: Mixture, n: int, key: Array, evals: int = 0, more: Float[np.ndarray, "m dim"] | None = None
) -> Found:
    """Look for modes of p that `mixture` misses, from n starts, and from `more`, after `evals` evaluations
    elsewhere."""
    if not isinstance(mixture.family, LinearFamily):
        raise ValueError(
            f"next_component='explore' needs a full-rank family, got {mixture.family.name!r}; use "
            "next_component='mixture-elbo' with this one"
        )
    rng, mixture = host_generator(key), linear_mixture.compact(mixture)
    model = CountedTarget(target, evals)
    elbo, highest, least_log_q = _residuals(model, mixture, rng)
    points = _starts(model, mixture, n, least_log_q, rng, key)

    covered = replace(mixture, family=_deflating(mixture.family))  # type: ignore[arg-type]  # checked above

    def residual(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = model(z)
        log_q, gradient_q = linear_mixture.log_prob_and_gradient(covered, z)
        with np.errstate(invalid="ignore"):  # both may be −inf far out: not a place to climb to
            return values - log_q, gradients - gradient_q

    points[::2], _ = climb(residual, points[::2], DEFLATED_ITERATIONS, STRAGGLERS)
    points = points if more is None else np.concatenate([points, more])
    # ln p is climbed in its own coordinates: what a warp makes of it far out is no landscape to climb in.
    own = CountedTarget(target.original)
    points, values = climb(own, to_own(target, points), MAX_ITERATIONS, STRAGGLERS)
    model.add(own)
    points, log_det = from_own(target, points)
    values = values + log_det
    missed = np.isfinite(values)
    log_q = linear_mixture.log_prob(mixture, points[missed])
    missed[missed] &= values[missed] - log_q > max(elbo + UNCOVERED, highest)
    params, elbos, gap = _fit(model, mixture, points[missed], values[missed], elbo, rng)
    lonely = not elbos.size and _any_lonely(mixture, points[np.isfinite(values) & ~missed])
    return Found(params, elbos, gap, lonely, elbo, model.evals, model.nonfinite)


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


def _fit(
    model: CountedTarget, mixture: Mixture, points: np.ndarray, values: np.ndarray, elbo: float,
    rng: np.random.Generator,
) -> tuple[Params, np.ndarray, float]:  # fmt: skip
    """Components fitted at the distinct points that have mass which the mixture has not, best first; their ELBOs; and
    the Frank-Wolfe gap towards the first."""
    modes = modes_at(model, points, values, MOST, elbo - LAPLACE_SLACK)
    if modes is None:
        return {}, np.zeros(0), np.nan
    family: LinearFamily = mixture.family  # type: ignore[assignment]  # `look` has checked
    modes = promising(model, family, modes, rng)
    fitted = local_vi(model, family, modes, ROUNDS, rng, elbo - WORTH)
    params, elbos, kept = fitted.params, fitted.elbos, fitted.distinct
    kept = kept[elbos[kept] > elbo - WORTH]
    if not kept.size:
        return {}, np.zeros(0), np.nan
    # The fit may have walked from a spike into what is covered.
    z, log_target, _ = draws_of(model, family, take(params, kept), rng)
    log_q = linear_mixture.log_prob(mixture, z.reshape(-1, z.shape[-1])).reshape(log_target.shape)
    gaps = np.mean(log_target - log_q, axis=1) - elbo
    worth = gaps > GAP
    return take(params, kept[worth]), elbos[kept[worth]], float(gaps[worth][0]) if worth.any() else np.nan


def _starts(
    model: CountedTarget, mixture: Mixture, n: int, least_log_q: float, rng: np.random.Generator, key: Array
) -> np.ndarray:
    """n points to climb from, out of many: half at random, half where ln p is highest above ln q.

    For the ranking ln q counts as no less than 10 nats below its least value at a draw of q: far out in the tails a
    large ratio p/q means nothing.
    """
    points = _candidates(model.target, mixture, SCREENED * n, rng, key)
    values, _ = model(points)
    log_q = linear_mixture.log_prob(mixture, points)
    excess = np.where(np.isfinite(values), values - np.maximum(log_q, least_log_q - FLOOR), -np.inf)
    best = np.argsort(-excess)[: n // 2]
    rest = rng.choice(np.setdiff1d(np.arange(points.shape[0]), best), size=n - best.size, replace=False)
    return points[rng.permutation(np.concatenate([best, rest]))]


def _candidates(target: Target, mixture: Mixture, n: int, rng: np.random.Generator, key: Array) -> np.ndarray:
    """Prior draws, wide draws around the origin, and draws from the inflated mixture: as a whole, and one by one."""
    prior = starting_points(target, key)[: n // 4]
    each = (n - prior.shape[0]) // 3
    wide, _ = from_own(target, wide_points(rng, each, target.dim))
    weights, loc = mixture.weights, mixture.params["loc"]
    mean = weights @ loc
    # A Gaussian with the mixture's covariance, without a Cholesky factor: random combinations of the centres.
    between = (rng.standard_normal((each, weights.size)) * np.sqrt(weights)) @ (loc - mean)
    owners = rng.choice(weights.size, size=(2, each), p=weights / weights.sum())
    noise = rng.standard_normal((2, each, target.dim))
    within, own = (
        linear_mixture.by_owner(mixture.params["factor"], of, rows) for of, rows in zip(owners, noise, strict=True)
    )
    whole = mean + rng.choice(INFLATIONS, size=(each, 1)) * (between + within)
    one = loc[owners[1]] + rng.choice(LOCAL_INFLATIONS, size=(each, 1)) * own
    return np.concatenate([prior, wide, whole, one])


def _residuals(model: CountedTarget, mixture: Mixture, rng: np.random.Generator) -> tuple[float, float, float]:
    """The ELBO, the largest ln p − ln q and the least ln q, on fresh draws, as many of each component."""
    each = -(-RESIDUAL_DRAWS // mixture.n_active)
    z, _ = linear_mixture.draws_of_each(mixture.family, mixture.params, each, rng)  # type: ignore[arg-type]
    values, _ = model(z.reshape(-1, mixture.dim))
    log_q = linear_mixture.log_prob(mixture, z.reshape(-1, mixture.dim))
    residuals, weights = values - log_q, np.repeat(mixture.weights, each)
    usable = np.isfinite(values)
    elbo = np.sum((weights * residuals)[usable]) / np.sum(weights[usable])
    return float(elbo), float(residuals[usable].max()), float(log_q.min())
