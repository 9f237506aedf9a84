"""boostvi beside its peers on targets with a known log Z, in one run: how close, how fast, at what price.

    python benchmarks/compare.py [--targets a,b] [--tools a,b] [--seeds 5] [--out compare-output] [--budget-scale 1.0]
    python benchmarks/compare.py --table            # renders what was measured before once more

Every tool gets the target's budget of wall-clock seconds, tracing and compilation included. Every run has a process of
its own: nothing is compiled before, and the clock starts after the imports. All arithmetic is float64. The gap is
log Z − ELBO in nats, the ELBO from 20,000 fresh draws of the result, made after the clock has stopped, in the same way
for all tools. Compilation is what JAX itself reports as tracing, lowering and compiling, again for all tools alike.
A run that failed counts as an infinite gap in the medians, and is listed.

Settings
- boostvi: `bv.fit(target, seed=seed, max_seconds=budget)`, nothing else. Its curve are its own steps, and the fresh
  draws behind each are on its clock; its verdict comes after the clock and is timed by itself.
- NumPyro AutoNormal, AutoMultivariateNormal, AutoBNAFNormal (guides as they are by default): SVI with Trace_ELBO of 10
  particles and Adam, learning rate from 1e-2 to 0 by a cosine over 10,000 steps; stopped at the budget if that comes
  first. Steps that would make the state NaN are skipped. Its curve is evaluated off the clock, 2,000 draws a point.
- BlackJAX Pathfinder: 10 paths from U(−2, 2), 100 iterations of L-BFGS at most (BlackJAX's 30 are too few for several
  targets), 200 draws for each ELBO, the rest as by default; paths one after the other (the vmapped program can hang on
  a CPU), as many as the budget allows. Result: the mixture of the paths' Gaussians with weights ∝ exp(ELBO).
  "as is": BlackJAX 1.7 centres each Gaussian at x + H∇(−ln p). "sign-corrected": at x − H∇(−ln p), as in Zhang et al.
  (2022), and the iterate with the best ELBO chosen again.
- NumPyro NUTS: 4 vectorised chains, 1,000 draws each after 1,000 of warm-up. It has no ELBO and no budget; it is
  stopped after 300 s.

Evaluations are log densities or gradients, one each per draw. For Pathfinder those of the line searches, and for NUTS
those of the warm-up, are not reported by the tool: marked ≥.
Means and standard deviations are compared with exact draws where the target has them, else with the NUTS runs pooled
over seeds, if these converged. On the funnel v and x·exp(−v/2) are compared; targets of infinite variance are left out.
"Stopped by itself" is for another reason than one of its limits (seconds, components, steps).
A mode counts as found when at least a tenth of the draws due to it lie in it, and in the target's 99 % region.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from _data import machine, markdown, record, records
from _peers import FINAL_DRAWS, SVI_STEPS, TOOLS, Fit, elbo, log_densities
from honesty import ACCURATE_GAP, FALSE_GAP
from targets import MAKERS, Problem, available, get, robot_modes

Run = dict[str, Any]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
LOOKS = {
    "boostvi": ("boostvi", BLUE, "o"),
    "autonormal": ("AutoNormal", ORANGE, "^"),
    "automvn": ("AutoMVN", VERMILLION, "s"),
    "autobnaf": ("AutoBNAF", GREEN, "D"),
    "pathfinder": ("Pathfinder, as is", PURPLE, "X"),
    "pathfinder-corrected": ("Pathfinder, sign-corrected", SKY, "P"),
    "nuts": ("NUTS", BLACK, "v"),
}
"""Label, colour (Okabe & Ito 2008: told apart by colour-blind people) and marker."""
NEEDS_BLACKJAX = ("pathfinder", "pathfinder-corrected")
INSTALL = "Pathfinder was SKIPPED: BlackJAX is not installed; pip install 'boostvi[bench]' brings it."

NUTS_LIMIT = 300.0
"""Seconds after which NUTS is stopped."""
GRACE = 240.0
"""Seconds beyond the budget, for imports, the last step and the evaluation, after which any other run is stopped."""
FOUND_SHARE = 0.1
"""Of the draws due to a mode, the share that must lie in it."""
REGION = 0.01
"""Share of the exact draws outside of the region of high density in which draws count for a mode."""
ROBOT_REACH = 30.0
"""Nats below the best draw within which a draw of the robot counts for a mode; off the goal by 0.1 costs 50."""
REFERENCE_DRAWS = 100_000
"""Exact draws behind moments: an error of 0.003 sd where 0.1 matters."""
INFINITE_VARIANCE = ("stm20", "mos20")
CONVERGED_RHAT, ENOUGH_ESS = 1.05, 400
"""NUTS is a reference for moments up to this R̂, and from this ESS (an error of 0.05 sd) over all seeds."""
QUICK_PEER = 10.0
"""Seconds of AutoMVN above which boostvi is to need at most a third of its time, and otherwise no more."""
CLOSE = 0.05
"""Nats within which AutoMVN is called to be where it ends."""
LATE = 1.0
"""Seconds beyond the budget from which the table says so."""
FLOOR = 1e-4
"""Smaller gaps, or negative ones, are noise of the draws: they are drawn at this height."""


# -- one run, in a process of its own


def measure(tool: str, target: str, seed: int, budget: float) -> Run:
    problem = get(target)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    where = re.sub(r", load average .* at the start", "", machine())  # which differs in every run
    fit = TOOLS[tool](problem, seed, budget)
    run = identity(tool, target, seed, budget) | fit.times
    run |= {"evals": fit.evals, "at_least": fit.at_least, "curve": fit.curve, "load": load, "machine": where}
    return run | judged(problem, fit) | fit.notes


def identity(tool: str, target: str, seed: int, budget: float) -> Run:
    return {"tool": tool, "target": target, "seed": seed, "budget": None if tool == "nuts" else round(budget, 3)}


def judged(problem: Problem, fit: Fit) -> Run:
    """ELBO and gap, if there is a density; modes found; moments."""
    run: Run = {}
    draws = fit.samples
    if fit.draw is not None:
        draws, log_q = fit.draw(FINAL_DRAWS)
        value, error = elbo(problem, draws, log_q)
        run = {"elbo": value, "elbo_se": error, "gap": problem.log_z - value}
    assert draws is not None
    run |= {"modes": modes_found(problem, draws)}
    if (compared := functionals(problem, draws)) is not None:
        run |= {"means": compared.mean(axis=0).tolist(), "sds": compared.std(axis=0, ddof=1).tolist()}
    return run


def modes_found(problem: Problem, draws: np.ndarray) -> int | None:
    values = log_densities(problem, draws)
    if problem.name == "robot":
        return robot_modes(draws[values > values.max() - ROBOT_REACH])
    if problem.modes is None or problem.exact is None:
        return None
    exact = problem.exact(np.random.default_rng(0), FINAL_DRAWS)
    inside = draws[values >= np.quantile(log_densities(problem, exact), REGION)]
    distances = ((inside[:, None] - problem.modes) ** 2).sum(axis=-1)
    counts = np.bincount(distances.argmin(axis=1), minlength=len(problem.modes))
    return int((counts >= FOUND_SHARE * len(draws) / len(problem.modes)).sum())


def n_modes(problem: Problem) -> int | None:
    return 8 if problem.name == "robot" else None if problem.modes is None else len(problem.modes)


def functionals(problem: Problem, draws: np.ndarray) -> np.ndarray | None:
    """What moments are taken of; None where these do not exist."""
    if problem.name in INFINITE_VARIANCE:
        return None
    if problem.name == "funnel":
        v = draws[:, :1]
        return np.concatenate([v, draws[:, 1:] * np.exp(-0.5 * v)], axis=1)
    return draws


# -- all runs


def measure_apart(tool: str, target: str, seed: int, scale: float) -> Run:
    """One run in a new process; whatever becomes of it is a record."""
    budget = scale * get(target).budget
    limit = NUTS_LIMIT if tool == "nuts" else budget + GRACE
    command = [sys.executable, __file__, "--one", tool, target, str(seed), "--budget-scale", str(scale)]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # compilation is part of the measurement
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return identity(tool, target, seed, budget) | {"failed": f"stopped after {limit:.0f} s", "limit": limit}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return identity(tool, target, seed, budget) | {"failed": lines[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def key_of(run: Run) -> tuple[Any, ...]:
    return run["tool"], run["target"], run["seed"], run["budget"]


def read(file: Path) -> dict[tuple[Any, ...], Run]:
    """The last record of each run."""
    return {key_of(run): run for run in records(file)}


def run_all(args: argparse.Namespace, file: Path) -> None:
    """Seeds outermost: what else the machine does falls on all tools alike, and a part of it all is worth something."""
    plan = [(tool, target, seed) for seed in range(args.seeds) for target in args.targets for tool in args.tools]
    finished = {} if args.fresh else read(file)
    for i, (tool, target, seed) in enumerate(plan, 1):
        if tuple(identity(tool, target, seed, args.budget_scale * get(target).budget).values()) in finished:
            continue
        run = measure_apart(tool, target, seed, args.budget_scale)
        record(file, run)
        outcome = f"FAILED, {run['failed']}" if "failed" in run else f"{run['seconds']:.1f} s"
        gap = f", gap {number(run['gap'])}" if "gap" in run else ""
        print(f"[{i}/{len(plan)}] {target}, {LOOKS[tool][0]}, seed {seed}: {outcome}{gap}", flush=True)


# -- tables


def number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "—"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == round(value):
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 1 else f"{value:.3g}"
    text = f"{value:,.0f}" if abs(value) >= 1000 else text
    return text.replace("-", "−")


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def tally(values: Iterable[Any]) -> str:
    counts = Counter(values)
    return ", ".join(str(value) if len(counts) == 1 else f"{n} × {value}" for value, n in counts.most_common())


def reference(problem: Problem, nuts: list[Run]) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Means, standard deviations, and where they come from."""
    if problem.exact is not None:
        exact = functionals(problem, problem.exact(np.random.default_rng(1), REFERENCE_DRAWS))
        return None if exact is None else (exact.mean(axis=0), exact.std(axis=0), "exact")
    good = [run for run in nuts if "failed" not in run and run["max_rhat"] < CONVERGED_RHAT]
    ess = sum(run["min_ess"] for run in good)
    if ess < ENOUGH_ESS or len(good) < len(nuts):
        return None
    means, sds = (np.array([run[name] for run in good]) for name in ("means", "sds"))
    return means.mean(axis=0), np.sqrt((sds**2).mean(axis=0)), f"NUTS, ESS {ess:,.0f}"


def moment_errors(run: Run, truth: tuple[np.ndarray, np.ndarray, str] | None) -> tuple[float, float] | None:
    """The largest error of a mean in sds, and of an sd relative to it."""
    if truth is None or "means" not in run:
        return None
    mean, sd, _ = truth
    return float(np.max(np.abs(run["means"] - mean) / sd)), float(np.max(np.abs(run["sds"] / sd - 1.0)))


def ending(tool: str, runs: list[Run]) -> str:
    parts = []
    if tool == "boostvi" and runs:
        parts = [tally(run["verdict"] for run in runs), tally(run["status"] for run in runs)]
        parts.append(f"{median(run['components'] for run in runs):.0f} × {tally(run['family'] for run in runs)}")
    if any("steps" in run for run in runs):
        steps = median(run["steps"] for run in runs) or 0
        parts.append("all steps" if steps == SVI_STEPS else f"budget ended at step {steps:,.0f} of {SVI_STEPS:,}")
    if any("paths" in run for run in runs):
        parts.append(f"{median(run['paths'] for run in runs):.0f} paths")
    late = median(run["seconds"] - run["budget"] for run in runs if run["budget"]) or 0.0
    if late > LATE:
        parts.append(f"{late:.1f} s OVER the budget")
    return "; ".join(parts)


def summarise(target: str, tool: str, runs: list[Run], truth: tuple[np.ndarray, np.ndarray, str] | None) -> Run:
    """One line of the CSV file: medians over seeds."""
    problem, done = get(target), [run for run in runs if "failed" not in run]
    gaps = [math.inf if "failed" in run else run["gap"] for run in runs] if tool != "nuts" else []
    errors = [pair for run in done if (pair := moment_errors(run, truth)) is not None]
    own_reference = tool == "nuts" and truth is not None and truth[2] != "exact"
    summary = {
        "target": target,
        "tool": tool,
        "runs": len(runs),
        "failed": len(runs) - len(done),
        "gap": median(gaps),
        "gap_min": min(gaps, default=None),
        "gap_max": max(gaps, default=None),
        "wanted": problem.wanted,
        "seconds": median(run["seconds"] for run in done),
        "seconds_without_compilation": median(run["seconds"] - run["compiling"] for run in done),
        "cpu_seconds": median(run["cpu"] for run in done),
        "evaluations": median(run["evals"] for run in done),
        "evaluations_at_least": any(run["at_least"] for run in done),
        "modes": median(run["modes"] for run in done),
        "modes_of": n_modes(problem),
        "mean_error": None if own_reference else median(mean for mean, _ in errors),
        "sd_error": None if own_reference else median(sd for _, sd in errors),
        "moments_from": truth[2] if truth else "",
        "ending": ending(tool, done),
        "failures": tally(run["failed"] for run in runs if "failed" in run),
    }
    for name in (
        "steps",
        "paths",
        "khat",
        "kl_estimate",
        "kl_se",
        "verdict_seconds",
        "min_ess",
        "max_rhat",
        "divergences",
    ):
        summary[name] = median(run.get(name) for run in done)
    return summary


def gap_table(summaries: dict[tuple[str, str], Run], targets: list[str], tools: list[str]) -> str:
    tools = [tool for tool in tools if tool != "nuts"]
    rows, beaten = [], []
    for target in targets:
        found = {tool: summaries[target, tool] for tool in tools if (target, tool) in summaries}
        problem = get(target)
        cells = [number(found[tool]["gap"]) + cut_short(found[tool]) if tool in found else "—" for tool in tools]
        rows.append([f"{target} ({problem.dim}-d)", f"≤ {problem.wanted:g}", *cells])
        ours = found.get("boostvi", {}).get("gap")
        better = [LOOKS[tool][0] for tool in found if ours is not None and found[tool]["gap"] < ours]
        beaten += [f"{target} ({', '.join(better)})"] if better else []
    text = markdown(["gap, nats", "wanted", *(LOOKS[tool][0] for tool in tools)], rows)
    if "*" in text:
        text += (
            f"\n\n\\* the budget ended before its {SVI_STEPS:,} steps; after one step it had only compiled (see below)."
        )
    if "boostvi" in tools and len(tools) > 1:
        text += f"\n\nA peer has a smaller median gap than boostvi on: {'; '.join(beaten) or 'none of these targets'}."
    return text


def verdicts(runs: dict[tuple[str, str], list[Run]]) -> list[str]:
    """How often boostvi's "good" was false, and how often it was said of an accurate fit; as honesty.py has it."""
    ours = [(get(target), run) for (target, tool), group in runs.items() if tool == "boostvi" for run in group]
    judged = [(run, run["modes"] in (None, n_modes(problem))) for problem, run in ours if "verdict" in run]
    if not judged:
        return []
    false = sum(run["verdict"] == "good" and (run["gap"] > FALSE_GAP or not complete) for run, complete in judged)
    accurate = [run["verdict"] == "good" for run, complete in judged if run["gap"] <= ACCURATE_GAP and complete]
    return [
        f'boostvi said a false "good" (a gap above {FALSE_GAP} nats, or a missing mode) in {false} of {len(judged)} '
        f"runs; of {len(accurate)} with a gap of at most {ACCURATE_GAP} and every mode, {sum(accurate)} were called "
        '"good".'
    ]


def cut_short(summary: Run) -> str:
    return "*" if summary["steps"] is not None and summary["steps"] < SVI_STEPS else ""


def detail_table(summaries: list[Run]) -> str:
    header = ["tool", "gap", "lowest", "highest", "seconds", "not compiling", "CPU s", "evaluations", "modes"]
    header.append("how it ended")
    rows = []
    for line in summaries:
        failed = f"{line['failed']} of {line['runs']} FAILED: {line['failures']}" if line["failed"] else ""
        modes = "" if line["modes_of"] is None else f"{number(line['modes'])} of {line['modes_of']}"
        evals = ("≥ " if line["evaluations_at_least"] else "") + number(line["evaluations"])
        numbers = [number(line[name]) for name in ("gap", "gap_min", "gap_max", "seconds")]
        numbers += [number(line[name]) for name in ("seconds_without_compilation", "cpu_seconds")] + [evals, modes]
        rows.append([LOOKS[line["tool"]][0], *numbers, "; ".join(part for part in (line["ending"], failed) if part)])
    return markdown(header, rows)


def nuts_table(runs: dict[tuple[str, str], list[Run]], summaries: dict[tuple[str, str], Run]) -> str:
    """NUTS as a sampler, and whether boostvi has stopped by itself, with the right moments, before it has finished."""
    header = ["target", "NUTS, s", "min ESS", "max R̂", "divergences", "mean error, sd", "sd error, %", "boostvi, s"]
    header += ["mean error, sd", "sd error, %", "stopped by itself before", "moments from"]
    rows = []
    for (target, tool), nuts in summaries.items():
        if tool != "nuts":
            continue
        ours = summaries.get((target, "boostvi"), {})
        seconds = f"> {NUTS_LIMIT:.0f}" if nuts["failures"].startswith("stopped after") else number(nuts["seconds"])
        row = [target, seconds, *(number(nuts[name]) for name in ("min_ess", "max_rhat", "divergences"))]
        row += [*errors_of(nuts), number(ours.get("seconds")), *errors_of(ours)]
        rows.append([*row, stopped_before(runs.get((target, "boostvi"), []), runs[target, tool]), nuts["moments_from"]])
    return markdown(header, rows) if rows else ""


def errors_of(summary: Run) -> list[str]:
    sd_error = summary.get("sd_error")
    return [number(summary.get("mean_error")), "—" if sd_error is None else f"{100 * sd_error:.1f}"]


def stopped_before(ours: list[Run], nuts: list[Run]) -> str:
    """In how many seeds boostvi ended for a reason of its own earlier than NUTS did."""
    times = {run["seed"]: run.get("seconds", run.get("limit")) for run in nuts}
    pairs = [(run, times[run["seed"]]) for run in ours if times.get(run["seed"]) is not None]
    by_itself = [
        run for run, end in pairs
        if "failed" not in run and not run["status"].startswith("max-") and run["seconds"] < end
    ]  # fmt: skip
    return f"{len(by_itself)} of {len(pairs)}" if pairs else "—"


def reach_table(runs: dict[tuple[str, str], list[Run]], targets: list[str]) -> str:
    """When boostvi's own steps first have the ELBO that AutoMVN ends with, same seed."""
    header = ["target", "AutoMVN, s", f"within {CLOSE:g} nats of its end, s", "boostvi there, s", "ratio"]
    header += ["wanted", "met"]
    rows = []
    for target in targets:
        peers = {run["seed"]: run for run in runs.get((target, "automvn"), []) if "failed" not in run}
        ours = [run for run in runs.get((target, "boostvi"), []) if run["seed"] in peers]
        if not ours:
            continue
        arrivals = [reached(run, peers[run["seed"]]["elbo"]) for run in ours]
        ratio = median(at / peers[run["seed"]]["seconds"] for at, run in zip(arrivals, ours, strict=True)) or math.inf
        whole = median(peers[run["seed"]]["seconds"] for run in ours) or math.nan
        close = median(reached(peers[run["seed"]], peers[run["seed"]]["elbo"] - CLOSE) for run in ours)
        wanted = 1 / 3 if whole > QUICK_PEER else 1.0
        met = "yes" if ratio <= wanted else "NO"
        cells = [target, number(whole), number(close), number(median(arrivals)), number(ratio), f"≤ {wanted:.2f}", met]
        rows.append(cells)
    return markdown(header, rows) if rows else ""


def reached(run: Run, elbo: float) -> float:
    """Seconds until its curve first has this ELBO; a failed run never has."""
    return next((at for at, value, _ in run.get("curve", []) if value >= elbo), math.inf)


def circumstances(runs: list[Run]) -> list[str]:
    """The machines, and how busy they were."""
    done = [run for run in runs if "failed" not in run]
    lines = sorted({run["machine"] for run in done})
    loads = [run["load"] for run in done]
    return [*lines, f"Load average before each run: {min(loads):.1f} to {max(loads):.1f}."] if done else []


def report(args: argparse.Namespace, runs: dict[tuple[str, str], list[Run]]) -> tuple[str, list[Run]]:
    targets = [target for target in args.targets if any(target == key[0] for key in runs)]
    summaries: dict[tuple[str, str], Run] = {}
    for target in targets:
        truth = reference(get(target), runs.get((target, "nuts"), []))
        for tool in args.tools:
            if (target, tool) in runs:
                summaries[target, tool] = summarise(target, tool, runs[target, tool], truth)
    tools = [tool for tool in args.tools if any(tool == key[1] for key in summaries)]
    parts = ["# boostvi and its peers", *circumstances([run for group in runs.values() for run in group])]
    seeds = {tool: max(len(group) for (_, of), group in runs.items() if of == tool) for tool in tools}
    counts = {n: ", ".join(LOOKS[tool][0] for tool in tools if seeds[tool] == n) for n in sorted(set(seeds.values()))}
    parts.append(
        f"Medians over seeds ({'; '.join(f'{n}: {names}' for n, names in counts.items())}); budgets × "
        f"{args.budget_scale:g}, compilation included. Settings and definitions: the head of benchmarks/compare.py."
    )
    if args.skipped:
        parts.append(f"**{INSTALL}**")
    parts += ["## Gap to log Z", gap_table(summaries, targets, tools), *verdicts(runs)]
    if text := reach_table(runs, targets):
        parts += ["## Time to AutoMultivariateNormal's final ELBO, compilation included on both sides", text]
    if text := nuts_table(runs, summaries):
        parts += ["## Against NUTS (4 × 1,000 draws)", text]
    for target in targets:
        lines = [summaries[target, tool] for tool in tools if (target, tool) in summaries]
        parts += [f"## {target}, {args.budget_scale * get(target).budget:g} s", detail_table(lines)]
    return "\n\n".join(parts), list(summaries.values())


# -- plot


def plot(runs: dict[tuple[str, str], list[Run]], targets: list[str], file: Path) -> None:
    """A panel for each target: gap against seconds, both logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = min(4, len(targets))
    rows = -(-len(targets) // columns)
    size = (max(3.1 * columns, 6.2), 2.7 * rows + 1.0)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for ax, target in zip(axes.flat, targets, strict=False):
        panel(ax, target, runs)
    for ax in axes.flat[len(targets) :]:
        ax.set_axis_off()
    for row in axes:
        row[0].set_ylabel("gap to log Z, nats")
    handles: dict[str, Any] = {}
    for ax in axes.flat:
        handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)
    figure.savefig(file, dpi=160)
    plt.close(figure)


def panel(ax: Any, target: str, runs: dict[tuple[str, str], list[Run]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    problem = get(target)
    ax.set(xscale="log", yscale="log", title=f"{target}, d = {problem.dim}", xlabel="seconds, compilation included")
    ax.set_title(ax.get_title(), size=10, pad=9)
    for tool in LOOKS:
        done = [run for run in runs.get((target, tool), []) if "failed" not in run]
        if tool == "nuts":
            draw_ends(ax, tool, [run["seconds"] for run in done])
        else:
            draw_curves(ax, tool, problem, [run for run in done if math.isfinite(run["gap"])])
    ax.axhline(problem.wanted, color=GREY, lw=1.0, ls=":", label="gap wanted")
    ax.set_xlim(ax.get_xlim()[0] / 1.15, ax.get_xlim()[1] * 1.15)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(labelsize=8)
    ax.grid(alpha=0.25, lw=0.5)


def draw_curves(ax: Any, tool: str, problem: Problem, runs: list[Run]) -> None:
    """All seeds thin, the one with the median gap bold."""
    label, colour, marker = LOOKS[tool]
    middle = sorted(runs, key=lambda run: run["gap"])[(len(runs) - 1) // 2 :][:1]
    for run in runs:
        bold = run in middle
        points = np.array([*((at, problem.log_z - value) for at, value, _ in run["curve"][:-1]), last_point(run)])
        points = points[np.isfinite(points).all(axis=1)]
        look = {"lw": 1.5, "ms": 4.5, "zorder": 3} if bold else {"lw": 0.7, "ms": 2.5, "alpha": 0.35}
        look |= {"color": colour, "marker": marker, "ls": "-" if run["curve"] else ""}
        ax.plot(points[:, 0], np.maximum(points[:, 1], FLOOR), **look, label=label if bold else None)


def draw_ends(ax: Any, tool: str, ends: list[float]) -> None:
    """When a sampler ended, on the frame of the panel: it has no ELBO."""
    label, colour, marker = LOOKS[tool]
    if ends:
        look = {"color": colour, "marker": marker, "ls": "", "ms": 5, "transform": ax.get_xaxis_transform()}
        ax.plot(ends, [1.0] * len(ends), **look, clip_on=False, zorder=4, label=f"{label} ends (no ELBO)")


def last_point(run: Run) -> tuple[float, float]:
    return run["seconds"], run["gap"]


# -- command line


def names(known: Iterable[str]) -> Any:
    def parse(text: str) -> list[str]:
        chosen, possible = text.split(","), list(known)
        if unknown := [name for name in chosen if name not in possible]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(possible)}")
        return chosen

    return parse


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=names(MAKERS), default=available(), help="comma-separated; all listed ones")
    parser.add_argument("--tools", type=names(TOOLS), default=list(TOOLS), help="comma-separated; all")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each tool on each target")
    parser.add_argument("--out", type=Path, default=Path("compare-output"), help="folder for records, tables and plot")
    parser.add_argument("--budget-scale", type=float, default=1.0, help="factor on every budget, for smaller runs")
    parser.add_argument("--fresh", action="store_true", help="measure again what runs.jsonl has already")
    parser.add_argument("--table", action="store_true", help="run nothing; render what runs.jsonl has")
    parser.add_argument("--one", nargs=3, metavar=("TOOL", "TARGET", "SEED"), help="one run in this process, as JSON")
    args = parser.parse_args(argv)
    args.skipped = importlib.util.find_spec("blackjax") is None and any(tool in NEEDS_BLACKJAX for tool in args.tools)
    return args


def render(args: argparse.Namespace, file: Path) -> None:
    """Tables and plot of what was measured with these budgets."""
    budgets = {target: round(args.budget_scale * get(target).budget, 3) for target in args.targets}
    runs: dict[tuple[str, str], list[Run]] = {}
    for run in read(file).values():
        if run["target"] in budgets and run["tool"] in args.tools and run["budget"] in (None, budgets[run["target"]]):
            runs.setdefault((run["target"], run["tool"]), []).append(run)
    if not runs:
        print(f"{file} has no runs of these tools and targets with budgets × {args.budget_scale:g}.")
        return
    text, summaries = report(args, runs)
    (args.out / "compare.md").write_text(text + "\n")
    with (args.out / "compare.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, list(summaries[0]))
        writer.writeheader()
        writer.writerows(summaries)
    plot(runs, [target for target in args.targets if any(target == key[0] for key in runs)], args.out / "compare.png")
    print(f"\n{text}\n\nWritten: {', '.join(str(args.out / f'compare.{ending}') for ending in ('md', 'csv', 'png'))}")


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    jax.config.update("jax_enable_x64", True)  # before the targets compute their constants
    if args.one:
        tool, target, seed = args.one
        print(json.dumps(measure(tool, target, int(seed), args.budget_scale * get(target).budget)))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "runs.jsonl"
    if args.skipped:
        print(INSTALL)
        args.tools = [tool for tool in args.tools if tool not in NEEDS_BLACKJAX]
    if not args.table:
        run_all(args, file)
    render(args, file)


if __name__ == "__main__":
    main()
