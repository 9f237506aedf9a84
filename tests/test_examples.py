"""The examples run, at a small size, and show what they say."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
MOST_LINES = 60

pytestmark = pytest.mark.filterwarnings("ignore:There are not enough devices")


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def quick(name: str, path: Path):
    found = load(name).main(["--quick", "--out", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_short_and_described(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    words = ast.get_docstring(ast.parse(source))
    assert f"python examples/{name}.py [--quick] [--out FILE.png]" in words
    lines = [line for line in source.replace(words, "").splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert f"](pictures/{name.replace('_', '-')}.png)" in page
    assert f"`examples/{name}.py`" in page


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small(name):
    assert (EXAMPLES.parent / "docs" / "pictures" / f"{name.replace('_', '-')}.png").stat().st_size < 150_000


@pytest.mark.slow
def test_both_sides_get_their_share(tmp_path, capsys):
    above = quick("bimodal", tmp_path / "picture.png")
    assert 0.55 < above["quadrature"] < 0.95
    assert above["boosted"] == pytest.approx(above["quadrature"], abs=0.03)
    assert above["plain VI"] in (pytest.approx(0.0, abs=0.02), pytest.approx(1.0, abs=0.02))
    assert "P(above the line): quadrature" in capsys.readouterr().out


@pytest.mark.slow
def test_every_order_of_the_labels_is_found(tmp_path, capsys):
    boosted, chains = quick("label_switching", tmp_path / "picture.png").values()
    np.testing.assert_allclose(list(boosted.values()), 1 / 6, atol=0.03)
    assert sum(share > 0 for share in chains.values()) <= 4  # one order for each of the four chains
    assert "6 modes" in capsys.readouterr().out


@pytest.mark.slow
def test_mean_field_is_too_narrow_and_boosting_is_not(tmp_path):
    found = quick("mean_field", tmp_path / "picture.png")
    assert found["AutoNormal"]["sd"] < 0.75
    assert found["AutoNormal"]["coverage"] < 0.8
    assert found["boosted"]["sd"] == pytest.approx(1.0, abs=0.1)
    assert found["boosted"]["coverage"] == pytest.approx(0.9, abs=0.04)


@pytest.mark.slow
def test_the_neck_of_the_funnel_has_mass(tmp_path):
    tau = quick("funnel", tmp_path / "picture.png")
    small = {name: np.mean(values < 1.0) for name, values in tau.items()}
    assert abs(small["boosted"] - small["NUTS"]) < abs(small["plain VI"] - small["NUTS"])
    assert small["boosted"] == pytest.approx(small["NUTS"], abs=0.1)  # few components do not fill the neck


@pytest.mark.slow
def test_nuts_needs_fewer_gradients_from_a_fit(tmp_path, capsys):
    plain, ours = quick("start_nuts", tmp_path / "picture.png").values()
    assert ours["warm-up"] < plain["warm-up"] / 4  # a tenth of the iterations, on a known shape
    assert ours["rhat"] < 1.05
    means, sds = (np.stack([getattr(row["w"], what)(axis=(0, 1)) for row in (plain, ours)]) for what in ("mean", "std"))
    error = sds[0] / min(plain["ess"], ours["ess"]) ** 0.5
    assert np.abs(means[0] - means[1]).max() < 5 * error.max()
    assert "smallest ESS" in capsys.readouterr().out
