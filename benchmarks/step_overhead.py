"""What a step-size rule costs in a whole run on data of ChemReact's size, against predefined steps.

    python benchmarks/step_overhead.py [--steps 20] [--rows 26733] [--repeats 3]

Bayesian logistic regression without intercept, prior N(0, 1), diagonal Laplace components, the subproblem at the
paper's 1,000 one-draw iterations of Adam, 1,000 draws per component in the table. A whole run with any rule should cost
at most 1.10 times a run with predefined steps. (The paper's step-size time alone: 5–15 times for adaptive steps, 7–39
times for line search.)

How it is timed: everything is compiled beforehand, for every rule and capacity. Then the runs take turns, one boosting
step each and in random order, so that whatever else the machine does falls on all of them alike. Each step's time is
the median over the repeats; a run is the sum of its steps. Predefined steps run twice: the second row with them shows
the noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from _data import CHEM10, chemreact_like, machine, markdown, target_of

import boostvi as bv
from boostvi import boosting
from boostvi._jit import float64, trace_counts

LIMIT = 1.10
BASE, CONTROL = "predefined", "predefined again"
RULES: dict[str, dict[str, Any]] = {
    BASE: {"recipe": "bbbvi"},
    CONTROL: {"recipe": "bbbvi"},
    "adafw": {"recipe": "adafw"},
    "adaafw": {"recipe": "adaafw"},
    "adapfw": {"recipe": "adapfw"},
    "exact": {"recipe": "bbbvi", "step_size": "exact"},
    "line-search": {"recipe": "line-search"},
}
PHASES = ("subproblem", "step", "correction", "evaluation")


class Run(threading.Thread):
    """A fit that stops after every step until it is given its next turn, and notes what each turn took."""

    def __init__(self, target: bv.Target, settings: dict[str, Any]):
        super().__init__(daemon=True)
        self.work: Callable[[], bv.Result] = lambda: bv.fit(target, progress=False, callbacks=[self._pause], **settings)
        self.result: bv.Result | None = None
        self.error: BaseException | None = None
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)

    def run(self) -> None:
        self._begin()
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        self._end()

    def turn(self) -> None:
        """Let it take one step (called by the scheduler)."""
        self._go.release()
        self._done.acquire()
        if self.error is not None:
            raise self.error

    @property
    def finished(self) -> bool:
        return self.result is not None

    def _pause(self, step: bv.Step) -> None:
        if not np.isfinite(step.mixture.weights).all():
            raise RuntimeError(f"the weights are not finite after step {step.step}; nothing timed here would count")
        self._end()
        self._begin()

    def _begin(self) -> None:
        self._go.acquire()
        self._clock = time.perf_counter(), time.process_time()

    def _end(self) -> None:
        self.wall.append(time.perf_counter() - self._clock[0])
        self.cpu.append(time.process_time() - self._clock[1])
        self._done.release()


def take_turns(runs: list[Run], rng: np.random.Generator) -> None:
    for run in runs:
        run.start()
    while waiting := [run for run in runs if not run.finished]:
        for i in rng.permutation(len(waiting)):
            waiting[i].turn()


def compile_all(target: bv.Target, settings: dict[str, Any], steps: int) -> None:
    """One step of a rule at every capacity that a run of `steps` can reach."""
    result = bv.fit(target, progress=False, max_steps=1, **settings)
    while (capacity := result.run.state.mixture.capacity) < steps + 1:
        state = float64(boosting.grow)(result.run.state, 2 * capacity)
        grown = bv.Result(target, dataclasses.replace(result.run, state=state), result.status)
        result = bv.fit(target, resume=grown, progress=False, max_steps=result.run.history.rows[-1]["step"] + 1)


class Compilations:
    """XLA compilations since the last look, the library's own and those of single operations outside jit."""

    def __init__(self) -> None:
        self.xla, self.traced = 0, 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, seconds: float, **_: Any) -> None:
        self.xla += event == "/jax/core/compile/backend_compile_duration"

    def since(self) -> tuple[int, int]:
        """Functions of the library traced, and all XLA compilations."""
        seen = sum(trace_counts.values()) - self.traced, self.xla
        self.traced, self.xla = sum(trace_counts.values()), 0
        return seen


@dataclasses.dataclass(frozen=True)
class Cost:
    """One rule's run: seconds per step as medians over the repeats, summed."""

    wall: float
    cpu: float
    phases: dict[str, float]
    trials: float
    components: float
    elbo: float

    @classmethod
    def of(cls, repeats: list[Run]) -> Cost:
        histories = [run.result.history for run in repeats if run.result is not None]

        def total(per_step: list[Any]) -> float:
            return float(np.median(np.array(per_step, dtype=float), axis=0).sum())

        return cls(
            wall=total([run.wall for run in repeats]),
            cpu=total([run.cpu for run in repeats]),
            phases={phase: total([history[f"seconds_{phase}"] for history in histories]) for phase in PHASES},
            trials=float(np.median([history["trials"][1:].mean() for history in histories])),
            components=float(np.median([history["n_active"][-1] for history in histories])),
            elbo=float(np.median([history["elbo"][-1] for history in histories])),
        )


def report(costs: dict[str, Cost]) -> str:
    base = costs[BASE]
    header = ["rule", "run, s", "ratio", "CPU ratio", "added by steps", "step sizes, s", "ratio of these"]
    header += [f"{phase}, s" for phase in PHASES if phase != "step"] + ["trials/step", "components", "ELBO"]
    rows = []
    for name, cost in costs.items():
        step, base_step = cost.phases["step"], base.phases["step"]
        row = [
            name,
            f"{cost.wall:.1f}",
            f"{cost.wall / base.wall:.3f}",
            f"{cost.cpu / base.cpu:.3f}",
            f"{100 * (step - base_step) / base.wall:+.2f} %",
            f"{step:.3f}",
            f"{step / base_step:.2f}",
            *(f"{cost.phases[phase]:.3f}" for phase in PHASES if phase != "step"),
            f"{cost.trials:.1f}",
            f"{cost.components:.0f}",
            f"{cost.elbo:.1f}",
        ]
        rows.append(row)
    return markdown(header, rows)


def contrast(target: bv.Target, base: Cost, steps: int, few: int, iterations: int) -> str:
    """The paper's way: adaptive steps that draw anew, and call the model, at every trial."""
    rule = dataclasses.replace(bv.RECIPES["adafw"]().step_size, draws="fresh")
    settings = settings_of({"recipe": "adafw", "step_size": rule}, iterations)
    compile_all(target, settings, few)
    history = bv.fit(target, progress=False, max_steps=few, **settings).history
    per_step = float(np.mean(history["seconds_step"][1:]))
    step = per_step * steps
    run = base.wall - base.phases["step"] + step
    return (
        f'adafw with draws="fresh", as in the paper, EXTRAPOLATED from {few} steps to {steps}: step sizes {step:.1f} s '
        f"({step / base.phases['step']:.0f} × predefined on the table), run {run:.1f} s ({run / base.wall:.2f} ×); "
        f"{np.mean(history['trials'][1:]):.1f} trials per step."
    )


def settings_of(rule: dict[str, Any], iterations: int) -> dict[str, Any]:
    """A rule with the subproblem at `iterations` of Adam (the paper's number is the recipes' own)."""
    if iterations == bv.RECIPES["bbbvi"]().next_component.optimiser.steps:
        return rule
    recipe = bv.RECIPES[rule["recipe"]]()
    parts = {}
    for part in ("first", "next_component"):
        subproblem = getattr(recipe, part)
        shorter = dataclasses.replace(subproblem.optimiser, steps=iterations)
        parts[part] = dataclasses.replace(subproblem, optimiser=shorter)
    return rule | parts


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="boosting steps of each run")
    parser.add_argument("--rows", type=int, default=26_733, help="rows of data")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each rule")
    parser.add_argument("--iterations", type=int, default=1000, help="of Adam, one draw each, per subproblem")
    parser.add_argument("--rules", nargs="+", choices=list(RULES)[2:], default=list(RULES)[2:], metavar="RULE")
    parser.add_argument("--fresh-steps", type=int, default=3, help="steps of the run with fresh draws; 0 leaves it out")
    parser.add_argument("--float64", action="store_true", help="likelihood in float64 (about 3 × slower)")
    parser.add_argument("--data", type=Path, default=CHEM10, help="chem10.npz, whose rows set the covariance")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    data = chemreact_like(args.rows, args.data)
    target = target_of(data, np.float64 if args.float64 else np.float32)
    chosen = [name for name in RULES if name in (BASE, CONTROL) or name in args.rules]
    settings = {name: settings_of(RULES[name], args.iterations) for name in chosen}

    print("# Step-size overhead\n")
    print(f"{machine()}\n")
    print(
        f"Logistic regression {args.rows:,} × {target.dim}, {100 * data.y.mean():.1f} % positive, "
        f"{'float64' if args.float64 else 'float32'} likelihood: {data.source}. {args.steps} steps, "
        f"{args.iterations:,} one-draw iterations per subproblem, medians of {args.repeats} run(s) in turns.\n",
        flush=True,
    )
    compilations = Compilations()
    begin = time.perf_counter()
    for name in chosen:
        if name != CONTROL:
            compile_all(target, settings[name], args.steps)
    traced, xla = compilations.since()
    print(
        f"Compiled before: {traced} functions of the library ({xla} XLA programs), with a short run of every rule in "
        f"{time.perf_counter() - begin:.0f} s.",
        flush=True,
    )

    rng = np.random.default_rng(0)
    runs: dict[str, list[Run]] = {name: [] for name in chosen}
    for seed in range(args.repeats):
        for name in chosen:
            runs[name].append(Run(target, settings[name] | {"max_steps": args.steps, "seed": seed}))
        take_turns([runs[name][-1] for name in chosen], rng)
    traced, xla = compilations.since()
    print(f"Compiled inside the timed runs: {traced} functions of the library ({xla} XLA programs).\n")

    costs = {name: Cost.of(runs[name]) for name in chosen}
    print(report(costs))
    worst = max((name for name in chosen if name not in (BASE, CONTROL)), key=lambda name: costs[name].wall)
    ratio = costs[worst].wall / costs[BASE].wall
    noise = abs(costs[CONTROL].wall / costs[BASE].wall - 1.0)
    print(
        f"\nMost expensive run: {worst}, {ratio:.3f} × predefined (limit {LIMIT:.2f}: "
        f"{'met' if ratio <= LIMIT else 'NOT MET'}; the control differs by {100 * noise:.1f} %)."
    )
    if args.fresh_steps:
        fewer = min(args.fresh_steps, args.steps)
        print("\n" + contrast(target, costs[BASE], args.steps, fewer, args.iterations))


if __name__ == "__main__":
    main()
