"""Algorithm 1 of "Boosting Variational Inference With Locally Adaptive Step-Sizes" (Dresdner et al. 2021)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from boostvi import linear_mixture
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import counted_jit, sub_keys
from boostvi._struct import replace, scalar, struct
from boostvi.corrections.base import Correction
from boostvi.directions.base import Direction, DirectionRule, Kind, active_gap, best_active
from boostvi.directions.frank_wolfe import FrankWolfe
from boostvi.families.base import Family, Params
from boostvi.line import FreshEstimates, FreshLine, Line, along_table
from boostvi.mixture import Mixture
from boostvi.next_component.base import FirstComponent, NextComponent, Proposal
from boostvi.step_sizes.base import RuleState, StepSize
from boostvi.table import Table
from boostvi.target import Target


@struct
class Parts:
    """A composition: one part for every line of Algorithm 1."""

    first: FirstComponent
    next_component: NextComponent
    direction: DirectionRule
    step_size: StepSize
    correction: Correction


@struct
class State:
    """Only what the next step needs."""

    t: Int[Array, ""]
    mixture: Mixture
    table: Table
    rule: RuleState
    gain: Float[Array, ""]  # the gap that the last new component promised; 0 if a search found none
    kl: Float[Array, ""]  # the last estimate, on fresh draws, of how far the mixture is
    key: Array


@struct
class Info:
    """What a step did. `gap` is along its direction; `gap_new` towards the new component (regularised by the family:
    the true Frank-Wolfe gap is infinite here); `gap_active` among the components that were there."""

    kind: Int[Array, ""]
    gamma: Float[Array, ""]
    gamma_max: Float[Array, ""]
    gap: Float[Array, ""]
    gap_new: Float[Array, ""]
    gap_active: Float[Array, ""]
    curvature: Float[Array, ""]
    trials: Int[Array, ""]
    evals: Int[Array, ""]
    nonfinite: Int[Array, ""]


class Clock:
    """Seconds spent in each phase of a step, and whether there are any left."""

    def __init__(self, deadline: float | None = None) -> None:
        self.seconds = {"subproblem": 0.0, "step": 0.0, "correction": 0.0}
        self.deadline = deadline  # of time.perf_counter

    def out_of_time(self) -> bool:
        return self.deadline is not None and time.perf_counter() > self.deadline

    def __call__(self, phase: str, function: Callable[..., Any], *args: Any) -> Any:
        begin = time.perf_counter()
        result = jax.block_until_ready(function(*args))
        self.seconds[phase] += time.perf_counter() - begin
        return result


def start(
    parts: Parts, target: Target, family: Family, capacity: int, n_draws: int, key: Array, clock: Clock
) -> tuple[State, Info]:
    """q_0 (Algorithm 1, line 1): one component with weight 1 in the first of `capacity` slots, or all the modes that
    the search found, with their shares, refined together."""
    key, key_first, key_draws, key_correct = sub_keys(key, 4)
    proposal = clock("subproblem", parts.first, target, family, key_first)
    evals, nonfinite = proposal.evals, proposal.nonfinite
    if proposal.shares is None:
        mixture, table = _blank(family, target.dim, capacity, n_draws)
        slot = jnp.asarray(np.int64(0))
        mixture, table = clock("subproblem", _insert, target, mixture, table, proposal.params, slot, key_draws)
        mixture = replace(mixture, weights=jnp.asarray(np.eye(1, capacity)[0]))
        evals += n_draws
    else:
        params = jax.tree.map(lambda *leaves: np.stack(leaves), proposal.params, *proposal.others)
        mixture = mixtures.of(proposal.family or family, params, proposal.shares)
        table = tables.empty(target.dim, mixture.capacity, n_draws)
        corrected = clock(
            "correction", parts.correction.apply, target, mixture, table, True, 0.0, key_correct, clock.out_of_time
        )
        mixture, table = corrected.mixture, corrected.table
        evals, nonfinite = evals + corrected.evals, nonfinite + corrected.nonfinite
    unknown, nan, one = scalar(np.inf), scalar(np.nan), scalar(1.0)
    state = State(scalar(0), mixture, table, parts.step_size.init(), unknown, unknown, key)
    return state, Info(
        scalar(int(Kind.INIT)), one, one, nan, nan, nan, nan, scalar(0), evals, nonfinite
    )  # fmt: skip


def step(parts: Parts, target: Target, state: State, clock: Clock) -> tuple[State, Info]:
    """One iteration of Algorithm 1. The comments carry its line numbers."""
    target = target.through(state.mixture.warp)
    t = state.t + 1
    key, key_subproblem, key_draws, key_step, key_correct = sub_keys(state.key, 5)
    mixture, table, rule, gain = state.mixture, state.table, state.rule, state.gain
    slot, info, evals, nonfinite = None, nothing_new(), scalar(0), scalar(0)

    is_new = _looks_for_one(parts, state)
    if is_new:
        if not parts.next_component.exhaustible and not np.any(table.filled):
            again = replace(state, key=jax.random.fold_in(state.key, 6))
            state, redrawn = redraw(again, target, table.n_draws)  # a race leaves no table
            table, evals = state.table, scalar(redrawn)
        # 3: s_t = argmin KL(s ‖ p/q_t), put into a free slot with weight 0
        proposal = clock("subproblem", parts.next_component, target, mixture, table, t, key_subproblem)
        evals, nonfinite = evals + proposal.evals, proposal.nonfinite
        gain = scalar(0.0)
        if proposal.shares is not None and parts.correction.moves_components:
            # 4 to 6: s_t = Σ_k (share_k/γ_t) s_k, several components of known mass, and with it γ_t = Σ_k share_k
            mixture, info = joined(mixture, proposal)
            table = tables.empty(target.dim, mixture.capacity, table.n_draws)
        elif proposal.params is not None:
            state, redrawn = _with_room(state, target, 1 + len(proposal.others))
            slot, mixture, table = clock(
                "subproblem", _insert_all, target, state.mixture, state.table, proposal, key_draws
            )
            evals += redrawn + table.n_draws * (1 + len(proposal.others))
    elif parts.direction.lazy and np.any(table.filled):
        slot = _best_active(state)

    if slot is not None:
        # 4: v_t, γ_max = correct_components(s_t, q_t)     5: γ_t, C_t = find_step_size(q_t, s_t − v_t, C_{t−1}, γ_max)
        # 6: q_{t+1} = q_t + γ_t (s_t − v_t)
        weights, rule, info = clock(
            "step", _move, parts.direction, parts.step_size, target, mixture, table, slot, rule, t, key_step
        )
        mixture = replace(mixture, weights=weights)
    arrived = int(info.kind) != Kind.REFINE
    if is_new and arrived:
        gain = info.gap_new
    elif is_new:
        info = replace(info, gap_new=scalar(0.0))  # nothing that the search could find promises anything

    # and, beyond the paper, a correction of all weights, or of all components with them
    corrected = clock(
        "correction", parts.correction.apply, target, mixture, table, arrived, float(state.kl), key_correct,
        clock.out_of_time,
    )  # fmt: skip
    state = State(t, corrected.mixture, corrected.table, rule, gain, state.kl, key)
    evals, nonfinite = info.evals + evals + corrected.evals, nonfinite + corrected.nonfinite
    return state, replace(info, evals=evals, nonfinite=nonfinite)


def nothing_new() -> Info:
    """Of a step whose search found no component worth adding: only the correction acts."""
    nan, none = scalar(np.nan), scalar(0)
    return Info(scalar(int(Kind.REFINE)), scalar(0.0), nan, nan, nan, nan, nan, none, none, none)


def joined(mixture: Mixture, proposal: Proposal) -> tuple[Mixture, Info]:
    """A Frank-Wolfe step towards components whose shares of the mass are known."""
    shares, old = np.asarray(proposal.shares), linear_mixture.compact(mixture)
    stacked = [jax.tree.map(lambda leaf: np.asarray(leaf)[None], new) for new in (proposal.params, *proposal.others)]
    weights = np.concatenate([(1.0 - shares.sum()) * old.weights, shares])
    mixture = replace(old, params=linear_mixture.join(old.params, *stacked), weights=weights)
    kind, gamma, gap = scalar(int(Kind.FRANK_WOLFE)), scalar(shares.sum()), proposal.gap
    return mixture, replace(nothing_new(), kind=kind, gamma=gamma, gamma_max=scalar(1.0), gap=gap, gap_new=gap)


@counted_jit(static_argnums=(0, 1, 2, 3))
def _blank(family: Family, dim: int, capacity: int, n_draws: int) -> tuple[Mixture, Table]:
    return mixtures.empty(family, dim, capacity), tables.empty(dim, capacity, n_draws)


def _insert_all(
    target: Target, mixture: Mixture, table: Table, proposal: Proposal, key: Array
) -> tuple[Array, Mixture, Table]:
    """Every proposed component in a free slot, with weight 0; and the slot of the best."""
    free = np.flatnonzero(np.asarray(mixture.weights) == 0)
    for i, params in enumerate((proposal.params, *proposal.others)):
        own = jax.random.fold_in(key, i)
        mixture, table = _insert(target, mixture, table, params, jnp.asarray(free[i]), own)
    return jnp.asarray(free[0]), mixture, table


@counted_jit
def _insert(
    target: Target, mixture: Mixture, table: Table, params: Params, slot: Array, key: Array
) -> tuple[Mixture, Table]:
    mixture = mixtures.insert(mixture, slot, params)
    return mixture, tables.record(table, target, mixture, slot, key)


@counted_jit
def _move(
    rule: DirectionRule, step_size: StepSize, target: Target, mixture: Mixture, table: Table, slot: Array,
    state: RuleState, t: Array, key: Array,
) -> tuple[Float[Array, " slots"], RuleState, Info]:  # fmt: skip
    """Lines 4 to 6."""
    weights = mixture.weights
    estimates = tables.estimates(table, weights)
    gradients = estimates.gradients(weights)
    line: Line

    if step_size.draws == "table":
        direction = rule(gradients, weights, slot)
        line, evals = along_table(estimates, weights, direction, slot, t), 0
    else:
        fresh = FreshEstimates(target, mixture, key, table.n_draws)
        direction, evals = _fresh_direction(fresh, rule, weights, slot)
        line = FreshLine(t, direction.gap, direction.gamma_max, fresh, weights, slot, direction.delta)
    gamma, state, failed = step_size(line, state)
    failed = failed | ~jnp.isfinite(gamma)
    gamma = jnp.where(failed, 0.0, gamma)

    towards = FrankWolfe()(gradients, weights, slot)
    if step_size.fallback is not None:
        # The paper's fallback is a plain Frank-Wolfe step, whatever the direction was.
        again, _, _ = step_size.fallback(along_table(estimates, weights, towards, slot, t), state)
        gamma = jnp.where(failed, again, gamma)
        direction = jax.tree.map(lambda a, b: jnp.where(failed, a, b), towards, direction)

    weights, dropped = update(weights, direction, gamma)
    kind = jnp.where(failed, int(Kind.FALLBACK), jnp.where(dropped, int(Kind.DROP), direction.kind))
    gap_active = active_gap(gradients, mixture.weights)
    none = jnp.asarray(0)
    return weights, state, Info(
        kind, gamma, direction.gamma_max, direction.gap, towards.gap, gap_active,
        state.curvature, state.trials, state.evals + evals, none,
    )  # fmt: skip


def _fresh_direction(
    fresh: FreshEstimates, rule: DirectionRule, weights: Float[Array, " slots"], slot: Array
) -> tuple[Direction, Any]:
    """The direction and its gap from fresh draws, and the target evaluations that took."""
    n = fresh.n_draws
    if rule.needs_gradients:
        gradients = fresh.gradients(weights, weights.at[slot].set(1.0))
        return rule(gradients, weights, slot), n * (jnp.sum(weights > 0) + (weights[slot] == 0))
    direction = rule(jnp.zeros_like(weights), weights, slot)
    return replace(direction, gap=-fresh.along(weights, direction.delta, jax.random.fold_in(fresh.key, 5))), 2 * n


def update(
    weights: Float[Array, " slots"], direction: Direction, gamma: Float[Array, ""]
) -> tuple[Float[Array, " slots"], Array]:
    """w + γδ on the simplex, and whether a component left: at γ_max the leaving slot is exactly 0."""
    dropped = (direction.leaving >= 0) & (gamma >= direction.gamma_max)
    leaving = jnp.arange(weights.size) == direction.leaving
    weights = jnp.maximum(weights + gamma * direction.delta, 0.0)
    weights = jnp.where(dropped & leaving, 0.0, weights)
    return weights / jnp.sum(weights), dropped


@counted_jit
def _gradients(state: State) -> Float[Array, " slots"]:
    return tables.estimates(state.table, state.mixture.weights).gradients(state.mixture.weights)


def _looks_for_one(parts: Parts, state: State) -> bool:
    """Whether this step looks for a new component. A search that can come back with none looks again after steps 1, 2,
    4, 8, …, and as long as it finds something."""
    t = int(state.t) + 1
    if parts.next_component.exhaustible and t & (t - 1) != 0 and not state.gain > 0:
        return False
    unknown = not np.any(state.table.filled)  # a refinement leaves no table that would say whether one is wanted
    return not parts.direction.lazy or unknown or _wants_component(parts.direction, state)


def _wants_component(rule: DirectionRule, state: State) -> bool:
    return bool(rule.wants_component(_gradients(state), state.mixture.weights, state.gain))


def _best_active(state: State) -> Int[Array, ""]:
    return best_active(_gradients(state), state.mixture.weights)


def grow(state: State, capacity: int) -> State:
    """The same state with more slots. Outside jit: the shapes change, and every function compiles once more."""
    more = capacity - state.mixture.capacity

    def pad(leaf: Array, axes: int = 1) -> Array:
        return jnp.pad(leaf, [(0, more if axis < axes else 0) for axis in range(leaf.ndim)])

    spare = _blank(state.mixture.family, state.mixture.dim, more, 1)[0].params
    params = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), state.mixture.params, spare)
    table = Table(
        draws=pad(state.table.draws),
        log_target=pad(state.table.log_target),
        log_components=pad(state.table.log_components, axes=2),
        filled=pad(state.table.filled),
    )
    mixture = replace(state.mixture, params=params, weights=pad(state.mixture.weights))
    return replace(state, mixture=mixture, table=table)


def redraw(state: State, target: Target, n_draws: int) -> tuple[State, int]:
    """The same state with another number of draws per component, all of them new; and the evaluations it took."""
    key, key_draws = sub_keys(state.key, 2)
    _, table = _blank(state.mixture.family, target.dim, state.mixture.capacity, n_draws)
    slots = np.flatnonzero(np.asarray(state.table.filled) | (np.asarray(state.mixture.weights) > 0))
    for slot in slots:
        same = jax.tree.map(lambda leaf, slot=slot: np.asarray(leaf)[slot], state.mixture.params)
        own = jax.random.fold_in(key_draws, slot)
        _, table = _insert(target, state.mixture, table, same, jnp.asarray(slot), own)
    return replace(state, table=table, key=key), n_draws * len(slots)


def _with_room(state: State, target: Target, n: int) -> tuple[State, int]:
    """The same state with at least n free slots, and draws in its table (a refinement leaves none); and the
    evaluations that took."""
    capacity = state.mixture.capacity
    while capacity < state.mixture.n_active + n:
        capacity *= 2
    if capacity > state.mixture.capacity:
        state = grow(state, capacity)
    if np.any(state.table.filled):
        return state, 0
    return redraw(replace(state, key=jax.random.fold_in(state.key, 5)), target, state.table.n_draws)
