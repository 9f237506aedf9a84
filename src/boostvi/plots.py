"""Pictures of a fit. Every function returns a matplotlib Figure; nothing is shown and no backend is chosen.

Colours are those of Okabe & Ito (2008), which colour-blind people can tell apart; step kinds differ in shape too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from boostvi import diagnostics
from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, float64, new_key
from boostvi._plot_calibration import calibration as calibration
from boostvi.mixture import Mixture
from boostvi.result import Result
from boostvi.target import log_densities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from boostvi.fit import Step

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
KINDS = {
    "init": (BLACK, "D"),
    "frank-wolfe": (BLUE, "o"),
    "away": (VERMILLION, "v"),
    "pairwise": (GREEN, "s"),
    "drop": (PURPLE, "X"),
    "fallback": (ORANGE, "^"),
}
"""Colour and marker of each kind of step."""
OTHER_KIND = (GREY, "P")

CURVE_POINTS = 512
GRID_POINTS = 120
BINS = 60
"""Bins of a marginal in each coordinate."""
SMOOTHING = 1.0
"""Bins; a marginal from draws is smoothed by a Gaussian this wide."""
PICTURE_DRAWS = 20_000
"""Draws of the mixture behind limits and marginals."""
ELLIPSE_DRAWS = 2_000
TAIL = 0.001
"""Share of the draws beyond each end of an axis."""
MARGIN = 0.1
"""Empty share of an axis on each side of the draws."""
REGIONS = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3, 0.1)
"""Contours enclose these shares of the first panel's mass."""
MAX_CENTRES = 64
"""Component ellipses drawn at most, heaviest first."""


# -- target against mixture


def density(
    result: Result,
    *,
    coordinates: Sequence[int | str] | None = None,
    reference: Any = None,
    reference_label: str = "reference",
) -> Figure:
    """The target beside the mixture, on the unconstrained space.

    A target of one or two dimensions is drawn as it is, normalised by exp(log_evidence). Of a larger one the marginals
    of one or two `coordinates` (indices or names; the first two if not given) are drawn from draws of the mixture; the
    target's are the same draws weighted by importance, which is as good as `result.khat` says.
    reference: something to compare with: another Result or Mixture (plain VI, say), or draws of shape (n, dim).
    """
    chosen = _indices(result, coordinates)
    others = _as_reference(reference, result.mixture.dim)
    exact = len(chosen) == result.mixture.dim
    if len(chosen) == 1:
        return _curves(result, chosen[0], others, reference_label, exact)
    return _contours(result, chosen, others, reference_label, exact)


def _curves(result: Result, i: int, reference: Mixture | np.ndarray | None, label: str, exact: bool) -> Figure:
    figure, (axes,) = _panels(1, width=6.4, height=4.0)
    mixture, draws = result.mixture, result.mixture.sample(PICTURE_DRAWS, seed=0)
    low, high = _limits([draws[:, i], *_column(reference, i)])
    if exact:
        z = np.linspace(low, high, CURVE_POINTS)
        parts = _component_densities(mixture, z[:, None])
        for k, part in enumerate(parts):
            name = "components" if k == 0 and len(parts) > 1 else None
            axes.plot(z, part, color=SKY, linewidth=0.8, alpha=0.7, label=name)
        target = np.exp(log_densities(result.target, z[:, None]) - result.log_evidence)
        axes.plot(z, target, color=BLACK, linewidth=2.0, label="target")
        axes.plot(z, np.exp(mixture.log_prob(z[:, None])), color=BLUE, linewidth=1.8, linestyle="--", label="mixture")
    else:
        edges = np.linspace(low, high, BINS + 1)
        towards = _histogram(draws[:, i], edges, _importance_weights(result, draws))
        axes.stairs(towards, edges, color=BLACK, linewidth=1.6, label=_target_name(result))
        axes.stairs(_histogram(draws[:, i], edges), edges, color=BLUE, linewidth=1.6, label="mixture")
    if isinstance(reference, Mixture) and exact:
        axes.plot(
            z, np.exp(reference.log_prob(z[:, None])), color=VERMILLION, linestyle=":", linewidth=1.8, label=label
        )
    elif reference is not None:
        edges = np.linspace(low, high, BINS + 1)
        axes.stairs(_histogram(_draws_of(reference)[:, i], edges), edges, color=VERMILLION, linestyle=":", label=label)
    axes.set(xlabel=result.target.names[i], ylabel="density", xlim=(low, high), ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def _contours(
    result: Result, pair: Sequence[int], reference: Mixture | np.ndarray | None, label: str, exact: bool
) -> Figure:
    mixture, draws = result.mixture, result.mixture.sample(PICTURE_DRAWS, seed=0)
    shown = [draws, *([] if reference is None else [_draws_of(reference)])]
    limits = [_limits([d[:, i] for d in shown]) for i in pair]
    points = GRID_POINTS if exact else BINS
    edges = [np.linspace(low, high, points + 1) for low, high in limits]
    centres = [0.5 * (e[:-1] + e[1:]) for e in edges]
    grid = np.empty((points, points, 2))
    for place, i in enumerate(pair if exact else (0, 1)):
        grid[..., i] = np.meshgrid(*centres, indexing="xy")[place]

    def picture(of: Mixture | np.ndarray) -> np.ndarray:
        if isinstance(of, Mixture) and exact:
            return np.exp(of.log_prob(grid))
        return _histogram2d(_draws_of(of)[:, pair], edges)

    panels: dict[str, tuple[np.ndarray, Mixture | None]] = {}
    if exact:
        flat = log_densities(result.target, grid.reshape(-1, 2)).reshape(points, points)
        panels["target"] = (np.exp(flat - result.log_evidence), None)
    else:
        towards = _histogram2d(draws[:, pair], edges, _importance_weights(result, draws))
        panels[_target_name(result)] = (towards, None)
    if reference is not None:
        panels[label] = (picture(reference), reference if isinstance(reference, Mixture) else None)
    count = mixture.n_active
    panels[f"mixture of {count} component{'s' if count > 1 else ''}"] = (picture(mixture), mixture)

    figure, axes = _panels(len(panels), width=3.6 * len(panels), height=3.9, sharex=True, sharey=True)
    levels = _region_levels(next(iter(panels.values()))[0])
    top = max(levels[-1] * 1.001, *(float(values.max()) for values, _ in panels.values()))
    for one, (title, (values, components)) in zip(axes, panels.items(), strict=True):
        one.contourf(*centres, values, levels=[*levels, top], cmap="Blues", vmin=0)
        one.contour(*centres, values, levels=levels, colors=BLUE, linewidths=0.4)
        if components is not None:
            _ellipses(one, components, pair)
        one.set(title=title, xlabel=result.target.names[pair[0]], xlim=limits[0], ylim=limits[1])
    axes[0].set_ylabel(result.target.names[pair[1]])
    figure.supxlabel(_caption(REGIONS), fontsize="small", color=GREY)
    return figure


def _caption(regions: Sequence[float]) -> str:
    shares = ", ".join(f"{100 * share:.0f}" for share in reversed(regions))
    return f"contours: {shares} % of the first panel's mass; ellipses: centre and 1 sd of each component"


def _ellipses(axes: Axes, mixture: Mixture, pair: Sequence[int]) -> None:
    """Centre and one-standard-deviation ellipse of the heaviest components; fainter where the weight is small."""
    from matplotlib.patches import Ellipse

    covariances = _covariances(mixture, pair)
    locs = np.asarray(mixture.params["loc"])[:, list(pair)]
    weights = np.asarray(mixture.weights)
    strength = 0.25 + 0.75 * np.sqrt(weights / weights.max())
    for loc, covariance, alpha in list(zip(locs, covariances, strength, strict=True))[:MAX_CENTRES]:
        eigenvalues, vectors = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
        width, height = 2 * np.sqrt(eigenvalues[::-1])
        style = {"edgecolor": VERMILLION, "facecolor": "none", "linewidth": 1.0, "alpha": alpha}
        axes.add_patch(Ellipse(loc, width, height, angle=angle, **style))
    shown = slice(0, MAX_CENTRES)
    axes.scatter(locs[shown, 0], locs[shown, 1], color=VERMILLION, s=9, alpha=strength[shown], linewidths=0)


# -- the run


def elbo(result: Result | Mapping[str, np.ndarray], *, references: Mapping[str, float] | None = None) -> Figure:
    """ELBO on fresh draws against the boosting step, with ± 2 standard errors and the log evidence of each step.

    What the first component reaches alone is marked, and the mixture that a Result returns. Steps whose ELBO is not
    finite are gaps in the line. references: other ELBOs by name, drawn as horizontal lines.
    """
    history = _history(result)
    step, value, error = (np.asarray(history[name], dtype=float) for name in ("step", "elbo", "elbo_se"))
    finite = np.isfinite(value)
    value, error = np.where(finite, value, np.nan), np.where(finite & np.isfinite(error), error, 0.0)
    figure, (axes,) = _panels(1, width=6.4, height=4.0)
    axes.plot(step, _finite(history["log_evidence"]), color=BLACK, linewidth=1.2, linestyle="--", label="log evidence")
    axes.fill_between(step, value - 2 * error, value + 2 * error, color=BLUE, alpha=0.25, linewidth=0, label="± 2 se")
    axes.plot(step, value, color=BLUE, marker="o", markersize=4, label="ELBO")
    axes.plot(step[:1], value[:1], color=ORANGE, marker="D", markersize=9, linestyle="none", label="first component")
    axes.axhline(value[0], color=ORANGE, linewidth=0.8, linestyle=":")
    for (name, level), color in zip((references or {}).items(), (GREEN, VERMILLION, PURPLE, GREY), strict=False):
        axes.axhline(level, color=color, linewidth=1.2, linestyle="-.", label=name)
    if isinstance(result, Result):
        best = result.best_step
        at = np.flatnonzero(step == best)
        (ring,) = axes.plot(step[at], value[at], "o", color=VERMILLION, markersize=11, label="returned mixture")
        ring.set_markerfacecolor("none")
    axes.set(xlabel="boosting step", ylabel="nats")
    _whole_steps(axes)
    axes.legend(framealpha=0.9, edgecolor="none")
    return figure


def weights(result: Result | Mapping[str, np.ndarray], record: WeightRecorder | None = None) -> Figure:
    """What each step did: step size γ coloured by the step's kind, and the number of active components.

    record: a WeightRecorder that was among the run's callbacks adds the weight of every component over the steps, each
    in the colour of the kind of step that brought it in.
    """
    history = _history(result)
    step, kind = np.asarray(history["step"]), np.asarray(history["kind"])
    if record is not None and not len(record.steps):
        raise ValueError("record is empty: give it to the fit, fit(..., callbacks=[record])")
    rows = 2 if record is None else 3
    figure, panels = _panels(rows, width=6.8, height=2.1 * rows, rows=True, sharex=True)
    if record is not None:
        axes = panels[0]
        for values, entered in zip(record.weights.T, record.entered, strict=True):
            color, _ = KINDS.get(entered, OTHER_KIND)
            present = np.where(values > 0, values, np.nan)
            axes.plot(record.steps, present, color=color, linewidth=1.0, marker=".", markersize=4, alpha=0.8)
        axes.set(ylabel="weight of\neach component", ylim=(-0.04, 1.04))
    gammas, counts = panels[-2:]
    gamma = np.asarray(history["gamma"], dtype=float)
    gammas.vlines(step, 0, gamma, color=GREY, linewidth=0.6)
    for name in dict.fromkeys(kind.tolist()):
        color, marker = KINDS.get(name, OTHER_KIND)
        here = kind == name
        gammas.scatter(step[here], gamma[here], color=color, marker=marker, s=28, label=name, zorder=3)
    gammas.set(ylabel="step size γ")
    gammas.set_ylim(-0.06 * np.nanmax(gamma, initial=1.0), None)
    panels[0].set_title("coloured by kind of step", fontsize="medium")
    figure.legend(*gammas.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    counts.step(step, history["n_active"], where="mid", color=BLACK, linewidth=1.4)
    counts.set(xlabel="boosting step", ylabel="active\ncomponents", ylim=(0, None))
    _whole_steps(counts)
    return figure


class WeightRecorder:
    """A callback that keeps every component's weight after every step: `fit(..., callbacks=[record])`.

    Components are told apart by their parameters, so one that is changed later counts as another one.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, dict[bytes, float]]] = []

    def __call__(self, step: Step) -> None:
        if self._rows and step.step <= self._rows[-1][0]:
            self._rows.clear()  # another run has begun
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(step.mixture.params)]
        found: dict[bytes, float] = {}
        for k, weight in enumerate(np.asarray(step.mixture.weights)):
            identity = b"".join(leaf[k].tobytes() for leaf in leaves)
            found[identity] = found.get(identity, 0.0) + float(weight)
        self._rows.append((step.step, str(step.row["kind"]), found))

    @property
    def steps(self) -> np.ndarray:
        return np.array([row[0] for row in self._rows], dtype=int)

    @property
    def weights(self) -> Float[np.ndarray, "steps components"]:
        """0 where a component is not there; components in the order of their arrival."""
        order = self._arrivals()
        table = np.zeros((len(self._rows), len(order)))
        for row, (_, _, found) in enumerate(self._rows):
            for identity, weight in found.items():
                table[row, order[identity][0]] = weight
        return table

    @property
    def entered(self) -> list[str]:
        """For each component, the kind of step that brought it in."""
        return [kind for _, kind in self._arrivals().values()]

    def _arrivals(self) -> dict[bytes, tuple[int, str]]:
        order: dict[bytes, tuple[int, str]] = {}
        for _, kind, found in self._rows:
            for identity in found:
                order.setdefault(identity, (len(order), kind))
        return order


# -- what they share


def figure_class() -> type[Figure]:
    """matplotlib's Figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'boostvi[plots]'") from error
    return Figure


def _panels(n: int, *, width: float, height: float, rows: bool = False, **shared: Any) -> tuple[Figure, list[Axes]]:
    figure = figure_class()(figsize=(width, height), layout="constrained")
    shape = (n, 1) if rows else (1, n)
    axes = list(figure.subplots(*shape, squeeze=False, **shared).ravel())
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _whole_steps(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _history(result: Result | Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    history = result.history if isinstance(result, Result) else result
    if not isinstance(history, Mapping):
        raise TypeError(f"expected a Result or its history, got {type(result).__name__}")
    return history


def _finite(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def _indices(result: Result, coordinates: Sequence[int | str] | None) -> list[int]:
    names, dim = list(result.target.names), result.mixture.dim
    if coordinates is None:
        return list(range(min(dim, 2)))
    if isinstance(coordinates, (int, str)):
        coordinates = [coordinates]
    chosen = []
    for one in coordinates:
        if isinstance(one, str):
            if one not in names:
                raise ValueError(f"coordinates: {one!r} is not known; the names are {', '.join(map(repr, names))}")
            chosen.append(names.index(one))
        elif isinstance(one, bool) or not isinstance(one, (int, np.integer)) or not 0 <= one < dim:
            raise ValueError(f"coordinates must be names or integers from 0 to {dim - 1}, got {one!r}")
        else:
            chosen.append(int(one))
    if len(chosen) not in (1, 2) or len(set(chosen)) != len(chosen):
        raise ValueError(f"coordinates must be one or two different ones, got {list(coordinates)!r}")
    return chosen


def _as_reference(reference: Any, dim: int) -> Mixture | np.ndarray | None:
    if reference is None:
        return None
    if isinstance(reference, Result):
        reference = reference.mixture
    if isinstance(reference, Mixture):
        if reference.dim != dim:
            raise ValueError(f"reference has {reference.dim} coordinates, but the result has {dim}")
        return reference
    draws = np.asarray(reference, dtype=float)
    if draws.ndim != 2 or draws.shape[1] != dim:
        raise ValueError(f"reference must be a Result, a Mixture or draws of shape (n, {dim}), got {draws.shape}")
    return draws


def _draws_of(source: Mixture | np.ndarray) -> np.ndarray:
    return source.sample(PICTURE_DRAWS, seed=0) if isinstance(source, Mixture) else source


def _column(reference: Mixture | np.ndarray | None, i: int) -> list[np.ndarray]:
    return [] if reference is None else [_draws_of(reference)[:, i]]


def _limits(columns: Sequence[np.ndarray]) -> tuple[float, float]:
    low = min(np.quantile(c, TAIL) for c in columns)
    high = max(np.quantile(c, 1 - TAIL) for c in columns)
    margin = MARGIN * (high - low)
    return float(low - margin), float(high + margin)


def _target_name(result: Result) -> str:
    return f"reweighted to the target (k̂ = {result.khat:.2f})"


def _importance_weights(result: Result, draws: np.ndarray) -> np.ndarray:
    """Pareto-smoothed weights p/q, which sum to 1."""
    log_ratio = log_densities(result.target, draws) - result.mixture.log_prob(draws)
    return diagnostics.importance(log_ratio)[0]


def _histogram(values: np.ndarray, edges: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    weights = np.full(values.size, 1.0 / values.size) if weights is None else weights
    return np.histogram(values, edges, weights=weights)[0] / np.diff(edges)


def _histogram2d(draws: np.ndarray, edges: Sequence[np.ndarray], weights: np.ndarray | None = None) -> np.ndarray:
    """A smoothed density over the grid, the second coordinate along the rows."""
    from scipy.ndimage import gaussian_filter

    weights = np.full(len(draws), 1.0 / len(draws)) if weights is None else weights
    mass, *_ = np.histogram2d(draws[:, 0], draws[:, 1], bins=list(edges), weights=weights)
    area = np.diff(edges[0])[:, None] * np.diff(edges[1])
    return gaussian_filter(mass / area, SMOOTHING).T


def _region_levels(values: np.ndarray) -> list[float]:
    """Heights whose upper sets hold the shares REGIONS of the mass on the grid."""
    ranked = np.sort(values.ravel())[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    heights = [float(ranked[np.searchsorted(mass, share)]) for share in REGIONS]
    return sorted(set(heights))


@counted_jit
def _log_components(mixture: Mixture, z: Array) -> Array:
    return jax.vmap(lambda one: mixtures.log_components(mixture, one))(z)


@float64
def _component_densities(mixture: Mixture, z: np.ndarray) -> np.ndarray:
    """w_k s_k(z), shape (components, points)."""
    return (np.exp(np.asarray(_log_components(mixture, z))) * np.asarray(mixture.weights)).T


@counted_jit
def _component_draws(mixture: Mixture, pair: Array, key: Array) -> Array:
    family = mixture.family
    noise = family.noise(key, (ELLIPSE_DRAWS, mixture.dim))
    one = lambda params: jax.vmap(family.sample, in_axes=(None, 0))(params, noise)[:, pair]  # noqa: E731
    return jax.lax.map(one, mixture.params)


@float64
def _covariances(mixture: Mixture, pair: Sequence[int]) -> list[np.ndarray]:
    """Covariance of each component in two coordinates, from draws: the same for every family."""
    draws = np.asarray(_component_draws(mixture, np.asarray(pair), new_key(0)))
    return [np.cov(d.T) for d in draws]
