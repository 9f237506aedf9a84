"""The verdict in one word, and its reasons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from boostvi.diagnostics import Evaluation
from boostvi.probes import Probes

KHAT_LIMIT = 0.7
"""Above this Pareto shape, importance weights have no usable variance (Vehtari et al. 2024)."""
ESS_SHARE_LIMIT = 0.1
"""Below this share of effective draws, log Ẑ tends to be too low and the KL estimate with it."""
NEAR_UNIFORM = 0.5
"""With this share of effective draws no few draws carry the weights, whatever the shape of the tail."""
NEGLIGIBLE = 0.01
"""Share of the mass: with less of it missed, importance weights still serve."""
TRIFLING = 0.005
"""With less of it missed, the mixture may still be used as it is: it costs 0.005 nats."""
GOOD_KL = 0.1
"""Nats, error included, up to which the mixture may be used as it is."""
GOOD_ESS_SHARE = 0.5
GOOD_SHIFT = 0.15
"""Relative to the standard deviation: what importance weights, wide draws among them, may move means and sds by."""
GOOD_DRIFT = 0.2
"""Nats that chains may rise: KL(p‖q) + KL(q‖p), of which the second is below 0.1."""
CLEAR = 0.1
"""Nats that this must be known to: a few chains that went far, and the rest that did not, make it uncertain."""
RUNAWAY = 1e3
"""A fit that is unreliable and this much wider than the starting points has probably run away."""


def judge(evaluation: Evaluation, khat: float, ess_share: float, probes: Probes | None) -> tuple[str, tuple[str, ...]]:
    """A verdict and its reasons in words. khat, ess_share: of the weights of the mixture's own draws."""
    faults = _faults(evaluation, probes)
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
        found = share if probes.missed_share > 0 else "no mode that it misses"
        searched = f"{probes.climbs} climbs found {found}; modes that nothing visited cannot be seen"
    short = _shortfalls(evaluation, khat, ess_share, probes)
    if short or probes is None:
        return "usable", (f"{distance}: use importance=True", *short, searched)
    return "good", (distance, searched)


def _faults(evaluation: Evaluation, probes: Probes | None) -> tuple[str, ...]:
    """Why not even importance weights make the draws usable: those of the mixture and of wider draws together, which
    are what `importance=True` resamples."""
    faults = []
    if probes is not None and not probes.pool_missed_share <= NEGLIGIBLE:
        faults.append(_missing(probes))
    if probes is not None and probes.found.no_gradient:
        faults.append(
            f"ln p is finite but its gradient is not at {probes.found.no_gradient} points that the mixture does not "
            "cover, where no search can begin: look for a jnp.where whose unused branch is NaN (log, sqrt or 1/x of "
            "what it excludes)"
        )
    if evaluation.nonfinite:
        faults.append(
            f"the log density was not finite at {evaluation.nonfinite} of the fresh draws: the mixture reaches "
            "where the model has no mass, so its ELBO is −inf"
        )
        return tuple(faults)
    khat, ess = evaluation.pool_khat, evaluation.pool_ess
    if not khat < KHAT_LIMIT and not ess >= NEAR_UNIFORM:
        faults.append(f"Pareto k̂ = {khat:.2f} is above {KHAT_LIMIT}: a few draws carry the importance weights")
    if np.isnan(ess):
        faults.append(
            "ln p − ln q spans so much at its own draws that importance weights cannot be computed: the model may have "
            "lost its digits there (differences of huge numbers)"
        )
    elif ess < ESS_SHARE_LIMIT:
        faults.append(f"only {100 * ess:.1f} % of the draws are effective after reweighting")
    if faults and probes is not None and probes.missed_share > NEGLIGIBLE >= probes.pool_missed_share:
        faults.insert(0, _missing(probes))  # what wider draws have seen may be why
    return tuple(faults)


def _missing(probes: Probes) -> str:
    """What the mixture misses, in words, and what to do if that was fitted."""
    count, least, most = len(probes.locations), probes.missed_share, probes.pool_missed_share
    regions = f"{count} regions" if count > 1 else "a region"
    share = f"about {100 * least:.2g} %" if most <= 2.0 * least else f"{100 * least:.2g} to {100 * most:.2g} %"
    remedy = ": go on with fit(target, resume=result)" if probes.found.elbos.size else ""
    return f"a search found {regions} that the mixture misses, with {share} of the mass{remedy}"


def _shortfalls(evaluation: Evaluation, khat: float, ess_share: float, probes: Probes | None) -> tuple[str, ...]:
    """Why the mixture itself, without importance weights, is not called good."""
    short = []
    if not min(khat, evaluation.pool_khat) < KHAT_LIMIT:
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
    if probes is not None and max(probes.missed_share, probes.pool_missed_share) > TRIFLING:
        short.append(_missing(probes))
    if probes is not None and not (probes.drift - 2.0 * probes.drift_se < GOOD_DRIFT and probes.drift_se < CLEAR):
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
