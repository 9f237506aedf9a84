"""Boosting variational inference: a posterior approximated by a mixture that grows component by component."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from boostvi.fit import Step, fit
from boostvi.mixture import Mixture
from boostvi.recipes import RECIPES, Recipe
from boostvi.result import Result
from boostvi.storage import load
from boostvi.target import Target
from boostvi.theory import convergence_bound

if TYPE_CHECKING:
    from boostvi.calibration import calibrate
    from boostvi.integrations.numpyro import from_numpyro
    from boostvi.integrations.pymc import from_pymc
    from boostvi.integrations.stan import from_stan

__version__ = "0.1.0"
__all__ = [
    "RECIPES", "Mixture", "Recipe", "Result", "Step", "Target", "calibrate", "convergence_bound", "fit", "from_numpyro",
    "from_pymc", "from_stan", "load",
]  # fmt: skip


_LAZY = {
    "calibrate": "boostvi.calibration",
    "from_numpyro": "boostvi.integrations.numpyro",
    "from_pymc": "boostvi.integrations.pymc",
    "from_stan": "boostvi.integrations.stan",
}
"""Imported when they are asked for: `import boostvi` stays quick."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'boostvi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
