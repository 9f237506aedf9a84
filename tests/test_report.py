"""The report page without a browser: what it says, how it is escaped, what its data decode to; the notebook card."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_cases import CLOSING, HOSTILE, STEPS, assembled, fit_small, growing, large

import boostvi as bv
from boostvi import report, tracks
from boostvi.families import DiagonalNormal
from boostvi.report import axes, columns, explorer
from boostvi.report.facts import duration, with_error
from boostvi.report.notebook import card
from boostvi.report.page import spark
from boostvi.snapshot import MOST_CORRELATED, pairs
from boostvi.storage.loaded import LoadedResult, NoTarget
from boostvi.summary import DRAWS, advice
from boostvi.trace import Trace

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """The elements of a page, with the text inside them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        assert self._open == []  # everything that was opened is closed

    def handle_starttag(self, tag, attrs):
        one = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(one)
        if tag not in VOID:
            self._open.append(one)

    def handle_startendtag(self, tag, attrs):
        self.elements.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        assert self._open.pop()["tag"] == tag

    def handle_data(self, text):
        for one in self._open:
            one["text"] += text

    def all(self, tag):
        return [one for one in self.elements if one["tag"] == tag]

    def id(self, name):
        (found,) = [one for one in self.elements if one.get("id") == name]
        return found

    @property
    def data(self):
        return json.loads(self.id("data")["text"])


def decoded(text, dtype, *shape):
    return np.frombuffer(base64.b64decode(text), dtype=dtype).reshape(shape)


@pytest.fixture(scope="module")
def fitted():
    return fit_small()


@pytest.fixture(scope="module")
def written(fitted, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "page.html"
    assert report.write(*fitted, file, title=f"Title {HOSTILE}", command="boostvi fit && echo <b>") == file
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written):
    return Page(written)


@pytest.fixture(scope="module")
def loaded(fitted, tmp_path_factory):
    """The same result from its file, without the model."""
    file = tmp_path_factory.mktemp("file") / "run.bvi"
    fitted[0].save(file)
    return bv.load(file)


# -- what it says


def test_the_verdict_comes_first(fitted, page):
    result, _ = fitted
    sections = [one["id"] for one in page.all("section")]
    assert sections == ["verdict", "numbers", "parameters", "modes", "explorer"]
    said = page.id("verdict")["text"]
    assert result.verdict in said
    for reason in result.reasons:
        assert reason in said
    assert advice(result).removeprefix("next: ") in said


def test_key_numbers_are_the_results_own(fitted, page):
    result, _ = fitted
    said = page.id("numbers")["text"]
    for shown in (
        with_error(result.elbo, result.elbo_se), with_error(result.kl_estimate, result.kl_se, 3), f"{result.khat:.2f}",
        f"{result.ess:,.0f}", f"{result.evals:,}", result.status, str(result.mixture.n_active), "diagonal-normal",
    ):  # fmt: skip
        assert shown in said


def test_the_table_has_the_models_own_parameters(fitted, page):
    result, _ = fitted
    draws = result.sample(DRAWS, seed=0)
    assert [one["text"] for one in page.all("th") if one.get("scope") == "row"] == list(draws)
    rows = page.all("tr")[1:]
    cells = [one["text"] for one in page.all("td") if one.get("class") != "hist"]
    for i, values in enumerate(draws.values()):
        numbers = [float(text.replace("−", "-")) for text in cells[5 * i : 5 * i + 5]]
        wanted = [values.mean(), values.std(), *np.quantile(values, [0.05, 0.5, 0.95])]
        np.testing.assert_allclose(numbers, wanted, rtol=1e-3)
    assert len(rows) == 3


def test_the_command_and_the_title(page):
    assert page.all("h1")[0]["text"] == page.all("title")[0]["text"] == f"Title {HOSTILE}"
    assert page.all("code")[0]["text"] == "boostvi fit && echo <b>"


def test_several_modes_are_listed(fitted, monkeypatch):
    result, _ = fitted
    mode = bv.result.Mode(0.25, {HOSTILE: np.float64(2.0), "place": np.float64(1.0)}, (0, 1))
    other = bv.result.Mode(0.75, {HOSTILE: np.float64(9.0), "place": np.float64(5.0)}, (2,))
    monkeypatch.setitem(vars(result), "modes", (other, mode))
    monkeypatch.setattr(
        "boostvi.summary._columns",
        lambda result, draws: {k: np.asarray(v) for k, v in draws.items() if k in (HOSTILE, "place")},
    )
    said = Page(f"<div>{report.page.modes(result)}</div>")
    first, second = (one["text"] for one in said.all("li"))
    assert "75.0 % at" in first
    assert f"{HOSTILE} = 9" in first
    assert "(2 components)" in second
    assert [one["value"] for one in said.all("meter")] == ["0.7500", "0.2500"]
    assert not said.all("img")


# -- safety


def test_nothing_of_the_users_is_markup(written, page):
    assert not page.all("img")
    assert not page.all("b") or all("alert" not in one["text"] for one in page.all("b"))
    assert [one.get("type") for one in page.all("script")] == ["application/json", None]
    assert CLOSING not in written
    names = [one["name"] for one in page.data["axes"]]
    assert names == [HOSTILE, "place", f"sum{CLOSING}"]
    assert "alert" not in page.all("script")[1]["text"]


def test_the_policy_allows_this_script_and_this_style_only(written, page):
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy

    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules["script-src"] == digest(page.all("script")[1]["text"])
    assert rules["style-src"] == digest(page.all("style")[0]["text"])
    assert not [one for one in page.elements if "style" in one or any(name.startswith("on") for name in one)]
    addresses = set(re.findall(r"https?://[^\"'\s)]+", written))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_names_that_are_no_unicode(tmp_path):
    mixture = bv.Mixture({"loc": np.zeros((1, 1)), "raw_scale": np.zeros((1, 1))}, np.ones(1), DiagonalNormal())
    result, trace = assembled([mixture], ["half \ud800 of a pair"])
    assert "half ? of a pair" in report.write(result, trace, tmp_path / "page.html").read_text(encoding="utf-8")


# -- the explorer's data


def test_components_decode_to_what_they_were():
    result, trace = growing()
    z = result.mixture.sample(DRAWS, seed=0)
    data = explorer.data(result, trace, z, columns.columns_of(result, z))
    assert [len(one["at"]) for one in data["steps"]] == [1, 2, 3, 4, 5, 6]
    parts = data["components"]
    assert parts["count"] == 6  # of 21 in all steps: those that did not change are there once
    loc = np.array(parts["low"]) + decoded(parts["loc"], "<u2", 6, 2) / 65535 * np.array(parts["width"])
    sd = np.exp(parts["log_sd_low"] + decoded(parts["log_sd"], np.uint8, 6, 2) * parts["log_sd_unit"])
    last = data["steps"][-1]
    np.testing.assert_allclose(loc[last["at"]], trace.snapshots[-1].loc, atol=1e-4)
    np.testing.assert_allclose(sd[last["at"]], trace.snapshots[-1].sd, rtol=0.01)
    np.testing.assert_allclose(last["weights"], trace.snapshots[-1].weights, atol=1e-5)
    assert last["numbers"] == [0, 1, 2, 3, 4, 5]


def test_draws_decode_to_what_they_were():
    result, trace = growing()
    z = result.mixture.sample(DRAWS, seed=0)
    data = explorer.data(result, trace, z, columns.columns_of(result, z))
    codes = decoded(data["draws"]["values"], np.uint8, 6, 2, data["draws"]["count"])
    for i, axis in enumerate(data["axes"]):
        values = axis["low"] + codes[3, i] / 254 * (axis["high"] - axis["low"])
        wanted = trace.snapshots[3].draws[:, i]
        inside = codes[3, i] != 255
        assert inside.mean() > 0.9
        np.testing.assert_allclose(values[inside], wanted[inside], atol=(axis["high"] - axis["low"]) / 254)
    owners = decoded(data["draws"]["owners"], "<u2", 6, data["draws"]["count"])
    np.testing.assert_array_equal(owners[3], trace.snapshots[3].owners)


def test_axes_know_their_coordinate(fitted, page):
    """exp(z) hangs on one coordinate, a sum of two on none; the knots lie on the curve."""
    found = {axis["name"]: axis for axis in page.data["axes"]}
    assert found["place"]["knots"] is None
    assert found["place"]["coordinate"] is not None
    z, x = (np.array(side) for side in found[HOSTILE]["knots"])
    np.testing.assert_allclose(x, np.exp(z), rtol=1e-5)
    assert (np.diff(z) > 0).all()
    assert found[f"sum{CLOSING}"]["coordinate"] is None


def test_curves_are_the_history(fitted, page):
    result, _ = fitted
    history = page.data["history"]
    assert len(history["elbo"]) == STEPS + 1
    np.testing.assert_allclose(history["elbo"], result.history["elbo"])
    assert history["kind"] == result.history["kind"].tolist()
    assert page.data["best"] == result.best_step


def test_correlations_of_the_chosen_pairs():
    rng = np.random.default_rng(1)
    whole = rng.integers(-127, 128, size=(3, len(pairs(5)[0]))).astype(np.int8)
    matrix = np.zeros((3, 5, 5), dtype=np.int8)
    matrix[:, *pairs(5)] = whole
    matrix += matrix.swapaxes(1, 2)
    chosen = explorer._chosen(whole, np.array([4, 0, 3]), 5)
    np.testing.assert_array_equal(chosen, matrix[:, [4, 4, 0], [0, 3, 3]])


def test_a_large_run_stays_small(tmp_path):
    """50 components × 100 parameters × 60 steps, none of them twice: below 3 MB, and no parameter is left out."""
    file = report.write(*large(), tmp_path / "page.html")
    assert file.stat().st_size < 3e6
    data = Page(file.read_text()).data
    assert len(data["axes"]) == 100
    assert data["components"]["count"] == 3000
    assert data["components"]["correlated"] > 10
    assert data["left_out"] == 0


def test_beyond_the_correlated_coordinates_ellipses_are_rough(tmp_path):
    result, trace = large(components=2, dim=MOST_CORRELATED + 20, steps=2)
    data = Page(report.write(result, trace, tmp_path / "page.html").read_text()).data
    assert len(data["axes"]) == MOST_CORRELATED + 20
    assert data["components"]["correlated"] == MOST_CORRELATED
    later = [axis["coordinate"] for axis in data["axes"][MOST_CORRELATED:]]
    assert min(later) >= MOST_CORRELATED  # the page holds no correlation for them


def test_room_for_axes_is_limited(monkeypatch):
    monkeypatch.setattr(explorer, "BYTES", 3 * (3 * 10 + 5 * explorer.FEWEST_DRAWS + explorer.BACKDROP))
    made = [axes.Axis(f"z{i}", 0.0, 1.0, i, None, interest) for i, interest in enumerate([0.1, 0.9, 0.5, 0.8])]
    plan = explorer._plan(made, components=10, steps=5, correlated=True)
    assert [axis.name for axis in plan.axes] == ["z1", "z2", "z3"]
    assert plan.coordinates.tolist() == [1, 3, 2]  # the most telling first
    assert plan.draws == explorer.FEWEST_DRAWS


def test_many_steps_are_thinned():
    _, trace = growing(steps=3)
    taken = [dataclasses.replace(trace.snapshots[0], step=t) for t in range(500)]
    shown = [one.step for one in explorer.thinned(taken, best=77)]
    assert len(shown) <= explorer.MOST_STEPS
    assert {0, 77, 499} <= set(shown)


def test_infinite_elbos_are_gaps(tmp_path):
    result, trace = growing()
    result.history.rows[1]["elbo"] = -np.inf
    trace._kept[1] = dataclasses.replace(trace._kept[1], elbo=-np.inf)
    data = Page(report.write(result, trace, tmp_path / "page.html").read_text()).data
    assert data["history"]["elbo"][1] is None


# -- following components


def snapshot_of(locs, sds=None):
    _, trace = growing(dim=1, steps=1)
    loc = np.asarray(locs, dtype=float)[:, None]
    sd = np.ones_like(loc) if sds is None else np.asarray(sds, dtype=float)[:, None]
    n = len(loc)
    none = np.zeros((n, 0), dtype=np.int8)
    return dataclasses.replace(trace.snapshots[0], weights=np.full(n, 1 / n), loc=loc, sd=sd, correlations=none)


def test_components_keep_their_number_in_any_order():
    steps = [snapshot_of([0.0]), snapshot_of([5.0, 0.0]), snapshot_of([5.0]), snapshot_of([9.0, 5.0])]
    assert tracks.follow(steps) == [[0], [1, 0], [1], [2, 1]]


def test_moved_components_are_matched_by_distance():
    steps = [snapshot_of([0.0, 10.0]), snapshot_of([10.3, 0.2]), snapshot_of([10.3, -50.0])]
    assert tracks.follow(steps) == [[0, 1], [1, 0], [1, 2]]


def test_one_half_of_a_split_keeps_the_number():
    assert tracks.follow([snapshot_of([0.0]), snapshot_of([0.5, -0.4], [0.85, 0.85])]) == [[0], [1, 0]]


def test_twins_are_two():
    assert tracks.follow([snapshot_of([0.0, 0.0]), snapshot_of([0.0, 0.0])]) == [[0, 1], [0, 1]]


# -- rows of the table


def test_draws_that_are_not_finite_are_left_out_and_counted():
    values = np.concatenate([np.full(3, np.nan), [np.inf], np.linspace(0.0, 1.0, 101)])
    nothing, some = columns.rows({"none": np.full(5, np.nan), "some": values})
    assert nothing.left_out == 5
    assert np.isnan(nothing.numbers).all()
    assert spark(nothing.heights) == ""
    assert some.left_out == 4
    np.testing.assert_allclose(some.numbers[2:], [0.05, 0.5, 0.95])


def test_a_histogram_is_as_high_as_its_highest_bin():
    tall = columns.heights(np.repeat([0.0, 1.0], [300, 100]), bins=4)
    assert tall == (1.0, 0.0, 0.0, pytest.approx(1 / 3))
    assert columns.heights(np.ones(10)) == ()


# -- without the trace, without the model


def test_without_a_trace_there_is_no_slider(fitted, tmp_path):
    result, _ = fitted
    file = result.report(tmp_path / "page.html", title="Plain")
    page = Page(file.read_text())
    assert not [one for one in page.elements if one.get("id") in ("slider", "play")]
    (only,) = page.data["steps"]
    assert only["step"] == result.best_step
    assert len(only["at"]) == result.mixture.n_active


def test_without_the_model_the_page_says_what_it_shows(fitted, loaded, tmp_path):
    _, trace = fitted
    page = Page(report.write(loaded, trace, tmp_path / "page.html").read_text())
    assert "unconstrained" in page.id("parameters")["text"]
    assert [one["text"] for one in page.all("th") if one.get("scope") == "row"] == list(loaded.target.names)
    assert loaded.verdict in page.id("verdict")["text"]
    assert loaded.stored_summary in page.all("pre")[0]["text"]
    assert not page.all("img")


def test_a_run_that_nobody_judged(fitted, tmp_path):
    result, trace = fitted
    target = NoTarget(Path("run.bvi"), result.target.names, constrained=True)
    unjudged = LoadedResult(target, result.run, "interrupted", {}, None)
    page = Page(report.write(unjudged, trace, tmp_path / "page.html").read_text())
    said = page.id("verdict")["text"]
    assert "not judged" in said
    assert "bv.load('run.bvi', target=target)" in said
    assert f"{result.history['elbo'][result.best_step]:.4f}".replace("-", "−") in page.id("numbers")["text"]
    assert "not judged" in card(unjudged)


# -- what can be wrong


def test_a_trace_of_another_run_is_refused(fitted, tmp_path):
    result, _ = fitted
    with pytest.raises(ValueError, match="trace is not of this run"):
        report.write(result, growing()[1], tmp_path / "page.html")
    with pytest.raises(ValueError, match="trace is not of this run"):
        report.write(result, Trace(), tmp_path / "page.html")
    with pytest.raises(TypeError, match=r"trace must be a boostvi.trace.Trace .* or None, got str"):
        report.write(result, "folder", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_replaced_as_a_whole_or_not_at_all(fitted, tmp_path, monkeypatch):
    result, _ = fitted
    file = tmp_path / "page.html"
    file.write_text("earlier")

    def full(handle):
        raise OSError(28, "no space left")

    monkeypatch.setattr("boostvi.storage.archive.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        report.write(result, None, file)
    assert file.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(IsADirectoryError, match="path is a folder"):
        report.write(result, None, tmp_path)


def test_a_trace_that_is_ahead_of_the_result(fitted, tmp_path):
    """A checkpoint that could not be written leaves a trace with steps that the result does not have."""
    result, trace = fitted
    earlier = bv.result.Result(result.target, result.run, result.status)
    ahead = Trace()
    ahead._kept = trace._kept | {STEPS + 1: dataclasses.replace(trace._kept[STEPS], step=STEPS + 1, elbo=9.0)}
    assert len(explorer.taken_steps(earlier, ahead)) == STEPS + 1


# -- in a notebook


def test_the_card_has_verdict_numbers_and_picture(fitted):
    result, _ = fitted
    text = result._repr_html_()
    page = Page(text)
    said = page.all("div")[0]["text"]
    assert result.verdict in said
    assert all(reason in said for reason in result.reasons)
    assert with_error(result.elbo, result.elbo_se) in said
    assert len(page.all("path")) == 3  # a histogram for each parameter
    assert len(page.all("rect")) == result.mixture.n_active
    assert len(text.encode()) < 50_000


def test_the_card_is_safe_and_small():
    result, _ = large(components=50, dim=100, steps=1)
    text = result._repr_html_()
    assert len(text.encode()) < 50_000
    page = Page(text)
    assert not page.all("img")
    assert not page.all("script")
    assert "94 more parameters" in page.all("div")[0]["text"]
    assert not [one for one in page.elements if one.get("fill") in ("black", "white")]  # of the notebook's own theme


def test_the_card_says_that_parameters_are_unconstrained(loaded):
    assert "unconstrained parameters" in loaded._repr_html_()


def test_a_result_that_cannot_be_shown_does_not_break_a_notebook(fitted, monkeypatch):
    result, _ = fitted
    monkeypatch.setattr("boostvi.report.notebook.columns_of", lambda *_: 1 / 0)
    assert (
        result._repr_html_() == "<pre>a boostvi.Result that cannot be shown: ZeroDivisionError: division by zero</pre>"
    )


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.96, "60.0 s"), (600, "10 min"), (7380, "2 h 3 min")]
)  # fmt: skip
def test_durations(seconds, shown):
    assert duration(seconds) == shown


def test_numbers_with_and_without_an_error():
    assert with_error(-1.23456, 0.012) == "−1.2346 ± 0.012"
    assert with_error(-np.inf, np.inf) == "−inf"
