"""How good the mixture is, from draws that had no part in making it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, new_key
from boostvi.mixture import Mixture
from boostvi.target import Target, log_densities

KHAT_LIMIT = 0.7
"""Above this Pareto shape, importance weights have no usable variance (Vehtari et al. 2024)."""
ESS_SHARE_LIMIT = 0.1
"""Below this share of effective draws, log Ẑ tends to be too low and the KL estimate with it."""


BLOCK = 2000
"""Fresh draws are made in blocks of this size where their number allows: another number compiles nothing anew."""


def fresh_log_densities(
    target: Target, mixture: Mixture, key: Array, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n fresh draws of q, with ln p and ln q there."""
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


def evaluate(log_target: Float[np.ndarray, " n"], log_q: Float[np.ndarray, " n"]) -> Evaluation:
    """ELBO = mean ln(p/q), log Ẑ = ln mean p/q; a draw with p = 0 makes the ELBO −inf, and is not left out."""
    log_ratio = np.asarray(log_target) - np.asarray(log_q)
    n = log_ratio.size
    finite = np.isfinite(log_ratio)
    if not finite.any():
        return Evaluation(-np.inf, np.inf, -np.inf, np.inf, np.inf, np.inf, n)
    top = log_ratio[finite].max()
    ratio = np.exp(np.where(finite, log_ratio - top, -np.inf))
    mean_ratio = ratio.mean()
    log_evidence = float(top + np.log(mean_ratio))
    relative = ratio / mean_ratio
    log_evidence_se = float(relative.std(ddof=1) / np.sqrt(n))
    if not finite.all():
        return Evaluation(-np.inf, np.inf, log_evidence, log_evidence_se, np.inf, np.inf, int(n - finite.sum()))
    elbo = float(log_ratio.mean())
    # The two estimates share their draws: their errors largely cancel in the difference.
    kl_se = float((relative - (log_ratio - elbo)).std(ddof=1) / np.sqrt(n))
    elbo_se = float(log_ratio.std(ddof=1) / np.sqrt(n))
    return Evaluation(elbo, elbo_se, log_evidence, log_evidence_se, max(log_evidence - elbo, 0.0), kl_se, 0)


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
    smoothed, khat = array_stats.psislw(-log_ratio[usable])  # it smooths *negative* log ratios
    weights = np.zeros(log_ratio.size)
    weights[usable] = np.exp(smoothed - smoothed.max())
    weights /= weights.sum()
    return weights, float(khat), float(1.0 / np.sum(weights**2))


def judge(evaluation: Evaluation, khat: float, ess_share: float) -> tuple[str, tuple[str, ...]]:
    """A verdict and its reasons in words. "good" needs a search for missed modes, which is not made here."""
    reasons = []
    if evaluation.nonfinite:
        reasons.append(
            f"the log density was not finite at {evaluation.nonfinite} of the fresh draws: the mixture reaches "
            "where the model has no mass, so its ELBO is −inf"
        )
    if not khat < KHAT_LIMIT:
        reasons.append(f"Pareto k̂ = {khat:.2f} is above {KHAT_LIMIT}: a few draws carry the importance weights")
    if ess_share < ESS_SHARE_LIMIT:
        reasons.append(f"only {100 * ess_share:.1f} % of the draws are effective after reweighting")
    if reasons:
        return "unreliable", tuple(reasons)
    kl, se = evaluation.kl_estimate, evaluation.kl_se
    return "usable", (
        f"on the region it visits the mixture is {kl:.3g} ± {se:.1g} nats from the posterior (k̂ = {khat:.2f}, "
        f"{100 * ess_share:.0f} % effective draws): use importance=True where that matters",
        "modes that no draw visited cannot be seen in these numbers",
    )


PURPOSES = ("start", "step", "final")


def key_for(seed: int, purpose: str, t: int) -> Array:
    """Keys of evaluation draws: apart from every key that a step uses, and from one another."""
    apart = jax.random.fold_in(new_key(seed), 2**31 + PURPOSES.index(purpose))
    return jax.random.fold_in(apart, t)
