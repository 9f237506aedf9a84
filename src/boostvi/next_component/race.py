"""q_0 for `auto`: modes found from dispersed starts, raced against broad components, in the family that fits best."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from scipy.special import gammaln

from boostvi._jit import host_generator, sub_keys
from boostvi._struct import check_count, static, struct
from boostvi.families.base import Params
from boostvi.families.linear import FullRankNormal, FullRankStudentT, LinearFamily, ProductStudentT, StudentT, scaled
from boostvi.next_component.base import FirstComponent, Proposal
from boostvi.next_component.climb import climb
from boostvi.next_component.local import (
    SCALES,
    CountedTarget,
    distinct,
    isotropic,
    local_vi,
    log_ratios,
    modes_at,
    take,
    visible_kl,
    wide_points,
)
from boostvi.target import starting_points

MAX_ITERATIONS = 100
ROUNDS = 40
KEPT_WITHIN = 12.0
"""Nats below the best ELBO up to which a mode is kept: e⁻¹² of the mass."""
GOOD_ENOUGH = 0.3
"""Nats: a first component this close to what it sees of the posterior needs no race."""
HEAVY = 0.05
"""Nats from which heavy-tailed families are tried."""
HEAVY_FAMILIES = (FullRankStudentT(2.0), ProductStudentT(2.0), FullRankStudentT(6.0), ProductStudentT(6.0))
LIGHT_TAIL = 0.6
TAIL_SHARE = 0.05
"""A heavy-tailed family is out where ln p falls so fast, along its own draws, that its ELBO cannot be estimated: the
index of that tail, from this share of the draws, may be this high (1/2 and some noise)."""
ROUGH_SCALES = (0.5, 0.7, 1.0)
ROUGH_DRAWS = 256
ROUGH_SLACK = 0.3
"""A heavy-tailed family is fitted when its rough ELBO, before any fitting, comes this close to the Normal's."""
HEAVY_GAIN = 0.5
MOST_KL = 2.0
"""It is chosen when it removes this share of the KL that a Normal leaves (2 nats at most: the estimate of a large one
is no more than a guess)."""


@struct
class Race(FirstComponent):
    """L-BFGS from `n_starts` dispersed points → |Hessian|⁻¹ → natural-gradient VI; if the best of these is far from
    what its own draws see, broad components race against them (a spike at the mode is not where the mass is), and so do
    Student-t families. The ELBO decides. All distinct modes within 12 nats of the best are returned."""

    n_starts: int = static(default=32)
    heavy_tails: bool = static(default=True)

    name = "race"

    def __post_init__(self):
        check_count("n_starts", self.n_starts)

    def __call__(self, target, family, key):
        if not isinstance(family, LinearFamily):
            raise ValueError(
                f"first='race' needs a full-rank family, got {family.name!r}; use family='full-rank-normal', or "
                "first='laplace' or 'vi' with this one"
            )
        keys = sub_keys(key, 6)
        rng = host_generator(keys[0])
        model = CountedTarget(target)
        starts = self._modes(model, rng, keys[1])
        params, elbos = local_vi(model, family, starts, ROUNDS, keys[2])
        kl = visible_kl(model, family, take(params, [int(np.argmax(elbos))]), keys[3])
        if not kl < GOOD_ENOUGH:
            scales = 10.0 ** rng.uniform(*SCALES, self.n_starts // 4 + 1)
            points = np.minimum(scales, 1.0)[:, None] * rng.standard_normal((scales.size, target.dim))
            spheres = isotropic(points, np.minimum(scales, 1.0))
            broad, broad_elbos = local_vi(model, family, spheres, ROUNDS, keys[4])
            if np.nanmax(broad_elbos) > elbos.max() + GOOD_ENOUGH:
                starts, params, elbos = spheres, broad, broad_elbos
                kl = visible_kl(model, family, take(params, [int(np.argmax(elbos))]), keys[3])
        if self.heavy_tails and not kl < HEAVY and type(family) is FullRankNormal:
            family, params, elbos = _heavier(model, family, starts, params, elbos, kl, rng, keys[5])
        kept = distinct(params, elbos)
        kept = kept[elbos[kept] > elbos.max() - KEPT_WITHIN]
        if not kept.size:  # the highest ELBO is infinite, or so high that nothing differs from it
            raise ValueError(
                "no first component has a finite ELBO: log_density grows without bound, as an improper posterior's "
                "does, or is not finite around its maxima; give every parameter a proper prior, or pass init= with "
                "better starting points"
            )
        best, *others = (take(params, i) for i in kept)
        shares = np.exp(elbos[kept] - elbos[kept[0]])  # exact for modes that do not overlap
        return Proposal(
            best, np.asarray(elbos[kept[0]]), np.asarray(model.evals), np.asarray(model.nonfinite), tuple(others),
            shares / shares.sum(), family,
        )  # fmt: skip

    def _modes(self, model: CountedTarget, rng: np.random.Generator, key: Array) -> Params:
        """Distinct local maxima of ln p with their curvature, highest first."""
        prior = starting_points(model.target, key)[: self.n_starts // 2]
        starts = np.concatenate([prior, wide_points(rng, self.n_starts - prior.shape[0], prior.shape[1])])
        points, values = climb(model, starts, MAX_ITERATIONS)
        most = self.n_starts // 2
        modes = modes_at(model, points, values, most)
        if modes is None:  # an improper posterior is flat where all climbs end: let the verdict say so
            modes = modes_at(model, points, values, most, smooth=False)
        if modes is None:
            raise ValueError(
                "log_density is not finite at any start of a climb; pass init= with better starting points"
            )
        return modes


def _heavier(
    model: CountedTarget, family: LinearFamily, starts: Params, params: Params, elbos: Any, kl: float,
    rng: np.random.Generator, key: Array,
) -> tuple[LinearFamily, Params, Any]:  # fmt: skip
    """The family whose best component has the highest ELBO, if the gain is worth it, with all components fitted again
    from where the Normals started: those may have turned the axes, which matter to a product family."""
    best = int(np.argmax(elbos))
    rough = {other: _rough_elbo(model, other, take(params, [best]), rng) for other in HEAVY_FAMILIES}
    winner = max(rough, key=rough.__getitem__)
    if not rough[winner] > elbos.max() - ROUGH_SLACK:
        return family, params, elbos
    heavy, heavy_elbos = local_vi(model, winner, scaled(starts, 1.0 / winner.unit_sd), ROUNDS, key)
    highest = take(heavy, [int(np.argmax(heavy_elbos))])
    ratios = log_ratios(model, winner, highest, jax.random.fold_in(key, ROUNDS))
    gain = ratios.mean() - 2.0 * ratios.std() / np.sqrt(ratios.size) - elbos.max()
    # An ELBO that is infinitely low may not show it in few draws; the tail does.
    if not gain > HEAVY_GAIN * min(kl, MOST_KL) or tail_index(ratios) > LIGHT_TAIL:
        return family, params, elbos
    return winner, heavy, heavy_elbos


def tail_index(log_ratios: np.ndarray) -> float:
    """How heavy the lower tail of ln p − ln q is, by Hill's estimator: its mean has a finite variance below 1/2."""
    fall = np.sort(np.median(log_ratios) - log_ratios)[::-1]
    count = max(2, int(TAIL_SHARE * fall.size))
    if not np.isfinite(fall[0]):
        return np.inf
    if not fall[count] > 0:  # ln p − ln q is the same nearly everywhere
        return 0.0
    return float(np.mean(np.log(fall[:count] / fall[count])))


def _rough_elbo(model: CountedTarget, family: StudentT, params: Params, rng: np.random.Generator) -> float:
    """The ELBO of a Normal's counterpart in another family, at the best of a few scales; nothing is optimised, and
    nothing compiled."""
    dim, df = params["loc"].shape[1], family.df
    product = isinstance(family, ProductStudentT)
    chi2 = rng.chisquare(df, size=(ROUGH_DRAWS, dim if product else 1))
    noise = rng.standard_normal((ROUGH_DRAWS, dim)) / np.sqrt(chi2 / df)
    log_base = _log_base(noise[:, :, None], df).sum(axis=1) if product else _log_base(noise, df)
    found = []
    for scale in ROUGH_SCALES:
        log_target, _ = model(params["loc"] + scale * noise @ params["factor"][0].T)
        found.append(np.mean(log_target - log_base) + params["log_volume"][0] + dim * np.log(scale))
    return float(np.max(found))


def _log_base(noise: np.ndarray, df: float) -> np.ndarray:
    """Log density of the multivariate Student-t over the last axis, without compiling anything."""
    dim = noise.shape[-1]
    constant = gammaln(0.5 * (df + dim)) - gammaln(0.5 * df) - 0.5 * dim * np.log(df * np.pi)
    return constant - 0.5 * (df + dim) * np.log1p(np.sum(noise**2, axis=-1) / df)
