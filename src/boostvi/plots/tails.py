"""The tail of the importance weights, which k̂ describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boostvi.plots.style import BLACK, BLUE, GREY, VERMILLION, caption, log_numbers, panels
from boostvi.result import Result
from boostvi.verdict import KHAT_LIMIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOWEST = 0.02
"""Quantile of the weights at the bottom: small weights are no trouble, and would flatten the picture."""


def tail(result: Result) -> Figure:
    """Log importance weights ln p − ln q of fresh draws, largest to the right, with the fitted generalised Pareto tail.

    The fitted tail is that of Pareto-smoothed importance sampling, which gives `result.khat`. The dashed line is a tail
    with the same beginning and scale, and the shape 0.7, beyond which a few draws decide everything: a fit below it has
    a lighter tail. Draws of weight 0 are left out of the picture, and counted.
    """
    _, log_target, log_q = result._fresh
    smoothed, khat, ess = result._importance
    log_ratio = np.asarray(log_target) - np.asarray(log_q)
    n = log_ratio.size
    usable = np.isfinite(log_ratio) & (smoothed > 0)
    if not usable.any():
        raise ValueError("no fresh draw has a weight: ln p is not finite at any of them, so there is no tail to draw")
    order = np.flatnonzero(usable)[np.argsort(log_ratio[usable])]
    raw, fitted = log_ratio[order], np.log(smoothed[order])
    share = (np.arange(order.size, 0, -1) - 0.5) / n
    length = min(int(np.ceil(min(0.2 * order.size, 3.0 * np.sqrt(order.size)))), order.size)  # as PSIS chooses it
    begin = order.size - length
    level = raw[begin]
    fitted = fitted + raw[max(begin - 1, 0)] - fitted[max(begin - 1, 0)]  # weights below the tail are not smoothed
    figure, (axes,) = panels(1, 1, width=6.4, height=4.4)
    axes.plot(share, raw - level, ".", color=BLUE, markersize=3, label=f"{order.size:,} fresh draws", rasterized=True)
    if np.isfinite(khat):
        name = f"fitted tail, k̂ = {khat:.2f}"
        axes.plot(share[begin:], fitted[begin:] - level, color=VERMILLION, linewidth=1.8, label=name)
        inside = share[begin:] * n / length  # share of the tail that lies beyond
        name = f"the same with k = {KHAT_LIMIT}"
        limit = _with_limit(inside, fitted[begin:] - level, raw[max(begin - 1, 0)] - level, khat)
        axes.plot(share[begin:], limit, color=BLACK, linewidth=1.2, linestyle="--", label=name)
    axes.axvline(share[begin], color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    log_numbers(axes.xaxis)
    axes.set(
        xlabel="share of the draws with a larger weight",
        ylabel="ln p − ln q, from where the tail begins (nats)",
        xlim=(1.3, 0.4 / n),
    )
    bottom, top = np.quantile(raw - level, LOWEST), axes.get_ylim()[1]
    axes.set_ylim(bottom - 0.05 * (top - bottom), None)
    axes.legend(frameon=False, loc="upper left")
    lost = n - order.size
    words = f"{length} draws make up the tail (right of the dotted line); {ess:,.0f} of {n:,} draws are effective"
    caption(figure, words + (f"; {lost:,} draws have no weight and are not shown" if lost else ""))
    return figure


def _with_limit(inside: np.ndarray, fitted: np.ndarray, begin: float, khat: float) -> np.ndarray:
    """Log quantiles of the fitted tail, with the limit of k̂ in place of k̂: begin + scale·(inside^−k − 1)/k."""

    def excess(k: float) -> np.ndarray:
        return -np.log(inside) if abs(k) < 1e-6 else (inside**-k - 1.0) / k

    middle = len(inside) // 2
    scale = (np.exp(fitted[middle]) - np.exp(begin)) / excess(khat)[middle]
    return np.log(np.exp(begin) + scale * excess(KHAT_LIMIT))
