"""How the seconds of a boosting step, and the memory, grow with components, rows and dimensions.

    python benchmarks/growth.py [--quick]

Every size runs in a process of its own, so that its peak memory is its own. The time of a step is the median over the
steps at that size, which leaves out those that compile; exponents are slopes of log seconds on log size, over all sizes
and between the two largest (where what does not grow has the smallest share).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from _data import gaussian_design, machine, markdown, target_of

import boostvi as bv
from boostvi.next_component import Adam, PlainVI, ResidualElbo

FAMILIES = ("diagonal-laplace", "full-rank-normal")
ITERATIONS = 100  # of Adam, one draw each, per subproblem
STEPS = 5  # per size, when it is not the steps that grow
SIZES = {
    "components": {"full": (8, 16, 32, 64), "quick": (8, 16)},
    "rows": {"full": (1_000, 10_000, 100_000, 1_000_000), "quick": (1_000, 10_000, 100_000)},
    "dimensions": {"full": (10, 20, 50, 100, 200, 500), "quick": (10, 20, 50, 100)},
}
PHASES = ("subproblem", "step", "evaluation")


def settings(family: str, n_draws: int) -> dict[str, Any]:
    """Predefined steps: every component keeps a positive weight, so the number of them is known."""
    return {
        "recipe": "bbbvi",
        "family": family,
        "first": PlainVI(optimiser=Adam(steps=ITERATIONS)),
        "next_component": ResidualElbo(optimiser=Adam(steps=ITERATIONS)),
        "n_draws": n_draws,
        "elbo_draws": n_draws,
        "progress": False,
    }


def components(size: int, family: str) -> bv.Result:
    """A Student-t density in 20 dimensions, which no number of light-tailed components exhausts."""

    def log_density(z):
        return -0.5 * (5.0 + z.size) * jnp.log1p(jnp.sum(z**2) / 5.0)

    return bv.fit(bv.Target(log_density, 20), max_steps=size - 1, **settings(family, 1000))


def rows(size: int, family: str) -> bv.Result:
    return bv.fit(target_of(gaussian_design(size, 20)), max_steps=STEPS, **settings(family, 100))


def dimensions(size: int, family: str) -> bv.Result:
    return bv.fit(target_of(gaussian_design(5_000, size)), max_steps=STEPS, **settings(family, 100))


AXES: dict[str, Callable[[int, str], bv.Result]] = {"components": components, "rows": rows, "dimensions": dimensions}


def measure(axis: str, size: int, family: str) -> dict[str, float]:
    """Median seconds of a step, in all and per phase, and this process's peak memory."""
    result = AXES[axis](size, family)
    history = result.history
    # Capacity doubles: the cost of a step is that of its capacity. The steps at the last one are those beyond half.
    last = history["n_active"] > (size // 2 if axis == "components" else 1)
    seconds = {"step in all": np.diff(history["seconds"], prepend=0.0)}
    seconds |= {phase: history[f"seconds_{phase}"] for phase in PHASES}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return {name: float(np.median(values[last])) for name, values in seconds.items()} | {"MB": peak}


def measure_apart(axis: str, size: int, family: str) -> dict[str, float]:
    """The same in a new process (which inherits our own peak, but has loaded as much and more itself)."""
    command = [sys.executable, __file__, "--one", axis, str(size), family]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{axis} {size} {family} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def slope(sizes: list[int], values: list[float]) -> float:
    """The exponent of the power law that fits best."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table(axis: str, family: str, sizes: list[int]) -> str:
    found = [measure_apart(axis, size, family) for size in sizes]
    names = list(found[0])
    header = [axis, *("peak MB" if name == "MB" else f"{name}, ms" for name in names)]
    lines = [
        [f"{size:,}", *(f"{row[n]:.0f}" if n == "MB" else f"{1e3 * row[n]:.2f}" for n in names)]
        for size, row in zip(sizes, found, strict=True)
    ]
    for label, n in (("exponent", len(sizes)), ("exponent, last two", 2)):
        if len(sizes) > 1:
            exponents = {name: slope(sizes[-n:], [row[name] for row in found[-n:]]) for name in names if name != "MB"}
            lines.append([label, *(f"{exponent:.2f}" for exponent in exponents.values()), ""])
    return markdown(header, lines)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, a few minutes in all")
    for axis in AXES:
        parser.add_argument(f"--{axis}", type=int, nargs="*", metavar="SIZE", help="these sizes; none leaves them out")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY")
    parser.add_argument("--one", nargs=3, metavar=("AXIS", "SIZE", "FAMILY"), help="one size, as JSON")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    if args.one:
        axis, size, family = args.one
        print(json.dumps(measure(axis, int(size), family)))
        return
    print("# Growth of a boosting step\n")
    print(f"{machine()}\n")
    print(f"Predefined steps, {ITERATIONS} one-draw iterations of Adam per subproblem; medians over steps.")
    about = {
        "components": "20 dimensions, Student-t target, 1,000 draws per component",
        "rows": f"logistic regression, 20 dimensions, 100 draws per component, up to {STEPS + 1} components",
        "dimensions": f"logistic regression, 5,000 rows, 100 draws per component, up to {STEPS + 1} components",
    }
    for axis in AXES:
        given = getattr(args, axis)
        sizes = sorted(SIZES[axis]["quick" if args.quick else "full"] if given is None else given)
        for family in args.families if sizes else ():
            print(f"\n## {axis}, {family} ({about[axis]})\n", flush=True)
            print(table(axis, family, sizes), flush=True)


if __name__ == "__main__":
    main()
