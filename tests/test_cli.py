"""The command line: the tour of its page, what each command gives, and what it says when things go wrong."""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import boostvi as bv
from boostvi import cli
from boostvi.cli import completion, fitting, model_file, options, run_folder
from boostvi.families import FAMILIES
from boostvi.storage import archive

PAGE = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text()
PATIENCE = 300.0


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def run(capfd, *arguments) -> SimpleNamespace:
    """One command in this process."""
    capfd.readouterr()
    code = cli.main([str(argument) for argument in arguments])
    said = capfd.readouterr()
    return SimpleNamespace(code=code, out=said.out, err=said.err)


def refused(done, *words) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that has the words."""
    assert done.code == 2
    assert done.out == ""
    errors = [line for line in done.err.splitlines() if line.startswith("boostvi: error: ")]
    assert len(errors) == 1, done.err
    assert errors[0] == done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    for word in words:
        assert word in errors[0]


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """The folder of a newcomer who typed in the files of the page and its first command."""
    folder = tmp_path_factory.mktemp("tour")
    (folder / "schools.py").write_text(fenced("python")[0])
    (folder / "schools.csv").write_text(fenced("csv")[0])
    command = shlex.split(fenced("sh")[0].splitlines()[0])[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main([*command, "--quiet"]) == 0
    return SimpleNamespace(folder=folder, run=folder / "run", command=command)


@pytest.fixture
def here(tour, monkeypatch):
    monkeypatch.chdir(tour.folder)
    return tour


@pytest.fixture
def copy(tour, tmp_path, monkeypatch):
    """A copy of the newcomer's folder that a test may change."""
    shutil.copytree(tour.folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestTour:
    def test_the_folder_has_what_the_page_says(self, here):
        assert {"run.bvi", "fit.json"} <= {path.name for path in here.run.iterdir()}
        content = json.loads((here.run / "fit.json").read_text())
        assert content["model"]["file"] == "../schools.py"
        assert content["data"]["file"] == "../schools.csv"
        assert content["settings"] == {"recipe": "auto", "family": None, "seed": 0}
        assert content["budgets"] == {"max_steps": 3}
        assert content["labels"]["school"][:2] == ["Adams", "Baker"]
        assert content["versions"]["boostvi"] == bv.__version__

    def test_the_same_command_shows_the_result_of_a_complete_run(self, here, capfd):
        before = (here.run / "run.bvi").read_bytes()
        done = run(capfd, *here.command)
        stored = bv.load(here.run / "run.bvi")
        assert done.code == 0
        assert done.out.startswith(f"{stored.verdict}: ")
        assert f"ELBO {stored.elbo:.4f}" in done.out
        assert re.search(r"^next: .*boostvi (sample|resume|report) run", done.out, flags=re.MULTILINE)
        assert re.search(r"^theta\[7\] +-?\d", done.out, flags=re.MULTILINE)
        assert "school: 8 codes of 8 labels: Adams = 0, Baker = 1" in done.err
        assert "going on with the run in run" in done.err
        assert "judging" not in done.err  # its verdict is in the file
        assert (here.run / "run.bvi").read_bytes() == before
        assert "\x1b" not in done.out + done.err  # no terminal, no colours

    def test_json_is_all_that_is_on_stdout(self, here, capfd):
        done = run(capfd, "resume", "run", "--json", "--quiet")
        found, stored = json.loads(done.out), bv.load(here.run / "run.bvi")
        assert done.err == ""
        for name in ("verdict", "status", "elbo", "kl_estimate", "khat", "evals"):
            assert found[name] == getattr(stored, name)
        assert found["components"] == stored.mixture.n_active
        assert sum(mode["weight"] for mode in found["modes"]) == pytest.approx(1.0)
        described = found["parameters"]["tau"]
        assert 0 < described["q5"] < described["q50"] < described["q95"]

    def test_every_key_of_the_json_is_on_the_page(self, here, capfd):
        found = json.loads(run(capfd, "resume", "run", "--json", "--quiet").out)
        section = PAGE[PAGE.index("## Results, messages") : PAGE.index("| exit code")]
        assert set(found) == set(re.findall(r"`(\w+)`", section)) - {"null"}

    def test_resume_goes_on_with_a_larger_budget(self, copy, capfd):
        steps = bv.load("run/run.bvi").history["step"][-1]
        command = shlex.split(fenced("sh")[1])[1:]
        done = run(capfd, *command)
        assert done.code == 0
        more = bv.load("run/run.bvi")
        assert more.history["step"][-1] > steps or more.status != "max-steps"
        assert json.loads(Path("run/fit.json").read_text())["budgets"] == {"max_steps": 4}

    def test_ctrl_c_outside_of_the_steps(self, copy, capfd, monkeypatch):
        def interrupted(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(bv, "fit", interrupted)
        done = run(capfd, "resume", "run", "--quiet")
        assert (done.code, done.out) == (130, "")
        assert "interrupted between two steps; the same command goes on" in done.err
        Path("run/run.bvi").unlink()
        done = run(capfd, "resume", "run", "--quiet")
        assert (done.code, done.out) == (130, "")
        assert "interrupted before the first component was there; the same command starts again" in done.err

    def test_require(self, here, capfd, monkeypatch):
        assert run(capfd, "resume", "run", "--require", "usable").code == 0
        monkeypatch.setattr(bv.Result, "verdict", "unreliable")
        done = run(capfd, "resume", "run", "--require", "usable")
        assert done.code == 1
        assert "the verdict is 'unreliable', and --require asked for 'usable'" in done.err
        assert "do not use the draws" in done.out
        assert run(capfd, "resume", "run").code == 0


class TestSample:
    def test_csv_on_stdout(self, here, capfd):
        done = run(capfd, "sample", "run", "--n", 50, "--seed", 3)
        rows = list(csv.DictReader(done.out.splitlines()))
        draws = fitting.restored(Path("run"), None, None)[1].sample(50, seed=3)
        assert len(rows) == 50
        np.testing.assert_array_equal([float(row["tau"]) for row in rows], draws["tau"])
        np.testing.assert_array_equal([float(row["theta[7]"]) for row in rows], draws["theta"][:, 7])

    def test_npz_by_the_name_of_the_file_and_by_importance(self, here, capfd, tmp_path):
        assert run(capfd, "sample", "run", "--n", 20, "--importance", "--out", tmp_path / "d.npz").code == 0
        expected = fitting.restored(Path("run"), None, None)[1].sample(20, importance=True)
        with np.load(tmp_path / "d.npz") as draws:
            assert set(draws) == {"mu", "tau", "offset", "theta"}
            np.testing.assert_array_equal(draws["theta"], expected["theta"])
        assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]

    def test_netcdf_has_the_labels_of_the_data(self, here, capfd, tmp_path):
        xarray = pytest.importorskip("xarray")
        assert run(capfd, "sample", "run", "--n", 10, "--out", tmp_path / "d.nc").code == 0
        with xarray.open_dataset(tmp_path / "d.nc", group="posterior") as posterior:
            assert posterior["offset"].shape == (1, 10, 8)
            assert posterior["schools"].values.tolist()[:3] == ["Adams", "Baker", "Clark"]

    @pytest.mark.parametrize(
        ("verdict", "options", "warning"),
        [
            ("unreliable", [], "unreliable: because"),
            ("usable", [], "--importance brings the draws nearer"),
            ("usable", ["--importance"], None),
            ("good", [], None),
        ],
    )
    def test_draws_of_a_poor_fit_come_with_a_warning(self, here, capfd, monkeypatch, verdict, options, warning):
        monkeypatch.setattr(bv.Result, "verdict", verdict)
        monkeypatch.setattr(bv.Result, "reasons", ("because",))
        done = run(capfd, "sample", "run", "--n", 5, *options)
        assert len(done.out.splitlines()) == 6
        assert ("warning" in done.err) is (warning is not None)
        assert (warning or "") in done.err

    def test_binary_formats_want_a_file(self, here, capfd):
        refused(run(capfd, "sample", "run", "--format", "netcdf"), "name a file with --out")

    def test_no_folder_to_write_to(self, here, capfd):
        refused(run(capfd, "sample", "run", "--out", "nowhere/d.csv"), "there is no folder nowhere")

    def test_moved_files_are_asked_for_and_can_be_named(self, copy, capfd):
        (copy / "elsewhere").mkdir()
        Path("schools.csv").rename("elsewhere/schools.csv")
        refused(run(capfd, "sample", "run"), "schools.csv", "is not there", "--data")
        assert run(capfd, "sample", "run", "--n", 2, "--data", "elsewhere/schools.csv").code == 0

    def test_a_folder_may_move_with_its_files(self, copy, capfd, monkeypatch):
        (copy / "deep").mkdir()
        for name in ("run", "schools.py", "schools.csv"):
            (copy / name).rename(copy / "deep" / name)
        assert run(capfd, "sample", "deep/run", "--n", 2).code == 0

    def test_data_that_changed_since_are_noticed(self, copy, capfd):
        data = Path("schools.csv")
        data.write_text(data.read_text().replace("28", "82"))
        before = {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
        changed = "Changed since it was made: schools.csv"
        refused(run(capfd, "sample", "run"), "another target", changed)
        refused(run(capfd, "fit", "schools.py", "--data", "schools.csv", "--out", "run"), "another target", changed)
        refused(run(capfd, "resume", "run"), "another target", changed)
        assert {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()} == before


class TestCompare:
    def test_table_best_first(self, copy, capfd):
        worse = copy / "worse"
        shutil.copytree(copy / "run", worse)
        result = fitting.restored(copy / "run", None, None)[1]
        poor = bv.fit(result.target, recipe="bbbvi", family="diagonal-normal", first="random", max_steps=0, seed=1)
        poor.save(worse / "run.bvi", evaluate=False)
        done = run(capfd, "compare", "worse", "run")
        head, first, second = done.out.splitlines()
        assert head.split() == ["run", "verdict", "ELBO", "KL", "khat", "ESS", "components", "evals", "seconds"]
        assert first.split()[:3] == ["run", result.verdict, f"{result.elbo:.3f}"]
        assert second.split()[0] == "worse"
        assert done.err == ""
        rows = json.loads(run(capfd, "compare", "worse", "run", "--json").out)
        assert [row["run"] for row in rows] == ["run", "worse"]
        assert rows[0]["elbo"] == result.elbo

    def test_runs_of_different_data_are_pointed_out(self, copy, capfd):
        shutil.copytree(copy / "run", copy / "other")
        plan = json.loads(Path("other/fit.json").read_text())
        plan["data"]["sha256"] = "0"
        Path("other/fit.json").write_text(json.dumps(plan))
        assert "different models or data" in run(capfd, "compare", "run", "other").err

    def test_a_run_that_was_not_judged(self, copy, capfd):
        result = bv.load("run/run.bvi")
        contents = fitting.restored(copy / "run", None, None)[1]
        contents_alone = bv.Result(contents.target, contents.run, "interrupted")
        contents_alone.save("run/run.bvi", evaluate=False)
        done = run(capfd, "compare", "run")
        assert "not judged" in done.out
        assert f"{result.history['elbo'].max():.3f}" in done.out
        assert json.loads(run(capfd, "compare", "run", "--json").out)[0]["khat"] is None
        assert "not judged yet" in run(capfd, "sample", "run", "--n", 2).err

    def test_picture(self, here, capfd, tmp_path):
        assert run(capfd, "compare", "run", "--out", tmp_path / "c.png").code == 0
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")

    def test_no_run_there(self, here, capfd):
        refused(run(capfd, "compare", "run", "nowhere"), "nowhere is no run folder")


class TestReport:
    def test_the_page_has_the_verdict_the_command_and_the_steps(self, copy, capfd):
        assert run(capfd, "report", "run").out.strip() == str(Path("run/report.html"))
        page = Path("run/report.html").read_text()
        assert "schools: model" in page
        assert "boostvi fit schools.py:model --data schools.csv --max-steps 3 --out run" in page
        assert bv.load("run/run.bvi").verdict in page
        assert 'type="range"' in page

    def test_a_run_without_a_trace_has_a_page_without_the_slider(self, copy, capfd):
        shutil.rmtree("run/trace")
        assert run(capfd, "report", "run").code == 0
        assert 'type="range"' not in Path("run/report.html").read_text()

    def test_no_folder_to_write_to(self, here, capfd):
        refused(run(capfd, "report", "run", "--out", "nowhere/page.html"), "there is no folder nowhere")


# -- mistakes, each with one line


MODEL = """
import numpyro
import numpyro.distributions as dist

print("from the model file")
number = 3

def model(y, sd=1.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    numpyro.sample("obs", dist.Normal(mu, sd), obs=y)

def regression(y):
    return y.no_such_thing
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    Path("d.csv").write_text("y\n1.5\n2.5\n0.5\n")
    return tmp_path


class TestMistakes:
    @pytest.mark.parametrize(
        ("model", "words"),
        [
            ("n.py:model", ["there is no model file n.py", "did you mean m.py?"]),
            ("m.py:modle", ["no function 'modle'", "did you mean m.py:model?"]),
            ("m.py:quite_other", ["it has model, regression"]),
            ("m.py:number", ["is not a function, but int"]),
            ("d.csv:model", ["must be a Python file"]),
        ],
    )
    def test_models_that_are_not_there(self, small, capfd, model, words):
        refused(run(capfd, "fit", model, "--data", "d.csv"), *words)

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ("import numpyro\nimport no_such_package\n", ["bad.py, line 2 imports 'no_such_package'", "pip install"]),
            ("x = 1\ny = x / 0\n", ["bad.py, line 2 raised ZeroDivisionError: division by zero"]),
            ("def model(y:\n    pass\n", ["bad.py, line 1"]),
            ("raise SystemExit(0)\n", ["bad.py, line 1 raised SystemExit"]),
        ],
    )
    def test_model_files_that_fail(self, small, capfd, source, words):
        Path("bad.py").write_text(source)
        refused(run(capfd, "fit", "bad.py", "--data", "d.csv"), *words)

    def test_a_model_that_raises_is_told_with_its_line_and_arguments(self, small, capfd):
        done = run(capfd, "fit", "m.py:regression", "--data", "d.csv")
        line = MODEL.splitlines().index("    return y.no_such_thing") + 1
        refused(done, f"m.py, line {line} raised AttributeError", "given y: 3 numbers")
        assert not Path("m-regression-fit").exists()

    @pytest.mark.parametrize("before", [True, False])
    def test_debug_shows_the_traceback(self, small, capfd, before):
        command = ["fit", "m.py:regression", "--data", "d.csv"]
        done = run(capfd, *(["--debug", *command] if before else [*command, "--debug"]))
        assert done.code == 2
        assert "Traceback" in done.err
        assert "return y.no_such_thing" in done.err

    def test_arguments_that_the_data_do_not_have(self, small, capfd):
        Path("d.csv").write_text("outcome\n1\n")
        refused(run(capfd, "fit", "m.py", "--data", "d.csv"), "needs 'y'", "--arg y=outcome")
        refused(run(capfd, "fit", "m.py"), "needs 'y'", "--data FILE")

    def test_what_the_model_file_prints_is_no_result(self, small, capfd):
        done = run(capfd, "fit", "m.py:regression", "--data", "d.csv")
        assert "from the model file" in done.err
        assert done.out == ""

    @pytest.mark.parametrize("out", ["d.csv", "d.csv/deeper"])
    def test_out_that_is_or_is_in_a_file(self, small, capfd, out):
        refused(run(capfd, "fit", "m.py", "--data", "d.csv", "--out", out), "d.csv")

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
    def test_out_that_may_not_be_written(self, small, capfd):
        Path("closed").mkdir(mode=0o500)
        refused(run(capfd, "fit", "m.py", "--data", "d.csv", "--out", "closed/run"), "cannot write into the folder")

    def test_folder_of_another_fit(self, copy, capfd):
        before = Path("run/fit.json").read_bytes()
        command = ["fit", "schools.py", "--data", "schools.csv", "--out", "run"]
        refused(run(capfd, *command, "--seed", 3), "another seed", "0 there, 3 now", "--out")
        refused(run(capfd, *command, "--recipe", "adafw", "--family", "full-rank-student-t"), "another recipe, family")
        refused(run(capfd, *command, "--arg", "effect=error"), "another arguments")
        shutil.copy("schools.csv", "same.csv")
        refused(run(capfd, *command[:2], "--data", "same.csv", "--out", "run"), "another data")
        assert Path("run/fit.json").read_bytes() == before

    def test_damaged_and_foreign_files_in_the_folder(self, copy, capfd):
        Path("run/fit.json").write_text("{")
        refused(run(capfd, "sample", "run"), "fit.json is damaged")
        Path("run/fit.json").write_text("{}")
        refused(run(capfd, "sample", "run"), "was not written by boostvi")
        Path("run/fit.json").write_text('{"format": "boostvi fit", "version": 99}')
        refused(run(capfd, "resume", "run"), "later version")
        Path("run/fit.json").unlink()
        refused(run(capfd, "fit", "schools.py", "--data", "schools.csv", "--out", "run"), "run.bvi but no fit.json")
        refused(run(capfd, "resume", "nowhere"), "nowhere is no run folder")

    def test_a_fault_of_ours_has_its_own_code(self, here, capfd, monkeypatch):
        def fail(*_, **__):
            raise KeyError("slot")

        monkeypatch.setattr(fitting, "restored", fail)
        done = run(capfd, "sample", "run")
        assert done.code == 70
        assert "unexpected KeyError: 'slot'; --debug shows where" in done.err
        assert "Traceback" not in done.err

    @pytest.mark.filterwarnings("ignore:.*its trace has a gap")
    def test_a_disk_that_is_full_in_the_end(self, copy, capfd, monkeypatch):
        """The result is printed all the same."""
        result = fitting.restored(copy / "run", None, None)[1]
        bv.Result(result.target, result.run, "max-steps").save("run/run.bvi", evaluate=False)

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(archive, "write", full)
        done = run(capfd, "resume", "run", "--quiet")
        assert done.code == 3
        assert done.out.startswith(("good", "usable", "unreliable"))
        assert "No space left on device" in done.err.splitlines()[-1]

    def test_warnings_are_one_line(self, here, capfd, monkeypatch):
        import warnings

        def warn(*_):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn("a matter\nof two lines", RuntimeWarning, stacklevel=1)
            raise fitting.UsageError("enough")

        monkeypatch.setattr(fitting, "restored", warn)
        assert run(capfd, "sample", "run").err == "boostvi: warning: a matter of two lines\nboostvi: error: enough\n"


# -- real processes: signals, pipes, and what is imported


def environment() -> dict[str, str]:
    """That of a shell, with this session's compiled programs."""
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir or ""}
    return os.environ | cache | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture
def boostvi():
    """Starts `boostvi …` in a process of its own; none outlives the test."""
    started = []

    def start(*arguments) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "boostvi", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A shell's background job, and what it starts, ignores Ctrl-C: these tests may run in one.
        heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen(command, text=True, env=environment(), preexec_fn=heeds, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def wait_for(condition, process) -> None:
    end = time.monotonic() + PATIENCE
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert condition(), process.communicate()


class TestProcesses:
    LONG = (
        "fit",
        "m.py",
        "--data",
        "d.csv",
        "--recipe",
        "fully-corrective",
        "--family",
        "diagonal-normal",
        "--max-steps",
        "2000",
        "--out",
        "r",
    )

    def test_killed_then_interrupted_then_resumed(self, small, capfd, boostvi):
        """SIGKILL after the first checkpoint; the same command goes on; Ctrl-C ends it with 130; resume finishes."""
        process = boostvi(*self.LONG)
        wait_for(Path("r/run.bvi").exists, process)
        process.kill()
        process.communicate()
        killed = bv.load("r/run.bvi").history["elbo"]

        written = Path("r/run.bvi").stat().st_mtime_ns
        process = boostvi(*self.LONG)
        wait_for(lambda: Path("r/run.bvi").stat().st_mtime_ns != written, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        assert out == ""
        assert "going on with the run in r" in err
        assert re.search(r"interrupted after step \d+ \(ELBO .*`boostvi resume r` goes on", err.splitlines()[-1])
        assert "Traceback" not in err
        interrupted = bv.load("r/run.bvi")
        assert interrupted.status == "interrupted"
        assert len(interrupted.history["elbo"]) > len(killed)
        np.testing.assert_array_equal(interrupted.history["elbo"][: len(killed)], killed)

        steps = int(interrupted.history["step"][-1]) + 1
        assert run(capfd, "resume", "r", "--max-steps", steps, "--quiet").code == 0
        assert bv.load("r/run.bvi").status == "max-steps"
        assert bv.load("r/run.bvi").history["step"][-1] == steps

    def test_a_reader_that_leaves_early_is_no_error(self, here, boostvi):
        process = boostvi("sample", "run", "--n", 50_000)
        assert process.stdout.readline().startswith("mu,")
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(PATIENCE) == 141
        assert "Error" not in err
        assert "Exception" not in err

    @pytest.mark.parametrize(
        "arguments", [["--help"], ["fit", "--help"], ["--version"], ["fit"], ["completion", "bash"]]
    )
    def test_help_usage_errors_and_completion_do_not_wait_for_jax(self, arguments):
        code = (
            "import sys; from boostvi.cli import main\n"
            f"try: main({arguments!r})\n"
            "except SystemExit: pass\n"
            "print(sorted({'jax', 'numpyro', 'scipy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
        assert done.stderr.splitlines()[-1] == "[]"

    def test_completion_scripts_name_commands_and_options(self):
        for shell in ("bash", "zsh", "fish"):
            script = subprocess.check_output([sys.executable, "-m", "boostvi", "completion", shell], text=True)
            for word in ("resume", "max-seconds", "fully-corrective", "diagonal-laplace"):
                assert word in script
        bash = subprocess.check_output([sys.executable, "-m", "boostvi", "completion", "bash"], text=True)
        done = subprocess.run(["bash", "-n"], input=bash, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


# -- the small commands, and names


def test_completion_without_its_package(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    refused(run(capfd, "completion", "bash"), "pip install 'boostvi[completion]'")
    assert completion.EXAMPLES.count("boostvi completion") == 3


def test_bench_lists_and_runs_the_scripts_of_a_checkout(capfd, monkeypatch, tmp_path):
    from boostvi.cli import bench

    root = tmp_path / "checkout"
    (root / "benchmarks").mkdir(parents=True)
    (root / "src" / "boostvi").mkdir(parents=True)
    (root / "benchmarks" / "quick.py").write_text("import sys; print(sys.argv[1:]); sys.exit(5)")
    (root / "benchmarks" / "_shared.py").write_text("")
    monkeypatch.setattr(bench.boostvi, "__file__", str(root / "src" / "boostvi" / "__init__.py"))
    assert run(capfd, "bench").out.split() == ["quick"]
    done = run(capfd, "bench", "quick", "--n", "3")
    assert (done.code, done.out.strip()) == (5, "['--n', '3']")
    refused(run(capfd, "bench", "quik"), "did you mean quick?")
    monkeypatch.setattr(bench.boostvi, "__file__", str(tmp_path / "site-packages" / "x" / "boostvi" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    refused(run(capfd, "bench", "quick"), "run this in a checkout")


def test_names_in_the_help_are_those_of_the_library():
    assert set(options.RECIPES) == set(bv.RECIPES)
    assert set(options.FAMILIES) == set(FAMILIES)


def test_exit_codes_on_the_page_are_those_of_the_help(capfd):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    listed = re.findall(r"^ +(\d+)  ", capfd.readouterr().out.partition("exit codes:")[2], flags=re.MULTILINE)
    assert listed == re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert len(listed) == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m.py:f", ("m.py", "f")),
        ("m.py", ("m.py", "model")),
        ("m.py:", ("m.py", "model")),
        ("C:/x/m.py", ("C:/x/m.py", "model")),
        ("C:/x/m.py:f", ("C:/x/m.py", "f")),
    ],
)
def test_model_and_function(text, expected):
    assert model_file.split(text) == (Path(expected[0]), expected[1])


@pytest.mark.parametrize("value", ["0", "-3", "2.5", "many"])
def test_budgets_that_are_no_numbers(capfd, value):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["fit", "m.py", "--max-steps", value])
    assert "--max-steps: must be" in capfd.readouterr().err


def test_the_command_of_a_plan_can_be_typed():
    plan = run_folder.Plan(
        Path.cwd() / "my model.py", "f", Path.cwd() / "d.csv", ("y=out come", "X=a,b"), "adafw", "student-t", 4,
        {"max_seconds": 12.5, "max_steps": 3},
    )  # fmt: skip
    words = shlex.split(plan.command(Path("run")))
    assert words == [
        "boostvi", "fit", "my model.py:f", "--data", "d.csv", "--arg", "y=out come", "X=a,b", "--recipe", "adafw",
        "--family", "student-t", "--max-seconds", "12.5", "--max-steps", "3", "--seed", "4", "--out", "run",
    ]  # fmt: skip
