"""What a target knows of the model that it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Draws = Mapping[str, np.ndarray]
"""Draws in the model's own space: site -> array, the draws along its first axis."""


class Model(Protocol):
    """For reports in the model's own terms: `dims` and `coords` name the axes of its variables, `observed` is its data.

    It must hash by identity: a target that carries it is an argument of compiled programs.
    """

    @property
    def name(self) -> str: ...
    @property
    def dims(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def coords(self) -> Mapping[str, Any]: ...
    @property
    def observed(self) -> Draws: ...

    def log_likelihood(self, draws: Draws) -> Draws:
        """Log likelihood of every observation (draws first) for each observed site."""

    def posterior_predictive(self, draws: Draws, seed: int = 0) -> Draws:
        """One replicate of the data per draw, for each observed site."""
