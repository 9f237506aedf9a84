"""A process that is killed at any moment loses at most the step it was in."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KILLS, STEPS = 5, 7


@pytest.mark.slow  # test_cli.py kills a fit, too
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_fits_end_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    from kill import kill

    killed = list(kill(KILLS, steps=STEPS, seed=0, folder=tmp_path))
    assert [one.same for one in killed] == [True] * KILLS
    assert all(0 <= one.step <= STEPS for one in killed)
