"""Corrections after the update. Add one: write its file, then one line here."""

from boostvi.corrections.base import Correction
from boostvi.corrections.none import NoCorrection
from boostvi.corrections.weights import FullyCorrective

CORRECTIONS = {cls.name: cls for cls in (NoCorrection, FullyCorrective)}

__all__ = ["CORRECTIONS", "Correction", "FullyCorrective", "NoCorrection"]
