"""The compiled programs of `batch`: Algorithm 1 line by line, for several states or for several runs of one state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from boostvi import boosting
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import counted_jit, inlined, sub_keys
from boostvi._struct import replace
from boostvi.boosting import Info, State
from boostvi.corrections.base import WeightCorrection
from boostvi.families.base import Family
from boostvi.mixture import Mixture
from boostvi.next_component.base import Proposal
from boostvi.table import Table
from boostvi.target import Target

MEASURE_EVERY = 10
"""Of the fresh draws behind the ELBO every tenth is measured: they are stratified, so these are too."""

Axes = tuple[int | None, ...] | None
"""0 for the arrays of a target that have a leading axis of runs, None for the others, in the order of
`jax.tree.leaves(target)`; None if all runs have the same data."""


def target_of(target: Target, axes: Axes, runs: Any) -> Target:
    """The target of a run, or of several with their arrays stacked."""
    if axes is None:
        return target
    leaves = [leaf if axis is None else leaf[runs] for leaf, axis in zip(jax.tree.leaves(target), axes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)


def _each(search: Callable[..., Proposal], target: Target, axes: Axes, runs: Any, *args: Any) -> tuple[Proposal, ...]:
    """`search(target, …)` side by side, one proposal each."""
    of_target = None if axes is None else jax.tree.unflatten(jax.tree.structure(target), axes)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *zip(*args, strict=True))
    found = jax.vmap(search, in_axes=(of_target, 0))(target_of(target, axes, runs), stacked)
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(args[0])))


@counted_jit(static_argnums=(2, 3))
@inlined
def first_components(first: Any, target: Target, axes: Axes, family: Family, runs: Any, keys: tuple[Any, ...]) -> Any:
    """Line 1 for several seeds."""

    def search(target, key):
        return first(target, family, sub_keys(key[0], 4)[1])

    return _each(search, target, axes, runs, keys)


def strong(tree: Any) -> Any:
    """Arrays without weak types: the first step's input has the types of every later one, and compiles once."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if _is_number(leaf) else leaf, tree)


def _is_number(leaf: Any) -> bool:
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@counted_jit(static_argnums=2)
@inlined
def next_components(
    next_component: Any, target: Target, axes: Axes, runs: Any, states: tuple[State, ...]
) -> tuple[Proposal, ...]:
    """Line 3 for several states of one capacity. (Their tables are stacked only if the search reads them.)"""

    def search(target, args):
        (state,) = args
        return next_component(target, state.mixture, state.table, state.t + 1, sub_keys(state.key, 5)[1])

    return _each(search, target, axes, runs, states)


@counted_jit(static_argnums=1)
@inlined
def grow(state: State, capacity: int) -> State:
    return boosting.grow(state, capacity)


@counted_jit(static_argnums=1, donate_argnums=4)
@inlined
def insert(
    target: Target, axes: Axes, run: Any, mixture: Mixture, table: Table, key: Any, proposal: Proposal
) -> tuple[Mixture, Table, Any, Any]:
    """The mixture with a component in its first free slot, the table with its draws; the slot; and the evaluations that
    all this took. The table is used up: copying it would take longer than filling it."""
    slot = jnp.argmax(mixture.weights == 0)
    mixture, table = boosting._insert(target_of(target, axes, run), mixture, table, proposal.params, slot, key)
    return mixture, table, slot, proposal.evals + table.n_draws


@counted_jit
@inlined
def move(parts: Any, rules: Any, state: State, slot: Any) -> tuple[State, Any, Any, Info]:
    """Lines 4 to 6, and the correction of the weights, for several runs of one state. The table is read once: what a
    run has for itself are the numbers of its parts and of its rule. Returned: the state with the next step's counter
    and key, and of every run the weights, the rule and the information."""
    direction, step_size, correction = parts
    key, _, _, key_step, _ = sub_keys(state.key, 5)
    t, no_model = state.t + 1, None

    def one(direction, step_size, rule):
        return boosting._move(direction, step_size, no_model, state.mixture, state.table, slot, rule, t, key_step)

    weights, rules, infos = jax.vmap(one)(direction, step_size, rules)
    if isinstance(correction, WeightCorrection):
        weights = jax.lax.map(
            lambda own: own[0](tables.estimates(state.table, own[1]), own[1], state.table.filled),
            (correction, weights),
        )
    return strong((replace(state, t=t, key=key), weights, rules, infos))


@counted_jit(static_argnums=(0, 2, 5))
@inlined
def measure(function: Any, target: Target, axes: Axes, run: Any, state: State, n: int) -> tuple[Any, Any, Any]:
    """ln p and ln q at fresh draws, and what `function` says of some of them."""
    own, mixture = target_of(target, axes, run), state.mixture
    draws, log_q = mixtures.draw(mixture, mixture.weights, jax.random.fold_in(state.key, 99), n)
    return own.log_density_of(draws), log_q, function(own, draws[:: min(MEASURE_EVERY, n)])
