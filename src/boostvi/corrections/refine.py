"""Refinement: all components and weights moved together, and more of them where the fit is poor."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import mixture as mixtures
from boostvi import natural_gradient
from boostvi import table as tables
from boostvi._jit import host_generator, sub_keys
from boostvi._struct import check, check_count, static, struct
from boostvi.corrections.base import Corrected, Correction
from boostvi.corrections.straighten import straighten
from boostvi.corrections.weights import FullyCorrective
from boostvi.families.linear import FullRankNormal, LinearFamily, scaled
from boostvi.mixture import Mixture
from boostvi.next_component.local import CountedTarget, isotropic, join, kl_between, take
from boostvi.polynomials import n_monomials
from boostvi.table import Table
from boostvi.warp import Warp

COOLING = (0.5, 0.25, 0.125)
"""Caps on β at the end: smaller steps average the noise away."""
APART = 0.5
"""The halves of a split lie ± this times √d from its centre, in its own units."""
NARROWER = 0.85
"""Each half has this fraction of the scale."""
POOR = 0.1
"""Components are split whose weight × sd(R) is at least this fraction of the largest."""
DRAWS_PER_DIM = 4
POLISHING = 3
POLISHING_DRAWS = 2048
"""When there are enough components there are this many times as many rounds, of so many draws at least, unless an
evaluation costs much: what is left is mostly noise."""
STRAIGHTER = 0.15
"""Share of the KL that a warp must take away to be kept."""
DEGREES = (2, 3)
"""Of the polynomials of a warp's layers, one after the other; less where there would be too many monomials."""
MAX_MONOMIALS = 9000
"""Degree 3 up to 35 dimensions, degree 2 up to 132."""
SAME = 0.01
"""Nats: a component whose KL to a heavier one is below this is merged into it."""


@struct
class Refine(Correction):
    """Natural-gradient rounds on all components and weights.

    While the KL is above `split_above` nats, more is done first. straighten_from: a Normal that is alone in so many
    dimensions or more gets a warp, up to two layers of it, if that takes away enough of the KL
    (`corrections.straighten`); in fewer a few more components do the same and are quicker to fit; None: never.
    Otherwise the components that fit worst are split in two: the mixture doubles. rounds: at full step size, and three
    quarters as many again while it cools. draws: per component and round (4·d if that is more). prune: weights below
    this become exactly 0.
    """

    split_above: float = 0.01
    straighten_from: int | None = static(default=16)
    rounds: int = static(default=16)
    draws: int = static(default=100)
    prune: float = 1e-4
    max_components: int = static(default=128)

    name = "refine"

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
        model, keys = CountedTarget(target), sub_keys(key, 3)
        if arrived:
            mixture = FullyCorrective().apply(target, mixture, table, arrived, kl, key, out_of_time).mixture
            mixture = self._cleaned(mixture)
        elif mixture.n_active == 1 and kl <= self.split_above:  # there is nothing to gain
            return Corrected(mixture, table, jnp.asarray(0), jnp.asarray(0))
        if not arrived and kl > self.split_above and (degree := self._degree(mixture)):
            slot = int(np.argmax(mixture.weights))
            warp, gain, work = straighten(target, take(mixture.params, slot), degree, keys[0], out_of_time)
            model.add(work)
            if gain > STRAIGHTER * kl:
                return self._straight(mixture, warp, table, model)
        each = max(self.draws, DRAWS_PER_DIM * target.dim)
        least, rounds, before = 0, self.rounds, mixture
        if kl <= self.split_above and not arrived and not target.is_costly:
            least, rounds = POLISHING_DRAWS, POLISHING * self.rounds
        elif kl > self.split_above and mixture.n_active < self.max_components:
            # One round tells which components fit worst.
            mixture, spread = natural_gradient.joint_round(model, mixture, each * mixture.n_active, 1.0, keys[0])
            mixture = self._split(mixture, np.asarray(spread), host_generator(keys[1]))
        cooling = rounds // 4
        caps = [1.0] * rounds + [cap for cap in COOLING for _ in range(cooling)]
        for i, cap in enumerate(caps):
            if out_of_time():
                if i < rounds:
                    mixture = before  # a split that has not settled is worse than none
                break
            round_key = jax.random.fold_in(keys[2], i)
            n = max(each * mixture.n_active, least)
            mixture, _ = natural_gradient.joint_round(model, mixture, n, cap, round_key)
        mixture = self._cleaned(mixture)
        blank = tables.empty(target.dim, mixture.capacity, table.n_draws)
        return Corrected(mixture, blank, jnp.asarray(model.evals), jnp.asarray(model.nonfinite))

    def _degree(self, mixture: Mixture) -> int | None:
        """Of the polynomials of the next layer of a warp; None if there is to be none."""
        too_few = self.straighten_from is None or mixture.dim < self.straighten_from
        if too_few or mixture.n_active > 1 or type(mixture.family) is not FullRankNormal:
            return None
        layers = len(mixture.warp.layers) if mixture.warp is not None else 0
        if layers >= len(DEGREES):
            return None
        degree = DEGREES[layers]
        while degree > 1 and n_monomials(mixture.dim, degree) > MAX_MONOMIALS:
            degree -= 1
        return degree if degree > 1 else None

    def _straight(self, mixture: Mixture, warp: Warp, table: Table, model: CountedTarget) -> Corrected:
        """One standard Normal behind the warp."""
        normal = isotropic(np.zeros((1, mixture.dim)), np.ones(1))
        mixture = mixtures.of(mixture.family, normal, np.ones(1), warp)
        blank = tables.empty(mixture.dim, mixture.capacity, table.n_draws)
        return Corrected(mixture, blank, jnp.asarray(model.evals), jnp.asarray(model.nonfinite))

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
        """Without components of negligible weight, near-duplicates merged, inverses fresh."""
        weights = np.asarray(mixture.weights)
        order = np.argsort(-weights)
        order = order[weights[order] > self.prune]
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
