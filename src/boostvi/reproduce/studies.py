"""The logistic regressions: their sizes and grids, and what the paper says about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from boostvi.reproduce import methods
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.methods import METHODS, Config
from boostvi.reproduce.tables import Spread

OURS = ("adafw-exact-fallback", "exact", "fully-corrective", "mixture-elbo")
QUICK_ADAPTIVE = methods.adaptive_grid(initial=(1.0,), tau=(1.1, 5.0), shrink=(0.1, 0.99))
QUICK_B0 = (1e-4, 0.05)
"""The least of the grid, with which line search moves most, and the published winner."""
SMOKE = Size(3, 2, 50, 60, 200, 300)


class Published(NamedTuple):
    """A row of the paper's table: median train LL ± bootstrap sd, test AUROC ± sd, step-size seconds ± sd."""

    train_ll: Spread
    auroc: Spread
    seconds: Spread


@dataclass(frozen=True)
class Study:
    """One data set. where: the table of the paper; elbo_figure, size_figure: its figures, if it has them; rows: of its
    data."""

    title: str
    published: Mapping[str, Published]
    sizes: Mapping[str, Size]
    initial: tuple[float, ...]
    b0: tuple[float, ...]
    where: str = ""
    elbo_figure: str = ""
    size_figure: str = ""
    rows: int = 0

    def grid(self, mode: str) -> dict[str, list[Config]]:
        if mode == "full":
            adaptive, b0 = methods.adaptive_grid(self.initial), self.b0
        elif mode == "quick":
            adaptive, b0 = QUICK_ADAPTIVE, tuple(b for b in self.b0 if b in QUICK_B0) or self.b0
        else:
            adaptive, b0 = [dict(METHODS["adaafw"].winner)], self.b0[-1:]
        of_method: dict[str, list[Config]] = {name: list(adaptive) for name in methods.ADAPTIVE}
        if mode == "quick":
            for name, configs in of_method.items():  # the published winner is among them
                configs[:] = list({tuple(c.items()): c for c in (METHODS[name].winner, *configs[1:])}.values())
        of_method |= {"predefined": [{}], "line-search": [{"b0": b} for b in b0]}
        ours = {"full": OURS, "quick": ("adafw-exact-fallback", "mixture-elbo"), "smoke": ("exact",)}[mode]
        return of_method | {name: [METHODS[name].winner] for name in ours}

    def slower(self, method: str, than: str = "predefined") -> float:
        """The published ratio of step-size times."""
        return self.published[method].seconds.value / self.published[than].seconds.value


def _published(*rows: tuple[str, float, float, float, float, float, float]) -> dict[str, Published]:
    return {
        name: Published(Spread(ll, ll_sd, 3, 4), Spread(area, area_sd, 3), Spread(seconds, seconds_sd, 0))
        for name, ll, ll_sd, area, area_sd, seconds, seconds_sd in rows
    }


STUDIES = {
    "chemreact": Study(
        "ChemReact: Table 1, Fig. 1 (centre), Fig. 2 and step kinds",
        _published(
            ("adaafw", -0.669, 5.390e-4, 0.787, 4.599e-3, 48.240, 23.84),
            ("adapfw", -0.672, 6.340e-4, 0.791, 2.398e-3, 107.247, 167.5),
            ("adafw", -0.671, 9.700e-4, 0.789, 7.985e-3, 40.870, 16.47),
            ("predefined", -0.676, 7.435e-4, 0.788, 7.401e-3, 7.296, 1.777),
            ("line-search", -0.669, 1.011e-3, 0.791, 7.514e-3, 265.608, 165.5),
        ),
        {"full": Size(50, 10, 1000, 1000), "quick": Size(7, 3, 200, 500), "smoke": SMOKE},
        methods.INITIAL, methods.B0, "Table 1", "Fig. 1 (centre)", "Fig. 2", 26_733,
    ),
    "eicu": Study(
        "eICU: Table 2, Fig. 1 (right), memory and step kinds",
        _published(
            ("adaafw", -0.169, 1.111e-3, 0.859, 2.565e-3, 74.634, 33.69),
            ("adapfw", -0.172, 1.361e-3, 0.857, 1.011e-3, 149.721, 108.8),
            ("adafw", -0.170, 1.774e-3, 0.859, 3.672e-3, 54.334, 26.32),
            ("predefined", -0.181, 2.983e-3, 0.853, 3.693e-3, 21.369, 9.631),
            ("line-search", -0.181, 2.651e-3, 0.854, 3.473e-3, 145.725, 134.7),
        ),
        {"full": Size(40, 10, 1000, 1000), "quick": Size(7, 3, 200, 500, rows=3000), "smoke": SMOKE},
        (1.0,), (1e-8,), "Table 2", "Fig. 1 (right)", "Appendix, memory on eICU", 71_366,
    ),
    "wine": Study(
        "Wine: red or white, an experiment of the authors' code that the paper does not report",
        {},
        {"full": Size(50, 10, 1000, 1000), "quick": Size(7, 3, 200, 500, rows=2000), "smoke": SMOKE},
        methods.INITIAL, methods.B0,
    ),
}  # fmt: skip
