"""Many runs of one method at once: what they have in common is computed once.

Runs of one seed differ only where their step sizes do. Until then they are the same mixture, with the same table and
the same next component; backtracking that gives up, or a step clipped at γ_max, does not part them. So the runs of a
batch are kept as states, each with the runs that are in it. Line 3 of Algorithm 1 is solved once per state, several
states side by side in one program (a thousand Adam steps multiply the data with a matrix instead of once per state with
a vector); lines 4 to 6 read the state's table once for the step sizes of all its runs. A run is what `boosting.step`
makes of it alone, for compositions that always find a component and correct at most weights.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import boosting, diagnostics
from boostvi._jit import float64, sub_keys
from boostvi._struct import replace
from boostvi.boosting import Info, Parts, State
from boostvi.directions.base import Kind
from boostvi.families.base import Family
from boostvi.reproduce import programs
from boostvi.reproduce.programs import Axes
from boostvi.target import Target

FIRST_CAPACITY = 8
"""Slots at the start; doubled when they are filled, but never more than the steps can fill."""
SMALL = 4
"""Dimensions up to which free slots cost less to carry along than to compile for: all are there from the start."""
KEYS = "threefry2x32"
"""A run's numbers must not depend on the batch it is in; XLA's own generator, vmapped, draws for all of it at once."""
SEARCH_WIDTHS = (1, 4, 16)
"""States whose next components are searched side by side: few numbers, because each is compiled anew. Beyond 16 columns
a product with the data is no faster per column."""
THREADS = os.cpu_count() or 1
"""Programs at once; several processes on one machine share them."""
MOVE_WIDTHS = (1, 8, 64)
"""Runs of one state whose step sizes are found side by side."""


@dataclass(frozen=True)
class Problem:
    """What is fitted, and what is looked at after every step.

    target: its arrays may have a leading axis of runs, see `axes`.
    measure: a traceable function of the target and some draws; its arrays reach `summarise`, which makes the numbers
        that are recorded from one run's arrays and the run's position in the batch.
    """

    target: Target
    family: Family
    measure: Callable[[Target, Any], dict[str, Any]]
    summarise: Callable[[Mapping[str, np.ndarray], int], dict[str, float]]
    axes: Axes = None


@dataclass(frozen=True)
class Settings:
    """Sizes, which are compiled in."""

    steps: int = 50
    n_draws: int = 1000
    elbo_draws: int = 1000


@dataclass
class Shared:
    """A state and the runs that are in it. The rule's state is each run's own; a run with data of its own is alone."""

    state: State
    runs: list[int]


@dataclass
class Threads:
    """Programs side by side, one for each core: XLA itself splits only large operations, and a subproblem has many
    small ones. An item of a shape that was not there before goes alone, because it compiles for all others."""

    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS))
    seen: set[Hashable] = field(default_factory=set)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], shape: Callable[[Any], Hashable]) -> list[Any]:
        results: dict[int, Any] = {}
        for i, item in enumerate(items):
            key = function.__qualname__, shape(item)
            if key not in self.seen:
                self.seen.add(key)
                results[i] = function(item)
        # 64-bit arithmetic is switched on for each thread, and for the calling one only.
        others = [i for i in range(len(items)) if i not in results]
        results |= zip(others, self.pool.map(float64(function), [items[i] for i in others]), strict=True)
        return [results[i] for i in range(len(items))]


Row = dict[str, Any]
Infos = dict[int, tuple[Info, Any]]
"""Of every run: what its step did, and the evaluations that it took with its subproblem."""

INIT = Info(int(Kind.INIT), 1.0, 1.0, *[math.nan] * 4, 0, 0, 0)  # type: ignore[call-arg, arg-type]
"""Of the step that made q_0."""


@float64
def run(
    problem: Problem, compositions: Sequence[Parts], seeds: Sequence[int], settings: Settings,
    after_step: Callable[[int], Any] = lambda step: None,
) -> list[list[Row]]:  # fmt: skip
    """One list of rows, one per step, for each run. The compositions may differ in traced numbers only, and in those of
    lines 4 to 6."""
    rows: list[list[Row]] = [[] for _ in seeds]
    for step, of_runs in enumerate(_steps(problem, compositions, seeds, settings)):
        for i, row in of_runs.items():
            rows[i].append(row)
        after_step(step)
    return rows


def _steps(
    problem: Problem, compositions: Sequence[Parts], seeds: Sequence[int], settings: Settings
) -> Iterator[dict[int, Row]]:
    parts = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *compositions)
    # Each program gets only the parts that it needs: methods that differ in the step size share all but one.
    moving = (parts.direction, parts.step_size, parts.correction)
    rules = jax.tree.map(np.array, jax.vmap(lambda rule: rule.init(), axis_size=len(seeds))(parts.step_size))
    first, next_component = compositions[0].first, compositions[0].next_component
    threads = Threads()
    with threads.pool:
        shared, infos, seconds = _timed(_first, problem, first, seeds, settings)
        yield _rows(threads, problem, shared, infos, settings, seconds, 0.0)
        for _ in range(settings.steps):
            shared = [_with_a_free_slot(one, settings.steps + 1) for one in shared]
            shared, found, seconds = _timed(_next, threads, problem, next_component, shared)
            shared, infos, step_seconds = _timed(_move, threads, moving, rules, shared, found)
            yield _rows(threads, problem, shared, infos, settings, seconds, step_seconds)


def _timed(function: Callable[..., Any], *args: Any) -> tuple[Any, Any, float]:
    """The states and what comes with them, and the seconds for one state (compilation included when it happens)."""
    begin = time.perf_counter()
    shared, more = jax.block_until_ready(function(*args))
    return shared, more, (time.perf_counter() - begin) / len(shared)


def _padded(items: list[Any], widths: Sequence[int]) -> Iterator[tuple[list[Any], int]]:
    """Pieces of one of the widths, the last item repeated in the last one, with the number of items that count."""
    for i in range(0, len(items), widths[-1]):
        piece = items[i : i + widths[-1]]
        width = next(width for width in widths if width >= len(piece))
        yield piece + [piece[-1]] * (width - len(piece)), len(piece)


def _first(problem: Problem, first: Any, seeds: Sequence[int], settings: Settings) -> tuple[list[Shared], Infos]:
    groups: dict[Any, list[int]] = {}
    for i, seed in enumerate(seeds):
        groups.setdefault(seed if problem.axes is None else (seed, i), []).append(i)
    target, axes, most = problem.target, problem.axes, settings.steps + 1
    capacity = most if target.dim <= SMALL else min(FIRST_CAPACITY, most)
    shared: list[Shared] = []
    infos: Infos = {}
    for piece, count in _padded(list(groups.values()), SEARCH_WIDTHS):
        keys = tuple(jax.random.key(seeds[runs[0]], impl=KEYS) for runs in piece)
        own = np.array([runs[0] for runs in piece])
        proposals = programs.first_components(first, target, axes, problem.family, own, keys)
        for runs, key, proposal in list(zip(piece, keys, proposals, strict=True))[:count]:
            key_after, _, key_draws, _ = sub_keys(key, 4)
            blank = boosting._blank(problem.family, target.dim, capacity, settings.n_draws)
            mixture, table, _, evals = programs.insert(target, axes, runs[0], *blank, key_draws, proposal)
            mixture = replace(mixture, weights=np.eye(1, capacity)[0])
            state = State(np.int64(0), mixture, table, None, np.float64(np.inf), np.float64(np.inf), key_after)  # type: ignore[arg-type]
            shared.append(Shared(state, runs))
            infos |= dict.fromkeys(runs, (INIT, evals))
    return shared, infos


def _with_a_free_slot(shared: Shared, most: int) -> Shared:
    capacity = shared.state.mixture.capacity
    if shared.state.mixture.n_active < capacity:
        return shared
    return Shared(programs.grow(shared.state, min(2 * capacity, most)), shared.runs)


def _next(
    threads: Threads, problem: Problem, next_component: Any, shared: list[Shared]
) -> tuple[list[Shared], list[Any]]:
    """Every state with its next component in the table; and of each the slot and the evaluations."""
    target, axes = problem.target, problem.axes
    capacity = lambda one: one.state.mixture.capacity  # noqa: E731
    shared = sorted(shared, key=capacity)
    pieces = []
    for _, alike in groupby(shared, capacity):
        states = list(alike)
        # Two programs of 4 side by side take less time than one of 16 that is half empty.
        few = len(states) % SEARCH_WIDTHS[-1] <= 2 * SEARCH_WIDTHS[-2]
        whole = len(states) // SEARCH_WIDTHS[-1] * SEARCH_WIDTHS[-1] if few else len(states)
        pieces += [*_padded(states[:whole], SEARCH_WIDTHS), *_padded(states[whole:], SEARCH_WIDTHS[:-1])]

    def search(padded):
        piece, count = padded
        states, found = tuple(one.state for one in piece), []
        own = np.array([one.runs[0] for one in piece])
        proposals = programs.next_components(next_component, target, axes, own, states)
        for one, proposal in zip(piece[:count], proposals, strict=False):
            state, key = one.state, jax.random.fold_in(sub_keys(one.state.key, 5)[2], 0)
            mixture, table, *more = programs.insert(
                target, axes, one.runs[0], state.mixture, state.table, key, proposal
            )
            one.state = replace(state, mixture=mixture, table=table)
            found.append(more)
        return found

    found = threads.map(search, pieces, lambda padded: (len(padded[0]), capacity(padded[0][0])))
    return shared, [more for of_piece in found for more in of_piece]


def _move(
    threads: Threads, moving: Any, rules: Any, shared: list[Shared], found: list[Any]
) -> tuple[list[Shared], Infos]:
    """The states after the step, each with a table of its own. Runs stay together as long as their weights are equal to
    the last bit."""
    infos: Infos = {}

    def move(item):
        one, (slot, evals) = item
        parted = {}
        for piece, count in _padded(one.runs, MOVE_WIDTHS):
            own_parts, own_rules = jax.tree.map(lambda leaf, piece=piece: leaf[np.array(piece)], (moving, rules))
            state, weights, own_rules, info = programs.move(own_parts, own_rules, one.state, slot)
            weights, own_rules, info = jax.tree.map(np.asarray, (weights, own_rules, info))
            for j, i in enumerate(piece[:count]):
                place = weights[j].tobytes()
                if place not in parted:
                    table = jax.tree.map(jnp.copy, state.table) if parted else state.table
                    mixture = replace(state.mixture, weights=weights[j])
                    parted[place] = Shared(replace(state, mixture=mixture, table=table), [])
                parted[place].runs.append(i)
                own_rule, own_info = jax.tree.map(lambda leaf, j=j: leaf[j], (own_rules, info))
                jax.tree.map(lambda leaf, new, i=i: leaf.__setitem__(i, new), rules, own_rule)
                infos[i] = own_info, own_info.evals + evals
        return parted.values()

    def shape(item):
        one, _ = item
        return one.state.mixture.capacity, *(len(piece) for piece, _ in _padded(one.runs, MOVE_WIDTHS))

    moved = threads.map(move, list(zip(shared, found, strict=True)), shape)
    return [one for of_state in moved for one in of_state], infos


def _rows(
    threads: Threads, problem: Problem, shared: list[Shared], infos: Infos, settings: Settings, seconds: float,
    step_seconds: float,
) -> dict[int, Row]:  # fmt: skip
    """What one step did in every run, with the ELBO and the measures on fresh draws."""
    target, axes = problem.target, problem.axes
    n_params, rows = problem.family.n_params(target.dim), {}

    def measure(one):
        return jax.tree.map(
            np.asarray, programs.measure(problem.measure, target, axes, one.runs[0], one.state, settings.elbo_draws)
        )

    measured = threads.map(measure, shared, lambda one: one.state.mixture.capacity)
    for one, (log_target, log_q, own) in zip(shared, measured, strict=True):
        fresh = diagnostics.evaluate(log_target, log_q)
        n_active = one.state.mixture.n_active
        of_state = {
            "elbo": fresh.elbo,
            "elbo_se": fresh.elbo_se,
            "n_active": n_active,
            "n_params": n_active * n_params,
            "seconds_subproblem": seconds,
            "seconds_step": step_seconds,
            **problem.summarise(own, one.runs[0]),
        }
        for i in one.runs:
            info, evals = infos[i]
            rows[i] = {
                "step": int(one.state.t),
                "kind": Kind(int(info.kind)).label,
                **{name: float(getattr(info, name)) for name in ("gamma", "gamma_max", "gap", "curvature")},
                "trials": int(info.trials),
                "evals": int(evals),
                **of_state,
            }
    return rows
