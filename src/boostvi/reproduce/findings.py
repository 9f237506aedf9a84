"""What else a logistic regression showed, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from boostvi.reproduce import methods, select
from boostvi.reproduce.beyond import ENTROPY, PARITY
from boostvi.reproduce.claims import label, told
from boostvi.reproduce.compare import CONTRADICTED, HOLDS, NOT_CONTRADICTED, NOT_SEEN, UNKNOWN, paired
from boostvi.reproduce.methods import METHODS, config_label
from boostvi.reproduce.record import Record
from boostvi.reproduce.store import config_text
from boostvi.reproduce.tables import Table, minus


def findings(record: Record, claims: Table) -> list[str]:
    parts = (_gave_up, _first_component, _entropy, _auto, _line_search, _sizes)
    return [_verdicts(claims), *(line for part in parts for line in part(record))]


def _verdicts(claims: Table) -> str:
    count = Counter(row[-1] for row in claims.rows)
    verdicts = ", ".join(
        f"“{verdict}” {count[verdict]}" for verdict in (HOLDS, CONTRADICTED, NOT_CONTRADICTED, NOT_SEEN, UNKNOWN)
    )
    return f"{len(claims.rows)} comparisons that the paper makes, in the table of claims: {verdicts}."


def _gave_up(record: Record) -> Iterator[str]:
    shares = {name: record.gave_up(name) for name in methods.ADAPTIVE}
    always = [label(name) for name, share in shares.items() if share == 1.0]
    yield (
        "Backtracking gave up and left the step to the fallback in "
        + ", ".join(f"{share:.0%} ({label(name)})" for name, share in shares.items())
        + " of all steps"
        + (f"; {', '.join(always)} with 100% did what predefined steps do." if always else ".")
    )


def _first_component(record: Record) -> Iterator[str]:
    """Whether boosting improves on plain VI, with the paper's methods and with ours in the same family."""
    for ours, whose in ((False, "The paper's methods"), (True, "Ours in the same family †")):
        there = [name for name in record.names if METHODS[name].ours == ours]
        if not there:
            continue
        best = max(there, key=lambda name: record.cells[name].mean("elbo"))
        difference = paired(record.cells[best].by_seed("elbo"), record.plain.by_seed("elbo"))
        yield minus(
            f"{whose} against plain VI, their first component (ELBO {record.plain.mean('elbo'):.1f}): the best "
            f"selected cell, {METHODS[best].label}, differs by {told(difference, 1, ' nats')}: "
        ) + {HOLDS: "boosting improves on it.", CONTRADICTED: "boosting loses."}.get(
            difference.verdict, f"{difference.verdict}."
        )


def _entropy(record: Record) -> Iterator[str]:
    """Whether the claims would fare better with the subproblem that the authors' code has by default."""
    found = record.extra.get(ENTROPY, {})
    ours = {name: dict(enumerate(of["elbo"])) for name, of in found.items()}
    changes, claims = [], []
    for name, of in found.items():
        runs, elbo = record.store.curves("elbo", name)
        same = config_text(of["config"])
        constant = {seed: last for (config, seed), last in zip(runs, elbo[:, -1], strict=True) if config == same}
        changes.append(f"{told(paired(ours[name], constant), 1, ' nats')} for {label(name)}")
        if name != "predefined":
            difference = paired(ours[name], ours["predefined"])
            claims.append(f"{told(difference, 1, ' nats')} for {label(name)}: {difference.verdict}")
    if found:
        yield (
            "The authors' code has λ_t = 1/√(t+1) by default. With it the ELBO of the selected configurations, after "
            f"the last step, differs from that with λ_t = 1 by {'; '.join(changes)}. The claim that adaptive steps "
            f"have a higher one than predefined steps, with this λ_t in both: {'; '.join(claims)}."
        )


def components(auto: dict) -> str:
    n = auto["n_active"]
    return f"{n} component{'' if n == 1 else 's'} ({auto['family']}), {auto['n_params']:,} parameters"


def _auto(record: Record) -> Iterator[str]:
    auto = record.extra.get("auto")
    if auto:
        cells = {name: select.best(record.store, name, "elbo", (), from_step=0) for name in record.names}
        best = max(cells, key=lambda name: cells[name].mean("elbo"))
        ahead = auto["elbo"] - cells[best].mean("elbo")
        yield minus(
            f"auto †: ELBO {auto['elbo']:.1f} with {components(auto)}, in {auto['seconds']:.0f} s with the compilation "
            f"(stopped by {auto['status']}): {abs(ahead):.1f} nats {'above' if ahead >= 0 else 'below'} the best "
            f"diagonal-Laplace variant, whose configuration and step are chosen by ELBO here ({METHODS[best].marked}, "
            f"{config_label(cells[best].config)}, step {cells[best].step}: mean {cells[best].mean('elbo'):.1f})."
        )


def _line_search(record: Record) -> Iterator[str]:
    gamma, gap = (record.store.curves(column, "line-search")[1][:, 1:] for column in ("gamma", "gap"))
    stays = gamma <= 0
    share, never = float(np.mean(stays)), float(np.mean(stays.all(axis=1)))
    unsettled = float(np.mean(gap[stays] > 0)) if stays.any() else 0.0
    yield minus(
        f"Line search returns γ = 0 in {share:.0%} of its steps"
        + (f", and in {never:.0%} of its runs in all of them, which keeps plain VI" if never else "")
        + (
            f" (in {unsettled:.0%} of these the slope there points forward, and one more iteration would have left 0)"
            if unsettled
            else ""
        )
        + f"; its selected train LL is {record.cells['line-search'].median('train_ll'):.4f}, plain VI's "
        f"{record.plain.median('train_ll'):.4f}."
    )
    parity = record.extra.get(PARITY)
    if parity:
        ends = ", ".join(f"{elbo:.1f} with {n}" for n, elbo in parity["elbo"].items())
        yield minus(
            f"The number of its iterations may decide what line search returns: b₀ = {parity['b0']:g}, seed 0, ELBO "
            f"after {parity['steps']} step{'s' if parity['steps'] > 1 else ''} is {ends} iterations."
        )


def _sizes(record: Record) -> Iterator[str]:
    def size(name: str) -> str:
        active, params = (record.store.curves(column, name)[1][:, -1].mean() for column in ("n_active", "n_params"))
        return f"{METHODS[name].label} {active:.1f} ({params:,.0f})"

    auto = record.extra.get("auto")
    yield (
        "Components (and parameters) after the last step, mean over all runs: "
        + "; ".join(map(size, record.names))
        + (f"; auto † {auto['n_active']} ({auto['n_params']:,})." if auto else ".")
    )
