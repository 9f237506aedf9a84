"""Data of `boostvi reproduce`: files of the user, and the stand-ins."""

from __future__ import annotations

import numpy as np
import pytest

from boostvi.cli import UsageError, main
from boostvi.reproduce import data as datasets
from boostvi.reproduce.scores import auroc, auroc_se, calibration_error


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 3.0, size=(60, 4))
    return X, (X[:, 0] + rng.normal(size=60) > 2.0).astype(int)


def write_csv(path, X, y, header=None):
    lines = [",".join(map(str, [*x, label])) for x, label in zip(X, y, strict=True)]
    path.write_text("\n".join([header, *lines] if header else lines) + "\n")
    return path


@pytest.mark.parametrize("header", [None, "a,b,c,d,out"])
def test_csv_and_npz_hold_the_same(tmp_path, rows, header):
    X, y = rows
    np.savez(tmp_path / "own.npz", X=X, y=y)
    from_npz, from_csv = (
        datasets.load(tmp_path / "own.npz", 4),
        datasets.load(write_csv(tmp_path / "own.csv", X, y, header), 4),
    )
    np.testing.assert_allclose(from_csv.X, from_npz.X)
    np.testing.assert_array_equal(from_csv.y, y)
    np.testing.assert_allclose(from_npz.X[from_npz.train].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(from_npz.X[from_npz.train].std(axis=0), 1.0)
    assert from_npz.is_real
    assert from_csv.source.endswith(", without a header" if header is None else ", with a header, label out")
    assert sorted([*from_npz.train, *from_npz.test]) == list(range(60))


def test_label_column_by_name_and_words_as_labels(tmp_path, rows):
    X, y = rows
    header, body = "a,mortality,b,c,d", np.insert(X.astype(object), 1, np.where(y == 1, "yes", "no"), axis=1)
    path = tmp_path / "own.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in body)]))
    found = datasets.load(path)
    np.testing.assert_array_equal(found.y, y)
    assert found.X.shape == (60, 4)


DEATHS = ["a", "icu_mortality", "b", "c", "d", "hospital_mortality"]


def with_deaths(path, X, y):
    body = np.insert(np.column_stack([X, y]), 1, 1 - y, axis=1)
    return write_rows(path, [DEATHS, *body])


@pytest.mark.parametrize("label", ["icu_mortality", "hospital_mortality"])
def test_one_of_two_labels_is_chosen_and_the_other_is_no_feature(tmp_path, rows, label):
    X, y = rows
    path = with_deaths(tmp_path / "own.csv", X, y)
    with pytest.raises(UsageError, match=r"\(icu_mortality, hospital_mortality\); choose one by --label"):
        datasets.load(path)
    found = datasets.load(path, label=label)
    np.testing.assert_array_equal(found.y, y if label == "hospital_mortality" else 1 - y)
    assert found.X.shape == (60, 4)
    (other,) = {"icu_mortality", "hospital_mortality"} - {label}
    assert found.source.endswith(f", with a header, label {label}, {other} left out")


def test_any_column_or_array_may_be_the_label(tmp_path, rows):
    X, y = rows
    path = write_csv(tmp_path / "own.csv", np.column_stack([y, X[:, 1:]]), X[:, 0], "died,b,c,d,e")
    np.testing.assert_array_equal(datasets.load(path, label="died").y, y)
    np.savez(tmp_path / "own.npz", X=X, died=y)
    np.testing.assert_array_equal(datasets.load(tmp_path / "own.npz", label="died").y, y)


def test_a_label_that_is_not_there(tmp_path, rows, capsys):
    X, y = rows
    with pytest.raises(UsageError, match=r"--label died: .* has no such column; its columns are a, b, c, d, out"):
        datasets.load(write_csv(tmp_path / "own.csv", X, y, "a,b,c,d,out"), label="died")
    with pytest.raises(UsageError, match="it has no header"):
        datasets.load(write_csv(tmp_path / "own.csv", X, y), label="died")
    assert main(["reproduce", "eicu", "--smoke", "--out", str(tmp_path / "out"), "--label", "died"]) == 2
    assert "--label names a column of your own file: give it by --data" in capsys.readouterr().err


def write_rows(path, rows):
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return path


@pytest.mark.parametrize("header", [["0", "1", "2", "3", "out"], ["", "b", "c", "d", "e"], ["NA", "b", "", "?", "5"]])
def test_headers_with_numbers_and_gaps(tmp_path, rows, header):
    X, y = rows
    found = datasets.load(write_rows(tmp_path / "own.csv", [header, *np.column_stack([X, y])]))
    np.testing.assert_array_equal(found.y, y)
    assert "60 rows × 4 columns, with a header" in found.source


def test_words_as_labels_are_no_header(tmp_path, rows):
    X, y = rows
    body = np.column_stack([X.astype(object), np.where(y == 1, "yes", "no")])
    found = datasets.load(write_rows(tmp_path / "own.csv", body))
    np.testing.assert_array_equal(found.y, y)
    assert "60 rows × 4 columns, without a header" in found.source


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "nan", "?", "null"])
def test_a_first_cell_without_a_value_is_no_header(tmp_path, rows, mark):
    X, y = rows
    body = np.column_stack([X, y]).astype(object)
    body[0, 0] = mark
    with pytest.raises(UsageError, match="feature 1 of row 1 is NaN"):
        datasets.load(write_rows(tmp_path / "own.csv", body))


@pytest.mark.parametrize("given", ["train_index", "test_index"])
def test_one_index_gives_the_other(tmp_path, rows, given):
    X, y = rows
    np.savez(tmp_path / "own.npz", X=X, y=y, **{given: np.arange(5, 40)})
    found = datasets.load(tmp_path / "own.npz")
    ours, others = (found.train, found.test) if given == "train_index" else (found.test, found.train)
    np.testing.assert_array_equal(ours, np.arange(5, 40))
    np.testing.assert_array_equal(others, [*range(5), *range(40, 60)])


def test_test_rows_that_are_train_rows_are_counted(rows):
    X, y = rows
    X = X.copy()
    X[[50, 51, 52]] = X[[0, 0, 55]]  # two repeat a train row, one a test row
    index = {"train_index": np.arange(50), "test_index": np.arange(50, 60)}
    assert datasets._split(X, y, "", True, index).repeated == 2


def test_folds_and_splits_are_stratified(rows):
    X, _ = rows
    y = (np.arange(60) < 12).astype(int)
    found = datasets._split(X, y, "", True, {})
    assert [int(y[found.fold == k].sum()) for k in range(10)] == [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    assert set(np.unique(y[found.test])) == {0, 1}


def bad_files(tmp_path, X, y):
    cases = {}
    cases["there is no such file"] = tmp_path / "nowhere.csv"
    cases["4 feature columns"] = write_csv(tmp_path / "columns.csv", X[:, :3], y)
    holes = X.copy()
    holes[7, 2] = np.nan
    cases["feature 3 of row 8 is NaN"] = write_csv(tmp_path / "nan.csv", holes, y)
    cases["two classes, it has 3"] = write_csv(tmp_path / "three.csv", X, np.arange(60) % 3)
    cases["two classes, it has 1"] = write_csv(tmp_path / "one.csv", X, np.zeros(60, dtype=int))
    cases["data row 1 has 'red' where a number"] = write_csv(
        tmp_path / "words.csv", np.full(X.shape, "red"), y, "a,b,c,d,y"
    )
    np.savez(tmp_path / "lacks.npz", features=X, y=y)
    cases["lacks X"] = tmp_path / "lacks.npz"
    (tmp_path / "broken.npz").write_bytes(b"not a zip")
    cases["not an npz file of plain arrays"] = tmp_path / "broken.npz"
    (tmp_path / "void.npz").write_bytes(b"")
    cases["void.npz is not an npz file"] = tmp_path / "void.npz"
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, X)
    cases["holds a single array: save it by np.savez"] = tmp_path / "single.npz"
    np.savez_compressed(tmp_path / "damaged.npz", X=X, y=y)
    content = bytearray((tmp_path / "damaged.npz").read_bytes())
    content[200:400] = bytes(200)
    (tmp_path / "damaged.npz").write_bytes(content)
    cases["damaged.npz is not an npz file"] = tmp_path / "damaged.npz"
    np.savez(tmp_path / "complex.npz", X=X * 1j, y=y)
    cases["X must hold real numbers, it is an array of complex128"] = tmp_path / "complex.npz"
    np.savez(tmp_path / "texts.npz", X=X.astype(str), y=y)
    cases["X must hold real numbers, it is an array of <U"] = tmp_path / "texts.npz"
    np.savez(tmp_path / "nan-label.npz", X=X, y=np.where(np.arange(60) == 3, np.nan, y))
    cases[r"row 4 has no label \(NaN\)"] = tmp_path / "nan-label.npz"
    (tmp_path / "quote.csv").write_text('1,2,3,4,"0\n' + "1,2,3,4,0\n" * 20_000)
    cases["quote.csv, line .*field larger than field limit"] = tmp_path / "quote.csv"
    (tmp_path / "ragged.csv").write_text("1,2,3,4,0\n1,2,3,1\n")
    cases["data row 2 has 4 columns"] = tmp_path / "ragged.csv"
    (tmp_path / "empty.csv").write_text("")
    cases["no rows"] = tmp_path / "empty.csv"
    cases["each class needs 2 rows, one has 1"] = write_csv(tmp_path / "rare.csv", X, (np.arange(60) == 5).astype(int))
    for name, told, index in (
        ("train_index", "row numbers from 0 to 59", np.arange(100)),
        ("test_index", "row numbers from 0 to 59", np.linspace(0.0, 1.0, 5)),
        ("fold", "a fold number", np.arange(7)),
    ):
        np.savez(tmp_path / f"{name}.npz", X=X, y=y, **{name: index})
        cases[f"{name} must hold {told}"] = tmp_path / f"{name}.npz"
    for name, told, given in (
        ("whole", "train_index has every row", {"train_index": np.arange(60)}),
        ("one-class", "the 10 train rows have one class only", {"train_index": np.flatnonzero(y == 0)[:10]}),
        ("twice", "train_index holds a row number twice", {"train_index": np.array([*range(50), 0])}),
        ("gap", "fold must hold every number from 0 to K − 1", {"fold": np.arange(60) % 3 * 2}),
        ("one-fold", "with K at least 2", {"fold": np.zeros(60, dtype=int)}),
    ):
        np.savez(tmp_path / f"{name}.npz", X=X, y=y, **given)
        cases[told] = tmp_path / f"{name}.npz"
    unlabelled = np.column_stack([X, y]).astype(object)
    unlabelled[4, 4] = "NA"
    cases["data row 5 has no label"] = write_rows(tmp_path / "unlabelled.csv", unlabelled)
    cases["the header has 3 columns, the first data row has 5"] = write_csv(tmp_path / "header.csv", X, y, "a,b,c")
    np.savez(tmp_path / "both.npz", X=X, y=y, train_index=np.arange(50), test_index=np.arange(49, 60))
    cases["row 49 is in train_index and in test_index"] = tmp_path / "both.npz"
    return cases


def test_bad_files_are_told_in_words(tmp_path, rows):
    for message, path in bad_files(tmp_path, *rows).items():
        with pytest.raises(UsageError, match=message):
            datasets.load(path, 4)


def test_a_label_alone_is_no_data(tmp_path):
    with pytest.raises(UsageError, match="there is a label, but no feature column"):
        datasets.load(write_rows(tmp_path / "alone.csv", [["y"], *[[i % 2] for i in range(9)]]))


def test_semicolons_as_in_the_wine_files(tmp_path, rows):
    X, y = rows
    path = tmp_path / "own.csv"
    path.write_text(write_csv(tmp_path / "commas.csv", X, y, "a,b,c,d,out").read_text().replace(",", ";"))
    np.testing.assert_array_equal(datasets.load(path).X, datasets.load(tmp_path / "commas.csv").X)


def test_folds_have_a_fingerprint_of_their_own(tmp_path, rows):
    X, y = rows
    for k in (2, 3):
        np.savez(tmp_path / f"{k}.npz", X=X, y=y, fold=np.arange(60) % k)
    two, three = (datasets.load(tmp_path / f"{k}.npz") for k in (2, 3))
    assert two.fingerprint == three.fingerprint
    assert two.folds != three.folds


def test_the_kind_of_integers_is_no_other_data(tmp_path, rows):
    """A sweep goes on with the same rows, whatever numbers name them."""
    X, y = rows
    prints = set()
    for kind in (np.int32, np.int64, np.uint8):
        np.savez(tmp_path / "kind.npz", X=X, y=y, train_index=np.arange(50, dtype=kind), test_index=np.arange(50, 60))
        prints.add(datasets.load(tmp_path / "kind.npz").fingerprint)
    assert len(prints) == 1


def test_the_command_says_it_in_one_line(tmp_path, capsys):
    code = main(
        ["reproduce", "chemreact", "--smoke", "--out", str(tmp_path / "out"), "--data", str(tmp_path / "no.csv")]
    )
    assert code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "there is no such file" in error


def test_stand_in_is_seeded_and_has_its_share_of_positives():
    one, same = (datasets.stand_in(500, 6, 0.1) for _ in range(2))
    assert one.fingerprint == same.fingerprint
    assert one.y.mean() == pytest.approx(0.1, abs=0.005)
    assert not one.is_real
    assert "stand-in" in one.source
    other = datasets.stand_in(500, 6, 0.1, seed=1)
    assert other.fingerprint != one.fingerprint


def test_stand_in_takes_the_covariance_of_real_rows(tmp_path):
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(3, 3))
    real = rng.normal(size=(4000, 3)) @ mixing.T
    np.savez(tmp_path / "real.npz", X=real, y=rng.integers(0, 2, 4000))
    made = datasets.stand_in(20_000, 3, 0.3, tmp_path / "real.npz")
    np.testing.assert_allclose(np.corrcoef(made.X.T), np.corrcoef(real.T), atol=0.05)


def test_part_keeps_both_classes():
    whole = datasets.stand_in(2000, 3, 0.05)
    some = datasets.part(whole, 200)
    assert len(some.y) == 200
    assert some.y.mean() == pytest.approx(0.05, abs=0.01)
    assert "only 200 of the rows" in some.source
    assert datasets.part(whole, 5000) is whole
    rare = datasets._split(np.zeros((4000, 1)), (np.arange(4000) < 8).astype(int), "rare", True, {})
    few = datasets.part(rare, 100)
    assert [set(few.y[rows]) for rows in (few.train, few.test)] == [{0, 1}, {0, 1}]


def test_auroc_by_hand():
    assert auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == pytest.approx(0.75)
    assert auroc(np.array([1.0, 1.0, 1.0]), np.array([0, 1, 1])) == pytest.approx(0.5)
    assert np.isnan(auroc(np.array([1.0, 2.0]), np.array([1, 1])))


def test_auroc_se_is_the_sampling_error_of_test_sets():
    """Of exponential scores the formula is exact: with means 4 and 1 the area is 4/5. An sd of n values has a relative
    error of 1/√(2n)."""
    rng, y, n = np.random.default_rng(5), np.arange(60) < 20, 4000
    areas = [auroc(rng.exponential(np.where(y, 4.0, 1.0)), y) for _ in range(n)]
    assert auroc_se(0.8, y) == pytest.approx(np.std(areas, ddof=1), rel=4.0 / np.sqrt(2 * n))


def test_auroc_se_of_a_perfect_order_is_not_zero():
    y = np.arange(60) < 2
    assert auroc_se(1.0, y) == auroc_se(1.0 - 0.5 / 3, y) > 0.1
    assert np.isnan(auroc_se(0.5, np.zeros(10)))


def test_calibration_error_by_hand():
    prob, y = np.array([0.1] * 10 + [0.9] * 10), np.array([0] * 10 + [1] * 10)
    assert calibration_error(prob, y, bins=2) == pytest.approx(0.1)
    assert calibration_error(np.full(20, 0.5), y, bins=1) == pytest.approx(0.0)
