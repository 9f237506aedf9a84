"""The trace: what is kept of every step, in memory and in files, of runs that were killed too."""

from __future__ import annotations

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import snapshot as snapshots
from boostvi.families import FAMILIES, DiagonalNormal, Family
from boostvi.history import History
from boostvi.snapshot import CORRELATION_UNIT, DRAWS, Snapshot, pairs
from boostvi.storage import StorageError
from boostvi.trace import Trace

TARGET = gaussian_mixture([0.4, 0.6], [[-2.0, 1.0], [2.0, -1.0]], [[0.8, 0.5], [0.6, 1.0]])
SETTINGS = {
    "recipe": "fully-corrective",
    "family": "diagonal-normal",
    "first": "random",
    "next_component": "random",
    "n_draws": 100,
    "elbo_draws": 200,
    "progress": False,
    "seed": 2,
}
STEPS = 5


def same(one: Snapshot, other: Snapshot) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(Snapshot))


def same_traces(one: Trace, other: Trace) -> bool:
    pair = one.snapshots, other.snapshots
    return len(pair[0]) == len(pair[1]) and all(same(*both) for both in zip(*pair, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A fit with a trace in memory, one in a folder, and a copy of the checkpoint after each step."""
    folder = tmp_path_factory.mktemp("run")
    memory, kept = Trace(), Trace(folder / "trace")

    def copy(step):
        shutil.copy(folder / "run.bvi", folder / f"{step.step}.bvi")

    result = bv.fit(TARGET, **SETTINGS, max_steps=STEPS, checkpoint=folder / "run.bvi", callbacks=[memory, kept, copy])
    return result, memory, folder


def test_every_step_is_kept_as_the_run_had_it(run):
    result, memory, _ = run
    taken = memory.snapshots
    assert [one.step for one in taken] == list(range(STEPS + 1))
    assert [one.kind for one in taken] == result.history["kind"].tolist()
    np.testing.assert_array_equal([one.elbo for one in taken], result.history["elbo"])
    assert [one.weights.size for one in taken] == result.history["n_active"].tolist()
    best = taken[result.best_step]
    np.testing.assert_array_equal(best.weights, result.mixture.weights)
    np.testing.assert_array_equal(best.loc, result.mixture.params["loc"])
    np.testing.assert_allclose(best.sd, np.log1p(np.exp(result.mixture.params["raw_scale"])), rtol=1e-6)
    assert best.correlations.shape == (best.weights.size, 0)  # diagonal components have none


def test_draws_are_of_their_components(run):
    _, memory, _ = run
    last = memory.snapshots[-1]
    shares = np.bincount(last.owners, minlength=last.weights.size) / DRAWS
    np.testing.assert_allclose(shares, last.weights, atol=1 / DRAWS)
    noise = (last.draws - last.loc[last.owners]) / last.sd[last.owners]
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=4 / np.sqrt(DRAWS))
    np.testing.assert_allclose(noise.std(axis=0), 1.0, atol=4 / np.sqrt(2 * DRAWS))


def test_files_hold_what_memory_holds(run):
    _, memory, folder = run
    assert same_traces(Trace.load(folder / "trace"), memory)
    assert sorted(file.name for file in (folder / "trace").iterdir()) == [f"step-{i:06d}.bvt" for i in range(STEPS + 1)]


@pytest.mark.parametrize("traced", [1, 2, 4])
def test_killed_and_resumed_gives_the_same_trace(run, tmp_path, traced):
    """Killed after the checkpoint of step 2 and with a trace that is one behind (the kill came in between), level, or
    ahead (the checkpoint could not be written)."""
    _, memory, folder = run
    shutil.copy(folder / "2.bvi", tmp_path / "run.bvi")
    shutil.copytree(folder / "trace", tmp_path / "trace")
    for step in range(traced + 1, STEPS + 1):
        (tmp_path / "trace" / f"step-{step:06d}.bvt").unlink()
    trace = Trace(tmp_path / "trace")
    bv.fit(TARGET, **SETTINGS, max_steps=STEPS, checkpoint=tmp_path / "run.bvi", callbacks=[trace])
    assert same_traces(trace, memory)


def test_a_resumed_run_keeps_its_past_and_forgets_the_lost_future(run, tmp_path):
    _, memory, folder = run
    shutil.copytree(folder / "trace", tmp_path / "trace")
    bv.fit(TARGET, resume=bv.load(folder / "2.bvi", target=TARGET), max_steps=3, callbacks=[Trace(tmp_path / "trace")])
    taken = Trace.load(tmp_path / "trace").snapshots
    assert len(taken) == 4
    assert all(same(*both) for both in zip(taken, memory.snapshots[:4], strict=True))


def test_what_another_run_left_is_removed(run, tmp_path):
    """A step is told from one of another run by its ELBO; what was torn in a crash goes too, and nothing else does."""
    result, memory, folder = run
    shutil.copytree(folder / "trace", tmp_path / "trace")
    (tmp_path / "trace" / "step-000001.bvt").write_bytes(b"torn")
    (tmp_path / "trace" / "notes.txt").write_text("mine")
    foreign = dict(result.history.rows[2]) | {"elbo": -1.0}
    history = History((*result.history.rows[:2], foreign, result.history.rows[3]))
    one = memory.snapshots[3]
    params = {"loc": one.loc, "raw_scale": np.zeros_like(one.loc)}
    Trace(tmp_path / "trace")(bv.Step(3, bv.Mixture(params, one.weights, DiagonalNormal()), history.rows[3], history))
    names = sorted(file.name for file in (tmp_path / "trace").iterdir())
    assert names == ["notes.txt", "step-000000.bvt", "step-000003.bvt"]


def step_of(family: Family, params, weights, t=0):
    row = {"step": t, "kind": "init", "elbo": -1.0}
    return bv.Step(t, bv.Mixture(params, np.asarray(weights), family), row, History((row,)))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "laplace" in name or "product" in name else [])
        for name in FAMILIES
    ],
)
def test_moments_of_every_family(name, x64):
    """Against 100,000 draws of each component."""
    family, rng = FAMILIES[name](), np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    frozen = [
        family.freeze(family.from_gaussian(jax.random.key(i), jnp.asarray(rng.normal(size=3)), jnp.asarray(cov)))
        for i, cov in enumerate((root @ root.T + np.eye(3), np.diag([1.0, 4.0, 0.1])))
    ]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *frozen)
    taken = snapshots.snapshot(step_of(family, params, [0.5, 0.5]))
    noise = family.noise(jax.random.key(5), (100_000, 3))
    heavy = "student" in name  # four degrees of freedom: the fourth moment is infinite, and an sd from draws is noisy
    for k, one in enumerate(frozen):
        draws = np.asarray(jax.vmap(family.sample, in_axes=(None, 0))(one, noise))
        np.testing.assert_allclose(taken.sd[k], draws.std(axis=0), rtol=0.1 if heavy else 0.02)
        if taken.correlations.size:
            found = taken.correlations[k] / CORRELATION_UNIT
            np.testing.assert_allclose(found, np.corrcoef(draws.T)[pairs(3)], atol=0.1 if heavy else 0.02)


class Tilted(Family):
    """A family that the library does not know."""

    name = "tilted"

    def sample(self, params, noise):
        return params["loc"] + noise @ jnp.array([[1.0, 1.0], [0.0, 1.0]])

    def log_prob(self, params, z):
        raise NotImplementedError


def test_moments_of_an_unknown_family_come_from_draws():
    taken = snapshots.snapshot(step_of(Tilted(), {"loc": np.zeros((1, 2))}, [1.0]))
    np.testing.assert_allclose(taken.sd, [[1.0, np.sqrt(2.0)]], rtol=4 / np.sqrt(2 * snapshots.MOMENT_DRAWS))
    np.testing.assert_allclose(taken.correlations / CORRELATION_UNIT, [[np.sqrt(0.5)]], atol=0.07)


def test_large_components_give_the_same_draws_in_small_portions(monkeypatch):
    whole = snapshots.snapshot(step_of(Tilted(), {"loc": np.array([[0.0, 0.0], [5.0, 5.0]])}, [0.7, 0.3]))
    monkeypatch.setattr(snapshots, "GATHER_BYTES", 8 * 16)
    parts = snapshots.snapshot(step_of(Tilted(), {"loc": np.array([[0.0, 0.0], [5.0, 5.0]])}, [0.7, 0.3]))
    np.testing.assert_allclose(parts.draws, whole.draws)


# -- what can be wrong


def damaged(run, tmp_path, change):
    _, _, folder = run
    shutil.copytree(folder / "trace", tmp_path / "trace")
    change(tmp_path / "trace" / "step-000002.bvt")
    return tmp_path / "trace"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.write_bytes(b"no zip"), "damaged, or no trace"),
        (lambda file: file.write_bytes(file.read_bytes()[:200]), "damaged, or no trace"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"boostvi trace", b"boostvi truce")), "damaged"),
        (lambda file: file.rename(file.with_name("step-000009.bvt")), "its name is of another step"),
    ],
)
def test_a_damaged_file_is_named(run, tmp_path, change, message):
    folder = damaged(run, tmp_path, change)
    with pytest.raises(StorageError, match=rf"cannot load .*step-00000[29]\.bvt.*{message}.*delete it"):
        Trace.load(folder)


def test_a_folder_without_a_trace(tmp_path):
    with pytest.raises(StorageError, match="has no file step-000000"):
        Trace.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="it is no folder"):
        Trace.load(tmp_path / "nowhere")


def test_a_full_disk_costs_the_trace_but_not_the_fit(run, tmp_path, monkeypatch):
    def full(file, manifest, arrays):
        raise OSError(28, "no space left", str(file))

    trace = Trace(tmp_path / "trace")
    monkeypatch.setattr("boostvi.trace.archive.write", full)
    taken = step_of(DiagonalNormal(), {"loc": np.zeros((1, 2)), "raw_scale": np.zeros((1, 2))}, [1.0])
    with pytest.warns(RuntimeWarning, match="no space left.*its trace has a gap") as warned:
        trace(taken)
    assert len(warned) == 1
    trace(taken)  # a second warning would be an error


def test_a_callback_with_resumed_is_shown_the_step_a_run_goes_on_from(run):
    result, _, folder = run

    class Watcher:
        def __init__(self):
            self.steps, self.again = [], []

        def __call__(self, step):
            self.steps.append(step.step)

        def resumed(self, step):
            self.again.append((step.step, step.row["elbo"]))

    watcher = Watcher()
    bv.fit(TARGET, resume=bv.load(folder / "3.bvi", target=TARGET), max_steps=STEPS, callbacks=[watcher])
    assert watcher.steps == [4, 5]
    assert watcher.again == [(3, result.history["elbo"][3])]
