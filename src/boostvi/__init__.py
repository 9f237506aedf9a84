"""Boosting variational inference: a posterior approximated by a mixture that grows component by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boostvi.fit import Step, fit
from boostvi.mixture import Mixture
from boostvi.recipes import RECIPES, Recipe
from boostvi.result import Result
from boostvi.target import Target
from boostvi.theory import convergence_bound

if TYPE_CHECKING:
    from boostvi.integrations.numpyro import from_numpyro

__version__ = "0.1.0"
__all__ = ["RECIPES", "Mixture", "Recipe", "Result", "Step", "Target", "convergence_bound", "fit", "from_numpyro"]


def __getattr__(name: str) -> Any:
    """NumPyro is imported when it is asked for: `import boostvi` stays quick."""
    if name == "from_numpyro":
        from boostvi.integrations.numpyro import from_numpyro

        return from_numpyro
    raise AttributeError(f"module 'boostvi' has no attribute {name!r}")
