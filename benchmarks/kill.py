"""Fits killed at random moments, started again with the same command, and compared with a fit that nobody killed.

    python benchmarks/kill.py [--kills 50] [--steps 20] [--seed 0]

A child process fits a two-dimensional mixture and writes a checkpoint after each of its steps. SIGKILL hits it at a
random moment between its first checkpoint and its end; every other time at the next write after that moment. The same
call then goes on from the file. It must end with the same numbers to the last bit: mixture, table, random state,
history; only seconds may differ.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

import boostvi as bv
from boostvi.storage.run import contents

PATIENCE = 300.0
"""Seconds that a child may take for a step, or to its end."""


def settings(steps: int) -> dict[str, Any]:
    """Adaptive steps, which carry an estimate from step to step, towards components that take no time to find."""
    return {
        "recipe": "adafw", "family": "diagonal-normal", "first": "random", "next_component": "random",
        "n_draws": 200, "elbo_draws": 100, "max_steps": steps, "seed": 1, "progress": False,
    }  # fmt: skip


def target() -> bv.Target:
    means, scales = np.array([[-2.0, 0.0], [2.0, 1.0]]), np.array([[1.0, 0.5], [0.7, 1.0]])
    return bv.Target(lambda z: logsumexp(jnp.log(0.5) + jnp.sum(norm.logpdf(z, means, scales), axis=-1)), 2)


def state_of(result: bv.Result) -> tuple[Any, dict[str, bytes]]:
    """All that a run is, but the time it took."""
    manifest, arrays = contents(result.run, result.target.names, False, result.status)
    history = {name: column for name, column in manifest["history"].items() if not name.startswith("seconds")}
    return manifest | {"history": history, "seconds": None}, {name: array.tobytes() for name, array in arrays.items()}


def child(file: Path, steps: int) -> subprocess.Popen[bytes]:
    """A fit in a process of its own."""
    return subprocess.Popen([sys.executable, __file__, "--child", str(file), "--steps", str(steps)])


def wait_for(writes: int, file: Path, process: subprocess.Popen[bytes]) -> float:
    """Return when the child has written its file that often, or has ended; with the seconds since the write before."""
    versions, times = {0}, [time.monotonic()]
    while len(versions) <= writes and process.poll() is None:
        time.sleep(0.001)
        versions.add(file.stat().st_mtime_ns if file.exists() else 0)
        if len(versions) > len(times):
            times.append(time.monotonic())
        if time.monotonic() - times[-1] > PATIENCE:
            process.kill()
            raise RuntimeError("the child wrote no checkpoint")
    return times[-1] - times[-2] if writes > 1 and len(times) > 1 else 0.0


@dataclass(frozen=True)
class Killed:
    """step: the last complete one. in_write: a part of a file was left. same: the resumed run had the same end, and its
    file lies alone."""

    step: int
    in_write: bool
    same: bool


def kill(n: int, steps: int, seed: int, folder: Path) -> Iterator[Killed]:
    """n fits, each killed once and resumed. The first child is left alone: its end is compared, too."""
    rng, model = np.random.default_rng(seed), target()
    expected = state_of(bv.fit(model, **settings(steps)))
    child(folder / "alone.bvi", steps).wait(PATIENCE)
    if state_of(bv.load(folder / "alone.bvi", target=model)) != expected:
        raise RuntimeError("two processes gave different results without any kill")
    done = 0
    while done < n:
        file = folder / f"{done}.bvi"
        process = child(file, steps)
        time.sleep(rng.uniform() * wait_for(rng.integers(1, steps + 1), file, process))
        while done % 2 and process.poll() is None and not any(folder.glob(".*.tmp")):
            pass
        process.send_signal(signal.SIGKILL)
        if process.wait(PATIENCE) != -signal.SIGKILL:  # it had ended before
            file.unlink()
            continue
        half_written = any(folder.glob(".*.tmp"))
        step = bv.load(file).history.rows[-1]["step"]
        resumed = bv.fit(model, **settings(steps), checkpoint=file)
        same = state_of(resumed) == expected == state_of(bv.load(file)) and not any(folder.glob(".*.tmp"))
        done += 1
        yield Killed(step, half_written, same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        bv.fit(target(), **settings(options.steps), checkpoint=options.child)
        return
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        found = []
        for one in kill(options.kills, options.steps, options.seed, Path(folder)):
            found.append(one)
            where = " while it wrote" if one.in_write else ""
            print(f"killed after step {one.step:>3}{where}: {'same end' if one.same else 'ANOTHER END'}", flush=True)
    same, writes = sum(one.same for one in found), sum(one.in_write for one in found)
    print(f"{same} of {len(found)} killed fits ended as the one that was left alone; {writes} were killed in a write")
    sys.exit(same != len(found))


if __name__ == "__main__":
    main()
