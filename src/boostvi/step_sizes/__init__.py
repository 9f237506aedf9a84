"""Line 5 of Algorithm 1. Add a rule: write its file, then one line here."""

from boostvi.step_sizes.adaptive import Adaptive
from boostvi.step_sizes.base import RuleState, StepSize
from boostvi.step_sizes.exact import Exact
from boostvi.step_sizes.line_search import LineSearch
from boostvi.step_sizes.predefined import Predefined, Zero
from boostvi.step_sizes.short_step import ShortStep

STEP_SIZES = {cls.name: cls for cls in (Predefined, LineSearch, Exact, Adaptive, ShortStep, Zero)}

__all__ = [
    "STEP_SIZES",
    "Adaptive",
    "Exact",
    "LineSearch",
    "Predefined",
    "RuleState",
    "ShortStep",
    "StepSize",
    "Zero",
]
