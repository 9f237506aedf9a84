"""Where the optimisation of a component starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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


def random_scale(key: Array, dim: int) -> Float[Array, " dim"]:
    """softplus(N(0, 1)), as in the authors' code."""
    return jax.nn.softplus(jax.random.normal(key, (dim,)))


def from_prior(target: Target, family: Family, keys: Array) -> Params:
    """One component per key: located by `target.init`, with random scales."""

    def one(key):
        key_loc, key_scale, key_init = jax.random.split(key, 3)
        loc = target.init(key_loc).astype(jnp.float64)
        return family.init(key_init, loc, random_scale(key_scale, target.dim))

    return jax.vmap(one)(keys)


def from_residual(mixture: Mixture, table: Table, keys: Array) -> Params:
    """One component per key: located at a draw of the table where p/q is large."""
    estimates = tables.estimates(table, mixture.weights)
    residual = -estimates.log_target_ratio - estimates.log_x(mixture.weights)
    logits = jnp.where(estimates.share > 0, residual / TEMPERATURE, -jnp.inf)
    draws = table.draws.reshape(-1, mixture.dim)

    def one(key):
        key_draw, key_init = jax.random.split(key)
        chosen = jax.random.categorical(key_draw, logits)
        spread = jnp.std(table.draws[estimates.slot_of[chosen]], axis=0)
        return mixture.family.init(key_init, draws[chosen], RESIDUAL_SCALE * spread)

    return jax.vmap(one)(keys)


def starting_components(
    kinds: tuple[str, ...], n: int, target: Target, mixture: Mixture, table: Table, key: Array
) -> Params:
    """n components, the kinds taken in turn."""
    keys = jax.random.split(key, n)
    groups = [keys[i :: len(kinds)] for i in range(min(n, len(kinds)))]
    made = [
        from_prior(target, mixture.family, group) if kind == "prior" else from_residual(mixture, table, group)
        for kind, group in zip(kinds, groups, strict=False)
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *made)
