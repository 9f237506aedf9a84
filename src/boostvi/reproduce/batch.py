"""Many runs of one composition at once: seeds and continuous hyperparameters are axes of arrays, not separate programs.

The subproblem of all runs is one vmapped program, so that a thousand Adam steps multiply the data with a matrix
instead of once per run with a vector. Table, direction and step size go through the runs one after the other inside
one program: their arrays are large already, and a loop that is vmapped would wait for its slowest run.
The algorithm is `boosting.step`'s for compositions that always find a component and correct at most weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import boosting, diagnostics
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import counted_jit, float64, inlined, sub_keys
from boostvi._struct import replace
from boostvi.boosting import Info, Parts, State
from boostvi.corrections import NoCorrection
from boostvi.corrections.base import WeightCorrection
from boostvi.directions.base import Kind
from boostvi.families.base import Family
from boostvi.step_sizes import Predefined
from boostvi.target import Target

FIRST_CAPACITY = 8
"""Slots at the start; doubled when a run of the batch has filled them, but never more than the steps can fill."""
MEASURE_EVERY = 10
"""Of the fresh draws behind the ELBO every tenth is measured: they are stratified, so these are too."""
KEYS = "threefry2x32"
"""A run's numbers must not depend on the batch it is in; XLA's own generator, vmapped, draws for all of it at once."""


@dataclass(frozen=True)
class Problem:
    """What is fitted, and what is looked at after every step.

    target: its arrays may have a leading axis of runs: `axes` is 0 for these arrays and None for the others, in the
        order of `jax.tree.leaves(target)`; None if all runs have the same data.
    measure: a traceable function of the target and some draws; its arrays reach `summarise`, which makes the numbers
        that are recorded from one run's arrays and the run's position in the batch.
    """

    target: Target
    family: Family
    measure: Callable[[Target, Any], dict[str, Any]]
    summarise: Callable[[Mapping[str, np.ndarray], int], dict[str, float]]
    axes: tuple[int | None, ...] | None = None


class _Untimed:
    """A clock for traced code, where seconds mean nothing."""

    def __call__(self, phase: str, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def out_of_time(self) -> bool:
        return False


@dataclass(frozen=True)
class Settings:
    """Sizes, which are compiled in."""

    steps: int = 50
    n_draws: int = 1000
    elbo_draws: int = 1000


@float64
def run(
    problem: Problem, compositions: Sequence[Parts], seeds: Sequence[int], settings: Settings,
    after_step: Callable[[int], Any] = lambda step: None,
) -> list[list[dict[str, Any]]]:  # fmt: skip
    """One list of rows, one per step, for each run. The compositions may differ in traced numbers only."""
    steps: Iterator[list[dict[str, Any]]] = _steps(problem, compositions, seeds, settings)
    rows = []
    for step, of_all_runs in enumerate(steps):
        rows.append(of_all_runs)
        after_step(step)
    return [[row[i] for row in rows] for i in range(len(seeds))]


def _steps(
    problem: Problem, compositions: Sequence[Parts], seeds: Sequence[int], settings: Settings
) -> Iterator[list[dict[str, Any]]]:
    parts = jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves])), *compositions)
    # Each program gets only the parts that it needs: methods that differ in the step size share all but one.
    moving = (parts.direction, parts.step_size, parts.correction)
    keys = jnp.stack([jax.random.key(seed, impl=KEYS) for seed in seeds])
    target, axes, count = problem.target, problem.axes, len(seeds)
    capacity = min(FIRST_CAPACITY, settings.steps + 1)
    states, infos, seconds = _timed(
        _start, parts.first, target, axes, problem.family, capacity, settings.n_draws, keys, divide=count
    )
    states = replace(states, rule=_strong(jax.vmap(lambda rule: rule.init(), axis_size=count)(parts.step_size)))
    yield _rows(problem, states, infos, settings, {"seconds_subproblem": seconds, "seconds_step": 0.0})
    for _ in range(settings.steps):
        states = _with_a_free_slot(states, settings.steps + 1)
        states, *found, seconds = _timed(_subproblem, parts.next_component, target, axes, states, divide=count)
        t, weights, rule, gain, keys, infos, step_seconds = _timed(_move, moving, states, *found, divide=count)
        mixture = replace(states.mixture, weights=weights)
        states = State(t, mixture, states.table, rule, gain, states.kl, keys)
        yield _rows(problem, states, infos, settings, {"seconds_subproblem": seconds, "seconds_step": step_seconds})


def _timed(function: Callable[..., Any], *args: Any, divide: int) -> tuple[Any, ...]:
    """The results, and the seconds for one run of the batch (compilation included when it happens)."""
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return *result, (time.perf_counter() - begin) / divide


def _with_a_free_slot(states: State, most: int) -> State:
    capacity = states.mixture.weights.shape[1]
    if np.count_nonzero(states.mixture.weights, axis=1).max() < capacity:
        return states
    return _grow(states, min(2 * capacity, most))


@counted_jit(static_argnums=1)
@inlined
def _grow(states: State, capacity: int) -> State:
    return jax.vmap(lambda state: boosting.grow(state, capacity))(states)


def _target_axes(target: Target, axes: tuple[int | None, ...] | None) -> Any:
    if axes is None:
        return None
    return jax.tree.unflatten(jax.tree.structure(target), axes)


def _target_of(target: Target, axes: tuple[int | None, ...] | None, i: Any) -> Target:
    """The target of run i."""
    if axes is None:
        return target
    leaves = [leaf if axis is None else leaf[i] for leaf, axis in zip(jax.tree.leaves(target), axes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)


@counted_jit(static_argnums=(2, 3, 4, 5))
@inlined
def _start(
    first: Any, target: Target, axes: Any, family: Family, capacity: int, n_draws: int, keys: Any
) -> tuple[State, Info]:
    def one(first, target, key):
        parts = Parts(first, None, None, Predefined(), NoCorrection())
        return boosting.start(parts, target, family, capacity, n_draws, key, _Untimed())

    return _strong(jax.vmap(one, in_axes=(0, _target_axes(target, axes), 0))(first, target, keys))


def _strong(tree: Any) -> Any:
    """Arrays without weak types: the first step's input has the types of every later one, and compiles once."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if _is_number(leaf) else leaf, tree)


def _is_number(leaf: Any) -> bool:
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@counted_jit(static_argnums=2)
@inlined
def _subproblem(next_component: Any, target: Target, axes: Any, states: State) -> tuple[State, Any, Any, Any]:
    """Line 3 of Algorithm 1 for all runs at once; then the draws of the new components, one run after the other.

    The new component's slot, the evaluations and the draws left out of gradients come with the states.
    """

    def search(next_component, target, state):
        _, key, *_ = sub_keys(state.key, 5)
        return next_component(target, state.mixture, state.table, state.t + 1, key)

    proposals = jax.vmap(search, in_axes=(0, _target_axes(target, axes), 0))(next_component, target, states)

    def insert(i):
        state, proposal = jax.tree.map(lambda leaf: leaf[i], (states, proposals))
        _, _, key, *_ = sub_keys(state.key, 5)
        slot = jnp.argmax(state.mixture.weights == 0)
        mixture, table = boosting._insert(
            _target_of(target, axes, i), state.mixture, state.table, proposal.params, slot, jax.random.fold_in(key, 0)
        )
        evals = proposal.evals + table.n_draws
        return replace(state, mixture=mixture, table=table), slot, evals, proposal.nonfinite

    return jax.lax.map(insert, jnp.arange(states.t.shape[0]))


@counted_jit
@inlined
def _move(moving: Any, states: State, slots: Any, evals: Any, nonfinite: Any) -> Any:
    """Lines 4 to 6, and the correction of the weights, for one run after the other. They read the table alone."""

    def one(i):
        (direction, step_size, correction), state, slot = jax.tree.map(lambda leaf: leaf[i], (moving, states, slots))
        key, _, _, key_step, _ = sub_keys(state.key, 5)
        t, table = state.t + 1, state.table
        no_model = None
        weights, rule, info = boosting._move(
            direction, step_size, no_model, state.mixture, table, slot, state.rule, t, key_step
        )
        if isinstance(correction, WeightCorrection):
            weights = correction(tables.estimates(table, weights), weights, table.filled)
        info = replace(info, evals=info.evals + evals[i], nonfinite=nonfinite[i])
        return _strong((t, weights, rule, info.gap_new, key, info))

    return jax.lax.map(one, jnp.arange(states.t.shape[0]))


@counted_jit(static_argnums=(0, 2, 4))
@inlined
def _measure(measure: Any, target: Target, axes: Any, mixtures_: Any, n: int, keys: Any) -> tuple[Any, Any, Any]:
    def one(i):
        mixture, own = jax.tree.map(lambda leaf: leaf[i], mixtures_), _target_of(target, axes, i)
        draws, log_q = mixtures.draw(mixture, mixture.weights, keys[i], n)
        return own.log_density_of(draws), log_q, measure(own, draws[:: min(MEASURE_EVERY, n)])

    return jax.lax.map(one, jnp.arange(keys.shape[0]))


def _rows(
    problem: Problem, states: State, infos: Info, settings: Settings, seconds: dict[str, float]
) -> list[dict[str, Any]]:
    """What one step did in every run, with the ELBO and the measures on fresh draws."""
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 99))(states.key)
    log_target, log_q, measured = jax.tree.map(
        np.asarray,
        _measure(problem.measure, problem.target, problem.axes, states.mixture, settings.elbo_draws, keys),
    )
    infos, weights = jax.tree.map(np.asarray, infos), np.asarray(states.mixture.weights)
    n_params, rows = problem.family.n_params(problem.target.dim), []
    for i in range(len(weights)):
        fresh = diagnostics.evaluate(log_target[i], log_q[i])
        n_active = int(np.count_nonzero(weights[i]))
        rows.append(
            {
                "step": int(states.t[i]),
                "kind": Kind(int(infos.kind[i])).label,
                "elbo": fresh.elbo,
                "elbo_se": fresh.elbo_se,
                **{name: float(getattr(infos, name)[i]) for name in ("gamma", "gamma_max", "gap", "curvature")},
                "trials": int(infos.trials[i]),
                "n_active": n_active,
                "n_params": n_active * n_params,
                "evals": int(infos.evals[i]),
                **seconds,
                **problem.summarise(jax.tree.map(lambda leaf, i=i: leaf[i], measured), i),
            }
        )
    return rows
