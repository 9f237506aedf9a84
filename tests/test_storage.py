"""What is saved comes back; what a fit writes is always whole; and a run goes on from a file to the same end."""

from __future__ import annotations

import dataclasses
import errno
import io
import itertools
import json
import os
import shutil
import signal
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import boosting
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import float64, new_key
from boostvi._struct import static, struct
from boostvi.corrections import FullyCorrective
from boostvi.directions import DirectionRule
from boostvi.families import FAMILIES, DiagonalNormal, DiagonalStudentT
from boostvi.history import COLUMNS
from boostvi.mixture import Mixture
from boostvi.next_component import LBFGS, MixtureElbo
from boostvi.recipes import RECIPES
from boostvi.step_sizes import Adaptive, StepSize
from boostvi.step_sizes.base import report
from boostvi.storage import StorageError, archive
from boostvi.storage.codec import decode, encode, known_classes
from boostvi.storage.run import KEY, MOST_SPARE, VERSION, contents

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from kill import state_of

CHEAP = {
    "recipe": "bbbvi", "family": "diagonal-normal", "first": "random", "next_component": "random",
    "n_draws": 20, "elbo_draws": 20,
}  # fmt: skip
SETTINGS = {
    # carries an estimate from step to step, and grows beyond 8 slots
    "adaptive": {**CHEAP, "step_size": Adaptive(max_trials=60), "max_steps": 8},
    # drops components, whose draws stay in the table, and draws anew
    "corrected": {
        **CHEAP,
        "step_size": "exact",
        "correction": FullyCorrective(prune=0.05),
        "draws_growth": 0.6,
        "max_steps": 4,
    },
}
LAST = {name: settings["max_steps"] for name, settings in SETTINGS.items()}


@dataclass(frozen=True)
class Unregistered:
    """A dataclass that is no part."""

    value: int = 0


@struct
class Halving(StepSize):
    """γ = γ_max/2, and a part of our own in it."""

    factor: float = 0.5
    others: Any = static(default=())
    dtype: str = static(default="any name will do for a field")
    name = "halving"

    def __call__(self, line, state):
        return self.factor * line.gamma_max, report(state.estimate, jnp.nan, 0, 0), jnp.asarray(False)


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return gaussian_mixture([0.3, 0.7], [[-2.0, 0.0], [2.0, 1.0]], [[1.0, 0.5], [0.7, 1.0]])


@pytest.fixture(scope="module")
def other_target() -> bv.Target:
    return gaussian_mixture([0.3, 0.7], [[-2.0, 0.1], [2.0, 1.0]], [[1.0, 0.5], [0.7, 1.0]])


@pytest.fixture(scope="module")
def runs(target, tmp_path_factory) -> dict[str, tuple[bv.Result, list[Path]]]:
    """Of each setting the result of a fit, and its checkpoint after each step."""
    folder = tmp_path_factory.mktemp("runs")

    def fitted(name):
        file, kept = folder / f"{name}.bvi", []

        def keep(step):
            kept.append(folder / f"{name}-{step.step}.bvi")
            shutil.copy(file, kept[-1])

        result = bv.fit(target, **SETTINGS[name], seed=3, checkpoint=file, callbacks=[keep])
        return result, kept

    return {name: fitted(name) for name in SETTINGS}


@pytest.fixture(scope="module")
def result(runs) -> bv.Result:
    return runs["adaptive"][0]


@pytest.fixture(scope="module")
def judged(result, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("judged") / "run.bvi"
    result.save(file)
    return file


@pytest.fixture
def saved(result, tmp_path) -> Path:
    """A file without a verdict."""
    bv.Result(result.target, result.run, result.status).save(tmp_path / "run.bvi", evaluate=False)
    return tmp_path / "run.bvi"


@pytest.fixture
def untouched(monkeypatch):
    """Fails the test if any fitting starts."""

    def started(*args, **kwargs):
        raise AssertionError("the fit had begun")

    monkeypatch.setattr(boosting, "start", started)
    monkeypatch.setattr(boosting, "step", started)


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def assert_same_where_used(one: bv.Result, other: bv.Result) -> None:
    """Every component that has weight or draws, and every draw; a component that was dropped may come back."""
    mine, theirs = one.run.state, other.run.state
    filled = np.asarray(theirs.table.filled)
    used = filled | (np.asarray(theirs.mixture.weights) > 0)
    assert mine.table.filled.tolist() == filled.tolist()
    pairs = [(mine.mixture, theirs.mixture, used), (mine.table, theirs.table, filled)]
    for a, b, rows in pairs:
        for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            left, right = np.asarray(left)[rows], np.asarray(right)[rows]
            if left.shape[1:2] == filled.shape:  # ln s_k at the draws of slot i
                left, right = left[:, rows], right[:, rows]
            assert left.tobytes() == right.tobytes()


class TestRoundTrip:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_all_that_a_run_is(self, target, runs, name, tmp_path):
        result, _ = runs[name]
        result.save(tmp_path / "run.bvi", evaluate=False)
        for loaded in (bv.load(tmp_path / "run.bvi"), bv.load(tmp_path / "run.bvi", target=target)):
            assert state_of(loaded) == state_of(result)
            assert_same_where_used(loaded, result)
            assert loaded.run.parts == result.run.parts
            assert (loaded.status, loaded.best_step, loaded.evals) == (result.status, result.best_step, result.evals)
            assert loaded.history["seconds"].tolist() == result.history["seconds"].tolist()
            assert loaded.run.best.capacity == result.run.best.capacity
            z = result.mixture.sample(5, seed=2)
            assert loaded.mixture.sample(5, seed=2).tobytes() == loaded.sample(5, seed=2).tobytes() == z.tobytes()
            assert loaded.mixture.log_prob(z).tobytes() == result.mixture.log_prob(z).tobytes()

    def test_the_runs_have_what_they_are_here_for(self, runs):
        adaptive, corrected = (runs[name][0] for name in SETTINGS)
        assert adaptive.run.state.mixture.capacity == 16
        assert adaptive.best_step < LAST["adaptive"]
        assert np.isfinite(adaptive.run.state.rule.estimate)
        assert corrected.history["n_active"][-1] < np.count_nonzero(corrected.run.state.table.filled)
        assert corrected.run.state.table.n_draws == 40

    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_family(self, family, result, tmp_path):
        """Components that no fit made, in slots 1 and 2 of 4."""
        made, rng = FAMILIES[family](), np.random.default_rng(0)
        with jax.enable_x64(True):
            shapes = jax.eval_shape(lambda: mixtures.empty(made, 2, 4)).params
        params = jax.tree.map(lambda leaf: rng.uniform(size=leaf.shape), shapes)
        mixture = Mixture(params, np.array([0.0, 0.25, 0.75, 0.0]), made)
        run = dataclasses.replace(result.run, best=mixture)
        bv.Result(result.target, run, "callback").save(tmp_path / "run.bvi", evaluate=False)
        loaded = bv.load(tmp_path / "run.bvi")
        assert loaded.mixture.family == made
        for mine, theirs in zip(jax.tree.leaves(mixture.active()), jax.tree.leaves(loaded.mixture), strict=True):
            assert mine.tobytes() == theirs.tobytes()
        assert loaded.run.best.weights.tolist() == [0.0, 0.25, 0.75, 0.0]

    def test_a_run_without_a_table(self, target, runs, tmp_path):
        """As a refinement leaves it: only the components are stored, and it goes on as it would have."""
        run = runs["corrected"][0].run
        with jax.enable_x64(True):
            state = dataclasses.replace(run.state, table=tables.empty(2, 8, 40))
        result = bv.Result(target, dataclasses.replace(run, state=state, best=state.mixture), "max-steps")
        result.save(tmp_path / "run.bvi", evaluate=False)
        _, arrays = archive.read(tmp_path / "run.bvi")
        assert arrays["state/mixture/weights.npy"].shape == (result.history["n_active"][-1],)
        assert arrays["state/table/draws.npy"].shape == (0, 40, 2)
        assert not any(name.startswith("best") for name in arrays)  # it is the same
        more = bv.fit(target, resume=result, max_steps=5)
        assert state_of(bv.fit(target, resume=tmp_path / "run.bvi", max_steps=5)) == state_of(more)

    def test_a_sparse_mixture_can_be_loaded(self, result, tmp_path):
        """However many slots are free, the file says enough of them to be believed."""
        weights = np.zeros(5 * MOST_SPARE)
        weights[-1] = 1.0
        params = {"loc": np.zeros((weights.size, 2)), "raw_scale": np.ones((weights.size, 2))}
        run = dataclasses.replace(result.run, best=Mixture(params, weights, DiagonalNormal()))
        bv.Result(result.target, run, "callback").save(tmp_path / "run.bvi", evaluate=False)
        assert bv.load(tmp_path / "run.bvi").run.best.weights.tolist() == weights.tolist()

    def test_the_same_bytes_every_time(self, result, tmp_path):
        for name in ("a", "b"):
            result.save(tmp_path / name, evaluate=False)
        bv.load(tmp_path / "a").save(tmp_path / "c")
        assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


class TestWithoutTheModel:
    def test_says_what_was_known(self, result, judged, capsys):
        loaded = bv.load(judged)
        assert (loaded.verdict, loaded.reasons) == (result.verdict, result.reasons)
        assert (loaded.evaluation, loaded.khat, loaded.ess) == (result.evaluation, result.khat, result.ess)
        assert repr(loaded) == repr(result)
        assert loaded.summary() == result.summary()
        assert loaded.summary() in capsys.readouterr().out
        assert loaded.target.names == result.target.names

    @pytest.mark.parametrize("use", [
        lambda r: r.sample(3, importance=True),
        lambda r: r.modes,
        lambda r: r.inverse_mass_matrix(),
        lambda r: r.target.model,
    ])  # fmt: skip
    def test_what_needs_the_model_says_so(self, judged, use):
        with pytest.raises(ValueError, match=r"needs the model.*bv\.load\(.*run\.bvi', target=target\)"):
            use(bv.load(judged))

    def test_a_run_that_was_not_judged(self, saved, capsys):
        loaded = bv.load(saved)
        assert "not judged" in repr(loaded)
        assert "not judged yet" in loaded.summary()
        assert "z[1] =" in capsys.readouterr().out
        for number in ("elbo", "kl_estimate", "khat", "verdict", "reasons"):
            with pytest.raises(ValueError, match="target=target"):
                getattr(loaded, number)

    def test_the_target_gives_it_all_again(self, target, result, judged, saved):
        for file in (judged, saved):
            loaded = bv.load(file, target=target)
            assert (loaded.elbo, loaded.khat, loaded.verdict) == (result.elbo, result.khat, result.verdict)
            draws = loaded.sample(4, seed=1, importance=True)
            assert draws.tobytes() == result.sample(4, seed=1, importance=True).tobytes()
            assert loaded.inverse_mass_matrix().tobytes() == result.inverse_mass_matrix().tobytes()

    def test_draws_in_the_models_own_space_and_numbers_that_json_has_not(self, tmp_path):
        """The ELBO is −inf where the mixture leaves the support."""
        made = bv.Target(
            lambda z: jnp.where(z[0] > 0, -jnp.sum(z**2), -jnp.inf),
            2,
            lambda key: jnp.ones(2),
            constrain=lambda z: {"x": jnp.exp(z)},
        )
        result = bv.fit(made, **{**CHEAP, "max_steps": 0})
        result.save(tmp_path / "run.bvi")
        loaded = bv.load(tmp_path / "run.bvi")
        assert loaded.elbo == -np.inf
        assert repr(loaded) == repr(result)
        assert loaded.summary() == result.summary()
        assert loaded.mixture.sample(3).shape == (3, 2)
        with pytest.raises(ValueError, match=r"own space need the model.*target=target.*mixture\.sample"):
            loaded.sample(3)
        loaded.save(tmp_path / "again.bvi")
        again = bv.load(tmp_path / "again.bvi", target=made)
        assert again.sample(3)["x"].tobytes() == result.sample(3)["x"].tobytes()
        assert (tmp_path / "again.bvi").read_bytes() == (tmp_path / "run.bvi").read_bytes()

    def test_another_target(self, saved, other_target):
        with pytest.raises(ValueError, match=r"run\.bvi is a fit of another target"):
            bv.load(saved, target=other_target)
        with pytest.raises(ValueError, match=r"is a fit of 2 parameters, but target has 1"):
            bv.load(saved, target=gaussian_mixture([1.0], [[0.0]], [[1.0]]))
        with pytest.raises(TypeError, match=r"target must be a boostvi\.Target"):
            bv.load(saved, target=lambda z: z)


class TestResuming:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_from_every_step(self, target, runs, name):
        result, checkpoints = runs[name]
        assert len(checkpoints) == result.history["step"][-1] + 1
        for step, file in enumerate(checkpoints):
            assert bv.load(file).history["step"][-1] == step
            assert bv.load(file).status == "interrupted"
            assert state_of(bv.fit(target, resume=file)) == state_of(result)

    @pytest.mark.parametrize("name", SETTINGS)
    def test_the_same_command_again(self, target, runs, name, tmp_path):
        result, checkpoints = runs[name]
        file = tmp_path / "run.bvi"
        shutil.copy(checkpoints[1], file)
        assert state_of(bv.fit(target, **SETTINGS[name], seed=3, checkpoint=file)) == state_of(result)
        assert state_of(bv.load(file)) == state_of(result)

    def test_a_run_that_has_ended_is_not_run_again(self, target, result, saved, untouched):
        result.save(saved)
        before = saved.read_bytes()
        again = bv.fit(target, **SETTINGS["adaptive"], seed=3, checkpoint=saved)
        assert state_of(again) == state_of(result)
        assert saved.read_bytes() == before  # with its verdict

    def test_killed_between_the_last_step_and_the_end(self, target, runs, tmp_path, untouched):
        _, checkpoints = runs["adaptive"]
        file = tmp_path / "run.bvi"
        shutil.copy(checkpoints[-1], file)
        bv.fit(target, **SETTINGS["adaptive"], seed=3, checkpoint=file)
        assert bv.load(file).status == "max-steps"

    def test_a_larger_budget(self, target, result, saved):
        longer = {**SETTINGS["adaptive"], "max_steps": 10}
        more = bv.fit(target, **longer, seed=3, checkpoint=saved)
        assert more.history["step"][-1] == 10
        assert state_of(more) == state_of(bv.fit(target, **longer, seed=3))

    def test_ctrl_c_at_any_moment_of_a_write_is_ctrl_c(self, tmp_path):
        """Sent at each call of a function on the way; `zipfile` alone makes a ValueError of some of them."""
        file, arrays = tmp_path / "run.bvi", {f"{name}.npy": np.arange(3.0) for name in "ab"}

        def interrupted_at(k: int) -> bool:
            calls = itertools.count(1)

            def trace(frame, event, argument):
                if next(calls) == k:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGINT)

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                archive.write(file, {"at": k}, arrays)
            except KeyboardInterrupt:
                return True
            finally:
                sys.settrace(before)
            return False

        moments = next(k for k in itertools.count(1) if not interrupted_at(k))
        assert moments > 50  # and at each one before it was a KeyboardInterrupt
        assert archive.read(file)[0] == {"at": moments}
        assert os.listdir(tmp_path) == ["run.bvi"]

    def test_interrupted_by_the_user(self, target, tmp_path):
        def interrupt(step):
            if step.step == 2:
                raise KeyboardInterrupt

        part = bv.fit(target, **SETTINGS["adaptive"], checkpoint=tmp_path / "run.bvi", callbacks=[interrupt])
        loaded = bv.load(tmp_path / "run.bvi")
        assert state_of(loaded) == state_of(part)
        assert loaded.status == "interrupted"

    def test_a_callback_that_fails_loses_no_step(self, target, tmp_path):
        with pytest.raises(ZeroDivisionError):
            bv.fit(
                target,
                **SETTINGS["adaptive"],
                checkpoint=tmp_path / "run.bvi",
                callbacks=[lambda step: 0 // (2 - step.step)],
            )
        assert bv.load(tmp_path / "run.bvi").history["step"][-1] == 2

    def test_resume_and_checkpoint(self, target, result, runs, tmp_path, other_target):
        """The file may hold the same run, earlier or later; the further one goes on. Another run is left alone."""
        _, checkpoints = runs["adaptive"]
        for mine, theirs in ((2, 5), (5, 2), (3, 3)):
            file = tmp_path / "run.bvi"
            shutil.copy(checkpoints[theirs], file)
            more = bv.fit(target, resume=bv.load(checkpoints[mine], target=target), checkpoint=file)
            assert state_of(more) == state_of(result) == state_of(bv.load(file))
        fresh = bv.fit(target, resume=checkpoints[4], checkpoint=tmp_path / "new.bvi")
        assert state_of(fresh) == state_of(bv.load(tmp_path / "new.bvi")) == state_of(result)

        run = bv.fit(target, **{**SETTINGS["adaptive"], "max_steps": 2}, seed=3)
        run.history.rows[1]["elbo"] += 1.0
        with pytest.raises(ValueError, match=r"checkpoint=.* holds another run than resume="):
            bv.fit(target, resume=run, checkpoint=file)

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"seed": 4}, "seed"), ({"n_draws": 21}, "n_draws"), ({"step_size": "exact", "seed": 0}, "step_size, seed")],
    )
    def test_other_settings(self, target, saved, change, named, untouched):
        before = saved.read_bytes()
        with pytest.raises(ValueError, match=rf"checkpoint='.*' .* another {named}; give the same .* delete it"):
            bv.fit(target, **{**SETTINGS["adaptive"], "seed": 3, **change}, checkpoint=saved)
        assert saved.read_bytes() == before

    def test_another_target(self, other_target, saved, untouched):
        before = saved.read_bytes()
        with pytest.raises(ValueError, match=r"checkpoint=.* is a fit of another target"):
            bv.fit(other_target, **SETTINGS["adaptive"], seed=3, checkpoint=saved)
        with pytest.raises(ValueError, match="resume= is a fit of another target"):
            bv.fit(other_target, resume=saved)
        assert saved.read_bytes() == before

    def test_a_file_of_somebody_else(self, target, tmp_path, untouched):
        file = tmp_path / "thesis.tex"
        file.write_text("all my work")
        with pytest.raises(StorageError, match=r"thesis\.tex"):
            bv.fit(target, **CHEAP, checkpoint=file)
        assert file.read_text() == "all my work"
        assert names_in(tmp_path) == ["thesis.tex"]


class TestClasses:
    def test_given_back(self, target, tmp_path):
        rule = Halving(others=(DiagonalStudentT(df=3.0), Unregistered()))
        arguments = {**CHEAP, "step_size": rule, "max_steps": 2, "checkpoint": tmp_path / "run.bvi"}
        result = bv.fit(target, **arguments)
        for classes, missing in (([], "Halving"), ([Halving], "Unregistered")):
            with pytest.raises(StorageError, match=rf"uses the class {missing}, which bv\.load\(path, classes="):
                bv.load(tmp_path / "run.bvi", classes=classes)
        loaded = bv.load(tmp_path / "run.bvi", classes=(Halving, Unregistered))
        assert loaded.run.recipe == result.run.recipe
        assert state_of(bv.fit(target, **{**arguments, "max_steps": 3})) == state_of(
            bv.fit(target, resume=loaded, max_steps=3)
        )

    def test_not_what_a_file_can_hold(self, target, tmp_path, untouched):
        Exact = struct(type("Exact", (Halving,), {}))
        Plain = type("Plain", (DirectionRule,), {"__call__": None})
        for part, message in (
            ({"direction": Plain()}, r"recipe\.direction is a Plain, which a file cannot hold"),
            ({"step_size": Exact()}, "has the name of the library's own Exact"),
            ({"step_size": Halving(factor=np.ones(2))}, r"recipe\.step_size\.factor is an array"),
            ({"step_size": Halving(others=[1])}, r"recipe\.step_size\.others is a list"),
        ):
            with pytest.raises(ValueError, match=message):
                bv.fit(target, **{**CHEAP, **part}, checkpoint=tmp_path / "run.bvi")
        assert names_in(tmp_path) == []

    def test_of_the_wrong_kind(self, saved):
        with pytest.raises(TypeError, match="classes must hold classes"):
            bv.load(saved, classes=[Halving()])
        with pytest.raises(ValueError, match="a second DiagonalNormal"):
            bv.load(saved, classes=[type("DiagonalNormal", (), {})])

    @pytest.mark.parametrize("name", RECIPES)
    def test_every_recipe(self, name):
        recipe = RECIPES[name]()
        assert decode(json.loads(json.dumps(encode(recipe))), known_classes()) == recipe

    @pytest.mark.parametrize(
        "part", [Halving(factor=np.float32(0.1)), Halving(factor=np.inf), Halving(factor=-np.inf), MixtureElbo(LBFGS())]
    )
    def test_every_kind_of_field(self, part):
        text = json.dumps(encode(part), allow_nan=False)
        again = decode(json.loads(text), known_classes([Halving]))
        assert again == part
        assert type(getattr(again, "factor", None)) is type(getattr(part, "factor", None))


class Faulty:
    """Counts what is done to files, and fails at the n-th thing (or from it on) as a full or broken disk would."""

    def __init__(self, monkeypatch, at: int, forever: bool = False, error: int = errno.ENOSPC):
        self.count, self.at, self.forever, self.error = 0, at, forever, error
        self.real_open = open
        monkeypatch.setattr(archive, "open", self.open, raising=False)
        for name in ("fsync", "replace"):
            monkeypatch.setattr(archive.os, name, self.checked(getattr(os, name)))

    def tick(self):
        self.count += 1
        if self.count == self.at or (self.forever and self.count >= self.at):
            raise OSError(self.error, os.strerror(self.error))

    def checked(self, function):
        def wrapped(*args):
            self.tick()
            return function(*args)

        return wrapped

    def open(self, path, mode):
        if mode == "rb":
            return self.real_open(path, mode)
        self.tick()
        file = self.real_open(path, mode)
        return FaultyFile(file, self)


class FaultyFile(io.BufferedIOBase):
    def __init__(self, file, faulty):
        self.file, self.faulty = file, faulty

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.faulty.tick()
        return self.file.write(data[len(data) // 2 :])

    def flush(self):
        if not self.file.closed:
            self.file.flush()

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()
        super().close()


OPERATIONS = ("open", "write", "sync", "replace", "sync folder")


class TestFaults:
    def test_they_are_all_there(self, result, tmp_path, monkeypatch):
        faulty = Faulty(monkeypatch, at=0)
        archive.write(tmp_path / "run.bvi", *contents(result.run, result.target.names, False, None))
        assert faulty.count == len(OPERATIONS)

    @pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_write_that_fails_leaves_a_whole_file(self, target, runs, tmp_path, monkeypatch, operation, error):
        result, checkpoints = runs["adaptive"]
        file = tmp_path / "run.bvi"
        shutil.copy(checkpoints[4], file)
        before = file.read_bytes()
        with monkeypatch.context() as patch:
            Faulty(patch, OPERATIONS.index(operation) + 1, error=error)
            with pytest.raises(OSError, match=r"cannot write .*make room") as caught:
                archive.write(file, *contents(result.run, target.names, False, None))
        assert caught.value.errno == error
        assert caught.value.filename == str(file)
        assert names_in(tmp_path) == ["run.bvi"]
        assert (file.read_bytes() == before) == (operation != "sync folder")
        assert state_of(bv.fit(target, resume=file)) == state_of(result)

    @pytest.mark.parametrize("forever", [False, True])
    @pytest.mark.parametrize("at", range(2, 2 + 3 * len(OPERATIONS)))  # 1 is the trial before the start
    def test_a_fit_goes_on_without_its_checkpoint(self, target, tmp_path, monkeypatch, at, forever):
        """Three writes: after steps 0 and 1, and at the end."""
        arguments = {**SETTINGS["adaptive"], "max_steps": 1, "seed": 3}
        file = tmp_path / "run.bvi"
        with monkeypatch.context() as patch:
            faulty = Faulty(patch, at, forever)
            with pytest.warns(RuntimeWarning, match=r"cannot write .*run\.bvi.*the fit goes on") as warned:
                result = bv.fit(target, **arguments, checkpoint=file)
            assert faulty.count >= at
        assert len(warned) == 1
        assert warned[0].filename == __file__
        assert names_in(tmp_path) in ([], ["run.bvi"])
        if file.exists():
            assert bv.load(file).history["step"][-1] in (0, 1)
        assert state_of(bv.fit(target, **arguments, checkpoint=file)) == state_of(result)
        assert state_of(bv.load(file)) == state_of(result)

    def test_saving_raises_and_keeps_what_was_there(self, result, saved, monkeypatch):
        before = saved.read_bytes()
        Faulty(monkeypatch, at=3)
        with pytest.raises(OSError, match=r"No space left on device.*run\.bvi"):
            result.save(saved, evaluate=False)
        assert saved.read_bytes() == before
        assert names_in(saved.parent) == ["run.bvi"]

    def test_file_systems_that_cannot_sync_a_folder(self, result, tmp_path, monkeypatch):
        Faulty(monkeypatch, at=6, error=errno.EINVAL)
        result.save(tmp_path / "run.bvi", evaluate=False)
        assert bv.load(tmp_path / "run.bvi").evals == result.evals

    def test_leftovers_of_a_killed_write(self, target, result, saved):
        half = saved.with_name(".run.bvi.0123abcd.tmp")
        half.write_bytes(saved.read_bytes()[:500])
        saved.with_name(".other.bvi.0123abcd.tmp").write_bytes(b"not ours")
        assert state_of(bv.load(saved)) == state_of(result)
        bv.fit(target, **SETTINGS["adaptive"], seed=3, checkpoint=saved)
        assert names_in(saved.parent) == [".other.bvi.0123abcd.tmp", "run.bvi"]


@pytest.mark.usefixtures("untouched")
class TestPlacesThatCannotBeWritten:
    def refused(self, error, match, target, result, path):
        for argument, use in (
            ("checkpoint", lambda: bv.fit(target, **CHEAP, checkpoint=path)),
            ("path", lambda: result.save(path, evaluate=False)),
        ):
            with pytest.raises(error, match=match.format(argument)):
                use()

    def test_a_folder(self, target, result, tmp_path):
        self.refused(IsADirectoryError, "{} is a folder; name a file in it", target, result, tmp_path)

    def test_in_no_folder(self, target, result, tmp_path):
        self.refused(FileNotFoundError, "{} is in a folder that does not", target, result, tmp_path / "no" / "run.bvi")
        self.refused(FileNotFoundError, "{} is in a folder that does not", target, result, str(tmp_path / "no" / "run"))

    def test_where_writing_is_not_allowed(self, target, result, tmp_path, monkeypatch):
        Faulty(monkeypatch, at=1, forever=True, error=errno.EACCES)
        match = r"cannot write \(Permission denied\): make its folder writable"
        self.refused(PermissionError, match, target, result, tmp_path / "run.bvi")
        assert names_in(tmp_path) == []

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_for_reading(self, target, result, tmp_path):
        tmp_path.chmod(0o555)
        self.refused(PermissionError, "make its folder writable", target, result, tmp_path / "run.bvi")

    @pytest.mark.parametrize("path", [3, True, b"run.bvi", ["run.bvi"], ""])
    def test_no_path(self, target, result, path):
        self.refused(TypeError, "{} must be the name of a file", target, result, path)


class TestFiles:
    def test_behind_a_link(self, result, saved):
        link = saved.with_name("latest.bvi")
        link.symlink_to(saved)
        saved.write_bytes(b"")
        result.save(link, evaluate=False)
        assert link.is_symlink()
        assert state_of(bv.load(saved)) == state_of(result)

    def test_the_usual_rights(self, saved):
        plain = saved.with_name("plain")
        plain.touch()
        assert saved.stat().st_mode == plain.stat().st_mode

    def test_by_a_relative_name(self, result, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        result.save("run.bvi", evaluate=False)
        assert state_of(bv.load("run.bvi")) == state_of(result)

    @pytest.mark.parametrize("name", ["missing.bvi", "."])
    def test_that_are_not_there(self, target, tmp_path, name):
        for use in (lambda path: bv.load(path), lambda path: bv.fit(target, resume=path)):
            with pytest.raises(OSError, match=r"cannot load .*name a file that result\.save"):
                use(tmp_path / name)

    def test_anybody_can_read_them(self, result, saved):
        """With no more than a zip, JSON and .npy."""
        with zipfile.ZipFile(saved) as file:
            assert file.testzip() is None
            assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_STORED}

            def refuse(constant):
                raise AssertionError(constant)

            manifest = json.loads(file.read("manifest.json"), parse_constant=refuse)
            arrays = {
                name: np.load(io.BytesIO(file.read(name)), allow_pickle=False)
                for name in file.namelist()
                if name.endswith(".npy")
            }
        assert (manifest["format"], manifest["version"]) == ("boostvi run", 2)
        assert manifest["seed"] == 3
        assert manifest["recipe"]["step_size"]["class"] == "Adaptive"
        assert manifest["history"]["elbo"] == result.history["elbo"].tolist()
        assert (
            arrays["best/weights.npy"].tolist()
            == np.asarray(result.run.best.weights)[manifest["best"]["slots"]].tolist()
        )
        assert set(manifest["names"]) == {"z[0]", "z[1]"}

    def test_a_newer_version(self, saved):
        manifest, arrays = archive.read(saved)
        newer = manifest | {"version": VERSION + 1, "boostvi": "9.1", "state": "elsewhere"}
        archive.write(saved, newer, arrays | {"state/gain.npy": np.array("text")})
        with pytest.raises(StorageError, match=r"run\.bvi: boostvi 9\.1 wrote it in version 3 .*upgrade"):
            bv.load(saved)

    def test_version_1_had_no_warps(self, saved, result):
        manifest, arrays = archive.read(saved)
        old = json.loads(json.dumps(manifest | {"version": 1}))
        for place in (old["state"], old["best"]):
            assert place.pop("warp") is None
        archive.write(saved, old, arrays)
        np.testing.assert_array_equal(bv.load(saved).mixture.sample(5), result.mixture.sample(5))

    def test_what_version_2_holds(self, saved):
        """If this changes, raise VERSION, and keep reading files of earlier versions."""
        manifest, arrays = archive.read(saved)
        assert VERSION == 2
        assert list(manifest) == [
            "format", "version", "boostvi", "status", "seed", "evals", "seconds", "names", "constrained", "recipe",
            "state", "best", "evaluation", "summary", "history",
        ]  # fmt: skip
        assert list(manifest["history"]) == list(COLUMNS) == [
            "step", "kind", "elbo", "elbo_se", "table_elbo", "log_evidence", "kl_estimate", "kl_se", "gap", "gap_new",
            "gap_active", "gamma", "gamma_max", "curvature", "trials", "n_active", "n_params", "evals", "nonfinite",
            "seconds", "seconds_subproblem", "seconds_step", "seconds_correction", "seconds_evaluation",
        ]  # fmt: skip
        mixture = ["mixture/params/loc", "mixture/params/raw_scale", "mixture/weights"]
        table = ["table/draws", "table/log_components", "table/log_target"]
        rule = ["rule/curvature", "rule/estimate", "rule/evals", "rule/trials"]
        state = [f"state/{name}.npy" for name in ["gain", "key", "kl", *mixture, *rule, *table]]
        best = [f"best/{name}.npy" for name in ("params/loc", "params/raw_scale", "weights")]
        assert sorted(arrays) == sorted([*best, *state])

    def test_the_generator_is_ours(self):
        assert str(jax.random.key_impl(float64(new_key)(0))) == KEY


def test_a_recipe_of_nonsense(saved):
    manifest, arrays = archive.read(saved)
    for recipe in (encode(Unregistered()), encode(DiagonalNormal()), encode(RECIPES["auto"]()) | {"direction": "up"}):
        archive.write(saved, manifest | {"recipe": recipe}, arrays)
        with pytest.raises(StorageError):
            bv.load(saved, classes=[Unregistered])
