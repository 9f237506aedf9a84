"""The record of a sweep, its resuming, and its selection rule; no fit is made here."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

from boostvi.cli import UsageError
from boostvi.reproduce import select, sweep
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Table

GRID = {"adafw": [{"tau": 2.0}, {"tau": 5.0}], "predefined": [{}]}
STEPS = 3


def rows(value: float) -> list[dict]:
    return [
        {"step": t, "kind": "init" if t == 0 else "away", "elbo": value + t, "train_ll": value - t, "gap": float("nan")}
        for t in range(STEPS + 1)
    ]


def fake(task, after_step):
    """What a batch of fits returns, at no cost."""
    for step in range(STEPS + 1):
        after_step(step)
    return [
        rows(dict(config).get("tau", 0.0) + 0.1 * seed) for config, seed in zip(task.configs, task.seeds, strict=True)
    ]


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "sweep.sqlite", {"steps": STEPS})
    yield made
    made.close()


def finish(store, execute=fake, **options):
    tasks = sweep.plan(store, "none", {}, GRID, 3, 2)
    sweep.run(tasks, store, execute, STEPS, quiet=True, **options)
    return tasks


def test_every_run_is_recorded_once(store):
    tasks = finish(store)
    assert sum(len(task.seeds) for task in tasks) == 9
    assert [task.seeds[0] for task in tasks] == sorted(task.seeds[0] for task in tasks)
    assert len(store.finished()) == 9
    runs, elbo = store.curves("elbo", "adafw")
    assert runs[0] == ('{"tau": 2.0}', 0)
    np.testing.assert_allclose(elbo[:3, 0], [2.0, 2.1, 2.2])
    assert np.isnan(store.curves("gap", "adafw")[1]).all()
    assert store.curves("kind", "predefined")[1][0].tolist() == ["init", "away", "away", "away"]
    assert finish(store) == []


def test_an_interrupted_sweep_keeps_what_is_finished(store):
    calls = []

    def dies(task, after_step):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fake(task, after_step)

    with pytest.raises(KeyboardInterrupt):
        finish(store, dies)
    kept = store.finished()
    assert len(kept) == 4
    rest = finish(store)
    assert sum(len(task.seeds) for task in rest) == 5
    assert kept < store.finished()


def test_a_killed_process_leaves_whole_runs(tmp_path):
    script = f"""
        from boostvi.reproduce.store import Store
        store = Store(__import__("pathlib").Path({str(tmp_path / "sweep.sqlite")!r}), {{"steps": 1}})
        for seed in range(10**6):
            store.add_all([("m", {{}}, seed, [{{"step": t, "elbo": 0.5}} for t in range(50)])])
            print(seed, flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with sqlite3.connect(tmp_path / "sweep.sqlite") as db:
        counts = db.execute(
            "SELECT count(steps.step) FROM runs LEFT JOIN steps ON steps.run = runs.id GROUP BY runs.id"
        )
        counts = [row[0] for row in counts]
    db.close()
    assert len(counts) >= 5
    assert set(counts) == {50}


def test_other_settings_are_refused(store):
    with pytest.raises(UsageError, match=r"steps was 3, is 4.*another --out"):
        Store(store.path, {"steps": 4})
    again = Store(store.path, {"steps": STEPS})
    again.close()


def test_a_file_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "sweep.sqlite").write_bytes(b"this is a text, not a database" * 50)
    with pytest.raises(UsageError, match="not a record of a sweep"):
        Store(tmp_path / "sweep.sqlite", {})


def test_results_are_computed_once(store):
    assert store.result("auto", lambda: {"elbo": -1.5}) == {"elbo": -1.5}
    assert store.result("auto", lambda: pytest.fail("computed again")) == {"elbo": -1.5}


def test_processes_do_the_same(store):
    finish(store, jobs=2)
    assert len(store.finished()) == 9
    np.testing.assert_allclose(store.curves("elbo", "predefined")[1][:, 0], [0.0, 0.1, 0.2])


def test_ray_is_asked_for_in_words(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'boostvi\[ray\]'"):
        finish(store, ray="auto")


def test_a_cluster_that_does_not_answer_is_told_in_words(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"no Ray cluster answers at '{address}'"):
            finish(store, ray=address)


def test_progress_tells_the_time_left(capsys):
    progress = sweep.Progress(10, quiet=False)
    progress.add(10)
    assert "10/10 steps of runs (100%)" in capsys.readouterr().err
    assert [sweep.clock(s) for s in (5, 300, 40_000)] == ["5 s", "5 min", "11.1 h"]


def test_selection_is_the_best_median_over_seeds(store):
    """By train LL, which falls with the step here: the larger τ at the first step."""
    finish(store)
    cell = select.best(store, "adafw", "train_ll", ("elbo",))
    assert cell.config == {"tau": 5.0}
    assert cell.step == 1
    np.testing.assert_allclose(cell.values["elbo"], [6.0, 6.1, 6.2])
    assert cell.median("train_ll") == pytest.approx(4.1)
    assert 0.02 < cell.median_se("train_ll") < 0.08  # three seeds 0.1 apart
    assert select.best(store, "adafw", "train_ll", (), from_step=0).step == 0


def test_tables_in_three_formats(tmp_path):
    table = Table("t", "A & B", ["Method", "Train LL"], [["AdaFW", -0.6712], ["x_y", float("nan")]], ["A note."])
    table.write(tmp_path)
    assert "| AdaFW | −0.671 |" in (tmp_path / "t.md").read_text()
    latex = (tmp_path / "t.tex").read_text()
    assert r"AdaFW & $-$0.671 \\" in latex
    assert r"x\_y & -- \\" in latex
    assert (tmp_path / "t.csv").read_text() == "Method,Train LL\nAdaFW,-0.6712\nx_y,\n"
    assert "A &amp; B" in table.html()
