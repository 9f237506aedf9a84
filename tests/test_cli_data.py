"""Data files, and which column goes to which argument of a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from boostvi.cli import arguments, data
from boostvi.cli.columns import listed
from boostvi.cli.errors import UsageError

TABLE = "age,bmi,site,y\n30,21.5,Bern,1\n40,30.25,Chur,0\n50,28,Bern,1\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text, name="d.csv"):
    Path(name).write_text(text)
    return data.read(Path(name))


def column(text, name="x"):
    return read(text).column(name)


class TestCsv:
    def test_whole_numbers_stay_whole_and_others_do_not(self):
        table = read(TABLE)
        assert table.column("age").values.dtype == np.int64
        np.testing.assert_array_equal(table.column("age").values, [30, 40, 50])
        np.testing.assert_array_equal(table.column("bmi").values, [21.5, 30.25, 28.0])

    def test_text_becomes_codes_of_sorted_labels(self):
        site = column(TABLE, "site")
        np.testing.assert_array_equal(site.values, [0, 1, 0])
        assert site.values.dtype == np.int64
        assert site.labels == ("Bern", "Chur")

    def test_truth_becomes_one_and_zero(self):
        np.testing.assert_array_equal(column("x\nTrue\nfalse\nTRUE\n").values, [1, 0, 1])

    @pytest.mark.parametrize("delimiter", [";", "\t", "|"])
    def test_the_delimiter_is_found(self, delimiter):
        table = read(TABLE.replace(",", delimiter))
        assert table.names == ["age", "bmi", "site", "y"]
        assert table.column("bmi").values[1] == 30.25

    def test_spaces_quotes_blank_lines_and_a_byte_order_mark(self):
        Path("d.csv").write_bytes(b'\xef\xbb\xbf x , "a, b" \n 1 ,"two\nlines"\n\n 2 ,z\n')
        table = data.read(Path("d.csv"))
        np.testing.assert_array_equal(table.column("x").values, [1, 2])

    def test_large_whole_numbers_and_exponents(self):
        assert column("x\n12345678901234567890\n").values.dtype == np.float64
        np.testing.assert_array_equal(column("x\n1e3\n-2\n").values, [1000.0, -2.0])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("x,z\n1,1\n,1\n", ["d.csv, line 3 (row 2)", "'x' is missing", "remove the row or fill it in"]),
            ("x\n1\nNA\n", ["line 3 (row 2)", "'x' is missing (NA)"]),
            ("x\na\n\nnan\n", ["line 4 (row 2)", "'x' is missing (nan)"]),
            ("x\n1\n2\nthree\n", ["line 4 (row 3)", "'x' has 'three', but other rows have numbers"]),
            ("x\n1\ninf\n", ["line 3 (row 2)", "only finite numbers"]),
            ("x\n2024-01-31\n2024-02-01\n", ["'x' holds dates (2024-01-31)", "turn them into numbers"]),
            ("x\n31.1.2024\n1.2.2024\n", ["holds dates"]),
            ("x;z\n1,5;a\n2,5;b\n", ["write decimals with a point"]),
            ("x,z\n1\n", ["line 2 has 1 cells, but the header names 2"]),
            ("x,x\n1,2\n", ["two columns called 'x'"]),
            ("1,2\n3,4\n", ["line of column names"]),
            ("x\n", ["header but no rows"]),
            ("", ["d.csv is empty"]),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, text, words):
        with pytest.raises(UsageError) as error:
            column(text)
        for word in words:
            assert word in str(error.value)

    def test_columns_that_nobody_uses_may_be_anything(self):
        table = read("x,when,gap\n1,2024-01-01,\n2,2024-01-02,3\n")
        np.testing.assert_array_equal(table.column("x").values, [1, 2])

    def test_a_line_number_counts_lines_of_the_file(self):
        with pytest.raises(UsageError, match=r"line 4 \(row 2\)"):
            column('x,z\n1,"two\nlines"\n,z\n')

    def test_other_encodings(self):
        Path("d.csv").write_bytes("x\nGenève\n".encode("latin-1"))
        with pytest.raises(UsageError, match="not text in UTF-8"):
            data.read(Path("d.csv"))


class TestOtherFormats:
    def test_npz(self):
        np.savez(
            "d.npz", X=np.arange(6.0).reshape(3, 2), y=np.array([True, False, True]), site=np.array(["b", "a"]), n=5
        )
        table = data.read(Path("d.npz"))
        assert table.column("X").values.shape == (3, 2)
        assert table.column("y").values.dtype == bool
        assert table.column("site").labels == ("a", "b")
        assert table.column("n").values == 5

    def test_npz_of_objects_is_refused(self):
        np.savez("d.npz", x=np.array([{}], dtype=object))
        with pytest.raises(UsageError, match="plain arrays"):
            data.read(Path("d.npz")).column("x")

    def test_json_object(self):
        table = read(json.dumps({"J": 2, "y": [1.5, 2], "X": [[1, 2], [3, 4]], "s": ["u", "t"]}), "d.json")
        assert table.column("J").values == 2
        np.testing.assert_array_equal(table.column("X").values, [[1, 2], [3, 4]])
        assert table.column("s").labels == ("t", "u")

    def test_json_records(self):
        table = read('[{"y": 1, "s": "b"}, {"y": 2.5, "s": "a"}]', "d.json")
        np.testing.assert_array_equal(table.column("y").values, [1.0, 2.5])
        np.testing.assert_array_equal(table.column("s").values, [1, 0])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('{"y": [1, null]}', "d.json, row 2: 'y' is missing"),
            ('[{"y": 1}, {"z": 1}]', "d.json, row 2: 'y' is missing"),
            ('{"y": [[1, 2], [3]]}', "the lists in 'y' differ in length"),
            ('{"y": {"a": 1}}', "'y' must hold numbers or text"),
            ('{"y": [1,\n}', "d.json, line 2"),
            ("3", "must hold an object"),
            ("{}", "is empty"),
        ],
    )
    def test_json_that_is_wrong(self, text, words):
        with pytest.raises(UsageError) as error:
            read(text, "d.json").column("y")
        assert words in str(error.value)

    def test_parquet(self):
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        day = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
        columns = {"y": [1, 2], "gap": [1.0, None], "s": ["b", "a"], "day": day}
        parquet.write_table(arrow.table(columns), "d.parquet")
        table = data.read(Path("d.parquet"))
        assert table.column("y").values.dtype == np.int64
        assert table.column("s").labels == ("a", "b")
        with pytest.raises(UsageError, match="row 2: 'gap' is missing"):
            table.column("gap")
        with pytest.raises(UsageError, match="'day' holds dates"):
            table.column("day")
        Path("e.parquet").write_text("no")
        with pytest.raises(UsageError, match="not a parquet file"):
            data.read(Path("e.parquet"))

    @pytest.mark.parametrize(("name", "words"), [("d.xlsx", "data come as .csv"), ("no.csv", "there is no data file")])
    def test_files_that_cannot_be_read(self, name, words):
        Path("d.xlsx").write_text("")
        with pytest.raises(UsageError, match=words):
            data.read(Path(name))


def bind(function, text=TABLE, *given):
    return arguments.bind(function, None if text is None else read(text), given)


class TestArguments:
    def test_columns_of_the_same_name(self):
        bound = bind(lambda y, age: None)
        assert list(bound.values) == ["y", "age"]
        np.testing.assert_array_equal(bound.values["y"], [1, 0, 1])
        assert bound.sources == {"y": {"columns": ["y"]}, "age": {"columns": ["age"]}}

    def test_matrix_is_what_is_left_of_the_numbers(self):
        bound = bind(lambda X, y: None)
        np.testing.assert_array_equal(bound.values["X"], [[30, 21.5], [40, 30.25], [50, 28]])
        assert bound.values["X"].dtype == np.float64
        assert bound.sources["X"] == {"columns": ["age", "bmi"]}
        assert bound.told["X"] == "3 × 2 numbers from age, bmi"
        assert bound.notes == ["not in X, because they are not numbers: site"]

    def test_matrix_has_neither_dates_nor_the_row_numbers_of_pandas(self):
        bound = bind(lambda X: None, ",when,x\n0,2024-01-01,5\n1,2024-01-02,6\n")
        np.testing.assert_array_equal(bound.values["X"], [[5.0], [6.0]])
        assert "(no name), when" in bound.notes[0]

    def test_a_gap_in_the_matrix_is_told(self):
        with pytest.raises(UsageError, match=r"line 3 \(row 2\): 'b' is missing"):
            bind(lambda X, y: None, "a,b,y\n1,2,0\n1,,1\n")

    def test_matrix_leaves_arrays_of_other_lengths_alone(self):
        table = read('{"y": [1, 2], "a": [3, 4], "knots": [0, 1, 2], "J": 7}', "d.json")
        bound = arguments.bind(lambda X, y: None, table, [])
        assert bound.sources["X"] == {"columns": ["a"]}

    def test_a_column_of_its_name_wins(self):
        np.testing.assert_array_equal(bind(lambda X: None, "X,z\n1,2\n").values["X"], [1])

    def test_explicit_columns(self):
        bound = bind(lambda X, group, outcome: None, TABLE, "X=bmi, age", "outcome=y", "group=site")
        np.testing.assert_array_equal(bound.values["X"], [[21.5, 30], [30.25, 40], [28, 50]])
        assert bound.labels == {"group": ("Bern", "Chur")}
        assert bound.told["group"] == "3 codes of 2 labels from site: Bern = 0, Chur = 1"
        assert list(bound.told) == ["X", "group", "outcome"]

    def test_a_matrix_of_one_column_and_of_all_others(self):
        assert bind(lambda Z: None, TABLE, "Z=age,").values["Z"].shape == (3, 1)
        assert bind(lambda Z, y: None, TABLE, "Z=*").values["Z"].shape == (3, 2)

    def test_codes_of_numbers(self):
        bound = bind(lambda g: None, "id\n17\n5\n17\n", "g=id:codes")
        np.testing.assert_array_equal(bound.values["g"], [1, 0, 1])
        assert bound.labels["g"] == ("5", "17")
        assert bound.sources["g"] == {"columns": ["id"], "codes": True}

    @pytest.mark.parametrize(
        ("text", "value"),
        [("10", 10), ("2.5", 2.5), (".5", 0.5), ("-3", -3), ("1e-3", 1e-3), ("true", True), ("False", False),
         ("null", None), ("None", None), ('"logit"', "logit")],
    )  # fmt: skip
    def test_values(self, text, value):
        for table in (None, TABLE):
            found = bind(lambda v: None, table, f"v={text}").values["v"]
            assert found == value
            assert type(found) is type(value)

    def test_a_list_of_values(self):
        np.testing.assert_array_equal(bind(lambda v: None, TABLE, "v=[0,1,2.5]").values["v"], [0, 1, 2.5])

    def test_defaults_are_left_out_unless_the_data_have_them(self):
        bound = bind(lambda age, scale=2.0, y=None: None)
        assert set(bound.values) == {"age", "y"}
        assert bound.sources["scale"] == {"default": "2.0"}
        assert bound.told["scale"] == "its default, 2.0"

    def test_keyword_and_positional_only_arguments(self):
        def model(age, /, *, y, **rest): ...

        bound = bind(model, TABLE, "extra=1")
        args, kwargs = arguments.call(model, bound.values)
        np.testing.assert_array_equal(args[0], [30, 40, 50])
        assert set(kwargs) == {"y", "extra"}

    def test_an_index_that_begins_at_one_is_pointed_out(self):
        (note,) = bind(lambda g: None, "g\n1\n3\n2\n3\n").notes
        assert "1 … 3" in note
        assert "--arg g=g:codes" in note
        assert bind(lambda g: None, "g\n0\n1\n2\n").notes == []
        assert bind(lambda g: None, "g\n1\n5\n").notes == []

    @pytest.mark.parametrize(
        ("function", "given", "words"),
        [
            (lambda weight: None, [], ["needs 'weight'", "it has age, bmi, site, y", "--arg weight=column"]),
            (lambda y, w: None, ["w=Age"], ["no such column", "did you mean 'age'?"]),
            (lambda y: None, ["z=age"], ["the model takes 'y', and no 'z'"]),
            (lambda y: None, ["y"], ["--arg takes name=column"]),
            (lambda y: None, ["y=age", "y=bmi"], ["given twice"]),
            (lambda X: None, ["X=age,site"], ["'site' holds text (Bern = 0, Chur = 1)", "a matrix needs numbers"]),
            (lambda X: None, ["X=age,weight"], ["no column 'weight'"]),
            (lambda X: None, ["X=weight:codes"], ["no column 'weight'"]),
            (lambda X, Z: None, ["X=*", "Z=*"], ["only one argument"]),
            (lambda X, a: None, ["a=[1,2]"], ["no numeric columns are left for X"]),
        ],
    )
    def test_what_cannot_be_joined(self, function, given, words):
        with pytest.raises(UsageError) as error:
            bind(function, TABLE, *given)
        for word in words:
            assert word in str(error.value)

    def test_no_data(self):
        with pytest.raises(UsageError, match="give --data FILE, or --arg y=value"):
            bind(lambda y: None, None)
        with pytest.raises(UsageError, match="no --data to take it from"):
            bind(lambda y: None, None, "y=age")


def test_long_lists_of_labels_are_cut():
    assert listed(["a", "b"]) == "a = 0, b = 1"
    assert listed(list("abcdefgh")) == "a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, …"
