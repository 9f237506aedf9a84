"""Line 4 of Algorithm 1. Add a direction: write its file, then one line here."""

from boostvi.directions.away import Away
from boostvi.directions.base import Direction, DirectionRule, Kind
from boostvi.directions.blended_pairwise import BlendedPairwise
from boostvi.directions.frank_wolfe import FrankWolfe
from boostvi.directions.pairwise import Pairwise

DIRECTIONS = {cls.name: cls for cls in (FrankWolfe, Away, Pairwise, BlendedPairwise)}

__all__ = ["DIRECTIONS", "Away", "BlendedPairwise", "Direction", "DirectionRule", "FrankWolfe", "Kind", "Pairwise"]
