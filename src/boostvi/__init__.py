"""Boosting variational inference: a posterior approximated by a mixture that grows component by component."""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    """Adapters are imported when they are asked for: `import boostvi` stays quick."""
    if name == "calibrate":
        from boostvi.calibration import calibrate

        return calibrate
    if name == "from_numpyro":
        from boostvi.integrations.numpyro import from_numpyro

        return from_numpyro
    if name == "from_pymc":
        from boostvi.integrations.pymc import from_pymc

        return from_pymc
    if name == "from_stan":
        from boostvi.integrations.stan import from_stan

        return from_stan
    raise AttributeError(f"module 'boostvi' has no attribute {name!r}")
