"""Findings of the synthetic experiment, from runs whose outcome is known; and the bound of Theorem 1."""

from __future__ import annotations

import numpy as np
import pytest

from boostvi.reproduce import finite_atoms, line_search_paths, one_step, synthetic_findings, theorem
from boostvi.reproduce.compare import CONTRADICTED, HOLDS, NOT_SEEN

RUNS, DIMS = 200, [2, 10]
RUNS_FOLLOWED = 12


def results(zero, printed, line_search, failed=1.0):
    """Each rule's KL: that of the start times a factor, with a spread of its own."""
    rng = np.random.default_rng(0)
    start = {dim: rng.exponential(size=RUNS) for dim in DIMS}
    kind = np.where(np.arange(RUNS) < failed * RUNS, "fallback", "step")

    def rule(factor):
        return {dim: {"kl": factor * kl, "gamma": np.zeros(RUNS), "kind": kind} for dim, kl in start.items()}

    factors = {"start": 1.0, "exact": 1.0, "adaptive-zero": zero, "adaptive": printed, "line-search": line_search}
    return {name: rule(factor) for name, factor in factors.items()}


@pytest.mark.parametrize(
    ("zero", "printed", "conclusion"),
    [
        (1.0, 3.0, "rests on the authors' fallback"),
        (1.0, 1.0, "holds with either fallback"),
        (3.0, 1.0, "holds with the printed fallback only"),
        (3.0, 2.0, "is not seen with either fallback"),
    ],
)
def test_the_conclusion_is_that_of_the_runs(zero, printed, conclusion):
    found = synthetic_findings.findings(results(zero, printed, 2.0), DIMS)
    (told,) = (line for line in found if line.startswith("The published claim"))
    assert told.endswith(f"{conclusion}.")
    assert ("“better” holds" in found[0]) == (zero < 2.0)
    assert ("“steadier” holds" in found[1]) == (printed < 2.0)


def test_shares_and_ratios_by_hand():
    made = results(1.0, 2.0, 2.0, failed=0.25)
    assert synthetic_findings.better(made, "adaptive-zero", DIMS).mean == 0.5  # all of the runs
    assert synthetic_findings.better(made, "adaptive", DIMS).verdict == NOT_SEEN  # ties
    assert synthetic_findings.steadier(made, "adaptive-zero", DIMS).mean == pytest.approx(np.log(2.0))
    assert synthetic_findings.steadier(made, "adaptive-zero", DIMS).verdict == HOLDS
    made = results(3.0, 2.0, 2.0)
    assert synthetic_findings.better(made, "adaptive-zero", DIMS).verdict == CONTRADICTED
    made["line-search"][2]["kl"] = made["start"][2]["kl"] * 0.0 + 1.0  # does not vary: no ratio
    assert np.isnan(synthetic_findings.steadier(made, "adaptive-zero", DIMS).mean)


def test_how_often_rules_give_up_and_a_step_helps():
    made = results(1.0, 3.0, 2.0, failed=0.25)
    made["exact"][10] = {**made["exact"][10], "kl": made["start"][10]["kl"] - np.where(np.arange(RUNS) < 50, 0.02, 0.0)}
    found = synthetic_findings.findings(made, DIMS)
    assert "Backtracking gave up in 25% of the runs" in found[0]
    assert any("in 0% to 25% of the runs" in line for line in found)


@pytest.mark.parametrize("case", theorem.CASES, ids=str)
def test_the_bound_of_theorem_1(case):
    path = finite_atoms.run(40, *case)
    assert path.bound_holds
    assert np.all(path.curvature <= case.tau * path.global_curvature)
    has_all_terms = case.delta < 1
    assert (path.initial_term[-1] > 0) == has_all_terms
    assert (path.epsilon_term[-1] > 0) == has_all_terms
    assert np.all(path.initial_term + path.epsilon_term < path.bound)


def test_a_bad_subproblem_is_one():
    """With δ < 1 other atoms are taken: the run is not that of the best ones."""
    best, worse = (finite_atoms.run(20, 2.0, delta) for delta in (1.0, 0.5))
    assert worse.error[0] > 1.1 * best.error[0]


def test_paths_end_where_line_search_does():
    """And where the rule stops early γ stays: iterations that it does not make are no part of its path."""
    runs = one_step.run(2, RUNS_FOLLOWED, 100)
    paths = one_step.line_search_paths(2, RUNS_FOLLOWED, 100)
    stopped = 0
    for draws, name in (("fresh", "line-search"), ("table", "line-search-table")):
        gammas, slopes = paths[draws]
        assert gammas.shape == (RUNS_FOLLOWED, 26)
        np.testing.assert_allclose(gammas[:, 0], 2 / 3)
        np.testing.assert_allclose(gammas[:, -1], runs[name]["gamma"], rtol=1e-9, atol=1e-12)
        made = ~np.isnan(slopes)
        stopped += np.sum(~made[:, -1])
        assert np.all(np.diff(gammas)[~made] == 0.0)
        inside = (gammas[:, 1:] > 0.0) & (gammas[:, 1:] < 1.0) & made
        moved = -0.1 / np.arange(1, 26) * slopes
        np.testing.assert_allclose(np.diff(gammas)[inside], moved[inside], rtol=1e-9, atol=1e-12)
    assert stopped > 0


def test_what_is_counted_along_a_line_search():
    gammas = np.array([[0.6, 0.0, 0.3, 0.0, 1.0], [0.6, 0.0, 0.0, 0.0, 0.0], [0.6, 0.5, 0.5, 0.4, 0.3]])
    np.testing.assert_array_equal(line_search_paths.returns_to_zero(gammas), [1, 0, 0])
    np.testing.assert_array_equal(line_search_paths.turns(gammas), [3, 0, 0])
    rounding = np.array([[0.6, 0.0, 1e-17, 0.0, 1e-17]])
    assert line_search_paths.returns_to_zero(rounding) == line_search_paths.turns(rounding) == 0
