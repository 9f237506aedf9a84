"""The methods that the paper compares, and ours beside them, as compositions with given hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

Config = Mapping[str, float]

TAU = (1.01, 1.1, 1.5, 2.0, 5.0)
SHRINK = (0.1, 0.01, 0.5, 0.99)
INITIAL = (0.01, 1.0, 100.0)
OURS_MARK = "†"
B0 = (0.001, 0.0001, 0.0005, 0.01, 0.1, 0.05, 0.005)


@dataclass(frozen=True)
class Method:
    """label: as the paper writes it; winner: of the paper's own grid on ChemReact; changes: what a method that is not
    in the paper does otherwise."""

    label: str
    winner: Config
    changes: str = ""

    @property
    def ours(self) -> bool:
        return bool(self.changes)

    @property
    def marked(self) -> str:
        return f"{self.label} {OURS_MARK}" if self.ours else self.label


METHODS = {
    "adaafw": Method("AdaAFW", {"tau": 5.0, "shrink": 0.1, "initial": 1.0}),
    "adapfw": Method("AdaPFW", {"tau": 1.01, "shrink": 0.99, "initial": 0.01}),
    "adafw": Method("AdaFW", {"tau": 2.0, "shrink": 0.01, "initial": 1.0}),
    "predefined": Method("Predefined", {}),
    "line-search": Method("Line-search", {"b0": 0.05}),
    "adafw-exact-fallback": Method(
        "AdaFW, exact fallback", {"tau": 2.0, "shrink": 0.01, "initial": 1.0},
        "AdaFW with an exact step where backtracking gives up",
    ),
    "exact": Method("Exact step on the table", {}, "Frank-Wolfe with exact steps instead of predefined ones"),
    "fully-corrective": Method("Fully corrective", {}, "the same, and then all weights are corrected"),
    "mixture-elbo": Method(
        "Mixture ELBO, same family", {},
        "fully corrective with another subproblem, the mixture ELBO started where q falls short (so that fully "
        "corrective is what to compare it with)",
    ),
}  # fmt: skip
PAPER = tuple(name for name, method in METHODS.items() if not method.ours)
ADAPTIVE = ("adaafw", "adapfw", "adafw")


def adaptive_grid(initial: Sequence[float] = INITIAL, tau: Sequence[float] = TAU, shrink: Sequence[float] = SHRINK):
    return [{"tau": t, "shrink": s, "initial": i} for t, s, i in product(tau, shrink, initial)]


def parts(method: str, config: Config, iterations: int, draws: str = "table"):
    """The composition. iterations: of Adam in every subproblem; draws: "fresh" draws anew at every trial, as in the
    paper."""
    from boostvi.boosting import Parts
    from boostvi.corrections import FullyCorrective, NoCorrection
    from boostvi.directions import Away, FrankWolfe, Pairwise
    from boostvi.next_component import Adam, MixtureElbo, PlainVI, ResidualElbo
    from boostvi.step_sizes import Adaptive, Exact, LineSearch, Predefined, StepSize

    adam = Adam(steps=iterations)
    direction = {"adaafw": Away(), "adapfw": Pairwise()}.get(method, FrankWolfe())
    step_size: StepSize
    if method.startswith("ada"):
        step_size = Adaptive(
            grow=config["tau"], shrink=config["shrink"], initial=config["initial"], form="lipschitz", min_gamma=0.01,
            fallback="exact" if method.endswith("exact-fallback") else "predefined", draws=draws,  # type: ignore[arg-type]
        )  # fmt: skip
    elif method == "predefined":
        step_size = Predefined()
    elif method == "line-search":
        step_size = LineSearch(b0=config["b0"], draws=draws)
    else:
        step_size = Exact()
    # One start and the same number of gradients as the paper's subproblem, so that only the objective differs.
    well_posed = MixtureElbo(optimiser=adam, starts=("residual",), n_starts=1)
    return Parts(
        first=PlainVI(optimiser=adam),
        next_component=well_posed if method == "mixture-elbo" else ResidualElbo(optimiser=adam),
        direction=direction,
        step_size=step_size,
        correction=FullyCorrective() if method in ("fully-corrective", "mixture-elbo") else NoCorrection(),
    )


def config_label(config: Config) -> str:
    """τ, 1/η and L₋₁ in the paper's letters."""
    names = {"tau": "τ", "shrink": "1/η", "initial": "L₋₁", "b0": "b₀"}
    return ", ".join(f"{names[name]} = {config[name]:g}" for name in names if name in config) or "–"
