"""How good the mixture is, from draws that had no part in making it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, host_generator, new_key
from boostvi.families.linear import LinearFamily
from boostvi.mixture import Mixture
from boostvi.target import Target, log_densities
from boostvi.wide import Wide, log_weights

FEWEST_SMOOTHED = 25
"""With fewer draws there is no tail to fit a Pareto distribution to."""
EQUAL, DIGITS = 1e-10, 1e-13
"""Ratios that differ by no more than this, or by this share of their size, are equal: what is left is rounding."""
NEARLY_EQUAL = 0.1
"""Nats within which no weight is larger than another to speak of."""
BLOCK = 2000
"""Fresh draws are made in blocks of this size where their number allows: another number compiles nothing anew."""


def fresh_log_densities(
    target: Target, mixture: Mixture, key: Array, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n fresh draws of q, with ln p and ln q there."""
    if isinstance(mixture.family, LinearFamily):
        z, log_q, _ = linear_mixture.draw(mixture, host_generator(key), n)
        return z, log_densities(target, z), log_q
    block = BLOCK if n % BLOCK == 0 else n
    parts = [_fresh(mixture, key, jnp.asarray(i), block) for i in range(n // block)]
    draws = [np.asarray(z) for z, _ in parts]
    log_target = [log_densities(target, z) for z in draws]
    return np.concatenate(draws), np.concatenate(log_target), np.concatenate([np.asarray(log_q) for _, log_q in parts])


@counted_jit(static_argnums=3)
def _fresh(mixture: Mixture, key: Array, block: Array, n: int) -> tuple[Array, Array]:
    return mixtures.draw(mixture, mixture.weights, jax.random.fold_in(key, block), n)


@dataclass(frozen=True)
class Evaluation:
    """ELBO, log evidence and their difference, from fresh draws, each with its standard error.

    `kl_estimate` is log Ẑ − ELBO: the KL divergence to the posterior restricted to where the mixture goes. A mode
    that no draw visits is not in it.
    """

    elbo: float
    elbo_se: float
    log_evidence: float
    log_evidence_se: float
    kl_estimate: float
    kl_se: float
    nonfinite: int
    pool_khat: float = np.inf  # Pareto shape of the weights of all draws, wide ones among them
    pool_ess: float = 0.0  # effective number of them, per draw of the mixture
    mean_shift: float = 0.0  # the largest between the mixture and the weighted draws, at least, in standard deviations
    sd_shift: float = 0.0  # the largest, at least, relative


def evaluate(
    log_target: Float[np.ndarray, " n"],
    log_q: Float[np.ndarray, " n"],
    wide: Wide | None = None,
    draws: Float[np.ndarray, "n dim"] | None = None,
    tail: bool = False,
) -> Evaluation:
    """ELBO = mean ln(p/q) over draws of q; log Ẑ = ln mean p/q̄ over these and the wide draws, q̄ the mixture of both.
    draws: those of q, where the target lives, if their moments are to be compared with those of the weighted draws.
    tail: whether `pool_khat` and `pool_ess` are wanted.

    A draw with p = 0 makes the ELBO −inf, and is not left out.
    """
    log_ratio = np.asarray(log_target) - np.asarray(log_q)
    n = log_ratio.size
    finite = np.isfinite(log_ratio)
    if not finite.any():
        return Evaluation(-np.inf, np.inf, -np.inf, np.inf, np.inf, np.inf, n)
    pool, shares = log_weights(log_target, log_q, wide)
    usable = np.isfinite(pool)
    top = pool[usable].max()
    weights = np.exp(np.where(usable, pool - top, -np.inf))
    # The share q/q̄ has mean 1 for certain: what it explains of the weights is no error (Owen & Zhou 2000). Where q is
    # the posterior that is all of them.
    spread = shares.var()
    slope = np.mean((weights - weights.mean()) * (shares - shares.mean())) / spread if spread > 0 else 0.0
    corrected = weights - slope * (shares - 1.0)
    mean = corrected.mean() if corrected.mean() > 0 else weights.mean()
    log_evidence = float(top + np.log(mean))
    # What each draw contributes to log Ẑ; the two kinds of draws are strata.
    influence, wide_influence = np.split(corrected * (n / weights.size) / mean, [n])
    wide_variance = (
        (wide_influence * wide_influence.size / n).var(ddof=1) / wide_influence.size if wide_influence.size else 0.0
    )
    # No variance knows of a weight larger than all that were seen. One more like the largest would make this error.
    unseen = ((weights.max() - weights.mean()) / weights.sum()) ** 2
    log_evidence_se = float(np.sqrt(influence.var(ddof=1) / n + wide_variance + unseen))
    if not finite.all():
        return Evaluation(-np.inf, np.inf, log_evidence, log_evidence_se, np.inf, np.inf, int(n - finite.sum()))
    elbo = float(log_ratio.mean())
    # The two estimates share their draws: their errors largely cancel in the difference.
    kl_se = float(np.sqrt((influence - log_ratio).var(ddof=1) / n + wide_variance + unseen))
    elbo_se = float(log_ratio.std(ddof=1) / np.sqrt(n))
    kl = max(log_evidence - elbo, 0.0)
    evaluation = Evaluation(elbo, elbo_se, log_evidence, log_evidence_se, kl, kl_se, 0)
    if tail:
        _, khat, ess = importance(pool)
        evaluation = replace(evaluation, pool_khat=khat, pool_ess=ess / n)
    if draws is None or wide is None:
        return evaluation
    mean_shift, sd_shift = _shifts(draws, np.concatenate([draws, wide.draws]), weights / weights.sum())
    return replace(evaluation, mean_shift=mean_shift, sd_shift=sd_shift)


def _shifts(
    draws: Float[np.ndarray, "n dim"], points: Float[np.ndarray, "m dim"], weights: Float[np.ndarray, " m"]
) -> tuple[float, float]:
    """Largest differences of mean (in standard deviations) and standard deviation between draws, which are the first of
    the points, and weighted points; each less twice its error."""
    n = len(draws)
    plain = np.where(np.arange(len(points)) < n, 1.0 / n, 0.0)
    mean, own_mean = weights @ points, draws.mean(axis=0)
    square, own_square = (points - mean) ** 2, (points - own_mean) ** 2
    sd, own_sd = np.sqrt(weights @ square), draws.std(axis=0)
    # What each point contributes to the two estimates: they share the draws, and much of their errors.
    influence = weights[:, None] * (points - mean) - plain[:, None] * (points - own_mean)
    mean_error = np.sqrt(np.sum(influence**2, axis=0)) / sd
    influence = weights[:, None] * (square / sd**2 - 1.0) - plain[:, None] * (own_square / own_sd**2 - 1.0)
    sd_error = 0.5 * np.sqrt(np.sum(influence**2, axis=0)) * own_sd / sd
    means = np.abs(own_mean - mean) / sd - 2.0 * mean_error
    sds = np.abs(own_sd / sd - 1.0) - 2.0 * sd_error
    return max(float(means.max()), 0.0), max(float(sds.max()), 0.0)


def importance(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float, float]:
    """Pareto-smoothed importance weights (they sum to 1), their k̂, and their effective number of draws."""
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, -np.inf)
    usable = np.isfinite(log_ratio)
    if usable.sum() < 2:
        return np.full(log_ratio.size, 1.0 / log_ratio.size), np.inf, 0.0
    smoothed, khat = _smoothed(log_ratio[usable])
    weights = np.zeros(log_ratio.size)
    weights[usable] = np.exp(smoothed - smoothed.max())
    weights /= weights.sum()
    return weights, khat, float(1.0 / np.sum(weights**2))


def _smoothed(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float]:
    """The ratios with a Pareto tail in place of the largest, and its shape; as they are, where there is none."""
    from arviz_stats.base import array_stats

    if np.ptp(log_ratio) < max(EQUAL, DIGITS * np.abs(log_ratio).max()):  # the mixture is the target
        return np.zeros(log_ratio.size), -np.inf
    if log_ratio.size < FEWEST_SMOOTHED:
        return log_ratio, np.inf
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            smoothed, khat = array_stats.psislw(-log_ratio)  # it smooths *negative* log ratios
    except ValueError:  # the largest are all the same: nothing is heavier than they are
        return log_ratio, -np.inf
    if np.isfinite(smoothed).all() and np.isfinite(khat):
        return smoothed, float(khat)
    # Of few different values, as single precision leaves, there is no tail to fit.
    return log_ratio, -np.inf if np.ptp(log_ratio) < NEARLY_EQUAL else np.inf


PURPOSES = ("start", "step", "final", "probe", "wide", "step wide")


def key_for(seed: int, purpose: str, t: int) -> Array:
    """Keys of evaluation draws: apart from every key that a step uses, and from one another."""
    apart = jax.random.fold_in(new_key(seed), 2**31 + PURPOSES.index(purpose))
    return jax.random.fold_in(apart, t)
