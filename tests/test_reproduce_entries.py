"""Matrices to factorise: what a file may hold, what is hidden, and the model's density against SciPy."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from boostvi.cli import UsageError, main
from boostvi.reproduce import entries, factorization

RNG = np.random.default_rng(3)
MATRIX = 7.0 + 2.0 * RNG.standard_normal((12, 9))


def written(path, matrix, header=None):
    lines = [",".join("" if np.isnan(cell) else repr(float(cell)) for cell in row) for row in matrix]
    path.write_text("\n".join(([header] if header else []) + lines) + "\n")
    return path


def test_half_of_the_known_entries_are_hidden_and_missing_ones_are_neither(tmp_path):
    matrix = MATRIX.copy()
    matrix[2, 3] = matrix[5, 0] = np.nan
    header = ",".join(f"pixel{i}" for i in range(9))
    found = entries.load(written(tmp_path / "own.csv", matrix, header), rank=2, noise=0.3)
    assert not (found.seen & found.hidden).any()
    np.testing.assert_array_equal(found.seen | found.hidden, np.isfinite(matrix))
    assert found.dim == (12 + 9) * 2
    # In units of the seen entries, so that the hidden ones have no say in the fit.
    assert found.values[found.seen].mean() == pytest.approx(0.0, abs=1e-12)
    assert found.values[found.seen].std() == pytest.approx(1.0)
    spread = (matrix - found.values * matrix[found.seen].std())[found.hidden]
    np.testing.assert_allclose(spread, matrix[found.seen].mean())
    assert "12 × 9 entries" in found.source


def test_an_archive_may_hold_images(tmp_path):
    path = tmp_path / "faces.npz"
    np.savez(path, MATRIX.reshape(12, 3, 3))
    found = entries.load(path, rank=1, noise=0.1)
    np.testing.assert_array_equal(found.values, entries.load(written(tmp_path / "own.csv", MATRIX), 1, 0.1).values)
    part = entries.load(path, rank=1, noise=0.1, most=5)
    assert part.values.shape == (5, 5)
    assert "only 5 × 5 of them" in part.source


def test_the_density_is_that_of_the_model():
    found = entries.drawn(1, rank=2, noise=0.4)
    made = factorization.problem(found)
    z = RNG.standard_normal(found.dim)
    u, v = z[: 50 * 2].reshape(50, 2), z[50 * 2 :].reshape(60, 2)
    expected = stats.norm.logpdf(z).sum() + stats.norm.logpdf(found.values, u @ v.T, 0.4)[found.seen].sum()
    draws = RNG.standard_normal((4, found.dim))
    products = [d[:100].reshape(50, 2) @ d[100:].reshape(60, 2).T for d in draws]
    with jax.enable_x64(True):
        assert float(made.target.log_density(z)) == pytest.approx(expected)
        errors = made.summarise(made.measure(made.target, draws), 0)
    missed = (found.values - np.mean(products, axis=0)) ** 2
    assert errors["train_mse"] == pytest.approx(missed[found.seen].mean())
    assert errors["test_mse"] == pytest.approx(missed[found.hidden].mean())


def test_bad_files_are_told(tmp_path):
    two, words, cube = tmp_path / "two.npz", tmp_path / "words.csv", tmp_path / "cube.npz"
    np.savez(two, A=MATRIX, B=MATRIX)
    words.write_text("1,2\n3,four\n5,6\n")
    np.savez(cube, np.zeros((2, 2, 2, 2)))
    infinite = written(tmp_path / "infinite.csv", np.where(MATRIX > 9, np.inf, MATRIX))
    constant = written(tmp_path / "constant.csv", np.full((4, 4), 0.1))
    for path, message in (
        (tmp_path / "none.csv", "there is no such file"),
        (two, "must be the array R, or the only one; it has A, B"),
        (words, "row 2 has 'four' where a number is wanted"),
        (cube, "a matrix of numbers is wanted"),
        (infinite, "not infinite"),
        (constant, "too few different entries"),
    ):
        with pytest.raises(UsageError, match=message):
            entries.load(path, 3, 0.1)
    for option, value in (("--rank", "0"), ("--noise", "-1"), ("--noise", "nan")):
        command = ["reproduce", "matrix-factorization", "--smoke", "--out", str(tmp_path / "out"), option, value]
        assert main(command) == 2


def test_the_users_own_matrix(tmp_path, capsys):
    path = written(tmp_path / "own.csv", MATRIX)
    command = ["reproduce", "matrix-factorization", "--smoke", "--quiet", "--data", str(path), "--rank", "1"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert "own.csv: 12 × 9 entries" in capsys.readouterr().out
    page = (tmp_path / "out" / "index.html").read_text()
    assert "--rank 1" in page
    assert "drawn by the command" not in page
