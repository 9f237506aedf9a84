"""New components where the mixture misses mass: found by looking."""

from __future__ import annotations

import jax

from boostvi._struct import check_count, static, struct
from boostvi.next_component.base import NextComponent
from boostvi.next_component.look import look

LONGER = 3
"""A search that found nothing, but hardly found what is known, is repeated with so many times as many starts."""


@struct
class Explore(NextComponent):
    """Climbs from `n_starts` points: ends of tempered chains, and points chosen from prior draws, wide draws and draws
    of the inflated mixture; from a quarter of them behind a warp, or if the model is costly and that many find nothing.
    Every other climb first goes up the deflated residual ln p − ln q, away from what is covered. Components at local
    maxima of p that the mixture has missed, and one over all points that it has missed, are fitted by natural-gradient
    VI, and proposed if they have mass (`next_component.look`)."""

    n_starts: int = static(default=128)

    name = "explore"
    exhaustible = True

    def __post_init__(self):
        check_count("n_starts", self.n_starts)

    def __call__(self, target, mixture, table, t, key):
        # Fewer starts for what was alone after a search and then straightened.
        first, fewer = mixture.warp is None, -(-self.n_starts // 4)
        found = look(target, mixture, self.n_starts if first and not target.is_costly else fewer, key)
        if first and (found.elbos.size > 0 if target.is_costly else found.lonely):  # worth a longer look
            longer = self.n_starts if target.is_costly else LONGER * self.n_starts
            found = look(target, mixture, longer, jax.random.fold_in(key, 1), found.evals)
        return found.proposal
