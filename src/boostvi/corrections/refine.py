"""Refinement: all components and weights moved together, and more of them where the fit is poor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from boostvi import linear_mixture, natural_gradient
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import host_generator
from boostvi._struct import check, check_count, scalar, static, struct
from boostvi.corrections.base import Corrected, Correction
from boostvi.corrections.straighten import straighten
from boostvi.corrections.weights import FullyCorrective
from boostvi.families.linear import FullRankNormal, LinearFamily, scaled
from boostvi.linear_mixture import join, kl_between, take
from boostvi.mixture import Mixture
from boostvi.natural_gradient import Round
from boostvi.next_component.local import CountedTarget, isotropic
from boostvi.table import Table

OutOfTime = Callable[[], bool]

PARTS, TRIAL = 16, 16
"""A component that was straightened is split into so many at once, and after so many rounds, and as many cooling ones,
they must be seen to pay."""
REFERENCE_DRAWS = 1024
"""Draws, at least, behind the ELBO before a split."""
COOLING = 32
"""Rounds at the end whose steps fall like 1/(1 + i/2): they average the noise away."""
SETTLED = 1e-7
"""Nats that a round moves the components, on average, below which there is nothing to gain from another."""
APART = 0.5
"""The halves of a split lie ± this times √d from its centre, in its own units."""
NARROWER = 0.85
"""Each half has this fraction of the scale."""
POOR = 0.1
"""Components are split whose weight × sd(R) is at least this fraction of the largest."""
DRAWS_PER_DIM = 2
MOST_SHARED = 8
"""A component that shares most of its draws still has this fraction of them from itself."""
POLISHING_DRAWS = 2048
MOST_POLISHING = 80
POLISHING_EVALS = 2**17
"""When there are enough components, all rounds are such ones: of so many draws at least, unless an evaluation costs
much, and as many rounds as these evaluations allow."""
STRAIGHTER = 0.15
"""Share of the KL that a warp must take away to be kept."""
DEGREES = (2, 3)
"""Of the polynomials of a warp's layers, one after the other."""
SPLIT_UP_TO = 64
"""Dimensions up to which a single component is split: in more of them several do hardly better than one."""
SAME = 0.01
"""Nats: a component whose KL to a heavier one is below this is merged into it."""


@struct
class Refine(Correction):
    """Natural-gradient rounds on all components and weights.

    While the KL is above `split_above` nats, more is done first. straighten_from: a Normal that is alone in so many
    dimensions or more gets a warp, up to two layers of it, if that takes away enough of the KL
    (`corrections.straighten`); in fewer a few more components do the same and are quicker to fit; None: never. Behind a
    first layer many components at once are tried in place of the Normal. Otherwise the components that fit worst are
    split in two: the mixture doubles. rounds: at full step size; those that average come on top of them. draws: per
    component and round (2·d if that is more; fewer from a component that shares those of others). prune: weights below
    this become exactly 0.
    """

    split_above: float = 0.01
    straighten_from: int | None = static(default=16)
    rounds: int = static(default=48)
    draws: int = static(default=50)
    prune: float = 1e-4
    max_components: int = static(default=128)

    name = "refine"
    moves_components = True

    def __post_init__(self):
        check("split_above", self.split_above, lambda v: v >= 0, "not negative")
        check("prune", self.prune, lambda v: 0 <= v < 1, "in [0, 1)")
        for argument in ("rounds", "draws", "max_components"):
            check_count(argument, getattr(self, argument))
        if self.straighten_from is not None:
            check_count("straighten_from", self.straighten_from)

    def apply(self, target, mixture, table, arrived, kl, key, out_of_time):
        if not isinstance(mixture.family, LinearFamily):
            raise ValueError(
                f"correction='refine' needs a full-rank family, got {mixture.family.name!r}; use "
                "correction='fully-corrective' with this one"
            )
        model, rng = CountedTarget(target), host_generator(key)
        if mixture.n_active == 1 and kl <= self.split_above:  # there is nothing to gain
            return Corrected(mixture, table, scalar(0), scalar(0))
        if arrived:
            corrected = FullyCorrective().apply(target, mixture, table, arrived, kl, key, out_of_time)
            mixture = self._cleaned(corrected.mixture)
        mixture = linear_mixture.compact(mixture)
        each = max(self.draws, DRAWS_PER_DIM * target.dim)
        if mixture.n_active == 1 and kl > self.split_above and not arrived:
            better = self._scattered(model, mixture, each, kl, rng, out_of_time)
            if better is None:
                better = self._straightened(model, mixture, kl, rng, out_of_time)
            if better is not None or mixture.warp is not None or target.dim > SPLIT_UP_TO:
                return self._corrected(mixture if better is None else better, table, model)
        full, cooling, before = self.rounds, COOLING, mixture
        if kl <= self.split_above and not arrived:  # there are enough components: what is left is mostly noise
            least = 0 if target.is_costly else POLISHING_DRAWS
            each = max(each, -(-least // mixture.n_active))
            full, cooling = 0, min(MOST_POLISHING, max(COOLING, POLISHING_EVALS // (each * mixture.n_active)))
        elif mixture.n_active >= self.max_components:  # there is no room for more
            cooling = MOST_POLISHING
        elif kl > self.split_above:
            reference = self._reference(model, mixture, each, rng)  # tells which components fit worst
            mixture = self._split(reference.mixture, reference.spread, rng)
        past = _rounds(model, mixture, each, full, cooling, rng, out_of_time)
        # A split that has not settled is worse than none.
        mixture = before if not past or (mixture is not before and len(past) < full) else past[-1].mixture
        return self._corrected(self._cleaned(mixture), table, model)

    def _straightened(
        self, model: CountedTarget, mixture: Mixture, kl: float, rng: np.random.Generator, out_of_time: OutOfTime
    ) -> Mixture | None:
        """One standard Normal behind a warp with one layer more; None if that is not to be, or gains too little."""
        layers = len(mixture.warp.layers) if mixture.warp is not None else 0
        few = self.straighten_from is None or mixture.dim < self.straighten_from
        if few or layers == len(DEGREES) or type(mixture.family) is not FullRankNormal:
            return None
        found = straighten(model.target, take(mixture.params, 0), DEGREES[layers], rng, out_of_time)
        if found is None:
            return None
        warp, gain, work = found
        model.add(work)
        if gain < STRAIGHTER * kl:
            return None
        return mixtures.of(mixture.family, isotropic(np.zeros((1, mixture.dim)), np.ones(1)), np.ones(1), warp)

    def _scattered(
        self, model: CountedTarget, mixture: Mixture, each: int, kl: float, rng: np.random.Generator,
        out_of_time: OutOfTime,
    ) -> Mixture | None:  # fmt: skip
        """Many components in place of one that was straightened once: two would hardly differ from it. None if a few
        rounds see too little of a gain."""
        if mixture.warp is None or len(mixture.warp.layers) == len(DEGREES) or mixture.dim > SPLIT_UP_TO:
            return None
        reference = self._reference(model, mixture, 4 * REFERENCE_DRAWS, rng)
        while mixture.n_active < min(PARTS, self.max_components):
            mixture = self._split(mixture, np.ones(mixture.n_active), rng)
        past = _rounds(model, mixture, each, TRIAL, TRIAL, rng, out_of_time)
        if len(past) < 2 * TRIAL:
            return None
        recent = past[-TRIAL // 2 :]
        gain = np.mean([one.elbo for one in recent]) - reference.elbo
        error = math.hypot(reference.elbo_se, np.sqrt(np.mean([one.elbo_se**2 for one in recent]) / len(recent)))
        return self._cleaned(past[-1].mixture) if gain - 2.0 * error > STRAIGHTER * kl else None

    def _reference(self, model: CountedTarget, mixture: Mixture, each: int, rng: np.random.Generator) -> Round:
        """One round from many draws."""
        counts = np.full(mixture.n_active, max(each, -(-REFERENCE_DRAWS // mixture.n_active)))
        return natural_gradient.joint_round(model, mixture, counts, 1.0, rng)

    def _corrected(self, mixture: Mixture, table: Table, model: CountedTarget) -> Corrected:
        """With an empty table: what its draws said is of other components."""
        blank = tables.empty(mixture.dim, mixture.capacity, table.n_draws)
        return Corrected(mixture, blank, scalar(model.evals), scalar(model.nonfinite))

    def _split(self, mixture: Mixture, spread: np.ndarray, rng: np.random.Generator) -> Mixture:
        """Two components in place of each that fits poorly, along a random direction."""
        weights, dim = np.asarray(mixture.weights), mixture.dim
        misfit = np.where(weights > 0, weights * spread, 0.0)
        order = np.argsort(-misfit)
        room = self.max_components - mixture.n_active
        chosen = order[misfit[order] > POOR * misfit.max()][:room]
        along = rng.standard_normal((chosen.size, dim))
        along *= APART * np.sqrt(dim) / np.linalg.norm(along, axis=1, keepdims=True)
        old = take(mixture.params, chosen)
        shift = np.einsum("kij,kj->ki", old["factor"], along)
        rest = np.setdiff1d(np.flatnonzero(weights), chosen)
        halves = [scaled(old, NARROWER) | {"loc": old["loc"] + sign * shift} for sign in (1.0, -1.0)]
        new_weights = np.concatenate([weights[rest], weights[chosen] / 2, weights[chosen] / 2])
        return mixtures.of(mixture.family, join(take(mixture.params, rest), *halves), new_weights, mixture.warp)

    def _cleaned(self, mixture: Mixture) -> Mixture:
        """Without components of negligible weight, near-duplicates merged, inverses fresh; the heaviest, if there are
        too many."""
        weights = np.asarray(mixture.weights)
        order = np.argsort(-weights)
        order = order[weights[order] > self.prune][: self.max_components]
        params, weights = take(mixture.params, order), weights[order]
        kl = kl_between(params)
        kept: list[int] = []
        for j in range(order.size):
            twin = next((i for i in kept if kl[j, i] < SAME), None)
            if twin is None:
                kept.append(j)
            else:
                weights[twin] += weights[j]
        params = take(params, kept) | {"inverse": np.linalg.inv(params["factor"][kept])}
        return mixtures.of(mixture.family, params, weights[kept] / weights[kept].sum(), mixture.warp)


def _rounds(
    model: CountedTarget, mixture: Mixture, each: int, full: int, cooling: int, rng: np.random.Generator,
    out_of_time: OutOfTime,
) -> list[Round]:  # fmt: skip
    """Rounds at full step size, and then cooling ones; fewer when time runs out, or nothing moves any more."""
    counts, past = np.full(mixture.n_active, each), list[Round]()
    while len(past) < full + cooling and not out_of_time():
        cap = 1.0 / (1.0 + max(len(past) + 1 - full, 0) / 2.0)
        past.append(natural_gradient.joint_round(model, mixture, counts, cap, rng))
        mixture = past[-1].mixture
        if past[-1].moved < SETTLED:
            break
        # A component among others needs fewer draws of its own.
        wanted = np.ceil(counts * each / np.maximum(past[-1].effective, 1.0))
        counts = np.clip(wanted, -(-each // MOST_SHARED), each).astype(int)
    return past
