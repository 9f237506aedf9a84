"""Corrections after the update. Add one: write its file, then one line here."""

from boostvi.corrections.base import Corrected, Correction, WeightCorrection
from boostvi.corrections.none import NoCorrection
from boostvi.corrections.refine import Refine
from boostvi.corrections.weights import FullyCorrective

CORRECTIONS = {cls.name: cls for cls in (NoCorrection, FullyCorrective, Refine)}

__all__ = [
    "CORRECTIONS",
    "Corrected",
    "Correction",
    "FullyCorrective",
    "NoCorrection",
    "Refine",
    "WeightCorrection",
]
