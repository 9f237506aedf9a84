"""Well-known posteriors against their reference draws: how far are the moments, and is "good" ever said in vain?

    python benchmarks/posteriors.py [--only SUBSTRING] [--seeds 1] [--max-seconds S] [--json FILE]

Needs the folder `posteriors` of reference draws beside the repository, and skips, visibly, without it. Every model is
fitted by `bv.fit(bv.from_numpyro(...))` with nothing else set. A "good" is false when, for any parameter, the mean is
off by more than 0.2 posterior standard deviations or the standard deviation by more than 20 %. Results called "usable"
are compared as their verdict says to use them, with importance weights; so is, for information, everything else.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from _data import machine, markdown

import boostvi as bv

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "posteriors"
FALSE_MEAN = 0.2
FALSE_SD = 0.2
DRAWS = 20_000


def registry(folder: Path = FOLDER) -> ModuleType | None:
    """The module that holds the models, if it lies beside the repository."""
    file = folder / "posteriors.py"
    if not file.exists():
        return None
    spec = importlib.util.spec_from_file_location("reference_posteriors", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def moments_against(draws: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> tuple[float, float]:
    """Largest error of a mean, in reference standard deviations, and largest relative error of a standard deviation."""
    means, sds = [0.0], [0.0]
    for name in reference.keys() & draws.keys():
        ours = np.reshape(draws[name], (len(draws[name]), -1))
        truth = np.reshape(reference[name], (len(reference[name]), -1)).astype(np.float64)
        sd = truth.std(axis=0)
        moving = sd > 1e-12 * np.abs(truth).max()
        means.append(np.max(np.abs(ours.mean(axis=0) - truth.mean(axis=0))[moving] / sd[moving]))
        sds.append(np.max(np.abs(ours.std(axis=0)[moving] / sd[moving] - 1.0)))
    return float(max(means)), float(max(sds))


def run(posteriors: ModuleType, name: str, seed: int, max_seconds: float | None) -> dict[str, Any]:
    problem = posteriors.get(name)
    begin = time.perf_counter()
    target = bv.from_numpyro(problem.model, *problem.args, **problem.kwargs)
    result = bv.fit(target, seed=seed, max_seconds=max_seconds, progress=False)
    verdict = result.verdict
    seconds = time.perf_counter() - begin
    mean_error, sd_error = moments_against(
        result.sample(DRAWS, seed=1, importance=verdict == "usable"), problem.reference
    )
    false_good = verdict == "good" and (mean_error > FALSE_MEAN or sd_error > FALSE_SD)
    return {
        "posterior": name, "dim": target.dim, "seed": seed, "mean_error": mean_error, "sd_error": sd_error,
        "khat": result.khat, "kl": result.kl_estimate, "components": result.mixture.n_active, "verdict": verdict,
        "false_good": bool(false_good), "evals": result.evals, "seconds": seconds, "status": result.status,
        "family": result.mixture.family.name, "ess": result.ess, "reasons": list(result.reasons),
        "reference": problem.reference_kind,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    header = ["posterior", "d", "mean error, sd", "sd error", "k̂", "KL", "components", "verdict", "seconds"]
    cells = [
        [
            row["posterior"].split("-")[0] + (f", seed {row['seed']}" if row["seed"] else ""),
            str(row["dim"]), f"{row['mean_error']:.3f}", f"{100 * row['sd_error']:.1f} %", f"{row['khat']:.2f}",
            f"{row['kl']:.3f}", str(row["components"]), row["verdict"] + (" (false)" if row["false_good"] else ""),
            f"{row['seconds']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, cells)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the posteriors whose name contains this")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-seconds", type=float, default=None)
    parser.add_argument("--json", type=Path, default=None, help="write the rows here as well")
    options = parser.parse_args(argv)
    posteriors = registry()
    if posteriors is None:
        print(f"SKIPPED: no reference posteriors in {FOLDER.parent.name}/{FOLDER.name} beside the repository")
        return 0
    rows = []
    for name in [name for name in posteriors.names() if options.only in name]:
        for seed in range(options.seeds):
            rows.append(run(posteriors, name, seed, options.max_seconds))
            row = rows[-1]
            print(
                f"{name} seed {seed}: {row['verdict']}, mean {row['mean_error']:.3f} sd, "
                f"sd {100 * row['sd_error']:.1f} %, k̂ {row['khat']:.2f}, KL {row['kl']:.3f}, {row['seconds']:.1f} s",
                file=sys.stderr,
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    good = [row for row in rows if row["verdict"] == "good"]
    print(table(rows))
    print(
        f"\nfalse goods: {sum(row['false_good'] for row in rows)}; called good: {len(good)} of {len(rows)}\n{machine()}"
    )
    return int(any(row["false_good"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
