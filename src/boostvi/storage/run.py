"""What a file says: a run as a manifest and arrays, and back. See docs/files.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np

from boostvi import mixture as mixtures
from boostvi._jit import float64, new_key
from boostvi._struct import replace
from boostvi.boosting import State
from boostvi.diagnostics import Evaluation
from boostvi.directions import Kind
from boostvi.families import Family
from boostvi.history import COLUMNS, History
from boostvi.mixture import Mixture
from boostvi.polynomials import is_triangular, n_monomials
from boostvi.recipes import Recipe
from boostvi.run import Run
from boostvi.storage import archive
from boostvi.storage.archive import StorageError, require
from boostvi.storage.codec import as_count, as_float, decode, encode, known_classes, number
from boostvi.summary import STATUS
from boostvi.table import Table
from boostvi.warp import Layer, Warp, identity

if TYPE_CHECKING:
    from boostvi.result import Result

FORMAT = "boostvi run"
VERSION = 2
"""Raised by any change that an older reader would get wrong; earlier versions stay readable."""
KEY = "rbg"
"""The generator of every key that `_jit.new_key` makes."""
MOST_SPARE = 64
"""A mixture has at most this many slots for each stored one: a small file cannot ask for much memory."""
SIMPLEX_TOLERANCE = 1e-6
INVERSE_TOLERANCE = 1e-6
MOST_LAYERS, MOST_DEGREE, MOST_MONOMIALS = 8, 8, 10_000
"""Of a warp: more than any fit makes."""
COUNTS = ("step", "trials", "n_active", "n_params", "evals", "nonfinite")
VERDICTS = ("good", "usable", "unreliable")

Contents = tuple[dict[str, Any], dict[str, np.ndarray]]


def contents(
    run: Run, names: Sequence[str], constrained: bool, status: str | None,
    evaluation: dict[str, Any] | None = None, summary: str | None = None,
) -> Contents:  # fmt: skip
    """The manifest and the arrays of a run after any whole number of steps."""
    from boostvi import __version__

    state, table = run.state, run.state.table
    filled = np.flatnonzero(np.asarray(table.filled))
    mixture, about = _compact(state.mixture, np.asarray(table.filled))
    rows = {
        "draws": np.asarray(table.draws)[filled],
        "log_target": np.asarray(table.log_target)[filled],
        "log_components": np.asarray(table.log_components)[np.ix_(filled, filled)],
    }
    key = jax.random.key_data(state.key)
    tree: dict[str, Any] = {
        "state": {"mixture": mixture, "table": rows, "rule": state.rule, "gain": state.gain, "kl": state.kl, "key": key}
    }
    best = None  # most often the mixture of the last step
    if run.best is not state.mixture:
        tree["best"], best = _compact(run.best, np.zeros(run.best.capacity, dtype=bool))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "boostvi": __version__,
        "status": status,
        "seed": run.seed,
        "evals": run.evals,
        "seconds": run.seconds,
        "names": list(names),
        "constrained": constrained,
        "recipe": encode(run.recipe),
        "state": about | {"filled": filled.tolist(), "n_draws": table.n_draws, "key": KEY},
        "best": best,
        "evaluation": evaluation,
        "summary": summary,
        "history": {name: [number(row[name]) for row in run.history.rows] for name in COLUMNS},
    }
    return manifest, {_member(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _member(path: Sequence[Any]) -> str:
    """The name of an array by its place in the tree: state/mixture/params/loc.npy."""
    steps = (getattr(step, "key", getattr(step, "name", getattr(step, "idx", step))) for step in path)
    return "/".join(map(str, steps)) + ".npy"


def _compact(mixture: Mixture, needed: np.ndarray) -> tuple[Mixture, dict[str, Any]]:
    """A mixture without the slots that hold nothing, and what is left out of it."""
    weights = np.asarray(mixture.weights)
    some = np.arange(weights.size) < weights.size / MOST_SPARE
    slots = np.flatnonzero(needed | (weights > 0) | some)
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[slots], mixture.params)
    about = {"family": encode(mixture.family, "family"), "capacity": weights.size, "slots": slots.tolist()}
    layers = mixture.warp.layers if mixture.warp is not None else ()
    about["warp"] = [[layer.shift.degree, layer.shift.inputs] for layer in layers] or None
    return replace(mixture, params=params, weights=cast(Any, weights[slots])), about


def evaluation_of(result: Result) -> dict[str, Any] | None:
    """What a result says of itself, as far as it was computed."""
    known = vars(result)
    if not {"evaluation", "_importance", "_judgement"} <= known.keys():
        return None
    _, khat, ess = known["_importance"]
    verdict, reasons = known["_judgement"]
    numbers = dataclasses.asdict(known["evaluation"]) | {"khat": khat, "ess": ess}
    return {name: number(value) for name, value in numbers.items()} | {"verdict": verdict, "reasons": list(reasons)}


@float64
def read(file: Path, classes: Iterable[type]) -> tuple[Run, dict[str, Any], dict[str, Any]]:
    """The run in a file, what the result had computed, and the manifest. Whatever is wrong with it: one clear error."""
    known = known_classes(classes)
    try:
        manifest, arrays = archive.read(file, _check_format)
        return _restored(manifest, arrays, known), _computed(manifest["evaluation"]), manifest
    except StorageError as error:
        raise StorageError(f"cannot load {file}: {error}") from error.__cause__
    except OSError:
        raise
    except Exception as error:  # there is nothing that a file made for it could not provoke in what parses it
        raise StorageError(f"cannot load {file}: it is damaged, or no file of boostvi ({error!s:.200})") from error


def _check_format(manifest: dict[str, Any]) -> None:
    require(manifest.get("format") == FORMAT, "it is no file of boostvi")
    version, writer = as_count(manifest["version"]), manifest["boostvi"]
    if version > VERSION:
        raise StorageError(
            f"boostvi {writer!s:.20} wrote it in version {version} of the format, and this boostvi knows version "
            f"{VERSION}: upgrade it"
        )


def _restored(manifest: dict[str, Any], arrays: dict[str, np.ndarray], classes: Mapping[str, type]) -> Run:
    names, about = manifest["names"], manifest["state"]
    require(type(names) is list and names and all(type(name) is str for name in names), "the names are missing")
    require(type(manifest["constrained"]) is bool, "`constrained` must be true or false")
    require(manifest["status"] is None or manifest["status"] in STATUS, "its status is not known")
    require(manifest["summary"] is None or type(manifest["summary"]) is str, "its summary is no text")
    require(about["key"] == KEY, "its random numbers are of another kind")
    seconds = as_float(manifest["seconds"])
    require(0 <= seconds < math.inf, "`seconds` must be a number")
    recipe = decode(manifest["recipe"], classes)
    require(isinstance(recipe, Recipe), "its recipe is none")
    history = _history(manifest["history"])

    shapes = _mixture_shapes(about, len(names), classes)
    parts = recipe.parts(shapes.family)
    filled, n_draws = _slots(about["filled"], about["capacity"]), as_count(about["n_draws"])
    number_shape = jax.ShapeDtypeStruct((), np.float64)
    template: dict[str, Any] = {
        "state": {
            "mixture": shapes,
            "table": _table_shapes(filled.size, n_draws, len(names)),
            "rule": jax.eval_shape(parts.step_size.init),
            "gain": number_shape,
            "kl": number_shape,
            "key": jax.eval_shape(lambda: jax.random.key_data(new_key(0))),
        }
    }
    if manifest["best"] is not None:
        template["best"] = _mixture_shapes(manifest["best"], len(names), classes)
    stored = _placed(template, arrays)

    at = stored["state"]
    mixture = _expanded(at["mixture"], about)
    best = mixture if manifest["best"] is None else _expanded(stored["best"], manifest["best"])
    table = _expanded_table(at["table"], mixture.capacity, filled)
    key, step = jax.random.wrap_key_data(at["key"], impl=KEY), np.int64(len(history.rows) - 1)
    state = State(cast(Any, step), mixture, table, at["rule"], at["gain"], at["kl"], key)
    return Run(recipe, parts, as_count(manifest["seed"]), state, history, best, as_count(manifest["evals"]), seconds)


def _slots(slots: Any, capacity: int) -> np.ndarray:
    found = np.array([as_count(slot, capacity - 1) for slot in slots], dtype=np.int64)
    require((np.diff(found) > 0).all(), "slots must rise")
    return found


def _mixture_shapes(about: dict[str, Any], dim: int, classes: Mapping[str, type]) -> Mixture:
    """The shapes of a stored mixture, as its family makes them."""
    family = decode(about["family"], classes)
    require(isinstance(family, Family), "its family is none")
    slots = _slots(about["slots"], as_count(about["capacity"]))
    require(slots.size and about["capacity"] <= MOST_SPARE * slots.size, "it has too few slots for its capacity")
    shapes = jax.eval_shape(lambda: mixtures.empty(family, dim, slots.size))
    sizes = about.get("warp")  # files of version 1 have none
    return shapes if sizes is None else replace(shapes, warp=_warp_shapes(sizes, dim))


def _warp_shapes(sizes: list[list[int] | int], dim: int) -> Warp:
    """Of layers with polynomials of these degrees, of so many coordinates."""
    require(type(sizes) is list and 0 < len(sizes) <= MOST_LAYERS, "its warp has no layers, or too many")
    layers = [size if isinstance(size, list) else [size, dim] for size in sizes]  # once there was the degree alone
    for size in layers:
        require(len(size) == 2, "its warp has a layer without a degree or without inputs")
        degree, inputs = as_count(size[0], MOST_DEGREE), as_count(size[1], dim)
        small = degree > 1 and inputs > 0 and n_monomials(inputs, degree) <= MOST_MONOMIALS
        require(small, "its warp has a layer of a strange degree, or too large")
    return jax.eval_shape(lambda: Warp(tuple(identity(np.zeros(dim), np.eye(dim), *size) for size in layers)))


def _table_shapes(slots: int, n_draws: int, dim: int) -> dict[str, jax.ShapeDtypeStruct]:
    require(n_draws > 0, "`n_draws` must be positive")
    shapes = {"draws": (slots, n_draws, dim), "log_target": (slots, n_draws), "log_components": (slots, slots, n_draws)}
    return {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}


def _placed(template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The arrays in their places in the template, each with the shape that belongs there."""
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    shapes = {_member(path): leaf for path, leaf in wanted}
    require(shapes.keys() == arrays.keys(), f"its arrays are {sorted(arrays)!s:.200}, not {sorted(shapes)}")
    for name, shape in shapes.items():
        found = arrays[name]
        require(
            (found.shape, found.dtype) == (shape.shape, shape.dtype),
            f"{name} has {found.dtype} of shape {found.shape}, not {shape.dtype} of shape {shape.shape}",
        )
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in shapes])


def _expanded(mixture: Mixture, about: dict[str, Any]) -> Mixture:
    """The mixture with its free slots. They hold copies of the heaviest component: something harmless."""
    stored = np.asarray(mixture.weights)
    require((stored >= 0).all() and abs(stored.sum() - 1) < SIMPLEX_TOLERANCE, "its weights are no shares of 1")
    finite = [np.isfinite(leaf[stored > 0]).all() for leaf in jax.tree.leaves(mixture.params)]
    require(all(finite), "a component is not finite")
    row_of = np.full(about["capacity"], np.argmax(stored))
    row_of[about["slots"]] = np.arange(stored.size)
    weights = np.zeros(about["capacity"])
    weights[about["slots"]] = stored
    require(all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mixture.warp)), "its warp is not finite")
    for layer in mixture.warp.layers if mixture.warp is not None else ():
        _check_layer(layer)
    params = jax.tree.map(lambda leaf: leaf[row_of], mixture.params)
    return replace(mixture, params=params, weights=cast(Any, weights))


def _check_layer(layer: Layer) -> None:
    """Refuse a layer whose ways there and back, or whose volume, are not of one map."""
    dim = len(layer.loc)
    for polynomial in (layer.shift, layer.log_scale):
        require(is_triangular(polynomial), "its warp has a polynomial of coordinates that come later")
    size = np.abs(layer.inverse) @ np.abs(layer.factor)
    error = np.abs(layer.inverse @ layer.factor - np.eye(dim))
    require((error <= INVERSE_TOLERANCE * (1.0 + size)).all(), "its warp has a factor that is not inverted")
    volume = np.linalg.slogdet(layer.factor)[1]
    require(abs(volume - layer.log_volume) < INVERSE_TOLERANCE * (1.0 + abs(volume)), "its warp has a wrong volume")


def _expanded_table(rows: dict[str, np.ndarray], capacity: int, filled: np.ndarray) -> Table:
    """The table with its empty rows. Nothing reads them; as untouched zeros they take no memory either."""
    _, n_draws, dim = rows["draws"].shape
    full: dict[str, Any] = {name: np.zeros(of.shape) for name, of in _table_shapes(capacity, n_draws, dim).items()}
    full["draws"][filled] = rows["draws"]
    full["log_target"][filled] = rows["log_target"]
    full["log_components"][np.ix_(filled, filled)] = rows["log_components"]
    return Table(filled=cast(Any, np.isin(np.arange(capacity), filled)), **full)


def _history(columns: dict[str, list[Any]]) -> History:
    require(columns.keys() == COLUMNS.keys(), f"its history must have the columns {', '.join(COLUMNS)}")
    steps = columns["step"]
    require(steps and steps == list(range(len(steps))), "a step is missing in its history")
    require({kind.label for kind in Kind}.issuperset(columns["kind"]), "its history has a step of no known kind")
    read = {name: str if name == "kind" else as_count if name in COUNTS else as_float for name in COLUMNS}
    values = [[cast(Any, read[name])(value) for value in columns[name]] for name in COLUMNS]
    return History(tuple(dict(zip(COLUMNS, row, strict=True)) for row in zip(*values, strict=True)))


def _computed(stored: dict[str, Any] | None) -> dict[str, Any]:
    """What a `Result` would compute, by the names it caches it under."""
    if stored is None:
        return {}
    reasons = stored["reasons"]
    require(stored["verdict"] in VERDICTS, "its verdict is not known")
    require(type(reasons) is list and reasons and all(type(one) is str for one in reasons), "reasons are missing")
    names = [field.name for field in dataclasses.fields(Evaluation) if field.name in stored]
    numbers: dict[str, Any] = {name: as_float(stored[name]) for name in names}
    return {
        "evaluation": Evaluation(**numbers | {"nonfinite": as_count(stored["nonfinite"])}),
        "_importance": (np.zeros(0), as_float(stored["khat"]), as_float(stored["ess"])),
        "_judgement": (stored["verdict"], tuple(reasons)),
    }
