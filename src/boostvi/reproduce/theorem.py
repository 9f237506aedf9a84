"""Theorem 1 along runs where everything in it is known: a figure, a table and a sentence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boostvi.reproduce import figures, finite_atoms
from boostvi.reproduce.page import Report
from boostvi.reproduce.tables import Table


class Case(NamedTuple):
    """τ of the rule; δ, the share of the best gap that every subproblem reaches; ε₀ of the rule."""

    tau: float
    delta: float = 1.0
    epsilon0: float = 0.0

    def __str__(self) -> str:
        return f"τ = {self.tau:g}" + (f", δ = {self.delta:g}, ε₀ = {self.epsilon0:g}" if self.delta < 1 else "")


CASES = (Case(1.2), Case(2.0), Case(5.0), Case(2.0, 0.5, 0.1))
"""With δ = 1 the bound's term of E₀ is 0; the last case has all three terms."""
PLAIN = CASES[1]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def fill(report: Report, steps: int) -> None:
    paths = {case: finite_atoms.run(steps, *case) for case in CASES}
    report.figure(
        "theorem", _figure(paths, steps),
        "Finitely many atoms, no Monte-Carlo error: the measured error against the bound of Theorem 1 (unrolled "
        "correctly), and the curvature estimates C_t against the global curvature. With δ = 0.5 each step goes towards "
        "the worst atom whose gap is at least half of the best one.",
    )  # fmt: skip
    rows = [
        [f"{case.tau:g}", f"{case.delta:g}", f"{case.epsilon0:g}",
         *(f"{x[-1]:.3g}" for x in (p.error, p.bound, p.initial_term, p.epsilon_term)), str(p.bound_holds),
         *(f"{x:.3g}" for x in (p.curvature.mean(), p.curvature.max(), case.tau * p.global_curvature)),
         str(bool(np.all(p.curvature <= case.tau * p.global_curvature)))]
        for case, p in paths.items()
    ]  # fmt: skip
    report.table(
        Table(
            "theorem", "Theorem 1 and C_t ≤ τ·C_Q on finitely many atoms",
            ["τ", "δ", "ε₀", f"error at t = {steps}", "bound", "its term of E₀", "its term of ε₀",
             "bound holds at every t", "mean C_t", "largest C_t", "τ·C_Q", "C_t ≤ τ·C_Q"],
            rows,
        )
    )  # fmt: skip
    broken = [str(case) for case, path in paths.items() if not path.bound_holds]
    mean = paths[PLAIN].curvature.mean() / paths[PLAIN].global_curvature
    report.findings.append(
        f"Theorem 1 on finitely many atoms: the bound {'fails' if broken else 'holds at every one'} "
        + (
            f"at some of {steps} steps for {'; '.join(broken)}"
            if broken
            else f"of {steps} steps in all {len(paths)} cases"
        )
        + f"; the mean curvature estimate ({PLAIN}) is {mean:.1%} of the global curvature."
    )


def _figure(paths: dict[Case, finite_atoms.Path], steps: int):
    figure, (left, right) = figures.new(2, width=5.2, height=4.4)
    t = np.arange(1, steps + 1)
    for (case, path), colour in zip(paths.items(), COLOURS, strict=True):
        left.loglog(t, np.maximum(path.error, 1e-16), color=colour, label=str(case))
        left.loglog(t, path.bound, color=colour, ls="--")
        right.loglog(t, path.curvature, color=colour)
    right.axhline(paths[PLAIN].global_curvature, color="k", ls=":")
    right.annotate("global curvature C_Q", (1, paths[PLAIN].global_curvature), va="bottom", fontsize=8)
    left.set(xlabel="step t", ylabel="KL(q_t) − KL(q*)", title="Theorem 1: measured (solid), bound (dashed)")
    left.set_ylim(bottom=max(1e-13, min(float(p.error[p.error > 0].min()) for p in paths.values()) / 3))
    right.set(xlabel="step t", ylabel="curvature estimate C_t", title="Local and global curvature")
    figures.legend_below(figure, left)
    return figure
