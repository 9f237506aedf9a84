"""The demo and the command line around it."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.integrate import dblquad
from scipy.stats import norm

from boostvi import cli, demo
from boostvi.recipes import RECIPES

PICTURES = ["sensors-density", "sensors-elbo", "sensors-weights", "regression-density", "regression-elbo"]
"""The regression here stays at one component: there are no weights to draw."""


@pytest.fixture(scope="module")
def data():
    return demo.breast_cancer()


@pytest.fixture(scope="module")
def ran(data, tmp_path_factory):
    """The whole demo with one boosting step: its output and its pictures.

    The sensors are fitted as the demo does it. The regression has four columns and adds a random component: what it
    shows here is that every part of the demo runs on it.
    """
    out = tmp_path_factory.mktemp("pictures") / "new" / "folder"
    few = demo.Split(data.x_train[:, :4], data.y_train, data.x_test[:, :4], data.y_test)
    fit = demo.fit

    def quick(target, **options):
        if "recipe" not in options and target.dim > 2:
            options |= {"recipe": "fully-corrective", "family": "full-rank-normal", "first": demo.PLAIN_VI}
            options |= {"next_component": "random", "elbo_draws": RECIPES["auto"]().elbo_draws}
        return fit(target, **options)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(demo, "fit", quick)
        patch.setattr(demo, "breast_cancer", lambda: few)
        run, paths = demo.run, []
        patch.setattr(demo, "run", lambda *args, **options: paths.extend(run(*args, max_steps=1, **options)))
        code = cli.main(["demo", "--out", str(out), "--quiet"])
    return SimpleNamespace(code=code, out=out, paths=paths, text=printed.getvalue())


def rows_of(text, start):
    """Numbers of each named row of a table: components, ELBO, se, own KL, se, common KL and perhaps AUROC."""
    found = {}
    for line in text[text.index(start) :].splitlines():
        if line.startswith(("plain VI", "boosted  ")):
            name, *rest = re.split(r"\s{2,}", line)
            found[name] = [float(number) for number in re.findall(r"-?\d+\.?\d*", " ".join(rest))]
        if line.startswith("stopped"):
            return found
    raise AssertionError("the table has no end")


def test_it_succeeds_and_makes_its_folder(ran):
    assert ran.code == 0
    assert ran.out.is_dir()


def test_pictures_are_written_and_their_paths_printed(ran):
    expected = [ran.out / f"{picture}.png" for picture in PICTURES]
    assert ran.paths == expected
    for path in expected:
        assert f"wrote {path}" in ran.text
        pixels = imread(path)
        assert pixels.std() > 0.01  # something is on it


def test_table_of_the_sensors(ran):
    """Both modes are found, so boosting gains ln 2 over the one mode of plain VI, up to the errors of one component."""
    rows = rows_of(ran.text, "1. Two sensors")
    assert list(rows) == ["plain VI, full-rank Normal", "boosted"]
    plain, boosted = rows.values()
    assert plain[0] == 1
    assert boosted[0] >= 2
    assert boosted[1] - plain[1] == pytest.approx(np.log(2), abs=0.1)
    assert plain[5] > np.log(2) - 4 * plain[2]  # the half it does not visit
    assert plain[3] == pytest.approx(plain[5], abs=4 * plain[4])  # few of its wide draws see it, and its error says so
    assert plain[4] > 0.1
    assert 0 <= boosted[5] + 4 * boosted[2] < 0.2


def test_table_of_the_regression(ran):
    rows = rows_of(ran.text, "2. Logistic regression")
    assert list(rows) == ["plain VI, diagonal Normal", "plain VI, full-rank Normal", "boosted"]
    diagonal, full, boosted = rows.values()
    assert full[1] > diagonal[1]
    assert boosted[1] > full[1] - 4 * np.hypot(full[2], boosted[2])
    for row in rows.values():
        assert row[5] == pytest.approx(boosted[1] + boosted[3] - row[1], abs=0.002)  # one log Z for all
        assert 0.9 < row[6] <= 1


def test_verdict_and_time_are_printed(ran):
    assert len(re.findall(r"verdict: (good|usable|unreliable), ", ran.text)) == 2
    assert re.search(r"took \d+ s", ran.text)


@pytest.mark.parametrize("case", ["1. Two sensors", "2. Logistic regression"])
def test_the_winner_is_named_whoever_it_is(ran, case):
    rows = rows_of(ran.text, case)
    named = re.search(r"highest ELBO: (.*)", ran.text[ran.text.index(case) :])[1]
    assert rows[named][1] == max(row[1] for row in rows.values())


def test_quadrature_against_adaptive_integration():
    def joint(y, x):
        away = np.linalg.norm(np.array([x, y]) - demo.SENSORS, axis=1)
        like = np.prod(norm.pdf(demo.DISTANCES, away, demo.NOISE))
        return norm.pdf(x, scale=demo.PRIOR_SD) * norm.pdf(y, scale=demo.PRIOR_SD) * like

    half, _ = dblquad(joint, -5, 5, 0, 5, epsabs=1e-8)  # the posterior is its own mirror image
    target = demo.from_numpyro(demo.sensors_model, demo.DISTANCES)
    assert demo.quadrature(target) == pytest.approx(np.log(2 * half), abs=1e-4)


def test_data_are_split_and_standardised_by_the_training_rows(data):
    assert data.x_train.shape == (398, 31)
    assert data.x_test.shape == (171, 31)
    np.testing.assert_array_equal(data.x_train[:, 0], 1.0)
    np.testing.assert_allclose(data.x_train[:, 1:].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.x_train[:, 1:].std(axis=0), 1.0)
    assert data.y_train.sum() + data.y_test.sum() == 212  # the malignant ones


def test_auroc_is_that_of_the_predictive_mean():
    """Two draws of w for which mean probability (0.63 < 0.88) and mean logit (3.5 > 2) rank two cases differently."""
    x, y = np.eye(2), np.array([0, 1])
    w = np.array([[8.0, 2.0], [-1.0, 2.0]])
    result = SimpleNamespace(sample=lambda n, seed: {"w": w})
    assert demo.auroc(result, demo.Split(x, y, x, y)) == 1.0
    assert demo.auroc(result, demo.Split(x, y, x, 1 - y)) == 0.0


@pytest.mark.parametrize(
    ("step", "seconds", "stops"), [(0, 99.0, False), (1, 99.0, False), (2, 99.0, True), (5, 1.0, False)]
)
def test_budget_lets_a_slow_machine_boost_first(step, seconds, stops):
    budget = demo.Budget(seconds=20.0, least_steps=2)
    assert budget(SimpleNamespace(step=step, row={"seconds": seconds})) is stops


# -- errors: one line, exit 2


def test_out_that_is_a_file(tmp_path, capsys):
    path = tmp_path / "taken"
    path.write_text("")
    assert cli.main(["demo", "--out", str(path)]) == 2
    assert_one_line(capsys.readouterr().err, "cannot make the folder")


def test_negative_seed(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", "--out", str(tmp_path), "--seed", "-1"])
    assert "argument --seed: must not be negative" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "extra"), [("sklearn.datasets", "demo"), ("matplotlib.figure", "plots")])
def test_missing_packages_get_an_install_hint(tmp_path, capsys, monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    if extra == "plots":  # the hint must come before minutes of fitting
        monkeypatch.setattr(demo, "sensors", lambda *args: pytest.fail("fitted before it knew it could draw"))
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    assert_one_line(capsys.readouterr().err, f"pip install 'boostvi[{extra}]'")


def test_ctrl_c(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "run", lambda *args, **options: (_ for _ in ()).throw(KeyboardInterrupt))
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert_one_line(capsys.readouterr().err, "interrupted")


def assert_one_line(text, part):
    assert len(text.strip().splitlines()) == 1
    assert part in text
    assert "Traceback" not in text


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["demo", "--seed", "x"]])
def test_wrong_usage_exits_with_2(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "boostvi.cli", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "usage: boostvi" in done.stderr
    assert "Traceback" not in done.stderr
