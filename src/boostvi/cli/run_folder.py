"""A run folder: `run.bvi` (the checkpoint), `fit.json` (what was fitted, and how) and `trace/` (for the report)."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boostvi import __version__
from boostvi.cli.arguments import Bound
from boostvi.cli.errors import UsageError
from boostvi.cli.files import shown, write_whole
from boostvi.cli.options import BUDGETS

RUN, PLAN, TRACE = "run.bvi", "fit.json", "trace"
FORMAT, VERSION = "boostvi fit", 1
PACKAGES = ("jax", "numpyro", "numpy")


@dataclass(frozen=True)
class Plan:
    """All that a fit was asked for. Paths are absolute here, and relative to the folder in fit.json: both may move."""

    model: Path
    function: str
    data: Path | None
    arg: tuple[str, ...] = ()
    recipe: str = "auto"
    family: str | None = None
    seed: int = 0
    budgets: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """For `bv.fit`."""
        return {"recipe": self.recipe, "family": self.family, "seed": self.seed, **self.budgets}

    def command(self, folder: Path) -> str:
        """The command that makes this run."""
        words = ["boostvi", "fit", f"{shown(self.model)}:{self.function}"]
        words += ["--data", str(shown(self.data))] if self.data else []
        words += ["--arg", *self.arg] if self.arg else []
        words += ["--recipe", self.recipe] if self.recipe != "auto" else []
        words += ["--family", self.family] if self.family else []
        for name, value in self.budgets.items():
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--seed", str(self.seed)] if self.seed else []
        return shlex.join([*words, "--out", str(shown(folder))])


def read(folder: Path) -> Plan:
    """What is in a run folder; other commands than `fit` start here."""
    content = _content(folder)
    if content is None:
        raise UsageError(f"{folder} is no run folder: it has no {PLAN} (`boostvi fit … --out {folder}` makes one)")
    data = content["data"]
    return Plan(
        model=_absolute(folder, content["model"]["file"]),
        function=content["model"]["function"],
        data=_absolute(folder, data["file"]) if data else None,
        arg=tuple(content["arg"]),
        budgets={name: value for name, value in content["budgets"].items() if name in BUDGETS},
        **content["settings"],
    )


def write(folder: Path, plan: Plan, bound: Bound) -> None:
    """Make the folder and its fit.json, all of it or nothing."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": {**_recorded(folder, plan.model), "function": plan.function},
        "data": _recorded(folder, plan.data) if plan.data else None,
        "arg": list(plan.arg),
        "sources": bound.sources,
        "labels": {name: list(labels) for name, labels in bound.labels.items()},
        "settings": {"recipe": plan.recipe, "family": plan.family, "seed": plan.seed},
        "budgets": dict(plan.budgets),
        "versions": {"boostvi": __version__} | {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / PLAN, lambda stream: stream.write((json.dumps(content, indent=2) + "\n").encode()))
    except OSError as error:
        raise UsageError(f"cannot write into the folder {folder}: {error.strerror}; name another with --out") from error


def check_same(folder: Path, plan: Plan, bound: Bound) -> None:
    """Refuse a folder that holds another fit. Budgets may differ: they are totals."""
    content = _content(folder)
    if content is None:
        if (folder / RUN).exists():
            raise UsageError(f"{folder} has a {RUN} but no {PLAN}; name another folder with --out")
        return
    old = read(folder)
    mine = dataclasses.asdict(plan) | {"arguments": bound.sources}
    theirs = dataclasses.asdict(old) | {"arguments": content["sources"]}
    names = ("model", "function", "data", "arguments", "recipe", "family", "seed")
    changed = [name for name in names if mine[name] != theirs[name]]
    if changed:
        name = changed[0]
        raise UsageError(
            f"{folder} holds a fit with another {', '.join(changed)} ({name}: {_short(theirs[name])} there, "
            f"{_short(mine[name])} now); name another folder with --out, or delete that one"
        )


def changed_files(folder: Path, plan: Plan) -> list[str]:
    """The model and data files that are no longer what they were at the fit."""
    content = _content(folder) or {}
    pairs = [(plan.model, content.get("model")), (plan.data, content.get("data"))]
    return [str(shown(file)) for file, was in pairs if file and was and _digest(file) != was["sha256"]]


def labels(folder: Path) -> dict[str, list[str]]:
    """Labels of text columns, by the argument and by the column that they came from."""
    content = _content(folder) or {"labels": {}, "sources": {}}
    found = dict(content["labels"])
    for name, values in content["labels"].items():
        found.update(dict.fromkeys(content["sources"][name]["columns"], values))
    return found


def _content(folder: Path) -> dict[str, Any] | None:
    file = folder / PLAN
    if not file.exists():
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file, not a folder")
        return None
    try:
        content = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f"{file} was not written by boostvi")
    if content["version"] > VERSION:
        raise UsageError(f"{file} was written by a later version of boostvi; upgrade with pip install -U boostvi")
    return content


def _recorded(folder: Path, file: Path) -> dict[str, str]:
    try:
        relative = os.path.relpath(file, folder)
    except ValueError:  # another drive of Windows
        relative = str(file)
    return {"file": Path(relative).as_posix(), "sha256": _digest(file)}


def _absolute(folder: Path, relative: str) -> Path:
    return Path(os.path.normpath(folder.absolute() / relative))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _short(value: Any) -> str:
    if isinstance(value, Path):
        return str(shown(value))
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return text if len(text) <= 120 else text[:119] + "…"
