"""`boostvi bench`: the benchmarks of a source checkout."""

from __future__ import annotations

import argparse
import subprocess
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import boostvi
from boostvi.cli.errors import OK, UsageError
from boostvi.cli.options import add_command

DESCRIPTION = """Run one of the benchmarks of a source checkout; what follows its name is handed on to it.
Without a name, list them."""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "bench", run, help="run a benchmark of a source checkout", description=DESCRIPTION,
        examples="  boostvi bench\n  boostvi bench cold_start\n  boostvi bench kill --kills 5",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME", help="a file of benchmarks/, without .py")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")


def folder() -> Path:
    """benchmarks/ of the checkout that this package, or the working directory, belongs to."""
    for root in (Path(boostvi.__file__).resolve().parents[2], Path.cwd()):
        if (root / "benchmarks").is_dir() and (root / "src" / "boostvi").is_dir():
            return root / "benchmarks"
    raise UsageError(
        "benchmarks are part of the source, not of the installed package: run this in a checkout of boostvi"
    )


def run(arguments: argparse.Namespace) -> int:
    scripts = {path.stem: path for path in sorted(folder().glob("[!_]*.py"))}
    if arguments.name is None:
        print("\n".join(scripts))
        return OK
    if arguments.name not in scripts:
        near = get_close_matches(arguments.name, scripts, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(scripts)}"
        raise UsageError(f"there is no benchmark {arguments.name!r}; {hint}")
    return subprocess.call([sys.executable, str(scripts[arguments.name]), *arguments.rest])
