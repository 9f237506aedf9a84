"""The record of a sweep, its resuming, and its selection rule; no fit is made here."""

from __future__ import annotations

import os
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
from boostvi.reproduce import experiments, provenance, select, sweep
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Spread, Table, minus

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


def test_an_interrupted_sweep_keeps_what_is_finished(store, capsys):
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
    assert f"4 finished runs kept in {store.path}; the same command goes on from there" in capsys.readouterr().err
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
    again = Store(store.path, {"steps": STEPS, "of a later version": 1})
    again.close()
    with pytest.raises(UsageError, match="of a later version was 1, is 2"):
        Store(store.path, {"steps": STEPS, "of a later version": 2})


def test_a_file_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "sweep.sqlite").write_bytes(b"this is a text, not a database" * 50)
    with pytest.raises(UsageError, match="not a record of a sweep"):
        Store(tmp_path / "sweep.sqlite", {})


def test_a_record_that_cannot_be_opened_or_written(store, tmp_path):
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(UsageError, match=r"cannot open .*folder.sqlite \(unable to open"):
        Store(tmp_path / "folder.sqlite", {})
    with sqlite3.connect(store.path) as other, pytest.MonkeyPatch.context() as patch:
        other.execute("BEGIN EXCLUSIVE")
        connect = sqlite3.connect
        patch.setattr(sqlite3, "connect", lambda path: connect(path, timeout=0.01))
        with pytest.raises(UsageError, match=r"cannot read or write .* \(database is locked\); try again"):
            Store(store.path, {"steps": STEPS})
    other.close()


def test_an_elbo_of_minus_infinity_is_one(store):
    """Left out of a mean it would make it look better."""
    store.add_all([("adafw", {}, seed, [{"step": 0, "elbo": elbo}]) for seed, elbo in enumerate([-np.inf, -1.0])])
    assert store.curves("elbo", "adafw")[1].tolist() == [[-np.inf], [-1.0]]
    assert store.connection.execute("SELECT avg(elbo) FROM steps").fetchone()[0] == -np.inf


def test_a_record_of_an_earlier_version_gets_new_columns(store):
    store.add_all([("adafw", {}, 0, [{"step": 0, "elbo": -1.0}])])
    store.add_all([("adafw", {}, 1, [{"step": 0, "elbo": -2.0, "accuracy": 0.5}])])
    np.testing.assert_array_equal(store.curves("accuracy", "adafw")[1], [[np.nan], [0.5]])


def test_results_are_computed_once(store):
    assert store.result("auto", lambda: {"elbo": -1.5}) == {"elbo": -1.5}
    assert store.result("auto", lambda: pytest.fail("computed again")) == {"elbo": -1.5}


def test_two_commands_in_one_folder_lose_nothing(store):
    """What the faster one recorded stays; nothing is there twice."""

    def overtaken(task, after_step):
        other = Store(store.path, {"steps": STEPS})
        sweep.run([task], other, fake, STEPS, quiet=True)
        other.close()
        return [[{**row, "elbo": 1e9} for row in run] for run in fake(task, after_step)]

    finish(store, overtaken)
    assert len(store.finished()) == 9
    elbo = store.curves("elbo", "adafw")[1]
    assert elbo.shape == (6, STEPS + 1)
    assert elbo.max() < 1e9
    assert "not recorded" not in store.made()[0]

    def also_overtaken():
        other = Store(store.path, {"steps": STEPS})
        other.result("auto", lambda: "first")
        other.close()
        return "second"

    assert store.result("auto", also_overtaken) == "first"


def test_processes_do_the_same(store):
    finish(store, jobs=2)
    assert len(store.finished()) == 9
    assert "not recorded" not in store.made()[0]
    np.testing.assert_allclose(store.curves("elbo", "predefined")[1][:, 0], [0.0, 0.1, 0.2])


def test_fewer_runs_at_once_where_processes_share_a_machine():
    sizes = [sweep.batch_size(jobs, ray) for jobs, ray in ((1, None), (2, None), (50, None), (1, "auto"))]
    assert sizes == [60, 30, 10, 10]


def killed(task, after_step):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_told_in_words(store):
    with pytest.raises(UsageError, match="was killed, for want of memory perhaps: use fewer --jobs"):
        finish(store, killed, jobs=2)


def other_data(task, after_step):
    raise UsageError("other data")


def test_a_workers_mistake_is_told_in_words(store, monkeypatch):
    """By a process; and by Ray, whose own error would show the worker's traceback."""
    with pytest.raises(UsageError, match=r"^other data$"):
        finish(store, other_data, jobs=2)

    class FailedError(Exception):
        cause = UsageError("other data")

    def get(reference):
        raise FailedError("a long traceback")

    ray = types.ModuleType("ray")
    ray.init = ray.shutdown = lambda **settings: None
    ray.remote = lambda function: types.SimpleNamespace(remote=lambda *arguments: arguments[1])
    ray.wait, ray.get = lambda running: (running, []), get
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(UsageError, match=r"^other data$"):
        finish(store, ray="local")


def test_a_worker_with_other_data_refuses(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", X=rng.normal(size=(40, 3)), y=np.arange(40) % 2)
    options = {"data": str(tmp_path / "own.npz"), "label": None, "full_size": False, "size": (1, 1, 10, 10, 10, None)}
    with pytest.raises(UsageError, match=r"found other data .own\.npz: 40 rows × 3 columns"):
        experiments.build("wine", {**options, "fingerprint": "of other rows"})


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


def test_a_median_that_is_no_number_never_wins(store):
    """Of the first configuration all medians are NaN, of the second those of the later steps."""
    broken = [[{**row, "train_ll": float("nan")} for row in rows(9.0)] for _ in range(2)]
    half = [[{**row, "train_ll": float("nan") if row["step"] > 1 else 1.0} for row in rows(1.0)] for _ in range(2)]
    for tau, of_runs in ((1.0, broken), (2.0, half)):
        store.add_all([("adafw", {"tau": tau}, seed, run) for seed, run in enumerate(of_runs)])
    cell = select.best(store, "adafw", "train_ll", ())
    assert (cell.config, cell.step, cell.seeds) == ({"tau": 2.0}, 1, (0, 1))
    store.add_all([("predefined", {}, 0, broken[0])])
    with pytest.raises(UsageError, match="predefined: no configuration"):
        select.best(store, "predefined", "train_ll", ())


def test_last_step_of_the_seeds_that_have_all_configurations(store):
    for tau, seed in ((2.0, 0), (5.0, 0), (2.0, 1), (5.0, 1), (2.0, 2)):
        store.add_all([("adafw", {"tau": tau}, seed, rows(tau + 0.1 * seed))])
    found = select.last_by_seed(store, "adafw", "elbo")
    assert {seed: values.tolist() for seed, values in found.items()} == {0: [5.0, 8.0], 1: [5.1, 8.1]}


def test_the_record_says_what_made_it(store):
    """And of how much it does not say it, as of records of earlier versions."""
    finish(store)
    store.result("auto", lambda: 1)
    other = provenance.Made("0.0.9 (source abc)", "0.9", "a cluster", "2020-01-01 10:00:00")
    store.add_all([("exact", {}, seed, rows(0.0)) for seed in range(2)], other)
    runs, results = store.made()
    here = provenance.here().where
    assert f"{here}: 9 (" in runs
    assert f"{other.where}: 2 (2020-01-01 10:00:00 to" in runs
    assert f"{here}: 1 (" in results
    assert "not recorded" not in runs + results
    with store.connection as db:
        db.execute("DELETE FROM made WHERE result IS NOT NULL OR boostvi = ?", [other.boostvi])
    assert store.made()[0].endswith("; not recorded: 2")
    with store.connection as db:
        db.execute("DROP TABLE made")
    assert store.made() == ("not recorded: 11", "not recorded: 1")


def test_a_spread_is_one_cell_and_two_columns():
    cells = [[Spread(-1.5, 0.25, 1, 2), 1], [Spread(2.0), 2], [Spread(float("nan")), 3], ["none", 4]]
    table = Table("t", "T", ["ELBO ± sd", "n"], cells)
    assert table.csv() == 'ELBO,"ELBO, sd",n\n-1.5,0.25,1\n2.0,,2\n,,3\nnone,,4\n'
    assert [table.text(row[0]) for row in cells] == ["−1.5 ± 0.25", "2.0000", "–", "none"]
    assert str(Spread(1.0, 2.0, 0, form="{} ({})")) == "1 (2)"


def test_columns_have_different_names():
    with pytest.raises(ValueError, match="published"):
        Table("t", "T", ["a", "published", "published"], [[1, 2, 3]])
    with pytest.raises(ValueError, match="ELBO, sd"):
        Table("t", "T", ["ELBO ± sd", "ELBO, sd"], [[Spread(1.0), 2]])


def test_only_numbers_get_a_minus_sign():
    assert minus("a full-rank-normal of -1.5 (-.5, 2-3)") == "a full-rank-normal of −1.5 (−.5, 2-3)"


def test_tables_in_three_formats(tmp_path):
    table = Table("t", "A & B", ["Method", "Train LL"], [["AdaFW", -0.6712], ["x_y", float("nan")]], ["A note."])
    table.write(tmp_path)
    assert "| AdaFW | −0.671 |" in (tmp_path / "t.md").read_text()
    latex = (tmp_path / "t.tex").read_text()
    assert r"AdaFW & $-$0.671 \\" in latex
    assert r"x\_y & -- \\" in latex
    assert (tmp_path / "t.csv").read_text() == "Method,Train LL\nAdaFW,-0.6712\nx_y,\n"
    assert "A &amp; B" in table.html()
