"""Frozen dataclasses that JAX can trace, and the registries that find a part by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")


def static(**options: Any) -> Any:
    """A field that is part of the compiled program (shapes, choices), not an array."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def struct(cls: type[T]) -> type[T]:
    """A frozen dataclass registered as a JAX pytree.

    Plain fields are leaves: a Python float in one is *traced*, so another value of it compiles nothing anew
    and can be vmapped over. Fields made with `static` are compiled in.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    data = tuple(field.name for field in fields if not field.metadata.get("static", False))
    meta = tuple(field.name for field in fields if field.metadata.get("static", False))

    # Not `register_dataclass`: its tree structures compare equal for any two classes with as many fields, and a jitted
    # function may then run the program that was compiled for the other class.
    def flatten(one):
        return tuple(getattr(one, name) for name in data), tuple(getattr(one, name) for name in meta)

    def flatten_with_keys(one):
        children, aux = flatten(one)
        return tuple((jax.tree_util.GetAttrKey(n), c) for n, c in zip(data, children, strict=True)), aux

    def unflatten(aux, children):
        return cls(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


replace = dataclasses.replace


def scalar(value: Any) -> Any:
    """A number as structs carry it outside of compiled programs: on the host, where nothing is compiled for it."""
    return np.asarray(value)


def check(argument: str, value: Any, ok: Callable[[Any], bool], wanted: str) -> None:
    """Raise ValueError unless `ok(value)`; traced values (inside jit or vmap) are left alone."""
    if isinstance(value, (bool, str)) or (isinstance(value, (int, float, np.number)) and not ok(value)):
        raise ValueError(f"{argument} must be {wanted}, got {value!r}")


def check_count(argument: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless `value` is a whole number of at least `least`; traced values are left alone."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if isinstance(value, (bool, str, float)) or (whole and value < least):
        raise ValueError(f"{argument} must be an integer of at least {least}, got {value!r}")


def look_up(argument: str, part: Any, choices: Mapping[str, Callable[[], Any]], base: type | None = None) -> Any:
    """The part itself, or the one that `choices` makes for its name."""
    if isinstance(part, str):
        if part not in choices:
            raise ValueError(f"{argument}={part!r} is not known; choose one of {', '.join(map(repr, choices))}")
        return choices[part]()
    if isinstance(part, type):
        raise TypeError(f"{argument} got the class {part.__name__}; pass an instance, {part.__name__}(...)")
    if base is not None and not isinstance(part, base):
        raise TypeError(f"{argument} must be one of {', '.join(map(repr, choices))} or a {base.__name__}, got {part!r}")
    return part
