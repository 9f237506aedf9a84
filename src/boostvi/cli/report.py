"""`boostvi report`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from boostvi.cli.errors import OK, UsageError
from boostvi.cli.options import add_command, add_sources

PAGE = "report.html"
DESCRIPTION = """Write one self-contained HTML page on the fit in a run folder: the verdict in words, the summary, and
the mixture as it grew. It needs no network, and can be mailed."""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "report", run, help="write a page that explains the posterior", description=DESCRIPTION,
        examples="  boostvi report run\n  boostvi report run --out patients.html --title 'Patients, 2024'",
    )  # fmt: skip
    parser.add_argument("folder", metavar="DIR", type=Path, help="a run folder that `boostvi fit` made")
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"the page (DIR/{PAGE})")
    parser.add_argument("--title", help="its title (the name of the model)")
    add_sources(parser)


def run(arguments: argparse.Namespace) -> int:
    from boostvi import report
    from boostvi.cli.fitting import restored
    from boostvi.cli.run_folder import TRACE
    from boostvi.trace import Trace

    folder = arguments.folder
    page = arguments.out or folder / PAGE
    if not page.parent.is_dir():
        raise UsageError(f"cannot write {page}: there is no folder {page.parent}")
    with contextlib.redirect_stdout(sys.stderr):
        plan, result = restored(folder, arguments.model, arguments.data)
        title = arguments.title or f"{plan.model.stem}: {plan.function}"
        trace = Trace.load(folder / TRACE) if (folder / TRACE).is_dir() and any((folder / TRACE).iterdir()) else None
        written = report.write(result, trace, page, title=title, command=plan.command(folder))
    print(written)
    return OK
