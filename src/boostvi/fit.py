"""The driver around Algorithm 1: budgets, progress, Ctrl-C and resuming."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import boosting, diagnostics
from boostvi import table as tables
from boostvi._interrupts import Interrupts
from boostvi._jit import counted_jit, float64, new_key
from boostvi._struct import look_up, replace
from boostvi.boosting import Clock, Info, Parts, State
from boostvi.directions.base import Kind
from boostvi.families.base import Family
from boostvi.history import History
from boostvi.mixture import Mixture
from boostvi.next_component.base import Proposal
from boostvi.progress import Budget, Progress
from boostvi.recipes import RECIPES, Recipe
from boostvi.result import Result
from boostvi.run import Run, best_step, check_target, evaluated
from boostvi.stopping import checked_limits, reason_to_stop
from boostvi.storage import Checkpoint, load
from boostvi.storage.codec import encode
from boostvi.target import START_TRIES, Target, validate_start

Elapsed = Callable[[], float]

FIRST_CAPACITY = 8
"""Slots at the start. Capacity doubles when it is full, so a run compiles 1 + log2(growth) times."""
FLOATS = ("gap", "gap_new", "gap_active", "gamma", "gamma_max", "curvature")
PARTS = ("family", "first", "next_component", "direction", "step_size", "correction")
SETTINGS = ("n_draws", "draws_growth", "elbo_draws", "max_steps", "max_components", "kl_tol")
RESUMABLE = ("max_steps", "max_components", "kl_tol")


@dataclass(frozen=True)
class Step:
    """What a callback sees after each step."""

    step: int
    mixture: Mixture
    row: dict[str, Any]
    history: History


def fit(
    target: Target,
    *,
    recipe: str | Recipe | None = None,
    family: str | Family | None = None,
    first: Any = None,
    next_component: Any = None,
    direction: Any = None,
    step_size: Any = None,
    correction: Any = None,
    n_draws: int | None = None,
    draws_growth: float | None = None,
    elbo_draws: int | None = None,
    max_steps: int | None = None,
    max_components: int | None = None,
    max_seconds: float | None = None,
    max_evals: int | None = None,
    kl_tol: float | None = None,
    gap_tol: float | None = None,
    resume: Result | str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callable[[Step], Any]] = (),
    seed: int | None = None,
) -> Result:
    """Approximate `target` by a mixture that grows component by component.

    recipe: a named composition ("auto", "bbbvi", "line-search", "adafw", "adaafw", "adapfw", "fully-corrective") or a
        Recipe; "auto" if not given. family, first, next_component, direction, step_size and correction replace its
        parts, by name or as objects.
    n_draws, draws_growth, elbo_draws: see Recipe.
    max_steps, max_components, max_seconds, max_evals: budgets, in total also for a resumed run. They are looked at
        between steps: a step that has begun is finished.
    kl_tol: stop when the estimated KL, plus twice its error, is below this many nats.
    gap_tol: stop when neither a new component nor reweighting promises more than this many nats.
    resume: the Result of an earlier fit of the same target, or its file; goes on exactly where it stopped, with the
        same parts. If the search behind its verdict found what it misses, it goes on with that.
    checkpoint: a file that is written after each step. If it is there already, the run in it goes on: a command that
        was killed is simply given again, and ends with the result that it would have had.
    progress: True or False; by default a live line if somebody watches, in a terminal or a notebook. True writes a line
        now and then into a log file, too.
    callbacks: functions of a `Step`, run in the caller's own precision; a true return value stops the run. One that
        also has a method `resumed` is given the `Step` that a resumed run goes on from: the kill may have come after
        the step was stored and before the callback saw it.
    seed: the same seed gives the same result, bit for bit, on the same machine; 0 if not given.

    Ctrl-C returns the result of the steps completed so far.
    """
    given = {name: value for name, value in locals().items() if name in PARTS + SETTINGS and value is not None}
    if not isinstance(target, Target):
        raise TypeError(
            f"target must be a boostvi.Target, got {type(target).__name__}; make one with bv.Target(log_density, dim) "
            "or bv.from_numpyro(model, ...)"
        )
    limits = checked_limits(max_steps, max_components, max_seconds, max_evals, kl_tol, gap_tol)
    if not isinstance(callbacks, (list, tuple)) or not all(callable(callback) for callback in callbacks):
        raise TypeError(f"callbacks must be a list of functions, got {callbacks!r}")
    store = None if checkpoint is None else Checkpoint(checkpoint, target)
    run: Run | None = None
    if resume is None:
        plan = dataclasses.replace(look_up("recipe", "auto" if recipe is None else recipe, RECIPES, Recipe), **given)
        seed = _checked_seed(seed)
        first_family = plan.family_for(target.dim)
        start = functools.partial(
            _start, plan, plan.parts(first_family, target.minibatch is not None), first_family, target, seed
        )
    else:
        if isinstance(resume, (str, os.PathLike)):
            resume = load(resume)
        run = _checked_resume(resume, target, {**given, "recipe": recipe, "seed": seed})
        allowed = {name: value for name, value in given.items() if name in RESUMABLE}
        plan, seed = dataclasses.replace(run.recipe, **allowed), run.seed
    found = None if store is None else store.found(plan)
    finds = resume.finds if isinstance(resume, Result) and found is None else None
    has_more = finds is not None
    if finds is not None and run is not None:
        run = _with(finds, run)
    if found is not None:
        run = _furthest(found, run, plan, seed, target, f"checkpoint={os.fspath(checkpoint)!r}")  # type: ignore[arg-type]
    if run is None:
        validate_start(target, diagnostics.key_for(seed, "start", 0))
    else:
        run = dataclasses.replace(
            run, recipe=plan, parts=plan.parts(run.state.mixture.family, target.minibatch is not None)
        )

    begin = time.perf_counter() - (run.seconds if run else 0.0)
    elapsed = lambda: time.perf_counter() - begin  # noqa: E731
    deadline = None if max_seconds is None else begin + max_seconds
    status: str | None = None
    ends_early = plan.patience is not None or plan.kl_tol is not None
    steps = plan.max_steps if max_steps is not None or not ends_early else None  # a default that is hardly ever reached
    line = Progress(progress, Budget(steps, max_seconds, max_evals), elapsed, run.history.rows[-1] if run else None)
    try:
        with Interrupts() as interrupts:
            if run is None:
                run = start(elapsed, deadline)
                status = _after_step(run, line, store, callbacks)
            else:
                _tell_resumed(run, callbacks)
            interrupts.check()
            while status is None and (status := reason_to_stop(run, limits, elapsed(), has_more)) is None:
                run, has_more = _advance(run, target, elapsed, deadline), False
                status = _after_step(run, line, store, callbacks)
                interrupts.check()
    except KeyboardInterrupt:
        if run is None:
            raise
        status = "interrupted"
    finally:
        line.close()
    run = dataclasses.replace(run, seconds=elapsed())
    if store is not None:
        store.close(run, status)
    return Result(target, run, status)


@float64
def _start(
    plan: Recipe, parts: Parts, family: Family, target: Target, seed: int, elapsed: Elapsed,
    deadline: float | None,
) -> Run:  # fmt: skip
    clock = Clock(deadline)
    key, n_draws = new_key(seed), plan.draws_at(0)
    state, info = boosting.start(parts, target, family, FIRST_CAPACITY, n_draws, key, clock)
    run = Run(plan, parts, seed, state, History(), state.mixture, START_TRIES, 0.0)
    return _recorded(run, target, state, info, 0, clock, elapsed)


@float64
def _advance(run: Run, target: Target, elapsed: Elapsed, deadline: float | None) -> Run:
    """One step of Algorithm 1, with as many draws as the recipe wants there."""
    state, extra, clock = run.state, 0, Clock(deadline)
    t = int(state.t) + 1
    if run.recipe.draws_at(t) != state.table.n_draws:
        state, extra = boosting.redraw(state, target.through(state.mixture.warp), run.recipe.draws_at(t))
    state, info = boosting.step(run.parts, target, state, clock)
    return _recorded(run, target, state, info, extra, clock, elapsed)


def _recorded(run: Run, target: Target, state: State, info: Info, extra: int, clock: Clock, elapsed: Elapsed) -> Run:
    """The run after a step, with the step's row: its ELBO comes from fresh draws."""
    t, mixture = int(state.t), state.mixture
    begin = time.perf_counter()
    fresh, n = evaluated(run, target, mixture, t)
    if t == 0 and fresh.elbo == -np.inf and fresh.log_evidence == -np.inf:
        raise ValueError(
            "log_density is not finite at any draw of the first component; pass init= with better starting points, or "
            "another first= or family="
        )
    if not np.isfinite(np.asarray(mixture.weights)).all():
        raise RuntimeError(f"the weights are not finite after step {t}: this is a fault of boostvi, please report it")
    table_elbo = -float(_table_objective(state.table, mixture.weights)) if np.any(state.table.filled) else np.nan
    state = replace(state, kl=jnp.asarray(fresh.kl_estimate))
    seconds_evaluation = time.perf_counter() - begin
    evals = run.evals + int(info.evals) + extra + n
    history = run.history.append(
        step=t,
        kind=Kind(int(info.kind)).label,
        elbo=fresh.elbo,
        elbo_se=fresh.elbo_se,
        table_elbo=table_elbo,
        log_evidence=fresh.log_evidence,
        kl_estimate=fresh.kl_estimate,
        kl_se=fresh.kl_se,
        **{name: float(getattr(info, name)) for name in FLOATS},
        trials=int(info.trials),
        n_active=mixture.n_active,
        n_params=mixture.n_params,
        evals=evals,
        nonfinite=int(info.nonfinite),
        seconds=elapsed(),
        **{f"seconds_{phase}": seconds for phase, seconds in clock.seconds.items()},
        seconds_evaluation=seconds_evaluation,
    )
    best = mixture if best_step(history) == len(history.rows) - 1 else run.best
    return dataclasses.replace(run, state=state, history=history, best=best, evals=evals, seconds=elapsed())


@counted_jit
def _table_objective(table: tables.Table, weights: jax.Array) -> jax.Array:
    estimates = tables.estimates(table, weights)
    return estimates.objective(estimates.x(weights))


def _after_step(
    run: Run, line: Progress, store: Checkpoint | None, callbacks: Sequence[Callable[[Step], Any]]
) -> str | None:
    """Everybody who wants to know of the step, the file first; "callback" if one of them asks to stop."""
    row = run.history.rows[-1]
    if store is not None:
        store.write(run)
    line.update(row)
    seen = _seen(run)
    answers = [callback(seen) for callback in callbacks]
    return "callback" if any(answers) else None


def _seen(run: Run) -> Step:
    row = run.history.rows[-1]
    return Step(row["step"], run.state.mixture.active(), dict(row), run.history)


def _tell_resumed(run: Run, callbacks: Sequence[Callable[[Step], Any]]) -> None:
    for callback in callbacks:
        if hasattr(callback, "resumed"):
            callback.resumed(_seen(run))


def _checked_seed(seed: Any) -> int:
    if seed is None:
        return 0
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 − 1, got {seed!r}")
    return int(seed)


@float64
def _checked_resume(resume: Any, target: Target, given: dict[str, Any]) -> Run:
    if not isinstance(resume, Result):
        raise TypeError(f"resume must be the Result of an earlier fit, or its file, got {type(resume).__name__}")
    run: Run = resume.run
    changed = [name for name, value in given.items() if value is not None and name not in RESUMABLE]
    if changed:
        raise ValueError(
            f"resume= continues with the parts and the seed the run was started with; leave out {', '.join(changed)}"
        )
    check_target("resume=", run, target)
    return run


@float64
def _with(finds: Proposal, run: Run) -> Run:
    """The run, about to go on from its best mixture with components that a search found beside it."""
    mixture, _ = boosting.joined(run.best, finds)
    table = tables.empty(mixture.dim, mixture.capacity, run.state.table.n_draws)
    return dataclasses.replace(run, state=replace(run.state, mixture=mixture, table=table, gain=finds.gap))


def _furthest(found: Run, resumed: Run | None, plan: Recipe, seed: int, target: Target, argument: str) -> Run:
    """The run in the checkpoint file, or the resumed one if that is ahead; refused if the file holds another run."""
    mine, theirs = encode(plan), encode(found.recipe)
    changed = [name for name in mine if name not in RESUMABLE and mine[name] != theirs[name]]
    changed += ["seed"] if seed != found.seed else []
    if changed:
        raise ValueError(
            f"{argument} holds a run that was started with another {', '.join(changed)}; give the same settings to go "
            "on with it, or delete it or name another file to start anew"
        )
    check_target(argument, found, target)
    if resumed is None:
        return found
    ahead, behind = sorted((resumed, found), key=lambda run: -len(run.history.rows))
    if not np.array_equal(ahead.history["elbo"][: len(behind.history.rows)], behind.history["elbo"]):
        raise ValueError(f"{argument} holds another run than resume=; delete it or name another file")
    return ahead
