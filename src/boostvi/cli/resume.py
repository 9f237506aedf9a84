"""`boostvi resume`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from boostvi.cli.options import add_budgets, add_command, add_outcome, add_sources

DESCRIPTION = """Go on with the fit in a run folder, exactly where it stopped, with the budgets it was given or with
larger ones. A fit that is complete just shows its result."""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "resume", run, help="go on with a fit, perhaps with a larger budget", description=DESCRIPTION,
        examples="  boostvi resume run\n  boostvi resume run --max-seconds 600 --max-components 64",
    )  # fmt: skip
    parser.add_argument("folder", metavar="DIR", type=Path, help="a run folder that `boostvi fit` made")
    add_sources(parser)
    add_budgets(parser)
    add_outcome(parser)


def run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from boostvi.cli import run_folder
    from boostvi.cli.fit import given_budgets
    from boostvi.cli.fitting import execute, moved, prepare

    folder = arguments.folder
    plan = moved(run_folder.read(folder), arguments.model, arguments.data)
    plan = replace(plan, budgets={**plan.budgets, **given_budgets(arguments)})
    return execute(folder, prepare(plan, arguments.quiet), arguments)
