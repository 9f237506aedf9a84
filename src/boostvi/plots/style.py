"""What all pictures share: colours, figures, names and numbers that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi import trees
from boostvi.result import Result
from boostvi.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
"""Okabe & Ito (2008): colour-blind people can tell them apart."""
KINDS = {
    "init": (BLACK, "D"),
    "frank-wolfe": (BLUE, "o"),
    "away": (VERMILLION, "v"),
    "pairwise": (GREEN, "s"),
    "drop": (PURPLE, "X"),
    "fallback": (ORANGE, "^"),
    "refine": (SKY, "p"),
}
"""Colour and marker of each kind of step."""
OTHER_KIND = (GREY, "P")
STEP, NATS = "boosting step", "nats"
LONGEST = 30
"""Letters of a name that fit beside an axis or above a panel."""

SAME = 1e-4
"""Relative difference of two numbers that are the same but for rounding, in single precision too."""


def figure_class() -> type[Figure]:
    """matplotlib's Figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'boostvi[plots]'") from error
    return Figure


def panels(rows: int, columns: int, *, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of its own (pyplot never hears of it) and its axes, row by row."""
    figure = figure_class()(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def whole_numbers(axis: Axis, most: int = 10) -> None:
    """Ticks at whole numbers only, and not more than these."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, integer=True))


def plain_numbers(axis: Axis) -> None:
    """200 k instead of 2 × 10⁵ in a corner."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(sep=""))


def log_numbers(axis: Axis) -> None:
    """Plain numbers along a log scale: 0.02 instead of 2 × 10⁻²; between the powers of ten where these are few."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1.5, 0.4)))


def caption(figure: Figure, text: str) -> None:
    """A line below everything that says how to read the picture; broken where the figure ends."""
    import textwrap

    letters = int(figure.get_figwidth() * LETTERS_PER_INCH)
    figure.supxlabel("\n".join(textwrap.wrap(text, letters)), fontsize="small", color=GREY)


LETTERS_PER_INCH = 16.0
"""Of a caption, in the default font."""


def short(name: str, longest: int = LONGEST) -> str:
    """A name that fits, its beginning and its end kept; as it is written, not as mathematics."""
    half = longest // 2
    name = name if len(name) <= longest else f"{name[:half]}…{name[-half + 1 :]}"
    return name.replace("$", r"\$")


def coordinate_names(result: Result, draws: np.ndarray, longest: int = LONGEST) -> list[str]:
    """A label for every coordinate, from a few draws: "tau, unconstrained" where the model's own value is another."""
    names = [short(name, longest) for name in result.target.names]
    if not has_model(result) or result.target.constrain is None:
        return names
    own = result.in_own_space(draws)
    columns = dict(zip(result.target.names, own.T, strict=True)) if isinstance(own, np.ndarray) else trees.columns(own)
    same = [
        name in columns and np.allclose(columns[name], draws[:, i], rtol=SAME)
        for i, name in enumerate(result.target.names)
    ]
    return [name if plain else f"{name}, unconstrained" for name, plain in zip(names, same, strict=True)]


def history_of(result: Result | Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    history = result.history if isinstance(result, Result) else result
    if not isinstance(history, Mapping):
        raise TypeError(f"expected a Result or its history, got {type(result).__name__}")
    return history


def finite(values: Any) -> np.ndarray:
    """NaN, which is a gap in a line, in place of ± inf."""
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def has_model(result: Result) -> bool:
    """Whether ln p can be evaluated: not if the result was loaded without its model."""
    return isinstance(result.target, Target)


def indices(result: Result, coordinates: Sequence[int | str] | int | str | None, default: int, most: int) -> list[int]:
    """Coordinates as indices; the first `default` ones if none are given, `most` of them at most."""
    names, dim = list(result.target.names), result.mixture.dim
    if coordinates is None:
        return list(range(min(dim, default)))
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
    if not 1 <= len(chosen) <= most or len(set(chosen)) != len(chosen):
        many = "one or two" if most == 2 else f"1 to {most}"
        raise ValueError(f"coordinates must be {many} different ones, got {list(coordinates)!r}")
    return chosen


def kind_style(kind: str) -> tuple[str, str]:
    return KINDS.get(kind, OTHER_KIND)
