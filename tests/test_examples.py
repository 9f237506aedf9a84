"""The examples run, at a small size, and show what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There are not enough devices")
def test_nuts_needs_fewer_gradients_from_a_fit(capsys):
    found = load("start_nuts").main(["--rows", "100", "--columns", "4", "--draws", "200"])
    plain, ours = found.values()
    assert ours["warm-up gradients"] < plain["warm-up gradients"] / 4  # a tenth of the iterations, on a known shape
    assert ours["rhat"] < 1.05
    error = plain["w"].std(axis=0) / min(plain["ess"], ours["ess"]) ** 0.5
    assert abs(plain["w"].mean(axis=0) - ours["w"].mean(axis=0)).max() < 5 * error.max()
    assert "before the first draw" in capsys.readouterr().out
