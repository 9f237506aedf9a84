"""A result beside reference draws: every difference together with what chance alone would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from boostvi._struct import check_count
from boostvi.reference import Chains, aligned
from boostvi.two_sample import Draws, Measure, joint

if TYPE_CHECKING:
    from boostvi.result import Result

POOL = 10
"""Draws of the mixture per draw compared when they are weighted by importance, as in `Result.sample`."""
LEAST_DRAWS = 20
JOINT_DRAWS = 2000
"""Draws of each sample that are compared pair by pair, at most: time and memory grow with their square."""
FEW_EFFECTIVE = 100
"""Effective reference draws below which the reference itself is in doubt."""

LEVEL = 0.05
SMALL_SHIFT, SMALL_SCALE, SMALL_ACCURACY = 0.1, 0.1, 0.55
"""Means off by less than a tenth of an sd, sds by less than a tenth, draws told apart in 55 of 100 cases: differences
that matter little to most conclusions, however many draws make them certain."""


@dataclass(frozen=True)
class Parameter:
    """One coordinate: (mean − reference mean)/reference sd and sd/reference sd, with the standard errors that two
    samples of these sizes from one distribution would have (`sd_se` is that of the ratio's logarithm)."""

    name: str
    mean_difference: float
    mean_se: float
    p_mean: float
    sd_ratio: float
    sd_se: float
    p_sd: float
    ess: float

    @property
    def p(self) -> float:
        return min(self.p_mean, self.p_sd)


@dataclass(frozen=True)
class Check:
    """Draws of a result against reference draws; `print` it.

    parameters: worst first.
    sliced_wasserstein: mean W₁ over random directions, in pooled standard deviations.
    mmd: unbiased MMD² with a Gaussian kernel of the median distance, in pooled-whitened coordinates.
    classifier: how often the 11 nearest neighbours, in the same coordinates, tell which sample a draw is from; ½ is
        blind.
    n_joint: draws of each sample in these three: no more than the reference has effective ones, and at most 2000.
    only_in_result, only_in_reference: sites that could not be compared.
    """

    parameters: tuple[Parameter, ...]
    sliced_wasserstein: Measure
    mmd: Measure
    classifier: Measure
    n: int
    n_reference: int
    n_joint: int
    only_in_result: tuple[str, ...] = ()
    only_in_reference: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def p_values(self) -> dict[str, float]:
        """One per measure; those of the means and of the sds are Bonferroni's for the worst parameter."""
        count = len(self.parameters)
        return {
            "means": min(1.0, count * min(one.p_mean for one in self.parameters)),
            "sds": min(1.0, count * min(one.p_sd for one in self.parameters)),
            "sliced Wasserstein": self.sliced_wasserstein.p,
            "MMD": self.mmd.p,
            "classifier": self.classifier.p,
        }

    @property
    def beyond_chance(self) -> tuple[str, ...]:
        """The measures that chance does not explain at the 5 % level, all five together (Holm)."""
        found = self.p_values
        return tuple(name for name, p in zip(found, holm([*found.values()]), strict=True) if p < LEVEL)

    @property
    def verdict(self) -> str:
        """ "same": nothing beyond chance; "close": beyond chance, but small; "different"."""
        if not self.beyond_chance:
            return "same"
        return "different" if self._large else "close"

    @property
    def ok(self) -> bool:
        return self.verdict != "different"

    @property
    def _large(self) -> list[str]:
        """The differences that are both beyond chance and not small, in words."""
        level = LEVEL / (2 * len(self.parameters))
        found = []
        shifted = [o for o in self.parameters if o.p_mean < level and abs(o.mean_difference) > SMALL_SHIFT]
        if shifted and "means" in self.beyond_chance:
            worst = max(shifted, key=lambda one: abs(one.mean_difference))
            found.append(f"the mean of {worst.name} is off by {worst.mean_difference:+.2f} sd{_others(shifted)}")
        scaled = [o for o in self.parameters if o.p_sd < level and abs(o.sd_ratio - 1) > SMALL_SCALE]
        if scaled and "sds" in self.beyond_chance:
            worst = max(scaled, key=lambda one: abs(np.log(max(one.sd_ratio, 1e-300))))
            found.append(f"the sd of {worst.name} is {worst.sd_ratio:.2f} times the reference's{_others(scaled)}")
        distance = self.sliced_wasserstein
        if "sliced Wasserstein" in self.beyond_chance and distance.value - distance.chance > SMALL_SHIFT:
            found.append(f"the distributions are {distance.value:.2f} sd apart in a random direction")
        if "classifier" in self.beyond_chance and self.classifier.value > SMALL_ACCURACY:
            found.append(f"a classifier tells the samples apart in {100 * self.classifier.value:.0f} % of cases")
        return found

    def _headline(self) -> str:
        if self.verdict == "same":
            return "same: no difference beyond chance"
        if self.verdict == "different":
            return "\n  ".join([f"different: {self._large[0]}", *self._large[1:]])
        return f"close: beyond chance ({', '.join(self.beyond_chance)}), but small"

    def __str__(self) -> str:
        lines = [self._headline(), f"{self.n} draws of the result, {self.n_reference} reference draws", *self.notes]
        for sites, where in ((self.only_in_result, "result"), (self.only_in_reference, "reference")):
            if sites:
                lines.append(f"only in the {where}, not compared: {', '.join(sites)}")
        return "\n".join([*lines, "", *self._measures(), "", *self._rows()])

    def _measures(self) -> list[str]:
        rows = [f"{f'all together, {self.n_joint} draws each':<32} {'value':>9} {'chance':>9} {'p':>7}"]
        for name, one in (
            ("sliced Wasserstein (sd)", self.sliced_wasserstein),
            ("MMD²", self.mmd),
            ("classifier accuracy", self.classifier),
        ):
            rows.append(f"{name:<32} {one.value:>9.3g} {'< ' + format(one.chance, '.3g'):>9} {_p(one.p):>7}")
        return rows

    def _rows(self, most: int = 20) -> list[str]:
        width = max([9, *(len(one.name) for one in self.parameters[:most])])
        rows = [f"{'parameter':<{width}} {'mean off (sd)':>14} {'chance':>8} {'sd ratio':>9} {'chance':>8} {'p':>7}"]
        for one in self.parameters[:most]:
            rows.append(
                f"{one.name:<{width}} {one.mean_difference:>+14.3f} {_band(one.mean_se):>8} {one.sd_ratio:>9.3f} "
                f"{_band(one.sd_se):>8} {_p(one.p):>7}"
            )
        if len(self.parameters) > most:
            rows.append(f"… and {len(self.parameters) - most} more, with p of at least {self.parameters[most].p:.2g}")
        return rows


def _others(found: Sequence[Parameter]) -> str:
    return f", and {len(found) - 1} more" if len(found) > 1 else ""


def _band(se: float) -> str:
    return f"± {1.96 * se:.2g}"


def _p(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-4 else "<1e-4"


def holm(p_values: Any) -> Float[np.ndarray, " n"]:
    """p-values adjusted for their number (Holm 1979): valid however they depend on one another."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def compare(result: Result, reference_draws: Any, *, n: int, seed: int, importance: bool) -> Check:
    """What `Result.check` does."""
    check_count("n", n, LEAST_DRAWS)
    draws, distinct, effective = _draws(result, n, seed, importance)
    both = aligned(draws, reference_draws, result.target.names)
    return compare_draws(
        both.ours[:n],
        both.reference,
        both.names,
        by_chain=both.by_chain,
        distinct=both.ours[n:] if distinct else None,
        effective=effective,
        seed=seed,
        only_in_result=both.only_in_result,
        only_in_reference=both.only_in_reference,
    )


def _draws(result: Result, n: int, seed: int, importance: bool) -> tuple[Any, bool, float]:
    """n draws as `Result.sample` gives them, whether distinct ones follow them, and how many independent ones they are
    worth.

    Resampled draws repeat themselves, which tells them from any others: pairs are made of draws that were accepted with
    a probability in proportion to their weight instead, each of them once.
    """
    if not importance:
        return result.sample(n, seed=seed), False, float(n)
    pool, weights, ess = result.weighted_draws(POOL * n, seed=seed)
    rng = np.random.default_rng(seed)
    resampled = rng.choice(len(pool), size=n, p=weights)
    accepted = np.flatnonzero(rng.uniform(size=len(pool)) * weights.max() < weights)
    draws = result.in_own_space(pool[np.concatenate([resampled, accepted])])
    return draws, True, 1.0 / (1.0 / n + 1.0 / max(ess, 1.0))  # the errors of both samplings add up


def compare_draws(
    ours: Draws,
    reference: Chains,
    names: Sequence[str],
    *,
    by_chain: bool = True,
    distinct: Draws | None = None,
    effective: float | None = None,
    seed: int = 0,
    **fields: Any,
) -> Check:
    """The comparison itself.

    by_chain: whether the reference's axes are chains and draws, from which its effective numbers are estimated; else
        its draws count as independent.
    distinct: draws of ours that are independent, if `ours` are not.
    effective: how many independent draws ours are worth, if fewer than there are.
    """
    n_reference = reference.shape[0] * reference.shape[1]
    if n_reference < LEAST_DRAWS:
        raise ValueError(f"reference_draws must hold at least {LEAST_DRAWS} draws, got {n_reference}")
    theirs = reference.reshape(n_reference, -1)
    varying = np.ptp(np.concatenate([ours, theirs]), axis=0) > 0
    if not varying.any():
        raise ValueError("reference_draws and the result's draws are all the same constants: nothing to compare")
    names = [name for name, varies in zip(names, varying, strict=True) if varies]
    ours, theirs, reference = ours[:, varying], theirs[:, varying], reference[:, :, varying]
    ess = np.stack([_ess(reference, "mean"), _ess(reference, "sd")])
    slowest = int(ess.min(axis=0).argmin())
    notes = _notes(names[slowest], float(ess[:, slowest].min()), reference, by_chain)
    if distinct is not None and len(distinct) < LEAST_DRAWS:
        notes += ("a few draws carry the importance weights: what they are worth is not known",)
    if not by_chain:
        ess = np.full_like(ess, n_reference)
    effective = len(ours) if effective is None else effective
    parameters = _parameters(ours, theirs, names, effective, ess)
    independent = ours if distinct is None or len(distinct) < LEAST_DRAWS else distinct[:, varying]
    n_joint = int(max(LEAST_DRAWS, min(JOINT_DRAWS, len(independent), n_reference, ess.min())))
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(independent))[:n_joint]
    spread = np.linspace(0, n_reference, n_joint, endpoint=False).astype(int)  # as far apart along the chains as can be
    wasserstein, mmd, classifier = joint(independent[chosen], theirs[spread], rng)
    return Check(parameters, wasserstein, mmd, classifier, len(ours), n_reference, n_joint, notes=notes, **fields)


def _notes(name: str, ess: float, reference: Chains, by_chain: bool) -> tuple[str, ...]:
    chains, draws, _ = reference.shape
    if by_chain:
        text = f"{chains} chains; {name} mixes slowest, with {int(ess)} effective draws"
        if ess < FEW_EFFECTIVE:
            text += ": too few to trust the reference, run it for longer"
        return (text,)
    text = "the reference draws are taken as independent"
    if ess < 0.5 * draws:
        text += (
            f", but those of {name} look autocorrelated (about {ess:.0f} effective): chance is larger than shown; pass "
            "them by chain, for example mcmc.get_samples(group_by_chain=True)"
        )
    return (text,)


def _ess(reference: Chains, method: str) -> Float[np.ndarray, " dim"]:
    """Effective draws behind the mean or the sd of each coordinate, never more than there are."""
    from arviz_stats.base import array_stats

    size = reference.shape[0] * reference.shape[1]
    moving = np.ptp(reference, axis=(0, 1)) > 0
    found = np.full(reference.shape[2], float(size))
    if moving.any() and reference.shape[1] >= 4:
        ess = array_stats.ess(np.moveaxis(reference[:, :, moving], 2, 0), method=method)
        found[moving] = np.clip(np.where(np.isfinite(ess), ess, size), 1.0, size)
    return found


def _parameters(
    ours: Draws, theirs: Draws, names: Sequence[str], effective: float, ess: Float[np.ndarray, "2 dim"]
) -> tuple[Parameter, ...]:
    """Standardised mean differences and sd ratios with their standard errors, worst first."""
    sd, reference_sd = ours.std(axis=0, ddof=1), theirs.std(axis=0, ddof=1)
    unit = np.where(reference_sd > 0, reference_sd, sd)
    unit = np.where(unit > 0, unit, np.abs(ours.mean(axis=0) - theirs.mean(axis=0)))
    difference = (ours.mean(axis=0) - theirs.mean(axis=0)) / unit
    mean_se = np.sqrt((sd / unit) ** 2 / effective + (reference_sd / unit) ** 2 / ess[0])
    # Var(ln s) ≈ (kurtosis − 1)/4n
    sd_se = np.sqrt((_kurtosis(ours) - 1) / (4 * effective) + (_kurtosis(theirs) - 1) / (4 * ess[1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(sd == reference_sd, 1.0, sd / reference_sd)
        p_mean = np.where(difference == 0, 1.0, 2 * ndtr(-np.abs(difference / mean_se)))
        p_sd = np.where(ratio == 1, 1.0, 2 * ndtr(-np.abs(np.log(ratio) / sd_se)))
    columns = (difference, mean_se, p_mean, ratio, sd_se, p_sd, ess.min(axis=0))
    rows = [Parameter(name, *map(float, values)) for name, *values in zip(names, *columns, strict=True)]
    return tuple(sorted(rows, key=lambda one: (one.p, -abs(one.mean_difference))))


def _kurtosis(draws: Draws) -> Float[np.ndarray, " dim"]:
    centred = draws - draws.mean(axis=0)
    variance = np.mean(centred**2, axis=0)
    return np.where(variance > 0, np.mean(centred**4, axis=0) / np.where(variance > 0, variance, 1.0) ** 2, 1.0)
