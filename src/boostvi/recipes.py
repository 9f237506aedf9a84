"""Named compositions of parts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from boostvi._struct import check, check_count, look_up
from boostvi.boosting import Parts
from boostvi.corrections import CORRECTIONS, Correction, FullyCorrective, NoCorrection, Refine
from boostvi.directions import DIRECTIONS, Away, DirectionRule, FrankWolfe, Pairwise
from boostvi.families import FAMILIES, Family, FullRankNormal, LinearFamily, LowRankNormal
from boostvi.next_component import (
    FIRST_COMPONENTS,
    NEXT_COMPONENTS,
    Adam,
    Explore,
    FirstComponent,
    LaplaceApproximation,
    MixtureElbo,
    NextComponent,
    PlainVI,
    Race,
    ResidualElbo,
)
from boostvi.step_sizes import STEP_SIZES, Adaptive, Exact, LineSearch, Predefined, StepSize
from boostvi.target import Target

FULL_RANK_UP_TO = 1000
"""Dimensions up to which `auto` uses full-rank components; their number of parameters is quadratic in d."""
MAX_COMPONENTS = 128
ELBO_DRAWS, CHEAP_ELBO_DRAWS = 4_000, 16_000


@dataclass(frozen=True)
class Recipe:
    """Everything that defines an algorithm, before a target and a budget are given.

    first, next_component, correction: None lets the family decide (see `parts`).
    family: of the components; None lets the dimension decide, and the race for the first component.
    n_draws: draws of each component in the table (and of each fresh estimate).
    draws_growth: the number of draws at step t is n_draws·2^⌊draws_growth·log2(t+1)⌋; 4 matches ε_t ∝ 1/t².
    elbo_draws: fresh draws behind the reported ELBO of each step; None: 4,000, or 16,000 where an evaluation is cheap.
    min_steps: search for more components this often, whatever kl_tol says: a missed mode does not show in the KL.
    patience: stop when that many steps together did not raise the ELBO, or one where the KL is small enough for
        "good"; None never does.
    """

    first: Any = "vi"
    next_component: Any = "residual-elbo"
    direction: Any = "frank-wolfe"
    step_size: Any = "predefined"
    correction: Any = "none"
    family: Any = "diagonal-laplace"
    n_draws: int = 1000
    draws_growth: float = 0.0
    elbo_draws: int | None = 1000
    max_steps: int = 50
    min_steps: int = 0
    max_components: int | None = None
    kl_tol: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for argument, least in (("n_draws", 2), ("max_steps", 0), ("min_steps", 0)):
            check_count(argument, getattr(self, argument), least)
        for argument, least in (("elbo_draws", 2), ("max_components", 1), ("patience", 1)):
            if getattr(self, argument) is not None:
                check_count(argument, getattr(self, argument), least)
        check("draws_growth", self.draws_growth, lambda v: v >= 0, "not negative")

    def parts(self, family: Family, minibatch: bool = False) -> Parts:
        """The parts, those left open chosen to suit the family, and a target that is to be seen in minibatches."""
        natural = isinstance(family, LinearFamily) and not minibatch
        chosen = self._natural() if natural else self._gradients()
        given = {name: getattr(self, name) for name in ("first", "next_component", "correction")}
        # A name that is chosen anyway means the part as this recipe sets it up.
        chosen |= {name: part for name, part in given.items() if part is not None and part != chosen[name].name}
        return Parts(
            first=look_up("first", chosen["first"], FIRST_COMPONENTS, FirstComponent),
            next_component=look_up("next_component", chosen["next_component"], NEXT_COMPONENTS, NextComponent),
            direction=look_up("direction", self.direction, DIRECTIONS, DirectionRule),
            step_size=look_up("step_size", self.step_size, STEP_SIZES, StepSize),
            correction=look_up("correction", chosen["correction"], CORRECTIONS, Correction),
        )

    def _natural(self) -> dict[str, Any]:
        """Natural gradients on all components at once: for full-rank families."""
        refine = Refine(
            split_above=self.kl_tol or 0.0,
            straighten_from=Refine.straighten_from if self.family is None else None,
            max_components=self.max_components or MAX_COMPONENTS,
        )
        return {"first": Race(heavy_tails=self.family is None), "next_component": Explore(), "correction": refine}

    def _gradients(self) -> dict[str, Any]:
        """Reparameterised gradients, one component at a time: for every other family, and for minibatches."""
        adam = Adam(learning_rate=0.05, decay=0.75, steps=1500, draws=8)
        return {
            "first": LaplaceApproximation(polish=adam),
            "next_component": MixtureElbo(optimiser=adam),
            "correction": FullyCorrective(),
        }

    def family_for(self, dim: int) -> Family:
        if self.family is None:
            return FullRankNormal() if dim <= FULL_RANK_UP_TO else LowRankNormal()
        return look_up("family", self.family, FAMILIES, Family)

    def draws_behind_elbo(self, target: Target) -> int:
        if self.elbo_draws is None:
            return CHEAP_ELBO_DRAWS if target.is_cheap else ELBO_DRAWS
        return self.elbo_draws

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
    """The default: race for the first components, explore for missed modes, split and refine all of them together.

    The parts left open depend on the family (and so on the dimension): see `Recipe.parts`.
    """
    return Recipe(
        first=None,
        next_component=None,
        direction=FrankWolfe(),
        step_size=Exact(),
        correction=None,
        family=None,
        n_draws=200,
        elbo_draws=None,
        max_components=MAX_COMPONENTS,
        kl_tol=0.01,
        min_steps=1,
        patience=2,
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
