"""Where a logistic regression follows the paper against our better judgement or departs from it: what is true of this
record, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boostvi.reproduce.claims import told
from boostvi.reproduce.compare import paired
from boostvi.reproduce.methods import METHODS, OURS_MARK
from boostvi.reproduce.record import Record
from boostvi.reproduce.tables import minus

RARE = 0.2
"""Share of the smaller class below which a base rate is worth a word."""
NEAR = 0.1
"""Nats per row within which a train LL is told to be near ln ½, that of guessing."""


def caveats(record: Record) -> list[str]:
    return [
        line
        for part in (_data, _repeated, _intercept, _train_ll, _steps, _ours, _grid, _draws)
        for line in part(record)
    ]


def _data(record: Record) -> Iterator[str]:
    data, rows = record.data, record.study.rows
    if not data.is_real:
        yield "The data are a stand-in: these numbers say nothing about the paper's table."
    elif rows and len(data.y) != rows:
        positives = int(data.y[data.test].sum())
        yield (
            f"{len(data.y):,} rows, not the paper's {rows:,}: its numbers are for orientation. The one split has "
            f"{positives} positives in its test set"
            + ("; the table of held-out rows has all of them." if any(
                len(found["aurocs"]) > 1 for found in record.held_out().values()
            ) else ".")
        )  # fmt: skip


def _repeated(record: Record) -> Iterator[str]:
    repeated, rows = record.data.repeated, len(record.data.test)
    if repeated:
        yield f"{repeated} of the {rows} test rows have the features of a train row: test scores are too good by that."


def _intercept(record: Record) -> Iterator[str]:
    share, cell = float(record.data.y.mean()), record.cells["predefined"]
    line = "No intercept, as in the paper"
    if min(share, 1 - share) < RARE:
        line += f": the base rate ({share:.1%} positive) cannot be fitted"
        if abs(cell.median("train_ll") - math.log(0.5)) < NEAR:
            line += f", which is why train LL is near ln ½ = {math.log(0.5):.3f}"
    line += "."
    yield minus(
        line + (" The table of held-out rows has fits with an intercept too." if record.has_intercept() else "")
    )


def _train_ll(record: Record) -> Iterator[str]:
    yield (
        "Train LL is the paper's: ln p(y|x, w) averaged over rows and posterior draws. It is not the log predictive "
        "density, and it rewards a posterior that is too narrow."
    )
    yield (
        "Predictions of the grid's methods are averages over 100 draws, as in the paper (of a smoke run 20), those of "
        "auto over 1,000 and of NUTS over all of its draws: with fewer of them an LPD is a little lower and less sure."
    )


def _steps(record: Record) -> Iterator[str]:
    """What the first predefined step does: the paper's subproblem and the step that it falls back to."""
    runs, elbo = record.store.curves("elbo", "predefined")
    first, start = ({seed: float(v) for (_, seed), v in zip(runs, elbo[:, t], strict=True)} for t in (1, 0))
    yield (
        "The residual ELBO (λ_t = 1) and the fallback to 2/(t+2) are the paper's. The first step of 2/3 towards its "
        f"component changes the ELBO by {told(paired(first, start), 1, ' nats')}."
    )


def _ours(record: Record) -> Iterator[str]:
    ours = [f"{METHODS[name].label}: {METHODS[name].changes}" for name in record.names if METHODS[name].ours]
    if ours:
        yield f"Rows marked {OURS_MARK} are not in the paper. {'. '.join(ours)}."


def _grid(record: Record) -> Iterator[str]:
    yield (
        "Hyperparameters and the step are selected on the training rows, per method over its whole grid: methods with "
        "more configurations have more chances. Predefined steps have one configuration."
    )


def _draws(record: Record) -> Iterator[str]:
    both = any(t["draws"] == "fresh" for t in record.timing)
    yield "Trials read the table of stored draws; the paper drew anew at every trial." + (
        " The timing table has both." if both else ""
    )
    yield (
        "γ never exceeds γ_max, also in the fallback; v̄ maximises E ln(q/p); Laplace scales are Laplace's own. These "
        "are slips of the paper or of its code that are corrected here."
    )
