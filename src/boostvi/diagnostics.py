"""How good the mixture is, from draws that had no part in making it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, host_generator, new_key
from boostvi.families.linear import FullRankStudentT, LinearFamily, scaled
from boostvi.mixture import Mixture
from boostvi.target import Target, log_densities

if TYPE_CHECKING:
    from boostvi.probes import Probes

KHAT_LIMIT = 0.7
"""Above this Pareto shape, importance weights have no usable variance (Vehtari et al. 2024)."""
ESS_SHARE_LIMIT = 0.1
"""Below this share of effective draws, log Ẑ tends to be too low and the KL estimate with it."""

FEWEST_SMOOTHED = 25
"""With fewer draws there is no tail to fit a Pareto distribution to."""
NEAR_UNIFORM = 0.5
"""With this share of effective draws no few draws carry the weights, whatever the shape of the tail."""
NEGLIGIBLE = 0.01
"""Share of the mass: with less of it missed, importance weights still serve."""
TRIFLING = 0.001
"""With less of it missed, the mixture may still be used as it is: it costs 0.001 nats."""
GOOD_KL = 0.1
"""Nats, error included, up to which the mixture may be used as it is."""
GOOD_ESS_SHARE = 0.5
GOOD_SHIFT = 0.15
"""Relative to the standard deviation: what importance weights, wide draws among them, may move means and sds by."""
GOOD_DRIFT = 0.2
"""Nats that chains may rise: KL(p‖q) + KL(q‖p), of which the second is below 0.1."""
RUNAWAY = 1e3
"""A fit that is unreliable and this much wider than the starting points has probably run away."""
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
    wide_khat: float = np.inf  # Pareto shape of the weights behind log_evidence, where wide draws are among them
    mean_shift: float = 0.0  # the largest between the mixture and the weighted draws, at least, in standard deviations
    sd_shift: float = 0.0  # the largest, at least, relative


@dataclass(frozen=True)
class Wide:
    """Draws of something wider than q, for log Ẑ and for moments: they see tails that the draws of q do not. With a
    warp, `draws` are behind it, and the densities before."""

    draws: Float[np.ndarray, "m dim"]
    log_target: Float[np.ndarray, " m"]
    log_q: Float[np.ndarray, " m"]
    log_wide: Float[np.ndarray, " m"]
    log_wide_at_q: Float[np.ndarray, " n"]


WIDE_SCALE = 1.5
WIDE_DF = 3.0
"""The wide draws come from the mixture with Student-t components of 1.5 times the scale."""


def wide_draws(
    log_density: Callable[[np.ndarray], np.ndarray], mixture: Mixture, draws: Float[np.ndarray, "n dim"],
    rng: np.random.Generator, n: int,
) -> Wide | None:  # fmt: skip
    """n draws of the widened mixture beside these draws of q; None for families that have no full-rank factor."""
    if not isinstance(mixture.family, LinearFamily):
        return None
    mixture = linear_mixture.compact(mixture)
    wide = replace(mixture, params=scaled(mixture.params, WIDE_SCALE), family=FullRankStudentT(WIDE_DF))
    z, log_wide, _ = linear_mixture.draw(wide, rng, n)
    log_q = linear_mixture.log_prob(mixture, z)
    return Wide(mixture.warped(z), log_density(z), log_q, log_wide, linear_mixture.log_prob(wide, draws))


def evaluate(
    log_target: Float[np.ndarray, " n"],
    log_q: Float[np.ndarray, " n"],
    wide: Wide | None = None,
    draws: Float[np.ndarray, "n dim"] | None = None,
    tail: bool = False,
) -> Evaluation:
    """ELBO = mean ln(p/q) over draws of q; log Ẑ = ln mean p/q̄ over these and the wide draws, q̄ the mixture of both.
    draws: those of q, where the target lives, if their moments are to be compared with those of the weighted draws.
    tail: whether `wide_khat` is wanted.

    A draw with p = 0 makes the ELBO −inf, and is not left out.
    """
    log_ratio = np.asarray(log_target) - np.asarray(log_q)
    n = log_ratio.size
    finite = np.isfinite(log_ratio)
    if not finite.any():
        return Evaluation(-np.inf, np.inf, -np.inf, np.inf, np.inf, np.inf, n)
    log_weights, shares = _log_weights(log_target, log_q, wide)
    usable = np.isfinite(log_weights)
    top = log_weights[usable].max()
    weights = np.exp(np.where(usable, log_weights - top, -np.inf))
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
    if wide is None:
        return evaluation
    if tail:
        evaluation = replace(evaluation, wide_khat=importance(log_weights)[1])
    if draws is None:
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


def _log_weights(log_target: np.ndarray, log_q: np.ndarray, wide: Wide | None) -> tuple[np.ndarray, np.ndarray]:
    """ln p/q̄ and q/q̄ at all draws, those of q first."""
    if wide is None:
        return np.asarray(log_target) - np.asarray(log_q), np.ones(np.size(log_q))
    n, m = log_q.size, wide.log_q.size
    own, other = np.log(n / (n + m)), np.log(m / (n + m))
    at_q = np.logaddexp(own + log_q, other + wide.log_wide_at_q)
    at_wide = np.logaddexp(own + wide.log_q, other + wide.log_wide)
    log_weights = np.concatenate([log_target - at_q, wide.log_target - at_wide])
    return log_weights, np.exp(np.concatenate([log_q - at_q, wide.log_q - at_wide]))


def importance(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float, float]:
    """Pareto-smoothed importance weights (they sum to 1), their k̂, and their effective number of draws."""
    from arviz_stats.base import array_stats

    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, -np.inf)
    usable = np.isfinite(log_ratio)
    if usable.sum() < 2:
        return np.full(log_ratio.size, 1.0 / log_ratio.size), np.inf, 0.0
    if np.ptp(log_ratio[usable]) < 1e-10:  # the mixture is the target: there is no tail to smooth
        weights = usable / usable.sum()
        return weights, -np.inf, float(usable.sum())
    if usable.sum() < FEWEST_SMOOTHED:
        smoothed, khat = log_ratio[usable], np.inf
    else:
        smoothed, khat = array_stats.psislw(-log_ratio[usable])  # it smooths *negative* log ratios
    weights = np.zeros(log_ratio.size)
    weights[usable] = np.exp(smoothed - smoothed.max())
    weights /= weights.sum()
    return weights, float(khat), float(1.0 / np.sum(weights**2))


def judge(evaluation: Evaluation, khat: float, ess_share: float, probes: Probes | None) -> tuple[str, tuple[str, ...]]:
    """A verdict and its reasons in words."""
    faults = _faults(evaluation, khat, ess_share, probes)
    if faults:
        return "unreliable", faults
    kl, se = evaluation.kl_estimate, evaluation.kl_se
    distance = (
        f"on the region it visits the mixture is {kl:.3g} ± {se:.1g} nats from the posterior (k̂ = {khat:.2f}, "
        f"{100 * ess_share:.0f} % effective draws)"
    )
    if probes is None:
        searched = "no search for missed modes is made with this family: modes that no draw visited cannot be seen"
    else:
        share = f"little that it misses, about {100 * probes.missed_share:.1g} % of the mass"
        found = share if probes.missed.size else "no mode that it misses"
        searched = f"{probes.climbs} climbs found {found}; modes that nothing visited cannot be seen"
    short = _shortfalls(evaluation, khat, ess_share, probes)
    if short or probes is None:
        return "usable", (f"{distance}: use importance=True", *short, searched)
    return "good", (distance, searched)


def _faults(evaluation: Evaluation, khat: float, ess_share: float, probes: Probes | None) -> tuple[str, ...]:
    """Why not even importance weights make the draws usable."""
    faults = []
    if probes is not None and not probes.missed_share <= NEGLIGIBLE:
        count, share = probes.missed.size, 100 * probes.missed_share
        faults.append(
            f"a search found {count} mode{'s' if count > 1 else ''} that the mixture misses, with about {share:.2g} % "
            "of the mass: go on with fit(target, resume=result) and a larger budget"
        )
    if evaluation.nonfinite:
        faults.append(
            f"the log density was not finite at {evaluation.nonfinite} of the fresh draws: the mixture reaches "
            "where the model has no mass, so its ELBO is −inf"
        )
    if not khat < KHAT_LIMIT and not ess_share >= NEAR_UNIFORM:
        faults.append(f"Pareto k̂ = {khat:.2f} is above {KHAT_LIMIT}: a few draws carry the importance weights")
    if np.isnan(ess_share):
        faults.append(
            "ln p − ln q spans so much at its own draws that importance weights cannot be computed: the model may have "
            "lost its digits there (differences of huge numbers)"
        )
    elif ess_share < ESS_SHARE_LIMIT:
        faults.append(f"only {100 * ess_share:.1f} % of the draws are effective after reweighting")
    return tuple(faults)


def _shortfalls(evaluation: Evaluation, khat: float, ess_share: float, probes: Probes | None) -> tuple[str, ...]:
    """Why the mixture itself, without importance weights, is not called good."""
    short = []
    if not min(khat, evaluation.wide_khat) < KHAT_LIMIT:
        short.append(f"Pareto k̂ = {khat:.2f} is above {KHAT_LIMIT}: its far tails are too thin")
    if not (evaluation.mean_shift <= GOOD_SHIFT and evaluation.sd_shift <= GOOD_SHIFT):
        short.append(
            f"reweighting moves a mean by at least {evaluation.mean_shift:.2g} standard deviations and a standard "
            f"deviation by at least {100 * evaluation.sd_shift:.0f} %"
        )
    if not evaluation.kl_estimate + 2.0 * evaluation.kl_se < GOOD_KL:
        short.append(f"the distance, plus twice its error, is above {GOOD_KL} nats")
    if not ess_share >= GOOD_ESS_SHARE:
        short.append(f"fewer than {100 * GOOD_ESS_SHARE:.0f} % of the draws are effective")
    if probes is not None and probes.missed_share > TRIFLING:
        short.append(f"a search found regions that it misses, with about {100 * probes.missed_share:.1g} % of the mass")
    if probes is not None and not probes.drift - 2.0 * probes.drift_se < GOOD_DRIFT:
        short.append(
            f"chains started at its draws walk into mass that it has too little of (by {probes.drift:.2g} ± "
            f"{probes.drift_se:.1g} nats)"
        )
    return tuple(short)


def runaway(draws: Float[np.ndarray, "n dim"], starts: Float[np.ndarray, "m dim"], names: Sequence[str]) -> str | None:
    """A reason in words if the mixture is absurdly wider than the starting points along a coordinate."""
    width = np.abs(draws).max(axis=0) / np.maximum(np.abs(starts).max(axis=0), 1.0)
    worst = int(np.argmax(width))
    if not width[worst] > RUNAWAY:
        return None
    return (
        f"the mixture reaches {width[worst]:.0e} times further than the starting points along {names[worst]}: if "
        "nothing in the model bounds it (a flat prior, separable data), the posterior is improper: give it a proper "
        "prior"
    )


PURPOSES = ("start", "step", "final", "probe")


def key_for(seed: int, purpose: str, t: int) -> Array:
    """Keys of evaluation draws: apart from every key that a step uses, and from one another."""
    apart = jax.random.fold_in(new_key(seed), 2**31 + PURPOSES.index(purpose))
    return jax.random.fold_in(apart, t)
