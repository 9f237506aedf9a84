"""The user's model: a function in a Python file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from boostvi.cli.errors import UsageError
from boostvi.cli.files import shown

DEFAULT_FUNCTION = "model"


def split(text: str) -> tuple[Path, str]:
    """`MODEL.py:function`; the function is `model` if it is not named."""
    file, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier():
        file, function = text.removesuffix(":"), DEFAULT_FUNCTION
    return Path(file), function


def load(file: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file, which may import from its own folder."""
    if not file.is_file():
        raise UsageError(f"there is no model file {file}{_similar(file)}")
    if file.suffix != ".py":
        raise UsageError(f"the model must be a Python file (MODEL.py:function), got {file}")
    module = _execute(file)
    found = getattr(module, name, None)
    if found is None:
        own = [
            key for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
        ]  # fmt: skip
        near = get_close_matches(name, own, 1)
        hint = f"did you mean {file}:{near[0]}?" if near else f"it has {', '.join(own) or 'no functions'}"
        raise UsageError(f"{file} has no function {name!r}; {hint}")
    if not callable(found):
        raise UsageError(f"{name} in {file} is not a function, but {type(found).__name__}")
    return found


def _execute(file: Path) -> Any:
    module_name = f"_boostvi_model_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and the like look their module up
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{shown(Path(error.filename or file))}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where(error, file)} imports {error.name!r}, which is not installed here (pip install {error.name}?)"
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where(error, file)} raised {told(error)}") from error
    return module


def told(error: BaseException) -> str:
    """Type and text of an error in one line."""
    text = " ".join(str(error).split())
    return type(error).__name__ + (f": {text}" if text else "")


def where(error: BaseException, file: Path) -> str:
    """The last line of the user's file that the error went through."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == file.resolve()
    ]  # fmt: skip
    return f"{file}, line {lines[-1]}" if lines else f"{file}"


def _similar(file: Path) -> str:
    names = [path.name for path in file.parent.glob("*.py")] if file.parent.is_dir() else []
    near = get_close_matches(file.name, names, 1)
    return f"; did you mean {file.with_name(near[0])}?" if near else ""
