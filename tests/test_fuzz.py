"""Nonsense in files and in arguments: one of our own errors, and nothing half done."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
import random
import resource
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import boosting
from boostvi.step_sizes import Adaptive
from boostvi.storage import StorageError, archive
from boostvi.storage.run import contents

CHEAP = {
    "recipe": "bbbvi", "family": "diagonal-normal", "first": "random", "next_component": "random",
    "step_size": Adaptive(max_trials=60), "n_draws": 20, "elbo_draws": 20,
}  # fmt: skip
NASTY = [None, True, -1, 0, 7, 2**63, 10**30, 0.5, -1e308, "", "nan", "x", [], [[]], {}, {"class": "Recipe"}, [1, "a"]]


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return gaussian_mixture([0.3, 0.7], [[-2.0, 0.0], [2.0, 1.0]], [[1.0, 0.5], [0.7, 1.0]])


@pytest.fixture(scope="module")
def result(target) -> bv.Result:
    result = bv.fit(target, **CHEAP, max_steps=2, seed=3)
    assert result.run.state.mixture.n_active == 3
    return result


@pytest.fixture(scope="module")
def whole(result, tmp_path_factory) -> bytes:
    file = tmp_path_factory.mktemp("whole") / "run.bvi"
    result.save(file)
    return file.read_bytes()


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "run.bvi"


def state(result: bv.Result) -> tuple[Any, Any]:
    manifest, arrays = contents(result.run, result.target.names, False, result.status)
    return manifest, {name: array.tobytes() for name, array in arrays.items()}


def load_or_refuse(file: Path) -> bv.Result | None:
    """A result, or None after an error that names the file."""
    try:
        return bv.load(file)
    except (StorageError, OSError) as error:
        message = str(error)
    assert "run.bvi" in message
    assert len(message) < 2000
    return None


class TestBytes:
    def test_random(self, file):
        rng = random.Random(0)
        for i in range(60):
            start = b"PK\x03\x04" if i % 2 else b""
            file.write_bytes(start + rng.randbytes(rng.choice([0, 1, 21, 22, 500])))
            assert load_or_refuse(file) is None

    def test_truncated(self, whole, file):
        for length in range(0, len(whole), max(1, len(whole) // 150)):
            file.write_bytes(whole[:length])
            assert load_or_refuse(file) is None

    def test_flipped_bits(self, result, whole, file):
        """Harmless or refused: checksums cover the content."""
        rng, expected, refused = random.Random(1), state(result), 0
        for _ in range(400):
            broken = bytearray(whole)
            broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            file.write_bytes(broken)
            loaded = load_or_refuse(file)
            refused += loaded is None
            assert loaded is None or state(loaded) == expected
        assert refused > 300

    def test_pieces_exchanged(self, result, whole, file):
        rng, expected = random.Random(2), state(result)
        for _ in range(100):
            a, b = sorted(rng.sample(range(len(whole)), 2))
            file.write_bytes(whole[:a] + whole[b:] + whole[a:b])
            loaded = load_or_refuse(file)
            assert loaded is None or state(loaded) == expected


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a manifest, the first and last of long lists only."""
    yield path
    if isinstance(tree, dict):
        for key in tree:
            yield from places(tree[key], (*path, key))
    elif isinstance(tree, list):
        for i in {0, len(tree) - 1} - {-1}:
            yield from places(tree[i], (*path, i))


class TestManifest:
    def test_anything_anywhere(self, whole, file, capsys):
        file.write_bytes(whole)
        manifest, arrays = archive.read(file)
        rng = random.Random(3)
        every = [(place, value) for place in places(manifest) if place for value in NASTY]
        for place, value in rng.sample(every, 400):
            changed = copy.deepcopy(manifest)
            inside = changed
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value
            archive.write(file, changed, arrays)
            loaded = load_or_refuse(file)
            if loaded is not None:  # a label, say: it is what it says, and can be printed and written again
                assert repr(loaded)
                assert loaded.best_step in range(3)
                loaded.save(file)
                assert load_or_refuse(file) is not None

    def test_without_something(self, whole, file):
        file.write_bytes(whole)
        manifest, arrays = archive.read(file)
        for key in manifest:
            archive.write(file, {name: value for name, value in manifest.items() if name != key}, arrays)
            assert load_or_refuse(file) is None
        for key in arrays:
            archive.write(file, manifest, {name: array for name, array in arrays.items() if name != key})
            assert load_or_refuse(file) is None
        archive.write(file, manifest, {**arrays, "../../etc/passwd": np.zeros(1)})
        assert load_or_refuse(file) is None

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{", "NaN", "1" * 5000, "[" * 100_000, '{"format": NaN}', "\ud800", '{"format": "boostvi run"}'],
    )
    def test_no_manifest(self, file, text):
        with zipfile.ZipFile(file, "w") as out:
            out.writestr("manifest.json", text.encode("utf-8", "surrogatepass"))
        assert load_or_refuse(file) is None


class Harm:
    """Unpickled, it would write a file."""

    def __init__(self, file: Path):
        self.file = str(file)

    def __reduce__(self):
        return open, (self.file, "w")


def npy(array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


class TestArrays:
    @pytest.fixture
    def refused(self, whole, file):
        """Refuses the file with other bytes in one of its arrays."""
        name = "state/mixture/weights.npy"

        def check(data: bytes | None, compression: int = zipfile.ZIP_STORED, twice: bool = False) -> None:
            with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(file, "w", compression) as new:
                for member in old.namelist():
                    new.writestr(member, data if data is not None and member == name else old.read(member))
                if twice:
                    with pytest.warns(UserWarning, match="Duplicate name"):
                        new.writestr(name, old.read(name))
            assert load_or_refuse(file) is None

        return check

    @pytest.mark.parametrize(
        "weights",
        [
            np.array([0.5, np.nan, 0.5]),
            np.array([np.inf, 0.0, 0.0]),
            np.array([1.5, -0.5, 0.0]),
            np.array([0.2, 0.2, 0.2]),
            np.zeros(3),
            np.array([0.5, 0.5]),
            np.full((3, 1), 1 / 3),
            np.array([0.5, 0.5, 0.0], dtype=np.float32),
            np.array([0.5, 0.5, 0.0], dtype=">f8"),
            np.array([1, 0, 0]),
            np.array([1, 0, 0], dtype=complex),
            np.array(["1", "0", "0"]),
            np.zeros(3, dtype=[("a", float)]),
            np.array(1.0),
        ],
    )
    def test_that_are_no_weights(self, refused, weights):
        refused(npy(weights))

    def test_that_lie_about_their_size(self, refused):
        good = npy(np.array([0.5, 0.5, 0.0]))
        for shape in (b"(9999999999999,)", b"(-3, )", b"(3, 0, )", b"(4,)", b"()", b"(1,1,3)", b"((3,),)", b"(1 2,)"):
            line = good[10:128].replace(b"(3,)", shape)
            refused(good[:8] + len(line).to_bytes(2, "little") + line + good[128:])
        refused(good[:-1])
        refused(good + b"\0")
        refused(good[:8] + b"\xff\xff" + good[10:])
        refused(good[:50])
        refused(b"")

    def test_that_would_run_something(self, refused, tmp_path):
        harm = Harm(tmp_path / "harm")
        refused(npy(np.array([harm, harm, harm], dtype=object), allow_pickle=True))
        refused(pickle.dumps(harm))
        refused(npy(np.zeros(3)).replace(b"'<f8'", b"__import__('os').abort()"))
        assert not (tmp_path / "harm").exists()

    def test_that_are_packed(self, refused):
        refused(None, zipfile.ZIP_DEFLATED)
        refused(None, zipfile.ZIP_BZIP2)
        refused(bytes(10**7), zipfile.ZIP_LZMA)
        refused(None, twice=True)

    def test_a_component_that_is_not_finite(self, whole, file):
        file.write_bytes(whole)
        manifest, arrays = archive.read(file)
        name = "state/mixture/params/loc.npy"
        for value in (np.nan, np.inf):
            archive.write(file, manifest, arrays | {name: np.full_like(arrays[name], value)})
            assert load_or_refuse(file) is None


class TestMemory:
    """A small file gets no more than a small allocation, whatever it says."""

    @pytest.mark.parametrize("size", [10**3, 10**6, 10**9, 10**12])
    @pytest.mark.parametrize("what", ["capacity", "n_draws", "names", "rank"])
    def test_asked_for(self, whole, file, what, size):
        file.write_bytes(whole)
        manifest, arrays = archive.read(file)
        if what == "names":
            manifest["names"] = ["z"] * min(size, 10**6)
        elif what == "rank":
            manifest["state"]["family"] = {"class": "LowRankNormal", "rank": size}
        else:
            manifest["state"][what] = size
        if what == "n_draws":  # no rows: the shape is all that there is
            manifest["state"]["filled"] = []
            for name, shape in (
                ("draws", (0, size, 2)), ("log_target", (0, size)), ("log_components", (0, 0, size))
            ):  # fmt: skip
                arrays[f"state/table/{name}.npy"] = np.zeros(shape)
        archive.write(file, manifest, arrays)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        load_or_refuse(file)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes

    def test_of_members_that_overlap(self, whole, file):
        """Every entry of the directory points at the same large member."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as out:
            out.writestr("big", bytes(10**6))
            big = out.getinfo("big")
            for i in range(100):
                entry = copy.copy(big)
                entry.filename = f"{i:03}"
                out.filelist.append(entry)
                out.NameToInfo[entry.filename] = entry
        file.write_bytes(data.getvalue())
        assert load_or_refuse(file) is None


class AcceptedError(Exception):
    """The arguments were found good, and the fit would begin."""


ARGUMENTS = (
    "recipe", "family", "first", "next_component", "direction", "step_size", "correction", "n_draws", "draws_growth",
    "elbo_draws", "max_steps", "max_components", "max_seconds", "max_evals", "kl_tol", "gap_tol", "resume",
    "checkpoint", "progress", "callbacks", "seed",
)  # fmt: skip
VALUES = [
    None, True, False, -1, 0, 1, 7, 2**31, 10**30, 0.5, -0.5, np.nan, np.inf, 1e308, "", "x", "auto", b"x", [], {}, (),
    {"a": 1}, [1], object(), int, lambda step: None, np.float64(0.5), np.int64(3), np.zeros(3), 1j, range(3),
    bv.Recipe(), Path("no-such-folder/run.bvi"), Path("."),
]  # fmt: skip


class TestArguments:
    def test_of_a_fit(self, target, tmp_path, monkeypatch, recwarn):
        def begin(*args, **kwargs):
            raise AcceptedError

        monkeypatch.setattr(boosting, "start", begin)
        monkeypatch.chdir(tmp_path)
        rng, accepted, refused = random.Random(4), 0, 0
        for _ in range(400):
            chosen = {name: rng.choice(VALUES) for name in rng.sample(ARGUMENTS, rng.choice([1, 1, 2, 3]))}
            try:
                bv.fit(target, **{"progress": False, **chosen})
            except (ValueError, TypeError, OSError) as error:
                refused += bool(str(error))
            except AcceptedError:
                accepted += 1
            assert not any(tmp_path.iterdir()), chosen
        assert accepted + refused == 400
        assert accepted > 20
        assert not recwarn.list

    def test_of_files(self, result, whole, file, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        file.write_bytes(whole)
        for value in VALUES:
            for use in (
                lambda v: bv.load(v), lambda v: bv.load(file, target=v), lambda v: bv.load(file, classes=v)
            ):  # fmt: skip
                with contextlib.suppress(ValueError, TypeError, OSError):
                    assert isinstance(use(value), bv.Result)
            if not isinstance(value, str):
                with pytest.raises((TypeError, OSError)):
                    result.save(value)
        assert [path.name for path in tmp_path.iterdir()] == ["run.bvi"]
        assert json.loads(zipfile.ZipFile(file).read("manifest.json"))["seed"] == 3
