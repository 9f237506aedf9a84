"""Reference draws, whatever they came as, beside the draws of a result: the same sites in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from boostvi.trees import labels, named_leaves
from boostvi.two_sample import Draws

Chains = Float[np.ndarray, "chains draws dim"]


@dataclass(frozen=True)
class Aligned:
    """The sites that both have, flattened and side by side; one chain where the reference does not tell chains."""

    ours: Draws
    reference: Chains
    names: tuple[str, ...]
    by_chain: bool
    only_in_result: tuple[str, ...]
    only_in_reference: tuple[str, ...]


def aligned(draws: Any, reference: Any, names: Sequence[str]) -> Aligned:
    """draws: as `Result.sample` gives them. reference: an array, a mapping, a pytree, an xarray Dataset or what ArviZ
    makes, with axes of draws, or of chains and draws. names: the coordinates of a target without a space of its own."""
    ours, theirs = _sites(draws, reference, names)
    common = [name for name in ours if name in theirs]
    if not common:
        raise ValueError(
            f"reference_draws has none of the result's sites: it has {_quoted(theirs)}, the result {_quoted(ours)}"
        )
    leads = {name: _leading(name, theirs[name], ours[name]) for name in common}
    lead = leads[common[0]]
    for name in common:
        if leads[name] != lead:
            raise ValueError(
                f"reference_draws must hold equally many draws of every site: {common[0]!r} has {lead}, {name!r} has "
                f"{leads[name]}"
            )
    chains = lead if len(lead) == 2 else (1, *lead)
    return Aligned(
        np.concatenate([ours[name].reshape(len(ours[name]), -1) for name in common], axis=1),
        np.concatenate([theirs[name].reshape(*chains, -1) for name in common], axis=2),
        labels({name: ours[name][0] for name in common}),
        len(lead) == 2,
        tuple(name for name in ours if name not in theirs),
        tuple(name for name in theirs if name not in ours),
    )


def _sites(draws: Any, reference: Any, names: Sequence[str]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Our draws and theirs by site; a coordinate of a target without a space of its own is a site."""
    reference = getattr(reference, "posterior", reference)  # an ArviZ InferenceData or DataTree
    if hasattr(reference, "data_vars"):  # an xarray Dataset
        reference = {str(name): _chain_draw(str(name), values) for name, values in reference.data_vars.items()}
    if not isinstance(draws, np.ndarray):
        ours = dict(named_leaves(draws))
        if hasattr(reference, "shape"):
            raise TypeError(
                f"reference_draws must be a dict of arrays with keys like {_quoted(ours)}, got an array of shape "
                f"{reference.shape}"
            )
    elif draws.ndim > 2:  # the parameters are one array with axes of its own
        ours = dict(named_leaves(draws))
    else:
        ours = dict(zip(names, draws.T, strict=True))
        if not isinstance(reference, Mapping):
            array = np.asarray(reference)
            if array.ndim not in (2, 3) or array.shape[-1] != len(names):
                raise ValueError(
                    f"reference_draws must have shape (n, {len(names)}) or (chains, draws, {len(names)}), got "
                    f"{array.shape}"
                )
            reference = {name: array[..., i] for i, name in enumerate(names)}
    theirs = dict(named_leaves(reference))
    return _numbers(ours, "the result's draws"), _numbers(theirs, "reference_draws", only=ours)


def _chain_draw(name: str, values: Any) -> np.ndarray:
    if not {"chain", "draw"} <= set(values.dims):
        raise ValueError(f"reference_draws: {name!r} must have the dimensions chain and draw, it has {values.dims}")
    return np.asarray(values.transpose("chain", "draw", ...).values)


def _numbers(sites: Mapping[str, Any], whose: str, only: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """The sites as numbers; those that are not compared are left as they are."""
    found = {}
    for name, values in sites.items():
        found[name] = np.asarray(values)
        if only is not None and name not in only:
            continue
        found[name] = np.asarray(values, dtype=np.float64)
        bad = int(np.sum(~np.isfinite(found[name])))
        if bad:
            raise ValueError(f"{whose}: site {name!r} has {bad} values that are not finite; leave it out or mend it")
    return found


def _leading(name: str, theirs: np.ndarray, ours: np.ndarray) -> tuple[int, ...]:
    """(draws,) or (chains, draws), told by the shape of one of our draws."""
    event = ours.shape[1:]
    extra = theirs.ndim - len(event)
    if extra not in (1, 2) or theirs.shape[extra:] != event:
        wanted = [", ".join(map(str, (*lead, *event))) for lead in (("n",), ("chains", "draws"))]
        raise ValueError(
            f"reference_draws[{name!r}] must have shape ({wanted[0]}) or ({wanted[1]}), as a draw of the result has "
            f"shape {event}; got {theirs.shape}"
        )
    return theirs.shape[:extra]


def _quoted(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"
