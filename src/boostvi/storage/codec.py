"""Recipes and parts as JSON: {"class": name, field: value, …}, of the library's own classes or given ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from boostvi.corrections import CORRECTIONS
from boostvi.directions import DIRECTIONS
from boostvi.families import FAMILIES
from boostvi.next_component import FIRST_COMPONENTS, NEXT_COMPONENTS, OPTIMISERS
from boostvi.recipes import Recipe
from boostvi.step_sizes import STEP_SIZES
from boostvi.storage.archive import StorageError, require

NONFINITE = ("nan", "inf", "-inf")
SCALARS = ("float64", "float32", "int64", "int32", "bool")


def known_classes(own: Iterable[Any] = ()) -> dict[str, type]:
    """The library's classes, and `own` ones, by name."""
    registries: tuple[dict[str, Any], ...] = (
        FAMILIES, FIRST_COMPONENTS, NEXT_COMPONENTS, OPTIMISERS, DIRECTIONS, STEP_SIZES, CORRECTIONS,
    )  # fmt: skip
    known = {"Recipe": Recipe} | {cls.__name__: cls for registry in registries for cls in registry.values()}
    for cls in own:
        if not isinstance(cls, type):
            raise TypeError(f"classes must hold classes, got {cls!r}")
        if known.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"classes holds a second {cls.__name__}; give your class another name")
    return known


def encode(value: Any, where: str = "recipe") -> Any:
    """A part as JSON. Raises ValueError for what a file cannot hold."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        if value.ndim or str(value.dtype) not in SCALARS:
            raise ValueError(f"{where} is an array, which a file cannot hold; give a number")
        return {"dtype": str(value.dtype), "value": number(value.item())}
    if isinstance(value, float) and not math.isfinite(value):
        return {"dtype": "float", "value": number(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [encode(one, where) for one in value]
    cls = type(value)
    if not dataclasses.is_dataclass(cls):
        raise ValueError(
            f"{where} is a {cls.__name__}, which a file cannot hold; parts must be frozen dataclasses of numbers, "
            "strings, tuples and other parts"
        )
    if known_classes().get(cls.__name__, cls) is not cls:
        raise ValueError(f"{where} has the name of the library's own {cls.__name__}; give your class another")
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return {"class": cls.__name__} | {name: encode(getattr(value, name), f"{where}.{name}") for name in names}


def decode(value: Any, classes: Mapping[str, type]) -> Any:
    """The part that `encode` was given. Only `classes` are called, and they check their arguments."""
    if isinstance(value, list):
        return tuple(decode(one, classes) for one in value)
    if not isinstance(value, dict):
        return value
    if "class" not in value:
        plain = as_float(value["value"]) if isinstance(value["value"], str) else value["value"]
        require(value["dtype"] in ("float", *SCALARS), "a number is of no known type")
        return float(plain) if value["dtype"] == "float" else np.dtype(value["dtype"]).type(plain)
    name = value["class"]
    if name not in classes:
        raise StorageError(f"it uses the class {name!s:.99}, which bv.load(path, classes=[…]) must be given")
    part = classes[name](**{field: decode(one, classes) for field, one in value.items() if field != "class"})
    for field in dataclasses.fields(part):  # a part checks numbers, but not whether it has any
        found, wanted = getattr(part, field.name), str(field.type).removesuffix(" | None")
        absent = found is None and wanted != field.type
        if type(part).__module__.startswith("boostvi.") and wanted in ("int", "float") and not absent:
            require(isinstance(found, (int, float, np.number)), f"{name}.{field.name} is no number")
    return part


def own_classes(part: Any) -> list[type]:
    """The classes inside a part that are not the library's."""
    if isinstance(part, tuple):
        return [cls for one in part for cls in own_classes(one)]
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return []
    inside = [cls for field in dataclasses.fields(part) for cls in own_classes(getattr(part, field.name))]
    return inside if type(part) in known_classes().values() else [type(part), *inside]


def number(value: Any) -> Any:
    """JSON has no NaN and no infinities: they are strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_float(value: Any) -> float:
    require(
        value in NONFINITE if isinstance(value, str) else type(value) in (int, float), f"{value!r:.99} is no number"
    )
    return float(value)


def as_count(value: Any, most: int = 2**63 - 1) -> int:
    require(type(value) is int and 0 <= value <= most, f"{value!r:.99} is no count, or too large")
    return int(value)
