"""The page of a logistic regression, from its record."""

from __future__ import annotations

from boostvi.reproduce import claims, regression_figures, regression_tables
from boostvi.reproduce import record as records
from boostvi.reproduce.caveats import caveats
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.findings import findings
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.page import Report, made_by
from boostvi.reproduce.store import Store
from boostvi.reproduce.studies import Study


def fill(report: Report, store: Store, data: Data, study: Study, size: Size, done: int, runs: int) -> None:
    """Everything the record has: `done` of its `runs`, and what was measured beside them."""
    record = records.read(store, data, study)
    report.facts |= {
        "data": data.source,
        "rows": f"{len(data.train)} train, {len(data.test)} test, {data.y.mean():.1%} positive",
        "sizes": f"{size.steps} steps, {size.seeds} seeds (0 … {size.seeds - 1}), {size.n_draws} draws per component, "
        f"{size.iterations} Adam iterations per subproblem, ELBO from {size.elbo_draws} fresh draws",
        "record": f"sweep.sqlite: {done} of {runs} runs",
        **made_by(store),
    }
    if done < runs:
        seeds = ", ".join(f"{METHODS[name].label} {_seeds(store, name)}" for name in record.names)
        report.findings.append(
            f"The sweep is not finished: {done} of {runs} runs ({done / runs:.0%}) are in the record and on this page "
            f"(seeds with finished runs, of {size.seeds}: {seeds})."
        )
    judged = claims.table(record)
    report.findings += findings(record, judged)
    report.caveats += caveats(record)
    report.table(regression_tables.published(record))
    report.table(judged)
    report.table(regression_tables.elbo(record))
    if record.held_out():
        report.table(regression_tables.held_out(record))
    if record.timing:
        report.table(regression_tables.timing(record))
    report.table(regression_tables.line_search(record))
    regression_figures.fill(report, record)


def _seeds(store: Store, method: str) -> int:
    return len({seed for _, seed in store.curves("step", method)[0]})
