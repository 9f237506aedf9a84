"""`boostvi reproduce NAME --smoke`: every command runs, and what it measured has the order it must have."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from boostvi.cli import main
from boostvi.reproduce import data as datasets
from boostvi.reproduce.compare import CONTRADICTED, HOLDS, NOT_CONTRADICTED, NOT_SEEN, UNKNOWN
from boostvi.reproduce.figures import kind_shares
from boostvi.reproduce.store import Store

SIGMAS = 4.0


def smoke(folder, name, *more):
    assert main(["reproduce", name, "--smoke", "--quiet", "--out", str(folder), *more]) == 0
    page = (folder / "index.html").read_text()
    assert "This is a slice (--smoke)" in page
    assert "boostvi 0." in re.search("runs made by.*?</tr>", page)[0]
    assert f"boostvi reproduce {name}" in page
    assert "How this page was made" in page
    assert page.count("data:image/png;base64") == len(list(folder.glob("*.png")))
    return page


def curves(folder, column, method):
    path = folder / "sweep.sqlite"
    with sqlite3.connect(path) as db:
        settings = dict(db.execute("SELECT name, value FROM settings"))
    db.close()
    store = Store(path, {name: json.loads(value) for name, value in settings.items()})
    try:
        return store.curves(column, method)[1]
    finally:
        store.close()


def table(folder, name):
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


# -- ChemReact


@pytest.fixture(scope="module")
def own_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "own.npz"
    made = datasets.stand_in(300, 100, 0.2)
    np.savez(path, X=made.X, y=made.y)
    return path


@pytest.fixture(scope="module")
def chemreact(tmp_path_factory, own_file):
    folder = tmp_path_factory.mktemp("chemreact")
    page = smoke(folder, "chemreact", "--data", str(own_file))
    return folder, page


def test_chemreact_shows_published_beside_measured(chemreact):
    folder, page = chemreact
    rows = {row["Method"]: row for row in table(folder, "published")}
    assert set(rows) >= {"AdaAFW", "AdaPFW", "AdaFW", "Predefined", "Line-search"}
    published = ("published LL", "published LL, sd", "published AUROC", "published AUROC, sd", "published s, sd")
    assert [rows["AdaAFW"][name] for name in published] == ["-0.669", "0.000539", "0.787", "0.004599", "23.84"]
    assert "own.npz: 300 rows × 100 columns" in page
    assert (folder / "published.tex").read_text().startswith(r"\begin{tabular}")


def test_chemreact_claims_are_a_table(chemreact):
    folder, page = chemreact
    rows = table(folder, "claims")
    assert list(rows[0]) == ["claim", "published", "measured", "verdict"]
    assert {row["verdict"] for row in rows} <= {HOLDS, CONTRADICTED, NOT_CONTRADICTED, NOT_SEEN, UNKNOWN}
    assert all((folder / f"claims.{suffix}").exists() for suffix in ("md", "tex"))
    assert "id=claims" in page


def check_orderings(folder, adaptive):
    """Steps on the table do not lose what predefined steps lose; adaptive ones are no worse than predefined ones."""
    elbo = {name: curves(folder, "elbo", name) for name in ("exact", "predefined", *adaptive)}
    se = {name: curves(folder, "elbo_se", name) for name in elbo}
    for run in range(2):
        tolerance = SIGMAS * math.hypot(se["exact"][run, 0], se["exact"][run, -1])
        assert elbo["exact"][run, -1] >= elbo["exact"][run, 0] - tolerance
        gap = elbo["exact"][run, 1] - elbo["predefined"][run, 1]
        assert gap > SIGMAS * math.hypot(se["exact"][run, 1], se["predefined"][run, 1])
        for name in adaptive:
            tolerance = SIGMAS * math.hypot(se[name][run, -1], se["predefined"][run, -1])
            assert elbo[name][run, -1] >= elbo["predefined"][run, -1] - tolerance


def test_chemreact_orderings(chemreact):
    check_orderings(chemreact[0], ("adaafw", "adafw"))


def test_chemreact_components(chemreact):
    folder, _ = chemreact
    predefined, away = (curves(folder, "n_active", name) for name in ("predefined", "adaafw"))
    np.testing.assert_array_equal(predefined, np.tile([1, 2, 3, 4], (2, 1)))
    assert np.all(away <= predefined)


def test_chemreact_given_again_does_nothing_again(chemreact, own_file, capsys):
    folder, _ = chemreact
    before = curves(folder, "elbo", "adafw")
    smoke(folder, "chemreact", "--data", str(own_file))
    assert "sweep: 12 runs of 3 steps, 12 of them done before" in capsys.readouterr().out
    np.testing.assert_array_equal(curves(folder, "elbo", "adafw"), before)


def test_a_record_of_an_earlier_version_is_rendered(chemreact, own_file, tmp_path):
    """Without the table that says what made it, and with scores of folds that may be wrong."""
    folder, _ = chemreact
    shutil.copy(folder / "sweep.sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "sweep.sqlite") as db:
        db.execute("DROP TABLE made")
        db.execute("INSERT INTO results VALUES ('cv adaafw', '{}')")
    db.close()
    assert main(
        ["reproduce", "chemreact", "--smoke", "--render", "--out", str(tmp_path), "--data", str(own_file)]
    ) == 0  # fmt: skip
    page = (tmp_path / "index.html").read_text()
    assert "<td>runs made by</td><td>not recorded: 12</td>" in page
    assert "<td>other results made by</td><td>not recorded: 1</td>" in page
    assert "id=held-out" not in page


def test_chemreact_with_other_data_is_refused_and_nothing_is_lost(chemreact, tmp_path, capsys):
    folder, _ = chemreact
    made = datasets.stand_in(300, 100, 0.3, seed=5)
    np.savez(tmp_path / "other.npz", X=made.X, y=made.y)
    arguments = ["reproduce", "chemreact", "--smoke", "--out", str(folder), "--data", str(tmp_path / "other.npz")]
    assert main(arguments) == 2
    assert "other settings (data was" in capsys.readouterr().err
    assert curves(folder, "elbo", "adafw").shape == (2, 4)


def test_an_unfinished_sweep_is_rendered_as_such(chemreact, own_file, tmp_path, capsys):
    folder, _ = chemreact
    shutil.copy(folder / "sweep.sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "sweep.sqlite") as db:
        db.execute("DELETE FROM runs WHERE method = 'adafw' AND seed = 1")
    db.close()
    page = smoke(tmp_path, "chemreact", "--data", str(own_file), "--render")
    assert "The sweep is not finished: 11 of 12 runs (92%)" in page
    assert "AdaAFW 2, AdaPFW 2, AdaFW 1, Predefined 2" in page
    with sqlite3.connect(tmp_path / "sweep.sqlite") as db:
        db.execute("DELETE FROM runs WHERE method = 'adafw'")
    db.close()
    arguments = ["reproduce", "chemreact", "--smoke", "--render", "--out", str(tmp_path), "--data", str(own_file)]
    assert main(arguments) == 2
    assert "not every method has a finished run" in capsys.readouterr().err


def test_kinds_are_shared_out():
    kinds = np.array([["init", "pairwise", "drop"], ["init", "fallback", "away"]])
    shares = kind_shares(kinds)
    np.testing.assert_allclose(sum(shares.values()), 1.0)
    np.testing.assert_allclose(shares["adaptive"], [0.5, 0.0])
    np.testing.assert_allclose(shares["drop"], [0.0, 0.5])


# -- synthetic


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    return folder, smoke(folder, "synthetic")


def test_synthetic_orderings(synthetic):
    """The runs are paired: tolerances are standard errors of mean differences."""
    folder, _ = synthetic
    names = ("start", "exact", "predefined", "adaptive", "adaptive-zero", "adaptive-exact", "fully-corrective")
    kl = {name: curves(folder, "kl", name)[:, 0] for name in names}

    def is_lower(a, b):
        difference = kl[a] - kl[b]
        return difference.mean() <= SIGMAS * difference.std(ddof=1) / np.sqrt(len(difference))

    assert kl["exact"].mean() < kl["predefined"].mean()
    for better, worse in (
        ("exact", "start"),
        ("adaptive-exact", "start"),
        ("exact", "adaptive"),
        ("exact", "adaptive-zero"),
    ):
        assert is_lower(better, worse)
    np.testing.assert_allclose(kl["fully-corrective"], kl["exact"], atol=0.01)


def test_synthetic_fallbacks_differ_only_after_a_failure(synthetic):
    folder, _ = synthetic
    failed = curves(folder, "kind", "adaptive")[:, 0] == "fallback"
    gamma, zero = (curves(folder, "gamma", name)[:, 0] for name in ("adaptive", "adaptive-zero"))
    assert failed.any()
    np.testing.assert_allclose(gamma[failed], 2 / 3)
    np.testing.assert_array_equal(zero[failed], 0.0)
    np.testing.assert_array_equal(gamma[~failed], zero[~failed])


def test_synthetic_theorem(synthetic):
    folder, page = synthetic
    rows = table(folder, "theorem")
    assert [(row["τ"], row["δ"], row["ε₀"]) for row in rows] == [
        ("1.2", "1", "0"), ("2", "1", "0"), ("5", "1", "0"), ("2", "0.5", "0.1"),
    ]  # fmt: skip
    assert [row["bound holds at every t"] for row in rows] == ["True"] * 4
    assert [row["C_t ≤ τ·C_Q"] for row in rows] == ["True"] * 4
    assert "the bound holds at every one of 40 steps in all 4 cases" in page


# -- the others


def test_toy_mixtures(tmp_path):
    smoke(tmp_path, "toy-mixtures")
    assert [row["method"] for row in table(tmp_path, "kl")] == ["AdaFW", "Predefined"]
    with sqlite3.connect(tmp_path / "two-modes.sqlite") as db:
        lowest, n = db.execute("SELECT min(-elbo + 4 * elbo_se), count(*) FROM steps").fetchone()
    db.close()
    assert n == 12
    assert lowest > 0.0  # a KL divergence


def test_matrix_factorization(tmp_path):
    smoke(tmp_path, "matrix-factorization")
    (elbo, se), (base, base_se) = (
        [curves(tmp_path, name, method) for name in ("elbo", "elbo_se")] for method in ("adaafw", "predefined")
    )
    np.testing.assert_array_equal(elbo[:, 0], base[:, 0])  # the same first component
    assert np.all(elbo[:, -1] >= base[:, -1] - SIGMAS * np.hypot(se[:, -1], base_se[:, -1]))
    for method in ("adaafw", "predefined"):
        assert np.all(curves(tmp_path, "test_mse", method) > 0.0)
        np.testing.assert_array_equal(curves(tmp_path, "n_params", method)[:, 0], 660)


@pytest.mark.parametrize("name", ["eicu", "wine"])
def test_the_other_regressions(tmp_path, name):
    page = smoke(tmp_path, name)
    assert re.search(r"only 3\d\d of the rows", page)
    losses = [row["Train LL"] for row in table(tmp_path, "published")]
    assert len(losses) == 6
    check_orderings(tmp_path, ("adaafw", "adafw"))


def test_bad_arguments(tmp_path, capsys):
    assert main(["reproduce", "toy-mixtures", "--smoke", "--jobs", "0", "--out", str(tmp_path)]) == 2
    assert "--jobs must be at least 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "synthetic", "--smoke", "--jobs", "2", "--out", str(tmp_path)])
    assert "unrecognized arguments: --jobs 2" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "synthetic", "--smoke", "--out", str(tmp_path / "file")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_the_parser_imports_nothing_heavy():
    """`boostvi --help` builds every parser."""
    script = """
        import sys, boostvi.reproduce.cli
        ours = [n for n in sys.modules if n.startswith("boostvi.reproduce")]
        print(*sorted([*ours, *({"matplotlib", "sqlite3"} & set(sys.modules))]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["boostvi.reproduce", "boostvi.reproduce.cli"]
