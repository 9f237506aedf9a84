"""One line with the numbers that matter: live in a terminal and in a notebook, now and then in a log file."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

LOG_SECONDS = 15.0
"""Between two lines of a log."""
TICK_SECONDS = 1.0
"""Between two looks at the clock, so that a long step does not look like a dead one."""
PACE_STEPS = 3
"""Steps whose mean duration tells how long the next ones will take."""
ASCII = {"±": "+-", "≈": "~", "≤": "<=", "·": "|", "…": "..."}
DROPPED_FIRST = (5, 4, 6, 1)
"""What a narrow terminal does without: evaluations, kind, time, components."""


@dataclass(frozen=True)
class Budget:
    """What ends a run if nothing else does before; None is no limit."""

    max_steps: int | None = None
    max_seconds: float | None = None
    max_evals: int | None = None

    def seconds_left(self, row: Mapping[str, Any], seen: list[tuple[float, int]]) -> float | None:
        """Until the first of the budgets ends, at the pace of the steps seen last: (seconds, evals) after each."""
        left = [] if self.max_seconds is None else [self.max_seconds - row["seconds"]]
        recent = seen[-1 - PACE_STEPS :]
        seconds, evals = recent[-1][0] - recent[0][0], recent[-1][1] - recent[0][1]
        if self.max_steps is not None and len(recent) > 1:
            left.append((self.max_steps - row["step"]) * seconds / (len(recent) - 1))
        if self.max_evals is not None and evals > 0:
            left.append((self.max_evals - row["evals"]) * seconds / evals)
        return max(0.0, min(left)) if left else None


class Progress:
    """Step, components, ELBO ± error, estimated KL, kind of step, evaluations, time, and time left under the budget.

    show: True or False; None shows it where somebody watches, in a terminal or a notebook.
    elapsed: seconds of the run, those before it was resumed included.
    row: the last one of a run that goes on.
    """

    def __init__(
        self, show: bool | None, budget: Budget, elapsed: Callable[[], float], row: Mapping[str, Any] | None = None
    ):
        self.budget, self.elapsed, self.row = budget, elapsed, row
        self.seen: list[tuple[float, int]] = []
        self.deadline = budget.max_seconds
        self.display = _display(show) if budget.max_steps != 0 else None
        self.closed = threading.Event()
        self.ticker = threading.Thread(target=self._tick, daemon=True)
        if self.display is not None:
            self.display.show(self._pieces())
            if self.display.ticks:
                self.ticker.start()

    def update(self, row: Mapping[str, Any]) -> None:
        self.seen.append((row["seconds"], row["evals"]))
        left = self.budget.seconds_left(row, self.seen)
        self.deadline = None if left is None else row["seconds"] + left
        self.row = dict(row)
        if self.display is not None:
            self.display.show(self._pieces())

    def close(self) -> None:
        self.closed.set()
        if self.ticker.is_alive():
            self.ticker.join()
        if self.display is not None:
            self.deadline = None
            self.display.show(self._pieces(self.row["seconds"] if self.row else None), last=True)

    def _tick(self) -> None:
        while not self.closed.wait(TICK_SECONDS):
            assert self.display is not None
            self.display.show(self._pieces())

    def _pieces(self, seconds: float | None = None) -> list[str]:
        now = self.elapsed() if seconds is None else seconds
        times = [clock(now)]
        if self.deadline is not None:
            left = self.deadline - now
            times.append(f"≤ {clock(left)} left" if left > 0 else "finishing this step")
        if self.row is None:
            return ["looking for the first component", *times]
        row, n = self.row, self.row["n_active"]
        of = "" if self.budget.max_steps is None else f"/{self.budget.max_steps}"
        return [
            f"step {row['step']}{of}",
            f"{n} component{'s' if n > 1 else ''}",
            f"ELBO {row['elbo']:.3f} ± {row['elbo_se']:.2g}",
            f"KL ≈ {row['kl_estimate']:.3g}",
            str(row["kind"]),
            f"{row['evals']:,} evals",
            *times,
        ]


class Display(Protocol):
    """Where the line appears. `ticks`: whether it is shown again every second."""

    ticks: bool

    def show(self, pieces: list[str], last: bool = False) -> None: ...


class TerminalLine:
    """One line, rewritten in place and never longer than the terminal is wide."""

    ticks = True

    def __init__(self, stream: TextIO):
        self.stream = stream

    def show(self, pieces: list[str], last: bool = False) -> None:
        width = shutil.get_terminal_size().columns - 1
        end = "\n" if last else ""
        self.stream.write(f"\r{_written(fitting(pieces, width), self.stream)[:width]}\x1b[K{end}")
        self.stream.flush()


class LogLines:
    """A line of its own for the first step, then now and then, and for the last step."""

    ticks = False

    def __init__(self, stream: TextIO):
        self.stream, self.said, self.at = stream, "", -LOG_SECONDS

    def show(self, pieces: list[str], last: bool = False) -> None:
        now = time.monotonic()
        text = " · ".join(pieces)
        step = pieces[0]
        if step == self.said or not (last or now - self.at >= LOG_SECONDS or self.said.startswith("looking")):
            return
        self.said, self.at = step, now
        self.stream.write(_written(text, self.stream) + "\n")
        self.stream.flush()


class NotebookLine:
    """One output of the cell, updated in place. Only between steps: other threads have no cell to write to."""

    ticks = False

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, pieces: list[str], last: bool = False) -> None:
        from IPython.display import display

        content = {"text/plain": " · ".join(pieces)}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)


def _display(show: bool | None) -> Display | None:
    if show is False:
        return None
    if in_notebook():
        return NotebookLine()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return TerminalLine(sys.stderr)
    return LogLines(sys.stderr) if show else None


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel: its shell, unlike that of a terminal, belongs to a kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def fitting(pieces: list[str], width: int) -> str:
    """The pieces that fit, the least telling ones left out first."""
    kept = dict(enumerate(pieces))
    for drop in DROPPED_FIRST if len(pieces) > max(DROPPED_FIRST) else ():
        if len(" · ".join(kept.values())) <= width:
            break
        kept.pop(drop)
    return " · ".join(kept.values())


def clock(seconds: float) -> str:
    """0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _written(text: str, stream: TextIO) -> str:
    """Signs that the stream's encoding has."""
    if (stream.encoding or "").lower().replace("-", "") == "utf8":
        return text
    for sign, plain in ASCII.items():
        text = text.replace(sign, plain)
    return text
