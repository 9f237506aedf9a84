"""L-BFGS from many starts in lockstep.

All starts share each call of the model, in tiles of one shape, so the model is compiled once for the whole library;
SciPy's would call it for one point at a time, and a compiled one would compile the line search around every model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HISTORY = 8
"""Pairs of steps and gradient changes that stand for the curvature."""
BACKTRACKS = 12
AT_ONCE = 32
"""Points that may be tried at once for the sake of fewer calls."""
SHORTER = 0.3
"""A rejected step is tried again at this fraction."""
SUFFICIENT = 1e-4
"""Share of the gain promised by the slope that a step must bring (Armijo)."""
SMALL_GAIN = 1e-3
"""Nats; a climb that gained less than this twice running has arrived."""

ValuesAndGradients = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@np.errstate(over="ignore", invalid="ignore")  # far out a gradient may be too large to square: that climb ends
def climb(
    function: ValuesAndGradients, starts: np.ndarray, max_iterations: int, stragglers: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Local maxima of `function` reached from the rows of `starts`, and the values there (−inf: never finite).

    stragglers: all climbs end when no more than this share of them goes on.
    """
    x = np.array(starts)
    value, gradient = _finite(*function(x))
    steps, changes = np.zeros((2, HISTORY, *x.shape))
    inverses = np.zeros((HISTORY, x.shape[0]))  # 1/(s·y), 0 for an empty pair
    scale = np.minimum(1.0, 1.0 / np.maximum(np.linalg.norm(gradient, axis=1), 1e-300))
    small = np.zeros(x.shape[0], dtype=int)
    live = np.flatnonzero(np.isfinite(value))
    for _ in range(max_iterations):
        if live.size <= stragglers * x.shape[0]:
            break
        pairs = steps[:, live], changes[:, live], inverses[:, live]
        along = _two_loops(gradient[live], *pairs, scale[live])
        slope = _dot(gradient[live], along)
        astray = ~(slope > 0)  # rounding: fall back on the gradient
        along[astray] = scale[live][astray, None] * gradient[live][astray]
        slope = _dot(gradient[live], along)
        new_x, new_value, new_gradient = _backtrack(function, x[live], value[live], gradient[live], along, slope)

        s, y = new_x - x[live], gradient[live] - new_gradient
        sy, yy = _dot(s, y), _dot(y, y)
        curved = sy > 1e-12 * yy
        for memory, newest in ((steps, s), (changes, y)):
            memory[:-1, live] = memory[1:, live]
            memory[-1, live] = np.where(curved[:, None], newest, 0.0)
        inverses[:-1, live] = inverses[1:, live]
        inverses[-1, live] = np.where(curved, 1.0 / np.where(curved, sy, 1.0), 0.0)
        scale[live] = np.where(curved, sy / np.where(curved, yy, 1.0), scale[live])

        gain = new_value - value[live]
        x[live], value[live], gradient[live] = new_x, new_value, new_gradient
        small[live] = np.where(gain < SMALL_GAIN, small[live] + 1, 0)
        live = live[(gain > 0) & (small[live] < 2)]
    return x, value


def _finite(value: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    finite = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    return np.where(finite, value, -np.inf), np.where(finite[:, None], gradient, 0.0)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", a, b)


def _two_loops(
    gradient: np.ndarray, steps: np.ndarray, changes: np.ndarray, inverses: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """The quasi-Newton direction (Nocedal & Wright, Algorithm 7.4), for all starts at once."""
    along, shares = gradient.copy(), np.zeros_like(inverses)
    for i in reversed(range(HISTORY)):
        shares[i] = inverses[i] * _dot(steps[i], along)
        along -= shares[i][:, None] * changes[i]
    along *= scale[:, None]
    for i in range(HISTORY):
        along += (shares[i] - inverses[i] * _dot(changes[i], along))[:, None] * steps[i]
    return along


def _backtrack(
    function: ValuesAndGradients, x: np.ndarray, value: np.ndarray, gradient: np.ndarray, along: np.ndarray,
    slope: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The first of the steps 1, 0.3, 0.09, … that gains enough; where none does, the point itself.

    When few are left, several lengths are tried in one call: the model computes a whole tile of points anyway.
    """
    new_x, new_value, new_gradient = x.copy(), value.copy(), gradient.copy()
    left, lengths = np.arange(x.shape[0]), SHORTER ** np.arange(BACKTRACKS)
    while left.size and lengths.size:
        now, lengths = np.split(lengths, [max(1, AT_ONCE // left.size)])
        trial = x[left] + now[:, None, None] * along[left]
        trial_value, trial_gradient = (
            of.reshape(now.size, left.size, *of.shape[1:]) for of in _finite(*function(trial.reshape(-1, x.shape[1])))
        )
        enough = trial_value >= value[left] + SUFFICIENT * now[:, None] * slope[left]
        first, some = np.argmax(enough, axis=0), enough.any(axis=0)
        taken, chosen = left[some], (first[some], np.flatnonzero(some))
        new_x[taken], new_value[taken], new_gradient[taken] = trial[chosen], trial_value[chosen], trial_gradient[chosen]
        left = left[~some]
    return new_x, new_value, new_gradient
