"""The command line: `boostvi demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


class UsageError(Exception):
    """Something the person at the keyboard can put right."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 2 a mistake that is explained in one line, 130 Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (UsageError, ImportError, ValueError, OSError) as error:
        message = str(error).strip() or type(error).__name__
        print(f"boostvi: error: {message.splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("boostvi: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from boostvi import __version__

    parser = argparse.ArgumentParser(prog="boostvi", description="Boosting variational inference.")
    parser.add_argument("--version", action="version", version=f"boostvi {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="fit two posteriors, compare them with plain VI, draw pictures")
    demo.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the pictures (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="seed of every fit (%(default)s)")
    demo.add_argument("--quiet", action="store_true", help="no progress line")
    demo.set_defaults(run=_demo)

    from boostvi.reproduce.cli import add_parser

    add_parser(commands)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from boostvi import demo

    if arguments.seed < 0:
        raise UsageError(f"--seed must not be negative, got {arguments.seed}")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {arguments.out}: {error.strerror}") from error
    demo.run(arguments.out, seed=arguments.seed, progress=not arguments.quiet)
    return 0


if __name__ == "__main__":
    sys.exit(main())
