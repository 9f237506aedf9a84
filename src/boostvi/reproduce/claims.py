"""The paper's claims about logistic regression, each with what was measured and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from boostvi.reproduce import methods, select
from boostvi.reproduce.compare import (
    CONFIDENCE,
    ERRORS,
    NOT_CONTRADICTED,
    NOT_SEEN,
    Difference,
    jackknife,
    mean_and_se,
    paired,
)
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.record import Record
from boostvi.reproduce.tables import Spread, Table, minus

Row = list[str]
SPEED_UP = 2.0
"""Of adaptive steps over line search, at least: section 5.2 of the paper."""
TIMES_NOTE = (
    "Times are judged by the seconds of the step sizes alone, as the paper's are; the ratio of whole runs stands in "
    "brackets. Errors are those of repeated runs."
)
DRAWS = {"fresh": "fresh draws, the paper's way", "table": "stored draws"}
"""Where trials read, in words."""
OTHERS = ("predefined", "line-search")


def table(record: Record) -> Table:
    parts = (_train_ll, _selected_elbo, _elbo, _stability, _auroc, _size, _speed_up, _cost)
    rows = [row for part in parts for row in part(record)]
    where = "" if record.data.is_real else ", on stand-in data (which say nothing about the paper)"
    return Table(
        "claims",
        f"The paper's claims, each with what was measured{where}",
        ["claim", "published", "measured", "verdict"],
        rows,
        [
            f"A claim holds if the difference is more than {ERRORS:g} standard errors in its direction (more of few "
            f"pairs: Student's t, {CONFIDENCE:.0%}), and is contradicted if it is as much in the other one; between, "
            f"{NOT_SEEN}, and a claim of “at least that of” or “comparable” is {NOT_CONTRADICTED}. "
            "Differences are paired by seed (those of AUROC by fold, where there are folds), ± their standard error; "
            "from one pair nothing can be said. Train LL: of the selected cells. ELBO (but where it says so), its "
            "spread and sizes: after the last step, over all configurations of every seed that has them all. The error "
            "of a spread is that of leaving out one seed after the other.",
            *([TIMES_NOTE] if record.timing else []),
        ],
    )


def label(name: str) -> str:
    return {"predefined": "predefined steps", "line-search": "line search"}.get(name, METHODS[name].label)


def told(difference: Difference, digits: int, unit: str = "", pairs: str = "seed") -> str:
    error = "" if math.isnan(difference.se) else f" ± {difference.se:.{digits}f}"
    many = f"{difference.pairs} {pairs}{'' if difference.pairs == 1 else 's'}"
    return minus(f"{difference.mean:+.{digits}f}{error}{unit} ({many})")


def _published(record: Record, name: str, other: str, column: str) -> str:
    rows = record.study.published
    return f"{getattr(rows[name], column)} against {getattr(rows[other], column)}" if rows else "–"


def _same(record: Record, name: str) -> str:
    """Words for a variant that does what predefined steps do."""
    return "; backtracking always gave up: these are predefined steps" if record.gave_up(name) == 1.0 else ""


def _train_ll(record: Record) -> Iterator[Row]:
    pairs = [(name, "predefined", "higher than") for name in methods.ADAPTIVE]
    for name, other, how in [*pairs, ("adaafw", "line-search", "at least")]:
        difference = paired(*(record.cells[n].by_seed("train_ll") for n in (name, other)))
        yield [
            f"Train LL of {label(name)} is {how} that of {label(other)}", _published(record, name, other, "train_ll"),
            told(difference, 4) + _same(record, name), difference.no_less if how == "at least" else difference.verdict,
        ]  # fmt: skip


def _selected_elbo(record: Record) -> Iterator[Row]:
    for name in methods.ADAPTIVE:
        difference = paired(*(record.cells[n].by_seed("elbo") for n in (name, "predefined")))
        yield [
            f"ELBO of {label(name)} is higher than that of predefined steps (selected cells)", "–",
            told(difference, 1, " nats") + _same(record, name), difference.verdict,
        ]  # fmt: skip


def _means(record: Record, name: str, column: str) -> dict[int, float]:
    """Mean over configurations after the last step, by seed."""
    return {seed: float(np.mean(v)) for seed, v in select.last_by_seed(record.store, name, column).items()}


def _elbo(record: Record) -> Iterator[Row]:
    means = {name: _means(record, name, "elbo") for name in methods.PAPER}
    for name in methods.ADAPTIVE:
        for other in OTHERS:
            difference = paired(means[name], means[other])
            yield [
                f"ELBO of {label(name)} is higher than that of {label(other)}", record.study.elbo_figure or "–",
                told(difference, 1, " nats") + _same(record, name), difference.verdict,
            ]  # fmt: skip


def _stability(record: Record) -> Iterator[Row]:
    finals = {name: select.last_by_seed(record.store, name, "elbo") for name in (*methods.ADAPTIVE, "line-search")}
    for name in methods.ADAPTIVE:
        common = [seed for seed in finals[name] if seed in finals["line-search"]]

        def spread(of: str, seeds: Any) -> float:
            """The grid is whole, the seeds are a sample: only they count as degrees of freedom."""
            values, n = np.concatenate([finals[of][seed] for seed in seeds]), len(seeds)
            return float(np.std(values)) * math.sqrt(n / (n - 1)) if n > 1 else math.nan

        def steadier(seeds: Any, name: str = name, spread: Callable[..., float] = spread) -> float:
            return spread("line-search", seeds) - spread(name, seeds)

        if not common:
            continue
        difference = jackknife(steadier, common)
        yield [
            f"{label(name)} is more stable than line search (sd of the final ELBO over configurations and seeds)",
            record.study.elbo_figure or "–",
            f"sd {spread(name, common):.1f} against {spread('line-search', common):.1f} nats, less by "
            + told(difference, 1),
            difference.verdict,
        ]


def _auroc(record: Record) -> Iterator[Row]:
    for name in methods.ADAPTIVE:
        for other in OTHERS:
            difference, how = _auroc_difference(record, name, other)
            yield [
                f"AUROC of {label(name)} is comparable with that of {label(other)}, or higher",
                _published(record, name, other, "auroc"), how, difference.no_less,
            ]  # fmt: skip


def _auroc_difference(record: Record, name: str, other: str) -> tuple[Difference, str]:
    """By fold where there are folds; else of one split, whose sampling errors are added as if test sets differed."""
    scores = record.held_out()
    if name in scores and other in scores and len(scores[name]["aurocs"]) > 1:
        areas = [dict(enumerate(scores[n]["aurocs"])) for n in (name, other)]
        both = [k for k in areas[0] if not math.isnan(areas[0][k] + areas[1][k])]  # a fold may lack a class
        difference = paired(*({k: of[k] for k in both} for of in areas))
        return difference, told(difference, 3, pairs="fold")
    ours, theirs = (record.split_auroc(n) for n in (name, other))
    difference = Difference(ours.value - theirs.value, math.hypot(ours.spread, theirs.spread), None)
    return difference, minus(f"{difference.mean:+.3f} ± {difference.se:.3f} (one split, its sampling error)")


def _size(record: Record) -> Iterator[Row]:
    parameters, components = (
        {name: _means(record, name, column) for name in ("adaafw", "predefined")} for column in ("n_params", "n_active")
    )
    difference = paired(parameters["predefined"], parameters["adaafw"])
    mean = {
        name: f"{np.mean(list(components[name].values())):.1f} components, {np.mean(list(of.values())):,.0f} parameters"
        for name, of in parameters.items()
    }
    yield [
        "AdaAFW keeps fewer components and parameters than predefined steps", record.study.size_figure or "–",
        f"{mean['adaafw']} against {mean['predefined']}; fewer by {told(difference, 0)}" + _same(record, "adaafw"),
        difference.verdict,
    ]  # fmt: skip


def _ratio(over: dict[str, Any], under: dict[str, Any]) -> tuple[Difference, str]:
    """Of step-size seconds, with its error over the repetitions; and in words, with that of whole runs."""
    step = over["step"] / under["step"]
    whole = (over["step"] + over["subproblem"]) / (under["step"] + under["subproblem"])
    each = [a / b for a, b in zip(over.get("repeats", ()), under.get("repeats", ()), strict=True)]
    error = mean_and_se(each)[1]
    return Difference(step, error, len(each)), f"{Spread(step, error, 2)}× ({whole:.2f}× with the subproblem)"


def _speed_up(record: Record) -> Iterator[Row]:
    times = record.times()
    for draws, words in DRAWS.items():
        for name in methods.ADAPTIVE:
            if (name, draws) in times and ("line-search", draws) in times:
                ratio, measured = _ratio(times["line-search", draws], times[name, draws])
                published = f"{record.study.slower('line-search', name):.1f}×" if record.study.published else "–"
                yield [
                    f"{label(name)} is at least {SPEED_UP:g}× faster than line search ({words})", published, measured,
                    Difference(ratio.mean - SPEED_UP, ratio.se, ratio.pairs).verdict,
                ]  # fmt: skip


def _cost(record: Record) -> Iterator[Row]:
    times = record.times()
    for draws, words in DRAWS.items():
        for name in (*methods.ADAPTIVE, "line-search") if record.study.published else ():
            if (name, draws) not in times:
                continue
            ratio, measured = _ratio(times[name, draws], times["predefined", "table"])
            most = name != "line-search"
            published = record.study.slower(name)
            yield [
                f"{label(name)} takes at {'most' if most else 'least'} {published:.1f}× the step-size time of "
                f"predefined steps ({words})", f"{published:.1f}×", measured,
                Difference((published - ratio.mean) * (1 if most else -1), ratio.se, ratio.pairs).verdict,
            ]  # fmt: skip
