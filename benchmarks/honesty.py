"""Can the verdict be trusted? The rate of false "good", with its interval; how often an accurate fit is called good.

    python benchmarks/honesty.py [--targets banana,funnel,…] [--seeds 5] [--budgets 1.0,0.2] [--out honesty-output]
    python benchmarks/honesty.py --seeds 20 --table # the tables of what was measured before

Every target of `targets.py` is fitted with several seeds, with the budget of the comparison and with one far too
small; those of `deceptive.py`, which were made to be missed, once with each seed. Every run is recorded when it has
ended; a benchmark that was stopped goes on where it was. A "good" is false when the true gap to log Z, from 100,000
draws that nothing else saw, is above 0.1 nats, or when a known mode has less than a tenth of its mass. Planted traps
are added: mixtures that are exact but for the modes that were taken away, and a straightened fit of one of two modes,
judged as if they had been fitted. The KL estimate is checked against the true gap where k̂ < 0.7 and no mode is
missing: it should lie within two standard errors for nine of ten.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from _data import machine, markdown, record, records
from deceptive import DECEPTIVE
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from scipy.stats import beta
from targets import LISTED, Problem, available, get, robot_modes

import boostvi as bv
from boostvi import mixture as mixtures
from boostvi._jit import float64
from boostvi.families import FullRankNormal, FullRankStudentT

TRUE_DRAWS = 100_000
TRUE_SEED = 987_654
FALSE_GAP = 0.1
"""Nats: "good" promises less."""
ACCURATE_GAP = 0.05
SURPRISE = 4.0
"""Standard errors by which a mean may differ from its expectation."""
LEAST_SHARE = 0.1
"""A mode counts as found when the mixture gives it this share of its mass."""
LOG_Z_ERROR = {"cancer": 0.01, "seeds": 0.0003, "ionosphere": 0.0005, "chemreact": 0.0002, "robot": 0.005}
"""Uncertainty of the log Z that is known only from long runs; 0 for the others."""


def judged(problem: Problem, result: bv.Result) -> dict[str, Any]:
    """What the result says of itself, and the truth."""
    begin = time.perf_counter()
    verdict = result.verdict
    seconds = time.perf_counter() - begin
    draws = result.mixture.sample(TRUE_DRAWS, seed=TRUE_SEED)
    ratios = bv.target.log_densities(result.target, draws) - result.mixture.log_prob(draws)
    gap, se = true_gap(problem.log_z, LOG_Z_ERROR.get(problem.name, 0.0), ratios)
    missing = missing_modes(problem, draws)
    return {
        "verdict": verdict,
        "gap": gap,
        "gap_se": se,
        "missing_modes": missing,
        "missed_share": result.probes.missed_share if np.isfinite(result.elbo) and result.probes is not None else None,
        "false_good": bool(verdict == "good" and (gap > FALSE_GAP + 2.0 * se or missing)),
        "kl": result.kl_estimate,
        "kl_se": result.kl_se,
        "khat": result.khat,
        "components": result.mixture.n_active,
        "reasons": list(result.reasons),
        "judging_seconds": seconds,
    }


def true_gap(log_z: float, log_z_error: float, ratios: np.ndarray) -> tuple[float, float]:
    """log Z − E ln(p/q) over draws of q, and its error. p/(q Z) has mean 1 for certain unless q misses something: where
    the draws agree, what it explains of their mean is no error."""
    weights = np.exp(ratios - log_z)
    spread, root = weights.std(), np.sqrt(ratios.size)
    sees_all = 0.0 < spread < np.inf and abs(weights.mean() - 1.0) < SURPRISE * spread / root
    slope = float(np.cov(ratios, weights, bias=True)[0, 1] / spread**2) if sees_all else 0.0
    parts = log_z - ratios + slope * (weights - 1.0)
    return float(parts.mean()), float(np.hypot(parts.std() / root, (1.0 - slope) * log_z_error))


def missing_modes(problem: Problem, draws: np.ndarray) -> int:
    if problem.name == "robot":
        return 8 - robot_modes(draws)
    if problem.modes is None:
        return 0
    nearest = np.argmin(((draws[:, None] - problem.modes) ** 2).sum(-1), axis=1)
    shares = np.bincount(nearest, minlength=len(problem.modes)) / len(draws)
    return int(np.sum(shares < LEAST_SHARE / len(problem.modes)))


def fitted(name: str, seed: int, budget: float) -> dict[str, Any]:
    problem = DECEPTIVE[name]() if name in DECEPTIVE else get(name)
    target = bv.Target(problem.log_density, problem.dim)
    begin = time.perf_counter()
    result = bv.fit(target, seed=seed, max_seconds=budget * problem.budget, progress=False)
    seconds = time.perf_counter() - begin
    return {"status": result.status, "seconds": seconds} | judged(problem, result)


@float64
def trap(name: str, kept: list[int], seed: int) -> dict[str, Any]:
    """The exact mixture without some of its modes, as the result of a fit."""
    problem = get(name)
    target = bv.Target(problem.log_density, problem.dim)
    result = bv.fit(target, seed=seed, max_steps=0, progress=False)
    planted = exact_mixture(problem, kept)
    run = dataclasses.replace(result.run, best=planted)
    return {"status": "planted", "seconds": 0.0} | judged(problem, bv.Result(target, run, "converged"))


@float64
def warped_trap(seed: int) -> dict[str, Any]:
    """A skewed mode in 16 dimensions, fitted alone and straightened, as the fit of it and of another mode: 0.3 of the
    mass, 10 away in a random direction."""
    dim, shape, rng = 16, 8.0, np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    centre = axes @ np.full(dim, np.log(shape))
    far = centre + 10.0 * axes @ (direction := rng.standard_normal(dim)) / np.linalg.norm(direction)

    def alone(z):
        x = z @ axes
        return jnp.sum(shape * x - jnp.exp(x)) - dim * gammaln(shape)

    def both(z):
        return jnp.logaddexp(np.log(0.7) + alone(z), np.log(0.3) + jnp.sum(norm.logpdf(z, far, 0.5)))

    problem = Problem("a warp, 1 of 2 modes", dim, both, 0.0, 30.0, 0.0, modes=np.stack([centre, far]))
    result = bv.fit(bv.Target(alone, dim), seed=seed, progress=False)
    if result.mixture.warp is None:
        raise RuntimeError("the fit was not straightened: this trap is for warps")
    planted = bv.Result(bv.Target(both, dim), result.run, "converged")
    return {"status": "planted", "seconds": 0.0} | judged(problem, planted)


def six_of_stm20(seed: int) -> dict[str, Any]:
    return trap("stm20", sorted(np.random.default_rng(seed).choice(10, 6, replace=False).tolist()), seed)


def all_but_one_of_mog40(seed: int) -> dict[str, Any]:
    return trap("mog40", np.delete(np.arange(40), np.random.default_rng(seed).integers(40)).tolist(), seed)


TRAPS = {
    "stm20, 6 of 10 modes": six_of_stm20,
    "mog40, 39 of 40 modes": all_but_one_of_mog40,
    "a warp, 1 of 2 modes": warped_trap,
}


def exact_mixture(problem: Problem, kept: list[int]) -> bv.Mixture:
    """mog40 or stm20 with only the `kept` of their components, which are members of our families."""
    loc = problem.modes[kept]
    factors = problem.factors[kept]
    params = {
        "loc": loc,
        "factor": factors,
        "inverse": np.linalg.inv(factors),
        "log_volume": np.linalg.slogdet(factors)[1],
    }
    family = FullRankNormal() if problem.name == "mog40" else FullRankStudentT(2.0)
    return mixtures.of(family, params, np.full(len(kept), 1.0 / len(kept)))


def interval(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson: exact, and not empty at 0."""
    tail = (1.0 - level) / 2.0
    low = beta.ppf(tail, count, total - count + 1) if count else 0.0
    high = beta.ppf(1.0 - tail, count + 1, total - count) if count < total else 1.0
    return float(low), float(high)


def report(rows: list[dict[str, Any]]) -> str:
    lines = [machine(), ""]
    table = []
    for target in dict.fromkeys(row["target"] for row in rows):
        for budget in sorted({row["budget"] for row in rows if row["target"] == target}, reverse=True):
            some = [row for row in rows if row["target"] == target and row["budget"] == budget]
            verdicts = [row["verdict"] for row in some]
            table.append(
                {
                    "target": target,
                    "budget": f"{budget:g} ×",
                    "runs": len(some),
                    "median gap": f"{np.median([row['gap'] for row in some]):.4f}",
                    "median KL estimate": f"{np.median([row['kl'] for row in some]):.4f}",
                    "KL within 2 se": "–" if target in (*TRAPS, *DECEPTIVE) else _within(some),
                    **{word: verdicts.count(word) for word in ("good", "usable", "unreliable")},
                    "false good": sum(row["false_good"] for row in some),
                }
            )
    lines += [markdown(list(table[0]), [[str(cell) for cell in row.values()] for row in table]), ""]
    groups = {
        "the listed targets": [row for row in rows if row["target"] not in (*TRAPS, *DECEPTIVE)],
        "the deceptive ones": [row for row in rows if row["target"] in DECEPTIVE],
        "planted traps": [row for row in rows if row["target"] in TRAPS],
    }
    lines += [false_rate(name, of) for name, of in groups.items() if of]
    accurate = [row for row in rows if row["gap"] <= ACCURATE_GAP and not row["missing_modes"]]
    called = sum(row["verdict"] == "good" for row in accurate)
    lines.append(
        f'runs with a gap of at most {ACCURATE_GAP} nats and every mode: {len(accurate)}; called "good": {called} '
        f"({100 * called / max(len(accurate), 1):.0f} %)"
    )
    return "\n".join(lines)


def false_rate(name: str, rows: list[dict[str, Any]]) -> str:
    goods, false = sum(row["verdict"] == "good" for row in rows), sum(row["false_good"] for row in rows)
    low, high = interval(false, len(rows))
    return (
        f'false "good" on {name}: {false} of {goods}; of all {len(rows)} runs {100 * false / len(rows):.1f} % '
        f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
    )


def _within(rows: list[dict[str, Any]]) -> str:
    """How many KL estimates lie within two standard errors of the truth, where they can be expected to."""
    sound = [row for row in rows if row["khat"] < 0.7 and not row["missing_modes"]]
    if not sound:
        return "–"
    hits = sum(abs(row["kl"] - row["gap"]) <= 2.0 * np.hypot(row["kl_se"], row["gap_se"]) for row in sound)
    return f"{hits} of {len(sound)}"


def key_of(row: dict[str, Any]) -> tuple[str, float, int]:
    return row["target"], row["budget"], row["seed"]


def planned(arguments: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """What identifies each run, and how it is made. Seeds outermost: a part of it all is worth something."""
    for seed in range(arguments.seeds):
        for name in arguments.targets:
            for budget in arguments.budgets if name not in DECEPTIVE else [1.0]:
                yield {"target": name, "budget": budget, "seed": seed}, partial(fitted, name, seed, budget)
        for name, planted in TRAPS.items() if arguments.traps else ():
            yield {"target": name, "budget": 1.0, "seed": seed}, partial(planted, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*available(LISTED), *DECEPTIVE]
    parser.add_argument("--targets", type=lambda text: text.split(","), default=known, help="comma-separated; all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budgets", type=lambda text: list(map(float, text.split(","))), default=[1.0, 0.2])
    parser.add_argument("--no-traps", dest="traps", action="store_false", help="leave the planted traps out")
    parser.add_argument("--out", type=Path, default=Path("honesty-output"), help="folder for records and tables")
    parser.add_argument("--table", action="store_true", help="run nothing; print what runs.jsonl has of these")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "runs.jsonl"
    found = {key_of(row): row for row in records(file)}
    rows = []
    for identity, make in planned(arguments):
        row = found.get(key_of(identity))
        if row is None and not arguments.table:
            row = identity | make()
            record(file, row)
            _show(row)
        rows += [] if row is None else [row]
    if not rows:
        print(f"{file} has no such runs.")
        return
    text = report(rows)
    (arguments.out / "honesty.md").write_text(text + "\n")
    print(text)


def _show(row: dict[str, Any]) -> None:
    print(
        f"{row['target']} seed {row['seed']} budget {row['budget']:g}: gap {row['gap']:.4f}, KL {row['kl']:.4f} ± "
        f"{row['kl_se']:.4f}, k̂ {row['khat']:.2f}, {row['components']} components, "
        f"{row['missing_modes']} modes missed, {row['verdict']}, "
        f"{row['seconds']:.1f} s + {row['judging_seconds']:.1f} s",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
