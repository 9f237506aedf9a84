"""The data behind the page's explorer: every step's mixture, small enough to travel in a page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi.fit import Step
from boostvi.report.axes import Axis, axes_of
from boostvi.report.columns import columns_of
from boostvi.snapshot import DIAGONAL, DRAWS, MOST_CORRELATED, Snapshot, pairs, snapshot
from boostvi.tracks import follow

if TYPE_CHECKING:
    from boostvi.result import Result
    from boostvi.trace import Trace

BYTES = 1_450_000
"""For components and draws, before base64 makes 4 bytes of 3: the page stays below 3 MB."""
CORRELATION_BYTES = 400_000
BACKDROP = 800
"""Draws of the final mixture behind every step."""
MOST_STEPS = 120
FEWEST_DRAWS = 50
HISTORY = ("step", "kind", "elbo", "elbo_se", "kl_estimate", "kl_se", "n_active", "gamma", "evals", "seconds")


@dataclass(frozen=True)
class Plan:
    """What fits into the page."""

    axes: list[Axis]
    coordinates: np.ndarray  # that the axes need, those with correlations first
    correlated: int
    draws: int


def data(result: Result, trace: Trace | None, z: np.ndarray, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """All of it. z, columns: draws of the final mixture, on R^d and as the page shows them."""
    taken = taken_steps(result, trace)
    shown = thinned(taken, result.best_step)
    moved = np.concatenate([one.draws for one in shown])
    step_columns = columns_of(result, moved)
    unique, at = _unique(shown)
    axes = axes_of(z, columns, moved, step_columns, _interest(_nearest(shown, result.best_step)))
    plan = _plan(axes, len(unique["loc"]), len(shown), unique["correlations"].shape[1] > 0)
    some = np.linspace(0, DRAWS - 1, plan.draws).astype(int)
    own = [step_columns[axis.name].reshape(len(shown), DRAWS)[:, some] for axis in plan.axes]
    owners = np.stack([one.owners[some] for one in shown])
    numbers = follow(shown)
    return {
        "axes": [axis.as_json(plan.coordinates) for axis in plan.axes],
        "start": _start(plan.axes),
        "history": {name: [_plain(value) for value in result.history[name].tolist()] for name in HISTORY},
        "best": result.best_step,
        "steps": [
            {"step": one.step, "weights": np.round(one.weights, 5).tolist(), "at": rows, "numbers": names}
            for one, rows, names in zip(shown, at, numbers, strict=True)
        ],
        "components": _components(unique, plan),
        "draws": {
            "count": plan.draws,
            "values": encoded(np.stack([axis.codes(values) for axis, values in zip(plan.axes, own, strict=True)], 1)),
            "owners": encoded(owners.astype("<u2")),
        },
        "backdrop": {
            "count": min(BACKDROP, len(z)),
            "values": encoded(np.stack([axis.codes(columns[axis.name][:BACKDROP]) for axis in plan.axes])),
        },
        "traced": trace is not None,
        "thinned": len(shown) < len(taken),
        "left_out": len(axes) - len(plan.axes),
        "family": result.mixture.family_name,
        "diagonal": isinstance(result.mixture.family, DIAGONAL),
    }


def taken_steps(result: Result, trace: Trace | None) -> list[Snapshot]:
    """What the trace has of this run; without one, the final mixture alone."""
    if trace is None:
        row = result.history.rows[result.best_step]
        return [snapshot(Step(result.best_step, result.mixture, dict(row), result.history))]
    last, elbo = int(result.history.rows[-1]["step"]), result.history["elbo"]
    taken = [one for one in trace.snapshots if one.step <= last]
    if not taken or any(not np.array_equal(one.elbo, elbo[one.step], equal_nan=True) for one in taken):
        raise ValueError("trace is not of this run: its ELBOs differ; give the Trace that this fit had in callbacks=")
    return taken


def thinned(taken: list[Snapshot], best: int) -> list[Snapshot]:
    """At most MOST_STEPS of them, the best, the first and the last among them."""
    if len(taken) <= MOST_STEPS:
        return taken
    chosen = set(np.linspace(0, len(taken) - 1, MOST_STEPS - 1).astype(int).tolist())
    return [one for i, one in enumerate(taken) if i in chosen or one.step == best]


def _nearest(shown: Sequence[Snapshot], step: int) -> Snapshot:
    return min(shown, key=lambda one: abs(one.step - step))


def _unique(shown: Sequence[Snapshot]) -> tuple[dict[str, np.ndarray], list[list[int]]]:
    """All different components of the run, and for each step where its own are: most stay as they were."""
    place: dict[bytes, int] = {}
    kept: list[tuple[np.ndarray, ...]] = []
    at: list[list[int]] = []
    for one in shown:
        rows = []
        for component in zip(one.loc, one.sd, one.correlations, strict=True):
            identity = b"".join(part.tobytes() for part in component)
            if identity not in place:
                place[identity] = len(kept)
                kept.append(component)
            rows.append(place[identity])
        at.append(rows)
    widest = max(row[2].size for row in kept)
    padded = [np.pad(row[2], (0, widest - row[2].size)) for row in kept]
    unique = {"loc": np.stack([row[0] for row in kept]), "sd": np.stack([row[1] for row in kept])}
    return unique | {"correlations": np.stack(padded)}, at


def _interest(best: Snapshot) -> np.ndarray:
    """Of each coordinate the share of its variance that lies between components: where the mixture is to be seen."""
    centre = best.weights @ best.loc
    between = best.weights @ (best.loc - centre) ** 2
    within = best.weights @ best.sd**2
    return np.nan_to_num(between / (between + within))


def _plan(axes: list[Axis], components: int, steps: int, correlated: bool) -> Plan:
    """As many draws of each step as fit; then as many axes, and as many correlations, the most telling first."""

    def size(draws: int) -> int:
        return 3 * components + steps * draws + BACKDROP

    draws = next((n for n in (DRAWS, 150, 100, 75) if len(axes) * size(n) <= BYTES), FEWEST_DRAWS)
    most = max(2, BYTES // size(draws))
    ranked = sorted(range(len(axes)), key=lambda i: (-axes[i].interest, i))
    kept = [axes[i] for i in sorted(ranked[:most])]
    wanted = {axis.coordinate: None for axis in sorted(kept, key=lambda axis: -axis.interest) if axis.coordinate >= 0}
    coordinates = np.array(list(wanted), dtype=int)
    first = coordinates < MOST_CORRELATED
    coordinates = np.concatenate([coordinates[first], coordinates[~first]])
    room = CORRELATION_BYTES // max(components, 1)
    fit = int((1 + np.sqrt(1 + 8 * room)) / 2)
    return Plan(kept, coordinates, min(int(first.sum()), fit) if correlated else 0, draws)


def _components(unique: dict[str, np.ndarray], plan: Plan) -> dict[str, Any]:
    """Centres in 16 bits, standard deviations in 8 (their logarithm), correlations in 8."""
    loc, sd = unique["loc"][:, plan.coordinates], np.maximum(unique["sd"][:, plan.coordinates], 1e-300)
    low, high = loc.min(axis=0), loc.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    log_sd = np.log(sd)
    log_low, log_high = (float(log_sd.min()), float(log_sd.max())) if log_sd.size else (0.0, 0.0)
    unit = max(log_high - log_low, 1e-9) / 255
    dim = unique["loc"].shape[1]
    return {
        "count": len(loc),
        "low": low.tolist(),
        "width": width.tolist(),
        "loc": encoded(np.round((loc - low) / width * 65535).astype("<u2")),
        "log_sd_low": log_low,
        "log_sd_unit": unit,
        "log_sd": encoded(np.round((log_sd - log_low) / unit).astype(np.uint8)),
        "correlated": plan.correlated,
        "correlations": encoded(_chosen(unique["correlations"], plan.coordinates[: plan.correlated], dim)),
    }


def _chosen(correlations: np.ndarray, coordinates: np.ndarray, dim: int) -> np.ndarray:
    """The columns of `correlations` for all pairs of these coordinates, in the order of `triu_indices`."""
    if coordinates.size < 2:
        return np.zeros((len(correlations), 0), dtype=np.int8)
    i, j = pairs(dim)
    column = np.zeros((i.max() + 2, i.max() + 2), dtype=int)
    column[i, j] = column[j, i] = np.arange(i.size)
    a, b = np.triu_indices(coordinates.size, 1)
    return correlations[:, column[coordinates[a], coordinates[b]]]


def _start(axes: list[Axis]) -> list[int]:
    """The pair to begin with: where the components lie furthest apart."""
    ranked = sorted(range(len(axes)), key=lambda i: (-round(axes[i].interest, 3), i))
    return sorted(ranked[:2])


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinities: null, a gap in a curve."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
