"""What the Student-t families share."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DegreesOfFreedom:
    """Fixed degrees of freedom; a standard deviation of 1 stands in for the infinite one at df ≤ 2."""

    df: float = 4.0

    def __post_init__(self) -> None:
        if isinstance(self.df, (bool, str)) or not self.df > 0:
            raise ValueError(f"df must be positive, got {self.df!r}")

    @property
    def unit_sd(self) -> float:
        return math.sqrt(self.df / (self.df - 2.0)) if self.has_variance else 1.0

    @property
    def has_variance(self) -> bool:
        return self.df > 2.0
