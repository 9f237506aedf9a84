"""q_0 for `auto`: modes found from dispersed starts, raced against broad components, in the family that fits best."""

from __future__ import annotations

import numpy as np
from jaxtyping import Array

from boostvi._jit import host_generator
from boostvi._struct import check_count, scalar, static, struct
from boostvi.families.base import Params
from boostvi.families.linear import FullRankNormal, FullRankStudentT, LinearFamily, ProductStudentT, StudentT, scaled
from boostvi.linear_mixture import join, take
from boostvi.next_component.base import FirstComponent, Proposal
from boostvi.next_component.climb import climb
from boostvi.next_component.local import (
    KEPT_WITHIN,
    SCALES,
    CountedTarget,
    Fitted,
    gaussians_at,
    local_vi,
    log_ratios,
    modes_at,
    promising,
    rough_elbos,
    visible_kl,
    wide_points,
)
from boostvi.next_component.mean_field import mean_field
from boostvi.target import starting_points

MAX_ITERATIONS = 100
ROUNDS = 40
FAR = 1.0
"""Nats between a Normal with the curvature at a mode and what it sees of the posterior, from which on broad components
race against it."""
BROAD = 2
"""Broad components."""
HEAVY = 0.05
"""Nats from which heavy-tailed families are tried."""
HEAVY_FAMILIES = (FullRankStudentT(2.0), ProductStudentT(2.0), FullRankStudentT(6.0), ProductStudentT(6.0))
LIGHT_TAIL = 0.6
TAIL_SHARE = 0.05
LEAST_FALL = 5.0
"""A heavy-tailed family is out where ln p falls so fast, along its own draws, that its ELBO cannot be estimated: the
index of that tail, from this share of the draws, may be this high (1/2 and some noise). Where ln p − ln q never falls
by so many nats, there is no such tail: at one of a thousand draws a Normal falls by hundreds."""
ROUGH_SCALES = (0.5, 0.7, 1.0)
ROUGH_DRAWS = 256
ROUGH_SLACK = 0.3
"""A heavy-tailed family is fitted when its rough ELBO, before any fitting, comes this close to the Normal's."""
ROUGH_ERROR = 1.0
"""And this close to the best of them."""
HEAVY_GAIN = 0.5
MOST_KL = 2.0
"""It is chosen when it removes this share of the KL that a Normal leaves (2 nats at most: the estimate of a large one
is no more than a guess)."""


@struct
class Race(FirstComponent):
    """L-BFGS from `n_starts` dispersed points → |Hessian|⁻¹ → natural-gradient VI; if the best of these is far from
    what its own draws see, components around mean-field fits race against them (a spike at the mode is not where the
    mass is), and later Student-t families. The ELBO decides. All distinct modes within 12 nats of the best are
    returned."""

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
        rng = host_generator(key)
        model = CountedTarget(target)
        starts = promising(model, family, self._modes(model, rng, key), rng)
        if not visible_kl(model, family, take(starts, [0]), rng) < FAR:
            starts = join(starts, self._broad(model, family, rng))
        fitted = local_vi(model, family, starts, ROUNDS, rng)
        kl = visible_kl(model, family, fitted.best, rng)
        if self.heavy_tails and not kl < HEAVY and type(family) is FullRankNormal:
            family, fitted = _heavier(model, family, starts, fitted, kl, rng)
        params, elbos = fitted.params, fitted.elbos
        kept = fitted.distinct
        kept = kept[elbos[kept] > elbos.max() - KEPT_WITHIN]
        if np.isneginf(elbos).all():
            raise ValueError(
                "log_density is −inf at most points around its maxima, as at a hard boundary: transform the parameters "
                "to all of R^d (the logarithm of a positive one, the logit of one between 0 and 1)"
            )
        if not kept.size:  # the highest ELBO is infinite, or so high that nothing differs from it
            raise ValueError(
                "no first component has a finite ELBO: log_density grows without bound, as an improper posterior's "
                "does, or is not finite around its maxima; give every parameter a proper prior, or pass init= with "
                "better starting points"
            )
        best, *others = (take(params, i) for i in kept)
        shares = np.exp(elbos[kept] - elbos[kept[0]])  # exact for modes that do not overlap
        return Proposal(
            best, scalar(elbos[kept[0]]), scalar(model.evals), scalar(model.nonfinite), tuple(others),
            shares / shares.sum(), family=family,
        )  # fmt: skip

    def _broad(self, model: CountedTarget, family: LinearFamily, rng: np.random.Generator) -> Params:
        """Diagonal Normals that cover what they can, or Normals with the curvature at their centres if these are
        better: a spike at the mode is not where the mass is."""
        scales = np.minimum(10.0 ** rng.uniform(*SCALES, BROAD), 1.0)
        diagonal = mean_field(model, scales[:, None] * rng.standard_normal((BROAD, model.target.dim)), scales, rng)
        if not len(diagonal["loc"]):
            return diagonal
        curved = gaussians_at(model, diagonal["loc"])
        better = rough_elbos(model, family, curved, rng) > rough_elbos(model, family, diagonal, rng)
        return join(take(curved, better), take(diagonal, ~better))

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
    model: CountedTarget, family: LinearFamily, starts: Params, fitted: Fitted, kl: float, rng: np.random.Generator
) -> tuple[LinearFamily, Fitted]:
    """The family whose best component has the highest ELBO, if the gain is worth it, with all components fitted again
    from where the Normals started: those may have turned the axes, which matter to a product family."""
    highest = fitted.elbos.max()
    rough = {other: _rough_elbo(model, other, fitted.best, rng) for other in HEAVY_FAMILIES}
    least = max(highest - ROUGH_SLACK, max(rough.values()) - ROUGH_ERROR)
    best, ratios, winner = take(starts, fitted.origins[[np.argmax(fitted.elbos)]]), np.full(1, -np.inf), None
    for other in (other for other in HEAVY_FAMILIES if rough[other] > least):
        alone = local_vi(model, other, scaled(best, 1.0 / other.unit_sd), ROUNDS, rng)
        if (own := log_ratios(model, other, alone.best, rng)).mean() > ratios.mean():
            winner, ratios = other, own
    if winner is None or not np.isfinite(ratios).all():
        return family, fitted
    gain = ratios.mean() - 2.0 * ratios.std() / np.sqrt(ratios.size) - highest
    # An ELBO that is infinitely low may not show it in few draws; the tail does.
    if not gain > HEAVY_GAIN * min(kl, MOST_KL) or tail_index(ratios) > LIGHT_TAIL:
        return family, fitted
    return winner, local_vi(model, winner, scaled(take(starts, fitted.origins), 1.0 / winner.unit_sd), ROUNDS, rng)


def tail_index(log_ratios: np.ndarray) -> float:
    """How heavy the lower tail of ln p − ln q is, by Hill's estimator: its mean has a finite variance below 1/2."""
    fall = np.sort(np.median(log_ratios) - log_ratios)[::-1]
    count = max(2, int(TAIL_SHARE * fall.size))
    if not np.isfinite(fall[0]):
        return np.inf
    if fall[0] < LEAST_FALL or not fall[count] > 0:
        return 0.0
    return float(np.mean(np.log(fall[:count] / fall[count])))


def _rough_elbo(model: CountedTarget, family: StudentT, params: Params, rng: np.random.Generator) -> float:
    """The ELBO of a Normal's counterpart in another family, at the best of a few scales; nothing is optimised."""
    noise = family.host_noise(rng, (ROUGH_DRAWS, params["loc"].shape[1]))
    found = []
    for scale in ROUGH_SCALES:
        log_target, _ = model(params["loc"] + scale * noise @ params["factor"][0].T)
        found.append(np.mean(log_target - family.log_base(noise)) + scaled(params, scale)["log_volume"][0])
    return float(np.max(found))
