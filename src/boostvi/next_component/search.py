"""The search that every objective shares: several starts at once, optimise each, keep the best on fresh draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from boostvi._jit import counted_jit, sub_keys
from boostvi._struct import look_up
from boostvi.families.base import Params
from boostvi.next_component.adam import Adam
from boostvi.next_component.base import Objective, Optimiser, Proposal
from boostvi.next_component.lbfgs import LBFGS

OPTIMISERS = {cls.name: cls for cls in (Adam, LBFGS)}


def name_to_optimiser(rule: Any, argument: str = "optimiser") -> None:
    """Let a frozen rule take its optimiser by name."""
    object.__setattr__(rule, argument, look_up(argument, getattr(rule, argument), OPTIMISERS, Optimiser))


def search(objective: Objective, starts: Params, optimiser: Any, selection_draws: int, key: Array) -> Proposal:
    """Climb `objective` from each of the stacked `starts`."""
    key_climb, key_select = sub_keys(key, 2)
    variables = jax.vmap(objective.variables)(starts)
    ends, evals, nonfinite = optimiser.maximise(objective, variables, key_climb)
    count = jax.tree.leaves(starts)[0].shape[0]
    if count == 1:
        params = objective.component(jax.tree.map(lambda leaf: leaf[0], ends))
        value = jnp.asarray(jnp.nan)
    else:
        params, value = _best(objective, ends, key_select, selection_draws)
        evals = evals + count * selection_draws
    return Proposal(params, value, jnp.asarray(evals), jnp.asarray(nonfinite))


@counted_jit(static_argnums=3)
def _best(objective: Objective, variables: Any, key: Array, draws: int) -> tuple[Params, Array]:
    noise = objective.family.noise(key, (draws, objective.target.dim))
    values = jax.lax.map(lambda v: objective.value(v, noise), variables)
    best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))
    return objective.component(jax.tree.map(lambda leaf: leaf[best], variables)), values[best]
