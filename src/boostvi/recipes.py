"""Named compositions of parts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from boostvi._struct import check, check_count, look_up
from boostvi.boosting import Parts
from boostvi.corrections import CORRECTIONS, Correction, FullyCorrective, NoCorrection
from boostvi.directions import DIRECTIONS, Away, DirectionRule, FrankWolfe, Pairwise
from boostvi.families import FAMILIES, Family, FullRankNormal, LowRankNormal
from boostvi.next_component import (
    FIRST_COMPONENTS,
    NEXT_COMPONENTS,
    Adam,
    FirstComponent,
    LaplaceApproximation,
    MixtureElbo,
    NextComponent,
    PlainVI,
    ResidualElbo,
)
from boostvi.step_sizes import STEP_SIZES, Adaptive, Exact, LineSearch, Predefined, StepSize

FULL_RANK_UP_TO = 100
"""Dimensions up to which `auto` uses full-rank components; their number of parameters is quadratic in d."""


@dataclass(frozen=True)
class Recipe:
    """Everything that defines an algorithm, before a target and a budget are given.

    family: of the components; None lets the dimension decide.
    n_draws: draws of each component in the table (and of each fresh estimate).
    draws_growth: the number of draws at step t is n_draws·2^⌊draws_growth·log2(t+1)⌋; 4 matches ε_t ∝ 1/t².
    elbo_draws: fresh draws behind the reported ELBO of each step.
    min_steps: search for more components this often, whatever kl_tol says: a missed mode does not show in the KL.
    patience: stop when that many steps together did not raise the ELBO; None never does.
    """

    first: Any = "vi"
    next_component: Any = "residual-elbo"
    direction: Any = "frank-wolfe"
    step_size: Any = "predefined"
    correction: Any = "none"
    family: Any = "diagonal-laplace"
    n_draws: int = 1000
    draws_growth: float = 0.0
    elbo_draws: int = 1000
    max_steps: int = 50
    min_steps: int = 0
    max_components: int | None = None
    kl_tol: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for argument, least in (("n_draws", 2), ("elbo_draws", 2), ("max_steps", 0), ("min_steps", 0)):
            check_count(argument, getattr(self, argument), least)
        for argument in ("max_components", "patience"):
            if getattr(self, argument) is not None:
                check_count(argument, getattr(self, argument))
        check("draws_growth", self.draws_growth, lambda v: v >= 0, "not negative")

    def parts(self) -> Parts:
        return Parts(
            first=look_up("first", self.first, FIRST_COMPONENTS, FirstComponent),
            next_component=look_up("next_component", self.next_component, NEXT_COMPONENTS, NextComponent),
            direction=look_up("direction", self.direction, DIRECTIONS, DirectionRule),
            step_size=look_up("step_size", self.step_size, STEP_SIZES, StepSize),
            correction=look_up("correction", self.correction, CORRECTIONS, Correction),
        )

    def family_for(self, dim: int) -> Family:
        if self.family is None:
            return FullRankNormal() if dim <= FULL_RANK_UP_TO else LowRankNormal()
        return look_up("family", self.family, FAMILIES, Family)

    def draws_at(self, t: int) -> int:
        """Draws per component at step t: doubles, so that only a few shapes are compiled."""
        doublings = 0
        while (t + 1) ** self.draws_growth >= 2 ** (doublings + 1):
            doublings += 1
        return self.n_draws * 2**doublings


def paper(step_size: StepSize, direction: DirectionRule | None = None) -> Recipe:
    """The paper's algorithms: residual ELBO with λ_t = 1, Adam as in the authors' code, first component by VI."""
    return Recipe(
        first=PlainVI(),
        next_component=ResidualElbo(),
        direction=direction or FrankWolfe(),
        step_size=step_size,
        correction=NoCorrection(),
    )


def backtracking(grow: float, shrink: float, initial: float) -> Adaptive:
    """Algorithm 2 as the authors ran it: Lipschitz form with KL(s‖q), give up at γ < 0.01 or after 10 trials."""
    return Adaptive(
        grow=grow, shrink=shrink, initial=initial, form="lipschitz", min_gamma=0.01, fallback=Predefined()
    )  # fmt: skip


def auto() -> Recipe:
    """The best composition so far: mixture ELBO from several starts, exact step, fully corrective weights."""
    return Recipe(
        first=LaplaceApproximation(polish=Adam(learning_rate=0.05, decay=0.75, steps=1500, draws=8)),
        next_component=MixtureElbo(optimiser=Adam(learning_rate=0.05, decay=0.75, steps=1500, draws=8)),
        direction=FrankWolfe(),
        step_size=Exact(),
        correction=FullyCorrective(),
        family=None,
        elbo_draws=4000,
        max_components=32,
        kl_tol=0.01,
        min_steps=2,
        patience=3,
    )


RECIPES = {
    "auto": auto,
    "bbbvi": lambda: paper(Predefined()),  # Locatello et al. 2018b
    "line-search": lambda: paper(LineSearch(b0=0.05)),
    "adafw": lambda: paper(backtracking(grow=2.0, shrink=0.01, initial=1.0)),
    "adaafw": lambda: paper(backtracking(grow=5.0, shrink=0.1, initial=1.0), Away()),
    "adapfw": lambda: paper(backtracking(grow=1.01, shrink=0.99, initial=0.01), Pairwise()),
    "fully-corrective": lambda: dataclasses.replace(paper(Exact()), correction=FullyCorrective()),
}
"""The hyperparameters of the paper's recipes are the winners of its grid on ChemReact."""
