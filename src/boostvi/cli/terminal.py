"""Lines for the person at the keyboard: always on stderr, in colour only where that is wanted."""

from __future__ import annotations

import os
import sys
from typing import TextIO

COLOURS = {"error": "31", "warning": "33", "good": "32", "usable": "33", "unreliable": "31"}


def in_colour(stream: TextIO) -> bool:
    """A terminal that understands colours, and nobody who asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, kind: str, stream: TextIO) -> str:
    return f"\x1b[1;{COLOURS[kind]}m{text}\x1b[0m" if in_colour(stream) else text


def message(text: str, kind: str | None = None) -> None:
    """`boostvi: error: text`, or without a kind `boostvi: text`."""
    lead = "boostvi: " + (coloured(f"{kind}:", kind, sys.stderr) + " " if kind else "")
    erase = "\r\x1b[K" if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else ""  # a live line of progress
    print(f"{erase}{lead}{text}", file=sys.stderr, flush=True)


def say(text: str, quiet: bool = False) -> None:
    """News on the way to the result."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)
