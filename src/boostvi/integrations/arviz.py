"""Draws of a result for ArviZ, 0.23 or 1.x."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boostvi import diagnostics, trees
from boostvi._jit import float64
from boostvi.target import log_densities

if TYPE_CHECKING:
    from boostvi.result import Result


def to_arviz(
    result: Result,
    n: int,
    *,
    seed: int,
    importance: bool,
    coords: Mapping[str, Any] | None,
    dims: Mapping[str, Sequence[str]] | None,
) -> Any:
    """See `Result.to_arviz`."""
    try:
        az: Any = importlib.import_module("arviz")  # its two major versions have no types in common
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'boostvi[arviz]'") from error
    z = result.unconstrained_draws(n, seed=seed, importance=importance)
    groups = {"posterior": _sites(result.in_own_space(z)), "sample_stats": _stats(result, z, seed, importance)}
    model = result.target.model
    if model is not None and model.observed:
        draws = groups["posterior"]
        groups["log_likelihood"] = dict(model.log_likelihood(draws))
        groups["posterior_predictive"] = dict(model.posterior_predictive(draws, seed))
        groups["observed_data"] = dict(model.observed)
    stacked = {
        group: values if group == "observed_data" else {name: np.asarray(value)[None] for name, value in values.items()}
        for group, values in groups.items()
    }
    used = {name for values in groups.values() for name in values}
    axes = {**(model.dims if model else {}), **(dims or {})}
    named = {
        "coords": {**(dict(model.coords) if model else {}), **(coords or {})},
        "dims": {name: list(names) for name, names in axes.items() if name in used},
    }
    if int(az.__version__.split(".")[0]) < 1:
        return az.from_dict(**stacked, **named)
    return az.from_dict(stacked, **named)


def _sites(draws: Any) -> dict[str, np.ndarray]:
    """Draws of any kind of target as named arrays, draws first."""
    return {name: np.asarray(value) for name, value in trees.named_leaves(draws)}


@float64
def _stats(result: Result, z: np.ndarray, seed: int, importance: bool) -> dict[str, np.ndarray]:
    """Per draw: ln p, ln q, its Pareto-smoothed importance weight (mean 1), and the component it belongs to."""
    log_q = result.mixture.log_prob(z)
    log_p = log_densities(result.target, z)
    weights = np.ones(len(z)) if importance else len(z) * diagnostics.importance(log_p - log_q)[0]
    return {
        "lp": log_p,
        "log_prob": log_q,
        "importance_weight": weights,
        "component": result.mixture.components_of(z, seed=seed),
    }
