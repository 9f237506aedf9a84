"""Where the optimisation of a component starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from boostvi import table as tables
from boostvi.families.base import Family, Params
from boostvi.mixture import Mixture
from boostvi.table import Table
from boostvi.target import Target

STARTS = ("prior", "residual")
TEMPERATURE = 2.0
"""Residual starts are drawn ∝ (p/q)^(1/2): towards what the mixture misses, without one wild draw taking all."""
RESIDUAL_SCALE = 0.5
"""A residual start has this fraction of the spread of the component it was drawn from."""


def check_starts(starts: tuple[str, ...]) -> None:
    unknown = [s for s in starts if s not in STARTS]
    if unknown or not starts:
        raise ValueError(f"starts={starts!r} must name one or more of {', '.join(map(repr, STARTS))}")


def from_prior(target: Target, family: Family, key: Array, n: int) -> Params:
    """n components located by `target.init`, with scales softplus(N(0, 1)) as in the authors' code."""
    key_scale, keys_loc, keys_init = jax.random.fold_in(key, 2 * n), *jnp.split(jax.random.split(key, 2 * n), 2)
    locs = jax.vmap(target.init)(keys_loc).astype(jnp.float64)
    scales = jax.nn.softplus(jax.random.normal(key_scale, (n, target.dim)))
    return jax.vmap(family.init)(keys_init, locs, scales)


def from_residual(mixture: Mixture, table: Table, key: Array, n: int) -> Params:
    """n components located at draws of the table where p/q is large."""
    estimates = tables.estimates(table, mixture.weights)
    residual = -estimates.log_target_ratio - estimates.log_x(mixture.weights)
    logits = jnp.where(estimates.share > 0, residual / TEMPERATURE, -jnp.inf)
    key_draw, keys = jax.random.fold_in(key, n), jax.random.split(key, n)
    chosen = jax.random.categorical(key_draw, logits, shape=(n,))
    locs = table.draws.reshape(-1, mixture.dim)[chosen]
    spreads = jnp.std(table.draws, axis=1)[estimates.slot_of[chosen]]
    return jax.vmap(mixture.family.init)(keys, locs, RESIDUAL_SCALE * spreads)


def starting_components(
    kinds: tuple[str, ...], n: int, target: Target, mixture: Mixture, table: Table, key: Array
) -> Params:
    """n components, the kinds taken in turn."""
    made = []
    for i, kind in enumerate(kinds[:n]):
        count = len(range(i, n, len(kinds)))
        own = jax.random.fold_in(key, i)
        made.append(
            from_prior(target, mixture.family, own, count)
            if kind == "prior"
            else from_residual(mixture, table, own, count)
        )
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *made)
