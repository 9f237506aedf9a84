"""The benchmarks run, at sizes that measure nothing, and their own arithmetic is right."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.special import log_expit

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def modules():
    """`_data` and `growth`, imported as the scripts import them."""
    yield from imported("_data", "growth")


@pytest.fixture(scope="module")
def honesty():
    for (module,) in imported("honesty", "_data", "deceptive", "targets", kept=1):
        yield module


def imported(*names: str, kept: int | None = None):
    """The first of these modules, all by default, which are forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield [importlib.import_module(name) for name in names][:kept]
    for name in names:
        sys.modules.pop(name, None)


def output_of(script: str, *arguments: str) -> str:
    cache = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir or "",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | cache, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(markdown: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split("|") for line in markdown.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


@pytest.mark.slow
def test_step_overhead_runs_and_compiles_nothing_inside_the_timed_runs():
    out = output_of(
        "step_overhead.py", "--rows", "50", "--steps", "2", "--repeats", "2", "--iterations", "5",
        "--rules", "adafw", "--fresh-steps", "1", "--data", "no-such-file",
    )  # fmt: skip
    assert "a plain seeded Gaussian design" in out
    assert "Compiled inside the timed runs: 0 functions of the library (0 XLA programs)." in out
    table = rows_of(out)
    names = table["rule"]
    for rule in ("predefined", "predefined again", "adafw"):
        row = dict(zip(names, table[rule], strict=True))
        assert float(row["ratio"]) > 0
        assert float(row["ratio of these"]) > 0
        assert float(row["subproblem, s"]) > 0
    assert table["predefined"][names.index("ratio")] == "1.000"
    same = [table[rule][names.index("ELBO")] for rule in ("predefined", "predefined again")]
    assert same[0] == same[1]  # the control is the same run
    assert re.search(r"EXTRAPOLATED from 1 steps to 2: step sizes \d", out)


@pytest.mark.slow
def test_growth_runs_every_size_and_prints_exponents():
    # both sizes have the same capacity: the second finds its programs in the cache
    arguments = "--components 3 4 --rows --dimensions --families diagonal-laplace"
    table = rows_of(output_of("growth.py", *arguments.split()))
    assert {"components", "3", "4", "exponent", "exponent, last two"} < set(table)
    assert table["exponent"] == table["exponent, last two"]  # there are only two sizes
    assert all(np.isfinite(float(cell)) for cell in table["exponent"][:-1])
    assert float(table["3"][-1]) > 50  # MB


@pytest.mark.slow
def test_dimensions_has_a_row_for_each_target_and_its_log_evidence_is_right():
    out = output_of("dimensions.py", "--kinds", "normal,hierarchy", "--dimensions", "2,4")
    rows = [line.strip("| ").split("|") for line in out.splitlines() if line.startswith("| ")][2:]
    assert [(row[0].strip(), row[1].strip()) for row in rows] == [("normal", "2"), ("normal", "4"), ("hierarchy", "4")]
    for row in rows:
        estimate, error = (float(part) for part in row[3].split("±"))
        assert float(row[2]) == pytest.approx(estimate, abs=4 * error + 0.005)


def test_the_slope_is_the_exponent_of_a_power_law(modules):
    _, growth = modules
    sizes = [3, 10, 500]
    assert growth.slope(sizes, [7.0 * n**1.5 for n in sizes]) == pytest.approx(1.5)


@pytest.mark.parametrize("maker", ["plain", "real"])
def test_generated_labels_have_the_class_balance_of_chemreact(modules, maker):
    data, _ = modules
    if maker == "real" and not data.CHEM10.exists():
        pytest.skip("no ChemReact rows beside the repository")
    n = 20_000
    made = data.gaussian_design(n, 100) if maker == "plain" else data.chemreact_like(n)
    assert made.X.shape == (n, 100)
    # 4 standard errors of a share, and for the fitted model also the misfit of Gaussian rows
    allowed = 4 * np.sqrt(0.035 * 0.965 / n) + (0.01 if maker == "real" else 0.0)
    assert made.y.mean() == pytest.approx(0.035, abs=allowed)
    again = data.gaussian_design(n, 100) if maker == "plain" else data.chemreact_like(n)
    np.testing.assert_array_equal(made.X, again.X)
    np.testing.assert_array_equal(made.y, again.y)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_the_benchmark_density_is_that_of_logistic_regression(modules, x64, dtype, rtol):
    data, _ = modules
    made = data.gaussian_design(300, 7)
    z = np.linspace(-1.0, 1.0, 7)
    logits = made.X @ z
    by_hand = log_expit(logits[made.y]).sum() + log_expit(-logits[~made.y]).sum() - 0.5 * z @ z
    assert float(data.target_of(made, dtype).log_density(z)) == pytest.approx(by_hand, rel=rtol)


class TestTrueGap:
    """p is a Normal of scale 1 times e², q one of scale s: KL(q, p) = (s² − 1)/2 − ln s."""

    LOG_Z, SCALE = 2.0, 0.9

    def ratios(self, n: int, log_z: float) -> np.ndarray:
        z = self.SCALE * np.random.default_rng(0).standard_normal(n)
        return log_z - 0.5 * z**2 + 0.5 * (z / self.SCALE) ** 2 + np.log(self.SCALE)

    def test_the_known_mean_weight_takes_the_noise_out(self, honesty):
        ratios = self.ratios(20_000, self.LOG_Z)
        kl = (self.SCALE**2 - 1.0) / 2.0 - np.log(self.SCALE)
        gap, se = honesty.true_gap(self.LOG_Z, 0.0, ratios)
        assert abs(gap - kl) < 4.0 * se
        assert se < 0.5 * ratios.std() / np.sqrt(ratios.size)

    def test_where_half_of_the_mass_is_missed_the_mean_weight_is_no_help(self, honesty):
        ratios = self.ratios(20_000, self.LOG_Z)
        gap, se = honesty.true_gap(self.LOG_Z + np.log(2.0), 0.0, ratios)
        assert gap == pytest.approx(self.LOG_Z + np.log(2.0) - ratios.mean(), abs=1e-12)
        assert se == pytest.approx(ratios.std() / np.sqrt(ratios.size))
