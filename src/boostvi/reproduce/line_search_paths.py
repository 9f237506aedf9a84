"""“Line search oscillates between zero and one”: γ along the iterations of the paper's line search, run by run."""

from __future__ import annotations

from typing import Any

import numpy as np

from boostvi.reproduce import figures, one_step
from boostvi.reproduce.page import Report
from boostvi.reproduce.synthetic_findings import AT_END
from boostvi.reproduce.tables import Table

DRAWS = {"fresh": "fresh draws", "table": "stored draws"}
"""At every iteration new ones, as in the paper, or the same."""
ITERATIONS = one_step.RULES["line-search"][1].iterations
COLUMNS = {
    "returns": "leaves 0 and comes back",
    "both_ends": "is at 0 and at 1",
    "last_but_one": f"is at 1 after {ITERATIONS - 1}",
    "last": f"is at 1 after {ITERATIONS}",
}
DRAWN, DRAWN_DIM = 12, 5
"""Runs in the picture, and their dimension if it is there: one in which about half of the searches end at 0."""


def follow(dim: int, runs: int, n_draws: int) -> dict[str, Any]:
    """What the table and the picture need, as plain values."""
    return {
        draws: {
            "returns": float(np.mean(returns_to_zero(gammas) > 0)),
            "both_ends": float(np.mean((gammas <= AT_END).any(axis=1) & (gammas >= 1 - AT_END).any(axis=1))),
            "turns": float(np.mean(turns(gammas))),
            "last_but_one": float(np.mean(gammas[:, -2] >= 1 - AT_END)),
            "last": float(np.mean(gammas[:, -1] >= 1 - AT_END)),
            "gammas": gammas[:DRAWN].tolist(),
            "slopes": np.where(np.isfinite(slopes), slopes, np.nan)[:DRAWN].tolist(),
        }
        for draws, (gammas, slopes) in one_step.line_search_paths(dim, runs, n_draws).items()
    }


def returns_to_zero(gammas: np.ndarray) -> np.ndarray:
    """How often γ comes to 0 after it has left it, for each run."""
    zero = gammas <= AT_END
    return np.maximum(np.sum(zero[:, 1:] & ~zero[:, :-1], axis=1) - 1, 0)


def turns(gammas: np.ndarray) -> np.ndarray:
    """How often γ turns from growing to shrinking or back, for each run."""
    moves = np.diff(gammas, axis=1)
    moves = np.where(np.abs(moves) > AT_END, np.sign(moves), 0.0)
    return np.sum(moves[:, 1:] * moves[:, :-1] < 0, axis=1)


def fill(report: Report, paths: dict[int, dict[str, Any]]) -> None:
    dim = DRAWN_DIM if DRAWN_DIM in paths else max(paths)
    report.figure(
        "line-search",
        figures.line_searches(
            {DRAWS[draws]: (np.array(of["gammas"]), np.array(of["slopes"])) for draws, of in paths[dim].items()}
        ),
        f"γ and φ'(γ) along the paper's line search, {DRAWN} runs in {dim} dimensions (slopes that are not finite are "
        "left out; a search that moves by less than its tolerance stops and stays).",
    )
    rows = [
        [dim, DRAWS[draws], *(f"{of[name]:.0%}" for name in COLUMNS), f"{of['turns']:.1f}"]
        for dim, both in paths.items()
        for draws, of in both.items()
    ]
    report.table(
        Table(
            "line-search", "Along the iterations of line search: share of runs in which γ …",
            ["D", "trials read", *COLUMNS.values(), f"turns in {ITERATIONS} iterations"], rows,
        )
    )  # fmt: skip
    report.findings.append(_finding(paths))


def _finding(paths: dict[int, dict[str, Any]]) -> str:
    def told(draws: str, name: str) -> str:
        shares = [of[draws][name] for of in paths.values()]
        return f"{min(shares):.0%} to {max(shares):.0%}"

    return (
        f"On its way γ leaves 0 and comes back to it in {told('fresh', 'returns')} of the runs, by dimension "
        f"({told('table', 'returns')} on stored draws, which have no noise from iteration to iteration), and is at "
        f"both ends in {told('fresh', 'both_ends')}. Where it goes to and fro the number of iterations decides about "
        f"its end: it is at 1 in {told('fresh', 'last_but_one')} of the runs after {ITERATIONS - 1} iterations, "
        f"whose weights the released code returns, and in {told('fresh', 'last')} after {ITERATIONS}."
    )
