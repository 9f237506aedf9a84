"""The line of progress: what it says, and how it appears in a terminal, a notebook and a log."""

from __future__ import annotations

import io
import re
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from boostvi import progress
from boostvi.progress import Budget, LogLines, NotebookLine, Progress, TerminalLine, clock, fitting


def row(step, seconds, evals=None, n_active=2):
    return {
        "step": step, "seconds": seconds, "evals": 1000 * (step + 1) if evals is None else evals, "n_active": n_active,
        "elbo": -12.34567, "elbo_se": 0.0123, "kl_estimate": 0.0456, "kind": "refine",
    }  # fmt: skip


class Stream(io.StringIO):
    """A stderr whose nature can be chosen."""

    def __init__(self, terminal, encoding="utf-8"):
        super().__init__()
        self.terminal, self.name_of_encoding = terminal, encoding

    def isatty(self):
        return self.terminal

    @property
    def encoding(self):
        return self.name_of_encoding


@pytest.fixture
def stderr(monkeypatch):
    def replace(terminal, encoding="utf-8"):
        stream = Stream(terminal, encoding)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "150")
        monkeypatch.setattr(progress, "TICK_SECONDS", 60.0)
        return stream

    return replace


class TestBudget:
    """Seconds left, after steps that ended at 10, 14 and 20 s, with 1,000 evaluations each."""

    SEEN = ((10.0, 1000), (14.0, 2000), (20.0, 3000))

    @pytest.mark.parametrize(
        ("budget", "left"),
        [
            (Budget(), None),
            (Budget(max_seconds=60), 40.0),
            (Budget(max_seconds=15), 0.0),
            (Budget(max_steps=12), 50.0),
            (Budget(max_evals=7000), 20.0),
            (Budget(max_seconds=60, max_steps=12, max_evals=7000), 20.0),
            (Budget(max_seconds=25, max_steps=12, max_evals=7000), 5.0),
        ],
    )
    def test_what_ends_first(self, budget, left):
        assert budget.seconds_left(row(2, 20.0, 3000), list(self.SEEN)) == left

    def test_nothing_is_guessed_from_one_step(self):
        assert Budget(max_steps=5, max_evals=9).seconds_left(row(0, 10.0), [(10.0, 1)]) is None

    def test_only_the_last_steps_tell_the_pace(self):
        seen = [(0.0, 0), (100.0, 1), (101.0, 2), (102.0, 3), (103.0, 4)]
        assert Budget(max_steps=14).seconds_left(row(4, 103.0), seen) == pytest.approx(10.0)


class TestTerminal:
    def test_one_line_rewritten_in_place(self, stderr):
        stream = stderr(terminal=True)
        line = Progress(None, Budget(max_seconds=30.0), lambda: 5.0)
        line.update(row(1, 5.0))
        line.close()
        first, *rest = stream.getvalue().split("\r")[1:]
        said = "step 1 · 2 components · ELBO -12.346 ± 0.012 · KL ≈ 0.0456 · refine · 2,000 evals · 0:05"
        assert first == "looking for the first component · 0:05 · ≤ 0:25 left\x1b[K"
        assert rest == [f"{said} · ≤ 0:25 left\x1b[K", f"{said}\x1b[K\n"]

    def test_the_clock_runs_through_a_long_step(self, stderr, monkeypatch):
        stream = stderr(terminal=True)
        monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
        begin = time.monotonic()
        line = Progress(None, Budget(max_seconds=100.0), lambda: 100.0 * (time.monotonic() - begin))
        end = time.monotonic() + 30.0
        while "finishing this step" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        line.close()
        assert len(set(re.findall(r"component · ([\d:]+)", stream.getvalue()))) > 3
        assert not line.ticker.is_alive()
        assert stream.getvalue().endswith("\n")

    def test_a_run_that_goes_on_shows_where_it_stands(self, stderr):
        stream = stderr(terminal=True)
        Progress(None, Budget(max_steps=9), lambda: 7.0, row(4, 6.0)).close()
        assert stream.getvalue().startswith("\rstep 4/9 · 2 components")

    @pytest.mark.parametrize("width", [200, 100, 80, 60, 40, 20])
    def test_never_wider_than_the_terminal(self, stderr, monkeypatch, width):
        stream = stderr(terminal=True)
        monkeypatch.setenv("COLUMNS", str(width))
        line = Progress(None, Budget(max_steps=50), lambda: 5.0)
        line.update(row(3, 5.0))
        shown = stream.getvalue().split("\r")[-1].removesuffix("\x1b[K")
        line.close()
        assert len(shown) < width
        assert shown.startswith("step 3/50")
        assert ("ELBO -12.346" in shown) is (width >= 40)
        assert ("4,000 evals" in shown) is (width >= 100)

    def test_narrow_terminals_drop_whole_pieces(self):
        pieces = ["step 1", "2 components", "ELBO -1.0 ± 0.1", "KL ≈ 0.1", "refine", "9 evals", "0:05", "≤ 0:25 left"]
        assert fitting(pieces, 200) == " · ".join(pieces)
        assert fitting(pieces, 80) == " · ".join(pieces[:5] + pieces[6:])
        assert fitting(pieces, 71) == " · ".join(pieces[:4] + pieces[6:])
        assert fitting(pieces, 10) == " · ".join([pieces[0], *pieces[2:4], pieces[7]])
        assert fitting(["looking for it", "0:05", "≤ 0:25 left"], 10) == "looking for it · 0:05 · ≤ 0:25 left"

    def test_encodings_without_the_signs(self, stderr):
        stream = stderr(terminal=True, encoding="ascii")
        line = Progress(None, Budget(max_seconds=30.0), lambda: 5.0)
        line.update(row(1, 5.0))
        line.close()
        assert stream.getvalue().isascii()
        assert "ELBO -12.346 +- 0.012 | KL ~ 0.0456" in stream.getvalue()


class TestLog:
    def test_lines_now_and_then_and_the_last(self, stderr, monkeypatch):
        stream, now = stderr(terminal=False), [0.0]
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
        line = Progress(True, Budget(), lambda: now[0])
        for step in range(10):
            now[0] += 5.0
            line.update(row(step, now[0], n_active=1))
        line.close()
        lines = stream.getvalue().splitlines()
        assert [text.split(" · ")[0] for text in lines] == [
            "looking for the first component", "step 0", "step 3", "step 6", "step 9",
        ]  # fmt: skip
        assert lines[1] == "step 0 · 1 component · ELBO -12.346 ± 0.012 · KL ≈ 0.0456 · refine · 1,000 evals · 0:05"
        assert not {"\r", "\x1b"} & set(stream.getvalue())

    def test_the_last_step_is_said_once(self, stderr):
        stream = stderr(terminal=False)
        line = Progress(True, Budget(max_steps=1), lambda: 1.0)
        line.update(row(0, 1.0))
        line.update(row(1, 2.0))
        line.close()
        assert [text.split(" · ")[0] for text in stream.getvalue().splitlines()[1:]] == ["step 0/1", "step 1/1"]

    def test_a_dumb_terminal_is_a_log(self, stderr, monkeypatch):
        stderr(terminal=True)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(Progress(True, Budget(), lambda: 0.0).display, LogLines)


class TestNotebook:
    @pytest.fixture
    def shown(self, monkeypatch):
        """A kernel that keeps what is displayed: each output with all of its contents."""
        outputs = []

        def display(content, raw, display_id):
            assert raw
            assert display_id
            outputs.append([content["text/plain"]])
            return SimpleNamespace(update=lambda content, raw: outputs[-1].append(content["text/plain"]))

        ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
        displays.display = display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", displays)
        return outputs

    def test_one_output_that_is_updated_and_on_by_default(self, shown, stderr):
        stream = stderr(terminal=False)
        line = Progress(None, Budget(max_steps=2), lambda: 1.0)
        assert isinstance(line.display, NotebookLine)
        line.update(row(0, 1.0))
        line.update(row(1, 2.0))
        line.close()
        (output,) = shown
        assert [text.split(" · ")[0] for text in output] == [
            "looking for the first component", "step 0/2", "step 1/2", "step 1/2",
        ]  # fmt: skip
        assert stream.getvalue() == ""
        assert not line.ticker.is_alive()

    def test_the_shell_of_a_terminal_is_no_notebook(self, shown, monkeypatch):
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
        assert not progress.in_notebook()
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
        assert not progress.in_notebook()


@pytest.mark.parametrize(
    ("show", "terminal", "kind"),
    [(None, True, TerminalLine), (None, False, None), (True, False, LogLines), (False, True, None)],
)
def test_where_it_is_shown(stderr, show, terminal, kind):
    stderr(terminal)
    line = Progress(show, Budget(), lambda: 0.0)
    line.close()
    assert isinstance(line.display, kind or type(None))


def test_a_fit_without_steps_has_no_progress(stderr):
    assert Progress(True, Budget(max_steps=0), lambda: 0.0).display is None


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (67, "1:07"), (600, "10:00"), (3723, "1:02:03")])
def test_clock(seconds, text):
    assert clock(seconds) == text
