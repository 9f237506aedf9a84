"""`boostvi compare`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from boostvi.cli.errors import OK, OutputError, UsageError
from boostvi.cli.options import add_command

DESCRIPTION = """A table of several fits, best ELBO first: verdict, ELBO and estimated KL with their errors, k̂,
effective draws, components, evaluations and seconds. Only fits of the same model and data have
ELBOs that can be compared."""

HEAD = ("run", "verdict", "ELBO", "KL", "khat", "ESS", "components", "evals", "seconds")


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "compare", run, help="a table and a picture of several fits", description=DESCRIPTION,
        examples="  boostvi compare run-auto run-adafw\n  boostvi compare runs/* --out compare.png",
    )  # fmt: skip
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="run folders that `boostvi fit` made")
    parser.add_argument("--out", metavar="FILE", type=Path, help="a picture, too (png, svg, pdf)")
    parser.add_argument("--json", action="store_true", help="a JSON list instead of the table")


def run(arguments: argparse.Namespace) -> int:
    from boostvi.cli.run_folder import RUN
    from boostvi.cli.terminal import message
    from boostvi.storage import load

    results = {}
    for folder in arguments.folders:
        if not (folder / RUN).is_file():
            raise UsageError(f"{folder} is no run folder with a fit: it has no {RUN}")
        results[str(folder)] = load(folder / RUN)
    if len(_problems(arguments.folders)) > 1:
        message("these are fits of different models or data: their ELBOs and KLs cannot be compared", "warning")
    rows = sorted((_row(name, result) for name, result in results.items()), key=lambda row: -row["elbo"])
    if arguments.json:
        print(json.dumps([{k: _or_null(v) for k, v in row.items()} for row in rows], indent=2, allow_nan=False))
    else:
        print(table(rows))
    if arguments.out is not None:
        _draw(results, arguments.out)
    return OK


def _problems(folders: list[Path]) -> set[str]:
    """What was fitted, model and data, in each folder that says so."""
    from boostvi.cli.run_folder import PLAN

    found = set()
    for folder in folders:
        if (folder / PLAN).exists():
            content = json.loads((folder / PLAN).read_text())
            data = content["data"] and content["data"]["sha256"]
            found.add(json.dumps([content["model"]["sha256"], content["model"]["function"], data, content["sources"]]))
    return found


def _row(name: str, result: Any) -> dict[str, Any]:
    """Stored numbers; those of the best step for a run that was never judged."""
    row = result.history.rows[result.best_step]
    if "_judgement" in vars(result):
        from boostvi.cli.outcome import numbers

        return {"run": name, **numbers(result)}
    known = {key: row[key] for key in ("elbo", "elbo_se", "kl_estimate", "kl_se", "log_evidence")}
    return {
        "run": name, "verdict": None, "status": result.status, **known, "khat": math.nan, "ess": math.nan,
        "components": row["n_active"], "family": result.mixture.family_name, "steps": result.history.rows[-1]["step"],
        "evals": result.evals, "seconds": result.run.seconds,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    cells = [HEAD]
    for row in rows:
        cells.append(
            (
                row["run"],
                row["verdict"] or "not judged",
                f"{row['elbo']:.3f} ± {row['elbo_se']:.2g}",
                f"{row['kl_estimate']:.3g} ± {row['kl_se']:.2g}",
                _number(row["khat"], ".2f"),
                _number(row["ess"], ".0f"),
                str(row["components"]),
                f"{row['evals']:,}",
                f"{row['seconds']:.1f}",
            )
        )
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    lines = []
    for line in cells:
        left = [f"{line[i]:<{widths[i]}}" for i in (0, 1)]
        lines.append("  ".join([*left, *(f"{line[i]:>{widths[i]}}" for i in range(2, len(HEAD)))]))
    return "\n".join(lines)


def _number(value: float, how: str) -> str:
    return format(value, how) if math.isfinite(value) else "–"


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(results: dict[str, Any], file: Path) -> None:
    from boostvi import plots

    try:
        plots.compare(results).savefig(file, dpi=120)
    except OSError as error:
        raise OutputError(f"cannot write {file}: {error.strerror}") from error
