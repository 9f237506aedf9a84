"""New components where the mixture misses mass: found by looking."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import natural_gradient
from boostvi._jit import host_generator, sub_keys
from boostvi._struct import check_count, static, struct
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily
from boostvi.mixture import Mixture
from boostvi.next_component.base import NextComponent, Proposal
from boostvi.next_component.climb import climb
from boostvi.next_component.local import CountedTarget, distinct, draws_of, local_vi, modes_at, take, wide_points
from boostvi.target import Target, from_own, starting_points, to_own

SCREENED = 8
"""Points evaluated per climb."""
FLOOR = 10.0
INFLATIONS = (1.0, 2.0)
LOCAL_INFLATIONS = (2.0, 4.0, 8.0)
"""Points are drawn with the mixture's standard deviation, and with a component's own, times these."""
DEFLATED_ITERATIONS = 25
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
ROUNDS = 20
MOST = 16
"""Components fitted to new modes at once."""


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
        if first and target.is_costly and found.elbos.size:  # worth a longer look
            found = look(target, mixture, self.n_starts, jax.random.fold_in(key, 1), found.evals)
        kept = [take(found.components, i) for i in range(found.elbos.size)]
        best, others = (kept[0], tuple(kept[1:])) if kept else (None, ())
        value = found.elbos[0] if kept else np.nan
        return Proposal(best, np.asarray(value), np.asarray(found.evals), np.asarray(found.nonfinite), others)


@dataclass(frozen=True)
class Found:
    """Components at modes that a mixture has missed, best first, and what the search cost."""

    components: Params
    elbos: Float[np.ndarray, " n"]
    elbo: float  # of the mixture
    evals: int
    nonfinite: int


def look(target: Target, mixture: Mixture, n: int, key: Array, evals: int = 0) -> Found:
    """Look for modes of p that `mixture` misses, from n starts, after `evals` evaluations elsewhere."""
    if not isinstance(mixture.family, LinearFamily):
        raise ValueError(
            f"next_component='explore' needs a full-rank family, got {mixture.family.name!r}; use "
            "next_component='mixture-elbo' with this one"
        )
    key_rng, key_prior, key_elbo, key_vi = sub_keys(key, 4)
    rng = host_generator(key_rng)
    model = CountedTarget(target, evals)
    elbo, highest, least_log_q = _residuals(model, mixture, key_elbo)
    points = _starts(model, mixture, n, least_log_q, rng, key_prior)

    def residual(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = model(z)
        log_q, gradient_q = natural_gradient.log_q_and_gradient(mixture, z)
        with np.errstate(invalid="ignore"):  # both may be −inf far out: not a place to climb to
            return values - log_q, gradients - gradient_q

    points[::2], _ = climb(residual, points[::2], DEFLATED_ITERATIONS, STRAGGLERS)
    # ln p is climbed in its own coordinates: what a warp makes of it far out is no landscape to climb in.
    own = CountedTarget(target.original)
    points, values = climb(own, to_own(target, points), MAX_ITERATIONS, STRAGGLERS)
    model.add(own)
    points, log_det = from_own(target, points)
    values = values + log_det
    missed = np.isfinite(values)
    log_q, _ = natural_gradient.log_q_and_gradient(mixture, points[missed])
    missed[missed] &= values[missed] - log_q > max(elbo + UNCOVERED, highest)
    params, elbos = _fit(model, mixture, points[missed], values[missed], elbo, key_vi)
    return Found(params, elbos, elbo, model.evals, model.nonfinite)


def _fit(
    model: CountedTarget, mixture: Mixture, points: np.ndarray, values: np.ndarray, elbo: float, key: Array
) -> tuple[Params, np.ndarray]:
    """Components fitted at the distinct points that have mass which the mixture has not, best first."""
    modes = modes_at(model, points, values, MOST, elbo - LAPLACE_SLACK)
    if modes is None:
        return {}, np.zeros(0)
    family: LinearFamily = mixture.family  # type: ignore[assignment]  # `look` has checked
    params, elbos = local_vi(model, family, modes, ROUNDS, key)
    kept = distinct(params, elbos)
    kept = kept[elbos[kept] > elbo - WORTH]
    if kept.size:  # the fit may have walked from a spike into what is covered
        z, log_target = draws_of(model, family, take(params, kept), jax.random.fold_in(key, ROUNDS))
        log_q, _ = natural_gradient.log_q_and_gradient(mixture, z.reshape(-1, z.shape[-1]))
        gaps = np.mean(log_target - log_q.reshape(log_target.shape), axis=1) - elbo
        kept = kept[gaps > GAP]
    return take(params, kept), elbos[kept]


def _starts(
    model: CountedTarget, mixture: Mixture, n: int, least_log_q: float, rng: np.random.Generator, key: Array
) -> np.ndarray:
    """n points to climb from, out of many: half at random, half where ln p is highest above ln q.

    For the ranking ln q counts as no less than 10 nats below its least value at a draw of q: far out in the tails a
    large ratio p/q means nothing.
    """
    points = _candidates(model.target, mixture, SCREENED * n, rng, key)
    values, _ = model(points)
    log_q, _ = natural_gradient.log_q_and_gradient(mixture, points)
    excess = np.where(np.isfinite(values), values - np.maximum(log_q, least_log_q - FLOOR), -np.inf)
    best = np.argsort(-excess)[: n // 2]
    rest = rng.choice(np.setdiff1d(np.arange(points.shape[0]), best), size=n - best.size, replace=False)
    return points[rng.permutation(np.concatenate([best, rest]))]


def _candidates(target: Target, mixture: Mixture, n: int, rng: np.random.Generator, key: Array) -> np.ndarray:
    """Prior draws, wide draws around the origin, and draws from the inflated mixture: as a whole, and one by one."""
    prior = starting_points(target, key)[: n // 4]
    each = (n - prior.shape[0]) // 3
    wide, _ = from_own(target, wide_points(rng, each, target.dim))
    weights = np.asarray(mixture.weights)
    loc, factor = np.asarray(mixture.params["loc"]), np.asarray(mixture.params["factor"])
    mean = weights @ loc
    slots = rng.choice(weights.size, size=(2, each), p=weights / weights.sum())
    # A Gaussian with the mixture's covariance, without a Cholesky factor: random combinations of the centres.
    active = np.flatnonzero(weights)
    between = (rng.standard_normal((each, active.size)) * np.sqrt(weights[active])) @ (loc[active] - mean)
    within = np.einsum("nij,nj->ni", factor[slots[0]], rng.standard_normal((each, target.dim)))
    whole = mean + rng.choice(INFLATIONS, size=(each, 1)) * (between + within)
    one = loc[slots[1]] + rng.choice(LOCAL_INFLATIONS, size=(each, 1)) * np.einsum(
        "nij,nj->ni", factor[slots[1]], rng.standard_normal((each, target.dim))
    )
    return np.concatenate([prior, wide, whole, one])


def _residuals(model: CountedTarget, mixture: Mixture, key: Array) -> tuple[float, float, float]:
    """The ELBO, the largest ln p − ln q and the least ln q, on one block of fresh draws, as many of each component."""
    z, slots = natural_gradient.block_of_draws(mixture, key, jnp.asarray(0))
    values, _ = model(z)
    log_q, _ = natural_gradient.log_q_and_gradient(mixture, np.asarray(z))
    residuals = values - log_q
    weights = natural_gradient.shares_of(mixture, slots)
    usable = np.isfinite(values)
    elbo = np.sum((weights * residuals)[usable]) / np.sum(weights[usable])
    return float(elbo), float(residuals[usable].max()), float(log_q.min())
