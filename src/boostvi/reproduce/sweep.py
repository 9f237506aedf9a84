"""Runs that are missing from the record, in batches: in this process, in several, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from boostvi.cli import UsageError
from boostvi.cli.terminal import message
from boostvi.reproduce import provenance
from boostvi.reproduce.provenance import Made
from boostvi.reproduce.store import Store, config_text

Rows = list[list[dict[str, Any]]]
ANSWER_SECONDS = 5.0
"""For which a Ray cluster is waited."""
BATCH, LEAST_BATCH = 60, 10
"""Runs at once in one process: all configurations of one seed, which have most of their states in common. The table of
a state takes 60 MB in the end, so that several processes on one machine must have fewer."""


@dataclass(frozen=True)
class Task:
    """A batch: runs of one method that differ in seed and configuration only. Small, and made of plain values: it is
    sent to other processes, which build the problem from `options` themselves."""

    experiment: str
    options: tuple[tuple[str, Any], ...]
    method: str
    configs: tuple[tuple[tuple[str, float], ...], ...]
    seeds: tuple[int, ...]


Execute = Callable[[Task, Callable[[int], Any]], Rows]


def batch_size(jobs: int, ray: str | None) -> int:
    """Runs per batch. How many processes of a cluster share a machine is not known: the least."""
    return LEAST_BATCH if ray is not None else max(LEAST_BATCH, BATCH // jobs)


def plan(
    store: Store, experiment: str, options: Mapping[str, Any], grid: Mapping[str, Sequence[Mapping[str, float]]],
    seeds: int, batch: int,
) -> list[Task]:  # fmt: skip
    """What is still to be done: every method's seeds × configurations, at most `batch` at once, without the runs that
    the store has. Seed after seed, so that a sweep in the middle has about as many of every method."""
    done, tasks = store.finished(), []
    for method, configs in grid.items():
        runs = [(config, seed) for seed in range(seeds) for config in configs]
        for i in range(0, len(runs), batch):
            part = [(c, seed) for c, seed in runs[i : i + batch] if (method, config_text(c), seed) not in done]
            if part:
                own, own_seeds = zip(*((tuple(sorted(config.items())), seed) for config, seed in part), strict=True)
                tasks.append(Task(experiment, tuple(sorted(options.items())), method, own, own_seeds))
    return sorted(tasks, key=lambda task: task.seeds[0])


def run(
    tasks: Sequence[Task], store: Store, execute: Execute, steps: int, *, jobs: int = 1, ray: str | None = None,
    quiet: bool = False,
) -> None:  # fmt: skip
    """Do the tasks, and record the runs of each as soon as it is finished."""
    progress = Progress(sum(len(task.seeds) for task in tasks) * (steps + 1), quiet)
    if ray is not None:
        results = _on_ray(tasks, execute, ray)
    elif jobs > 1:
        results = _in_processes(tasks, execute, jobs)
    else:
        results = ((task, *signed(execute, task, progress.counter(len(task.seeds)))) for task in tasks)
    with contextlib.closing(progress), _kept(store):
        for task, rows, made in results:
            store.add_all(
                [(task.method, dict(config), seed, of_run)
                 for config, seed, of_run in zip(task.configs, task.seeds, rows, strict=True)],
                made,
            )  # fmt: skip
            if ray is not None or jobs > 1:
                progress.add(len(task.seeds) * (steps + 1))


@contextlib.contextmanager
def _kept(store: Store) -> Iterator[None]:
    """Tells those who interrupt a sweep what becomes of it."""
    try:
        yield
    except KeyboardInterrupt:
        runs = len(store.finished())
        message(
            f"{runs} finished run{'' if runs == 1 else 's'} kept in {store.path}; the same command goes on from there"
        )
        raise


def signed(execute: Execute, task: Task, after_step: Callable[[int], Any]) -> tuple[Rows, Made]:
    """The rows, and what made them: in whichever process this is called."""
    provenance.code()
    return execute(task, after_step), provenance.here()


def _silent(step: int) -> None:
    return None


def _in_processes(tasks: Sequence[Task], execute: Execute, jobs: int) -> Iterator[tuple[Task, Rows, Made]]:
    """A new interpreter each: a forked one would share JAX's threads."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_share_cores, initargs=(jobs,)) as pool:
        running = {pool.submit(signed, execute, task, _silent): task for task in tasks}
        try:
            while running:
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield running.pop(future), *future.result()
        except BrokenProcessPool as error:
            raise UsageError(
                "a process that worked for this command was killed, for want of memory perhaps: use fewer --jobs; "
                "finished runs are kept, and the same command goes on with the rest"
            ) from error
        finally:
            for future in running:
                future.cancel()


def _share_cores(jobs: int) -> None:
    from boostvi.reproduce import batch

    batch.THREADS = max(1, batch.THREADS // jobs)


def check_ray() -> None:
    """Before any work is done."""
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise UsageError("--ray needs the package ray: pip install 'boostvi[ray]', or use --jobs") from error


def _on_ray(tasks: Sequence[Task], execute: Execute, address: str) -> Iterator[tuple[Task, Rows, Made]]:
    check_ray()
    import ray

    try:
        named = re.fullmatch(r"(?:ray://)?([^/]+):(\d+)", address)
        if named:  # Ray itself tries for minutes
            socket.create_connection((named[1], int(named[2])), timeout=ANSWER_SECONDS).close()
        ray.init(address=address, log_to_driver=False)
    except OSError as error:
        raise UsageError(f"no Ray cluster answers at {address!r}: {error}") from error
    try:
        remote = ray.remote(signed)
        running = {remote.remote(execute, task, _silent): task for task in tasks}
        while running:
            (ended, *_), _ = ray.wait(list(running))
            yield running.pop(ended), *ray.get(ended)
    except Exception as error:
        cause = getattr(error, "cause", None)  # Ray's own error has the worker's whole traceback as its text
        if isinstance(cause, UsageError):
            raise cause from None
        raise
    finally:
        ray.shutdown()


class Progress:
    """One line on stderr: share done, time so far, time left."""

    def __init__(self, total: int, quiet: bool):
        self.total, self.done, self.quiet = max(total, 1), 0, quiet
        self.begin = self.printed = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def add(self, n: int) -> None:
        self.done += n
        now = time.monotonic()
        if self.quiet or (now - self.printed < (0.5 if self.terminal else 30.0) and self.done < self.total):
            return
        self.printed = now
        gone = now - self.begin
        left = gone / self.done * (self.total - self.done)
        share = f"{self.done}/{self.total} steps of runs ({self.done / self.total:.0%})"
        text = f"{share}, {clock(gone)} so far, {clock(left)} left"
        print(f"\r{text}   " if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def counter(self, n: int) -> Callable[[int], None]:
        """Called after every step of a batch of n runs."""
        return lambda step: self.add(n)

    def close(self) -> None:
        if self.terminal and not self.quiet and self.done:
            print(file=sys.stderr)


def clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
