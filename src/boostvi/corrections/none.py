"""No correction."""

from __future__ import annotations

from boostvi._struct import struct
from boostvi.corrections.base import WeightCorrection


@struct
class NoCorrection(WeightCorrection):
    """The weights stay as the step left them: the paper's algorithms."""

    name = "none"

    def __call__(self, estimates, weights, filled):
        return weights
