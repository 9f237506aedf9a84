"""Every sweep's problem, built from plain options: what a worker process needs to know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boostvi.cli import UsageError
from boostvi.reproduce import batch, methods
from boostvi.reproduce.batch import Problem
from boostvi.reproduce.sweep import Rows, Task


@dataclass(frozen=True)
class Size:
    """How much of the protocol a command runs. seeds: replicates; iterations: Adam steps per subproblem."""

    steps: int
    seeds: int
    n_draws: int
    iterations: int
    elbo_draws: int = 1000
    rows: int | None = None

    @property
    def settings(self) -> batch.Settings:
        return batch.Settings(self.steps, self.n_draws, self.elbo_draws)


def build(experiment: str, options: dict[str, Any]) -> Problem:
    if experiment in ("chemreact", "eicu", "wine"):
        from boostvi.reproduce import logistic, regression

        data = regression.load(experiment, options)
        _check(data, options)
        return logistic.problem(data.X, data.y, data.train, data.test)
    if experiment == "matrix-factorization":
        from boostvi.reproduce import entries, factorization

        found = entries.of(options)
        _check(found, options)
        return factorization.problem(found)
    from boostvi.reproduce import toys

    return toys.problem(options["toy"])


def _check(data: Any, options: dict[str, Any]) -> None:
    if data.fingerprint != options["fingerprint"]:
        raise UsageError(
            f"a process that works for this command found other data ({data.source}) than the command itself; "
            "give a file that is the same on every machine by --data"
        )


@functools.lru_cache(maxsize=2)
def _built(experiment: str, options: tuple[tuple[str, Any], ...]) -> Problem:
    return build(experiment, dict(options))


def execute(task: Task, after_step: Callable[[int], Any]) -> Rows:
    """All runs of a batch. The sizes are options too: a task is all that another process gets."""
    options = dict(task.options)
    size = Size(*options["size"])
    problem = _built(task.experiment, task.options)
    compositions = [methods.parts(task.method, dict(config), size.iterations) for config in task.configs]
    return batch.run(problem, compositions, task.seeds, size.settings, after_step)
