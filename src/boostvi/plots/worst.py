"""The residual ln p − ln q along the direction in which the mixture is worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from boostvi.plots import grids
from boostvi.plots.style import BLACK, BLUE, GREY, VERMILLION, caption, panels, short
from boostvi.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = 40
"""The running median is that of this many groups of draws, equal in number."""
BINS = 60
NAMED = 3
"""Parameters that are named beside the direction."""
LEAST_CORRELATION = 0.2
"""Of a parameter with the direction: less is not worth naming, unless it is the largest."""
MAX_POINTS = 3000
SPAN = (0.002, 0.998)
"""Quantiles of the residual that the picture shows; a few draws far off would flatten it."""


@dataclass(frozen=True)
class Direction:
    """position: of every draw, in standard deviations of q. correlations: of every coordinate with it. nats: KL between
    two Normals with the reweighted moments and with q's, along it."""

    position: Float[np.ndarray, " n"]
    correlations: Float[np.ndarray, " dim"]
    nats: float


def worst_direction(draws: Float[np.ndarray, "n dim"], weights: Float[np.ndarray, " n"]) -> Direction:
    """Where draws and weighted draws differ most in mean and variance.

    In coordinates in which the draws have mean 0 and covariance I, weighting shifts the mean by m and makes the
    covariance C. Along a unit vector v the two are ½(vᵀCv + (vᵀm)² − 1 − ln vᵀCv) nats apart, as Normals. The
    candidates are the principal directions of C, of C + mmᵀ, and m itself; the worst is taken.
    """
    sd = draws.std(axis=0)
    centred = (draws - draws.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    values, vectors = np.linalg.eigh(np.cov(centred.T).reshape(draws.shape[1], -1))
    seen = values > 1e-10 * values.max()  # a direction without any spread has no units
    white = centred @ vectors[:, seen] / np.sqrt(values[seen])
    shift = weights @ white
    covariance = (white * weights[:, None]).T @ white - np.outer(shift, shift)
    candidates = [np.linalg.eigh(covariance)[1], np.linalg.eigh(covariance + np.outer(shift, shift))[1]]
    if np.linalg.norm(shift) > 0:
        candidates.append(shift[:, None] / np.linalg.norm(shift))
    units = np.concatenate(candidates, axis=1)
    variance = np.maximum(np.einsum("id,ij,jd->d", units, covariance, units), 1e-300)
    nats = 0.5 * (variance + (shift @ units) ** 2 - 1.0 - np.log(variance))
    best = int(np.argmax(nats))
    position = white @ units[:, best]
    correlations = centred.T @ position / len(position)
    sign = np.sign(correlations[np.argmax(np.abs(correlations))]) or 1.0
    return Direction(sign * position, sign * correlations, float(nats[best]))


def residual(result: Result) -> Figure:
    """ln p − ln q at fresh draws, minus log Ẑ, along the direction in which the mixture is worst; and its mass there.

    0 is right; where the median is above 0 the mixture has too little mass, below 0 too much. The direction is that of
    `worst_direction` between the fresh draws and the same draws weighted by importance.
    """
    draws, log_target, log_q = result._fresh
    weights = result._importance[0]
    gap = np.asarray(log_target) - np.asarray(log_q)
    seen = np.isfinite(gap)
    if not seen.any():
        raise ValueError("ln p is not finite at any fresh draw: there is no residual to draw")
    direction = worst_direction(draws, weights)
    x, gap = direction.position, gap - result.log_evidence
    figure, (above, below) = panels(2, 1, width=6.8, height=5.4, sharex=True, height_ratios=[2.4, 1.0])

    some = np.flatnonzero(seen)[:: -(-int(seen.sum()) // MAX_POINTS)]
    above.plot(x[some], gap[some], ".", color=GREY, markersize=2, alpha=0.4, label="fresh draws", rasterized=True)
    groups = np.array_split(np.flatnonzero(seen)[np.argsort(x[seen])], min(GROUPS, int(seen.sum())))
    middle = [np.median(x[g]) for g in groups]
    low, median, high = np.array([np.quantile(gap[g], (0.1, 0.5, 0.9)) for g in groups]).T
    above.fill_between(middle, low, high, color=BLUE, alpha=0.25, linewidth=0, label="10 to 90 %")
    above.plot(middle, median, color=BLUE, linewidth=1.8, label="running median")
    above.axhline(0.0, color=BLACK, linewidth=0.8, linestyle="--")
    bottom, top = np.quantile(gap[seen], SPAN)
    bottom, top = min(bottom, 0.0), max(top, 0.0)
    room = 0.08 * (top - bottom) or 1e-6
    above.set(ylabel="ln p − ln q − log Ẑ (nats)", ylim=(bottom - room, top + room))
    above.legend(framealpha=0.9, edgecolor="none", fontsize="small", markerscale=4)

    edges = np.linspace(*grids.limits([x]), BINS + 1)
    mine = grids.histogram(x, edges)
    below.stairs(mine, edges, fill=True, color=BLUE, alpha=0.35, label="mixture")
    name = f"reweighted to the target (k̂ = {result.khat:.2f})"
    below.stairs(grids.histogram(x, edges, weights), edges, color=VERMILLION, linewidth=1.4, label=name)
    below.set(yticks=[], ylabel="density", xlim=(edges[0], edges[-1]), ylim=(0, None))
    below.set_xlabel(f"worst direction, in sd of the mixture\n{_named(result, direction.correlations)}")
    below.legend(frameon=False, fontsize="small")
    lost = int(np.sum(~seen))
    words = f"moments differ by {direction.nats:.2g} nats along it; numbers: correlations with it, unconstrained"
    caption(figure, words + (f"; at {lost:,} draws ln p is not finite" if lost else ""))
    return figure


def _named(result: Result, correlations: np.ndarray) -> str:
    order = np.argsort(-np.abs(correlations))[:NAMED]
    worth = [i for place, i in enumerate(order) if place == 0 or abs(correlations[i]) >= LEAST_CORRELATION]
    return ", ".join(f"{short(result.target.names[i], 16)} ({correlations[i]:+.2f})" for i in worth)
