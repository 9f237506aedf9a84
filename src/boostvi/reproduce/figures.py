"""The paper's figures, in the paper's form. Colours are those of Okabe & Ito (2008)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from boostvi.reproduce.tables import minus

COLOURS = {
    "adaafw": "#D55E00", "adapfw": "#009E73", "adafw": "#0072B2", "predefined": "#000000", "line-search": "#CC79A7",
    "adaptive-zero": "#D55E00", "adaptive": "#0072B2", "adaptive-exact": "#56B4E9", "adafw-exact-fallback": "#56B4E9",
    "exact": "#7F7F7F", "fully-corrective": "#E69F00", "mixture-elbo": "#8C6D00",
}  # fmt: skip
KINDS = {"adaptive": "#0072B2", "away": "#D55E00", "drop": "#CC79A7", "predefined": "#E69F00"}
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-", "--")


def new(n: int = 1, width: float = 6.0, height: float = 4.0, rows: int = 1, **shared: Any) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the figures need matplotlib: pip install 'boostvi[plots]'") from error

    figure = Figure(figsize=(width * n / rows, height * rows), layout="constrained")
    axes = figure.subplots(rows, n // rows, squeeze=False, **shared)
    return figure, list(axes.ravel())


ROBUST_FROM, SHORT = 3, 5
"""In a run of more than `SHORT` steps an axis holds the start and the means from step `ROBUST_FROM` on: those before
may fall far below all others."""
MARGIN = 0.06
"""Of the height of an axis, below and above what it must hold."""


def _limits(curves: Mapping[str, np.ndarray], levels: Sequence[float] = ()) -> tuple[float, float]:
    """Of an axis for means ± standard deviations."""
    low, high = np.inf, max(levels, default=-np.inf)
    for values in curves.values():
        mean = values.mean(axis=0)
        kept = mean if len(mean) <= SHORT + 1 else np.array([mean[0], *mean[ROBUST_FROM:]])
        low, high = min(low, float(np.nanmin(kept))), max(high, float(np.nanmax(mean + _sd(values))))
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _sd(values: np.ndarray) -> np.ndarray:
    """Over runs; 0 of a single one, which has no band."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def below(curves: Mapping[str, np.ndarray], levels: Sequence[float] = ()) -> str:
    """A sentence for the caption if means of `bands` are below its axis."""
    low, _ = _limits(curves, levels)
    hidden = [t for values in curves.values() for t in np.flatnonzero(values.mean(axis=0) < low).tolist()]
    if not hidden:
        return ""
    steps = f"at step {min(hidden)}" if min(hidden) == max(hidden) else f"between steps {min(hidden)} and {max(hidden)}"
    return f" Means {steps} that are not shown are below the axis."


def bands(
    curves: Mapping[str, np.ndarray], labels: Mapping[str, str], ylabel: str,
    reference: Mapping[str, float] | None = None,
) -> Any:  # fmt: skip
    """Mean ± standard deviation over runs, per step."""
    figure, (axes,) = new(width=7.0, height=4.6)
    for i, (name, values) in enumerate(curves.items()):
        mean, sd, steps = values.mean(axis=0), _sd(values), np.arange(values.shape[1])
        colour = COLOURS.get(name, "#7F7F7F")
        axes.plot(steps, mean, color=colour, ls=DASHES[i % len(DASHES)], label=labels[name], lw=1.8)
        axes.fill_between(steps, mean - sd, mean + sd, color=colour, alpha=0.13, lw=0)
    for name, value in (reference or {}).items():
        _level(axes, name, value)
    axes.set_ylim(*_limits(curves, list((reference or {}).values())))
    axes.set(xlabel="boosting step", ylabel=ylabel)
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend_below(figure, axes)
    return figure


def legend_below(figure: Any, axes: Any) -> None:
    """Outside the axes, where it hides no curve."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def parameters(
    counts: Mapping[str, np.ndarray], labels: Mapping[str, str], reference: Mapping[str, float] | None = None
) -> Any:
    """Fig. 2: mean number of parameters per step; `reference` has counts that belong to no step."""
    figure, (axes,) = new(width=6.4, height=4.6)
    for i, (name, values) in enumerate(counts.items()):
        axes.plot(
            values.mean(axis=0), color=COLOURS.get(name, "#7F7F7F"), ls=DASHES[i % len(DASHES)], label=labels[name]
        )
    for name, value in (reference or {}).items():
        _level(axes, name, value)
    axes.set(xlabel="boosting step", ylabel="parameters of all active components")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend_below(figure, axes)
    return figure


def _level(axes: Any, name: str, value: float) -> None:
    axes.axhline(value, color="#444444", lw=1, ls=":")
    axes.annotate(name, (0.99, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)


def kind_shares(kinds: np.ndarray) -> dict[str, np.ndarray]:
    """Share of runs per step and kind; pairwise and Frank-Wolfe steps whose size was found are "adaptive"."""
    steps = kinds[:, 1:]
    groups = {
        "adaptive": ("frank-wolfe", "pairwise"),
        "away": ("away",),
        "drop": ("drop",),
        "predefined": ("fallback",),
    }
    return {name: np.isin(steps, members).mean(axis=0) for name, members in groups.items()}


def step_kinds(kinds: Mapping[str, np.ndarray], labels: Mapping[str, str]) -> Any:
    figure, axes = new(len(kinds), width=3.9, height=3.4, sharey=True)
    for panel, (name, values) in zip(axes, kinds.items(), strict=True):
        bottom = np.zeros(values.shape[1] - 1)
        for kind, share in kind_shares(values).items():
            panel.bar(np.arange(1, len(share) + 1), share, bottom=bottom, width=1.0, color=KINDS[kind], label=kind)
            bottom = bottom + share
        panel.set(title=labels[name], xlabel="boosting step", ylim=(0, 1), xlim=(0.5, len(bottom) + 0.5))
        panel.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("share of runs")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure


def heat_maps(
    values: Mapping[str, np.ndarray],
    taus: Sequence[float],
    shrinks: Sequence[float],
    labels: Mapping[str, str],
    label: str,
) -> Any:
    """One panel per variant: τ down, 1/η across."""
    figure, axes = new(len(values), width=3.9, height=3.6, sharey=True)
    finite = np.concatenate([v[np.isfinite(v)] for v in values.values()])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    low, high = min(low, high - 1.0), max(high, low + 1.0)  # differences below a nat have no colour
    image = None
    for panel, (name, grid) in zip(axes, values.items(), strict=True):
        image = panel.imshow(grid, vmin=low, vmax=high, cmap="cividis", aspect="auto")
        for i, j in np.ndindex(grid.shape):
            if np.isfinite(grid[i, j]):
                dark = grid[i, j] < (low + high) / 2
                panel.text(
                    j, i, minus(f"{grid[i, j]:.0f}"), ha="center", va="center", fontsize=8, color="w" if dark else "k"
                )
        panel.set_xticks(range(len(shrinks)), [f"{s:g}" for s in shrinks])
        panel.set_yticks(range(len(taus)), [f"{t:g}" for t in taus])
        panel.set(title=labels[name], xlabel="1/η")
    axes[0].set_ylabel("τ")
    figure.colorbar(image, ax=axes, label=label)
    return figure


def boxes(
    values: Mapping[str, Sequence[np.ndarray]], groups: Sequence[str], labels: Mapping[str, str], ylabel: str
) -> Any:
    """Box plots, one group per dimension and one box per rule; symmetric-log axis."""
    figure, (axes,) = new(width=max(9.0, 1.75 * len(groups) + 2.5), height=4.8)
    width, handles = 0.8 / len(values), []
    for i, (name, columns) in enumerate(values.items()):
        colour = COLOURS.get(name, list(COLOURS.values())[i % len(COLOURS)])
        drawn = axes.boxplot(
            list(columns), positions=np.arange(len(groups)) + (i - (len(values) - 1) / 2) * width, widths=0.85 * width,
            patch_artist=True, flierprops={"marker": ".", "ms": 2, "mec": colour, "alpha": 0.5},
            medianprops={"color": "k"}, manage_ticks=False,
        )  # fmt: skip
        for box in drawn["boxes"]:
            box.set(facecolor=colour, alpha=0.6, lw=0.7)
        handles.append(drawn["boxes"][0])
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(xlabel="dimension", ylabel=ylabel)
    for edge in np.arange(len(groups) - 1) + 0.5:
        axes.axvline(edge, color="#DDDDDD", lw=0.8, zorder=0)
    figure.legend(
        handles, [labels[n] for n in values], loc="outside lower center", ncols=min(3, len(values)), fontsize=8
    )
    return figure


def line_searches(paths: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    """γ above and φ' below, a line for each run; a column for each kind of draws."""
    figure, axes = new(4, width=4.4, height=2.7, rows=2, sharex=True, sharey="row")
    for column, (title, (gammas, slopes)) in enumerate(paths.items()):
        for i, (gamma, slope) in enumerate(zip(gammas, slopes, strict=True)):
            colour = list(COLOURS.values())[i % len(COLOURS)]
            axes[column].plot(gamma, color=colour, lw=1, marker=".", ms=3)
            axes[2 + column].plot(slope, color=colour, lw=1, marker=".", ms=3)
        axes[column].set_title(title)
        axes[2 + column].set(xlabel="iteration", yscale="symlog")
        axes[2 + column].axhline(0.0, color="#888888", lw=0.6)
    axes[0].set(ylabel="γ", ylim=(-0.03, 1.03))
    axes[2].set_ylabel("φ'(γ), nats")
    return figure
