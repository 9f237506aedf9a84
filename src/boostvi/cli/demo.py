"""`boostvi demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from boostvi.cli.errors import OK, UsageError
from boostvi.cli.options import add_command, seed


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "demo", run, help="fit two posteriors, compare them with plain VI, draw pictures",
        description="Fit two posteriors by plain VI and by boosting, print both, and draw pictures.",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR",
                        help="folder for the pictures (%(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0, help="seed of every fit (%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress line")


def run(arguments: argparse.Namespace) -> int:
    from boostvi import demo

    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {arguments.out}: {error.strerror}") from error
    demo.run(arguments.out, seed=arguments.seed, progress=not arguments.quiet)
    return OK
