"""The command line `boostvi`: one file per command, and nothing heavy is imported until a command runs.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from boostvi.cli.errors import FAULT, INTERRUPTED, MISTAKE, PIPE_CLOSED, OutputError, UsageError
from boostvi.cli.parser import build
from boostvi.cli.terminal import message

__all__ = ["UsageError", "main"]

EXPECTED = (UsageError, OutputError)
MISTAKES = (ImportError, ValueError, OSError)
"""What the library raises for arguments, packages and files that are not right."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `boostvi --help`."""
    arguments = build().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ± and k̂ is no reason to fail
    try:
        with _warnings_in_one_line():
            code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return PIPE_CLOSED
    except KeyboardInterrupt:
        message("interrupted")
        return INTERRUPTED
    except Exception as error:
        return _explain(error, arguments)


def _explain(error: Exception, arguments: argparse.Namespace) -> int:
    """One line for a mistake, all of the traceback if it was asked for."""
    if arguments.debug:
        traceback.print_exception(error)
    if isinstance(error, EXPECTED):
        message(str(error), "error")
        return error.code
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MISTAKES):
        message(text, "error")
        return MISTAKE
    hint = "" if arguments.debug else "; --debug shows where, please report it"
    message(f"unexpected {type(error).__name__}: {text}{hint}", "error")
    return FAULT


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Warnings as a line for people, without the source line that raised them."""

    def show(text: Warning | str, *_: Any) -> None:
        message(" ".join(str(text).split()), "warning")

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield
