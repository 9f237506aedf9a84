"""Ctrl-C that is not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """Ctrl-C, raised as always, and noted as well: an exception that comes up inside a callback of the garbage
    collector (JAX has one) is printed and forgotten, and the fit would go on."""

    def __enter__(self) -> Interrupts:
        self._seen, self._before = False, None
        plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if plain and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        self._seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        if self._seen:
            raise KeyboardInterrupt


@contextmanager
def held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: for code that would make another error of it."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # a handler that Python does not know cannot be put back, and other threads never see a signal
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)
