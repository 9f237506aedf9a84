"""Pictures of a fit. Every function returns a matplotlib Figure; nothing is shown and no backend is chosen.

Colours are those of Okabe & Ito (2008), which colour-blind people can tell apart; step kinds differ in shape too.
"""

from boostvi.plots.calibrated import calibration
from boostvi.plots.comparison import compare
from boostvi.plots.corners import corner
from boostvi.plots.curves import convergence, elbo, kl
from boostvi.plots.densities import density, marginals
from boostvi.plots.follow import WeightRecorder
from boostvi.plots.ribbon import weights
from boostvi.plots.steps import parameter_count, step_kinds, step_sizes
from boostvi.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    KINDS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    figure_class,
)
from boostvi.plots.tails import tail
from boostvi.plots.worst import residual

__all__ = [
    "BLACK", "BLUE", "GREEN", "GREY", "KINDS", "ORANGE", "PURPLE", "SKY", "VERMILLION", "YELLOW", "WeightRecorder",
    "calibration", "compare", "convergence", "corner", "density", "elbo", "figure_class", "kl", "marginals",
    "parameter_count", "residual", "step_kinds", "step_sizes", "tail", "weights",
]  # fmt: skip
