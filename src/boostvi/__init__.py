"""Boosting variational inference: a posterior approximated by a mixture that grows component by component."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boostvi.calibration import calibrate
    from boostvi.fit import Step, fit
    from boostvi.integrations.numpyro import from_numpyro
    from boostvi.integrations.pymc import from_pymc
    from boostvi.integrations.stan import from_stan
    from boostvi.mixture import Mixture
    from boostvi.recipes import RECIPES, Recipe
    from boostvi.result import Result
    from boostvi.storage import load
    from boostvi.target import Target
    from boostvi.theory import convergence_bound

__version__ = "0.1.0"
__all__ = [
    "RECIPES", "Mixture", "Recipe", "Result", "Step", "Target", "calibrate", "convergence_bound", "fit", "from_numpyro",
    "from_pymc", "from_stan", "load",
]  # fmt: skip


_LAZY = {
    "RECIPES": "boostvi.recipes",
    "Mixture": "boostvi.mixture",
    "Recipe": "boostvi.recipes",
    "Result": "boostvi.result",
    "Step": "boostvi.fit",
    "Target": "boostvi.target",
    "calibrate": "boostvi.calibration",
    "convergence_bound": "boostvi.theory",
    "fit": "boostvi.fit",
    "from_numpyro": "boostvi.integrations.numpyro",
    "from_pymc": "boostvi.integrations.pymc",
    "from_stan": "boostvi.integrations.stan",
    "load": "boostvi.storage",
}
"""Imported when they are asked for: `import boostvi` and `boostvi --help` do not wait for JAX."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(f"boostvi.{name}") is not None:
        return importlib.import_module(f"boostvi.{name}")
    raise AttributeError(f"module 'boostvi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


class _Package(ModuleType):
    """`boostvi.fit` is the function, also after the module of the same name was imported and bound to its package."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.fit if name == "fit" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
