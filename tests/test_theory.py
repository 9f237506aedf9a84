"""Theorem 1 on problems where everything in it is exact: distributions on a finite set, finitely many atoms."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import boostvi as bv
from boostvi.boosting import update
from boostvi.corrections.weights import certified_gap, solve
from boostvi.directions import FrankWolfe
from boostvi.line import along_table
from boostvi.reproduce.finite_atoms import exact_estimates
from boostvi.step_sizes import Adaptive
from boostvi.theory import convergence_bound

POINTS, ATOMS, STEPS = 12, 6, 60
CERTIFIED = 1e-12
CONVERGED = 1e-12
"""A run is followed until its Frank-Wolfe gap is this small; what happens then is rounding."""


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def kl(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sum(a * np.log(a / b)))


def curvature_ratio(q: np.ndarray, s: np.ndarray, gamma: float) -> float:
    return 2.0 / gamma**2 * kl(q + gamma * (s - q), q)


def global_curvature(atoms: np.ndarray) -> float:
    """C_Q = sup over s, q and γ of (2/γ²)·KL(q + γ(s − q)‖q).

    KL is jointly convex, so for each s and γ the supremum over q is at a vertex. For two distributions the ratio is
    ∫₀¹ 2(1−θ) Σ (s−q)²/(q + θγ(s−q)) dθ, convex in γ: its supremum is at γ → 0, χ²(s‖q), or at γ = 1, 2·KL(s‖q).
    """
    pairs = [(s, v) for s in atoms for v in atoms if s is not v]
    return max(max(float(np.sum((s - v) ** 2 / v)), 2.0 * kl(s, v)) for s, v in pairs)


@pytest.fixture(scope="module", params=["inside", "outside"])
def problem(request, double):
    """The target in the hull of the atoms (F* = 0), and outside of it."""
    rng = np.random.default_rng(7)
    atoms = rng.dirichlet(np.full(POINTS, 1.5), size=ATOMS) + 1e-3
    atoms /= atoms.sum(axis=1, keepdims=True)
    inside = rng.dirichlet(np.full(ATOMS, 2.0)) @ atoms
    target = inside if request.param == "inside" else rng.dirichlet(np.full(POINTS, 1.5)) + 1e-3
    target = target / target.sum()
    estimates = exact_estimates(atoms, target)
    everywhere = jnp.ones(ATOMS, dtype=bool)
    best = solve(estimates, jnp.full(ATOMS, 1.0 / ATOMS), everywhere, CERTIFIED)
    assert float(certified_gap(estimates, best, everywhere)) < 1e-10
    return SimpleNamespace(
        name=request.param, atoms=atoms, target=target, estimates=estimates,
        optimum=float(estimates.objective(estimates.x(best))), curvature=global_curvature(atoms),
    )  # fmt: skip


@jax.jit
def frank_wolfe(rule, estimates, delta):
    """Algorithm 1 from the first atom with the best atom each time, or the least good one that reaches δ of its gap."""
    start = jnp.zeros(ATOMS).at[0].set(1.0)

    def step(carry, t):
        weights, state = carry
        gradients = estimates.gradients(weights)
        gaps = jnp.sum(weights * gradients) - gradients
        good_enough = gaps >= delta * jnp.max(gaps)
        slot = jnp.argmin(jnp.where(good_enough, gaps, jnp.inf))
        direction = FrankWolfe()(gradients, weights, slot)
        line = along_table(estimates, weights, direction, slot, t)
        gamma, state, failed = rule(line, state)
        new, _ = update(weights, direction, gamma)
        return (new, state), (weights, new, state.curvature, failed, jnp.max(gaps), gamma)

    return jax.lax.scan(step, (start, rule.init()), jnp.arange(1, STEPS + 1))[1]


def run(problem, rule, delta: float = 1.0) -> SimpleNamespace:
    steps = [np.asarray(a) for a in frank_wolfe(rule, problem.estimates, jnp.asarray(delta))]
    gaps = steps[4]
    count = int(np.argmax(gaps < CONVERGED)) if np.any(gaps < CONVERGED) else STEPS
    before, after, curvature, failed, gaps, gamma = (array[:count] for array in steps)
    errors = np.array([kl(q, problem.target) for q in after @ problem.atoms]) - problem.optimum
    return SimpleNamespace(
        before=before, after=after, curvature=curvature, failed=failed, gaps=gaps, gamma=gamma, errors=errors,
        history=history_of(curvature),
    )  # fmt: skip


def history_of(curvature: np.ndarray) -> dict[str, np.ndarray]:
    kinds = np.array(["init"] + len(curvature) * ["frank-wolfe"])
    return {"kind": kinds, "curvature": np.concatenate([[np.nan], curvature])}


# -- the problem is what it claims to be


def test_values_are_exact(problem):
    rng = np.random.default_rng(0)
    for weights in rng.dirichlet(np.full(ATOMS, 0.5), size=20):
        q = weights @ problem.atoms
        found = problem.estimates.objective(problem.estimates.x(jnp.asarray(weights)))
        assert float(found) == pytest.approx(kl(q, problem.target), abs=1e-13)
        gradients = problem.estimates.gradients(jnp.asarray(weights))
        np.testing.assert_allclose(gradients, problem.atoms @ np.log(q / problem.target), atol=1e-12)


def test_optimum(problem):
    assert problem.optimum == pytest.approx(0.0, abs=1e-10) if problem.name == "inside" else problem.optimum > 0.01


def test_global_curvature_is_the_supremum(problem):
    """Random mixtures, atoms and step sizes come close to it and never exceed it."""
    rng, largest = np.random.default_rng(1), 0.0
    for _ in range(3000):
        q = rng.dirichlet(np.full(ATOMS, rng.choice([0.02, 0.3, 1.0]))) @ problem.atoms
        s = problem.atoms[rng.integers(ATOMS)]
        largest = max(largest, curvature_ratio(q, s, rng.choice([1e-3, 0.1, 0.5, 0.9, 1.0])))
    assert 0.8 * problem.curvature < largest <= problem.curvature * (1 + 1e-9)


# -- the theorem and the proposition, along runs

RULES = {
    "curvature": Adaptive(initial=0.01, max_trials=60),
    "slow-growth": Adaptive(initial=0.01, grow=1.2, shrink=0.9, max_trials=200),
    "fast-growth": Adaptive(initial=0.01, grow=5.0, shrink=0.5, max_trials=60),
    "lipschitz-l2": Adaptive(initial=0.01, form="lipschitz", distance="l2", max_trials=60),
}


@pytest.mark.parametrize("delta", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("name", list(RULES))
def test_theorem_holds_at_every_step(problem, name, delta):
    taken = run(problem, RULES[name], delta)
    assert not taken.failed.any()
    bound = convergence_bound(taken.history, initial_error=float(taken.gaps[0]), delta=delta)
    assert bound.shape == taken.errors.shape
    assert np.all(taken.errors <= bound)
    assert np.all(taken.errors > -1e-10)
    assert taken.errors[-1] < 0.1 * taken.errors[0]


@pytest.mark.parametrize("epsilon0", [1e-3, 0.1])
@pytest.mark.parametrize("delta", [1.0, 0.3])
def test_theorem_holds_with_slack(problem, epsilon0, delta):
    """ε_t lets the rule accept steps that lose; the bound allows for them."""
    exact = run(problem, RULES["curvature"], delta)
    loose = run(problem, Adaptive(initial=0.01, max_trials=60, epsilon0=epsilon0), delta)
    assert not loose.failed.any()
    common = min(loose.curvature.size, exact.curvature.size)
    assert np.any(loose.curvature[:common] < exact.curvature[:common])
    bound = convergence_bound(
        loose.history, initial_error=float(loose.gaps[0]), delta=delta, epsilon0=epsilon0
    )  # fmt: skip
    assert np.all(loose.errors <= bound)


@pytest.mark.parametrize("name", ["curvature", "slow-growth", "fast-growth"])
def test_curvature_estimate_stays_below_tau_times_the_global_one(problem, name):
    rule = RULES[name]
    taken = run(problem, rule)
    assert rule.initial < problem.curvature
    assert np.all(taken.curvature <= rule.grow * problem.curvature)
    # It is a local estimate: on average far below the global constant, which is the point of the paper.
    assert taken.curvature.mean() < 0.5 * problem.curvature
    # And above what it was carried over from only as far as this very line makes it.
    carried = rule.shrink * np.concatenate([[rule.initial], taken.curvature[:-1]])
    for t, estimate in enumerate(taken.curvature):
        slot = np.argmax(taken.after[t] - taken.before[t])
        q, s = taken.before[t] @ problem.atoms, problem.atoms[slot]
        needed = max(float(np.sum((s - q) ** 2 / q)), 2.0 * kl(s, q))
        assert estimate <= max(carried[t], rule.grow * needed) * (1 + 1e-9)


# -- the bound's algebra


def recursion(curvature: np.ndarray, initial_error: float, delta: float, epsilon0: float) -> np.ndarray:
    """h_{t+1} ≤ (1 − ξδ) h_t + C_t ξ²/2 + 2ε_t with ξ = 2/(δt + 2), ε_t = ε₀/(t+1)², step by step."""
    h, bounds = initial_error, []
    for t, c in enumerate(curvature):
        xi = 2.0 / (delta * t + 2.0)
        h = (1.0 - xi * delta) * h + 0.5 * c * xi**2 + 2.0 * epsilon0 / (t + 1) ** 2
        bounds.append(h)
    return np.array(bounds)


@pytest.mark.parametrize("epsilon0", [0.0, 0.7])
@pytest.mark.parametrize("delta", [1.0, 0.5, 0.1, 0.01])
def test_bound_against_the_recursion_of_the_proof(delta, epsilon0):
    curvature = np.random.default_rng(3).gamma(0.5, 4.0, size=80)
    bound = convergence_bound(history_of(curvature), initial_error=2.5, delta=delta, epsilon0=epsilon0)
    direct = recursion(curvature, 2.5, delta, epsilon0)
    assert np.all(bound >= direct)  # a_{t+1} ξ² ≤ 2 and 1/a_t ≤ 2/(tδ(tδ+1)) only loosen it

    # Its first and last terms are exact: with C = 0 nothing is loosened.
    flat = convergence_bound(history_of(np.zeros(80)), initial_error=2.5, delta=delta, epsilon0=epsilon0)
    np.testing.assert_allclose(flat, recursion(np.zeros(80), 2.5, delta, epsilon0), rtol=1e-12, atol=1e-15)


def test_bound_by_hand():
    """δ = 1: E₀ drops out, and what is left is 2·C̄_t/(t + 1)."""
    curvature = np.array([4.0, 1.0, 1.0])
    bound = convergence_bound(history_of(curvature), initial_error=100.0)
    np.testing.assert_allclose(bound, [2 * 4 / 2, 2 * 2.5 / 3, 2 * 2 / 4])


def test_slack_term_is_not_the_printed_one():
    """δ = 0.1, t = 20: 0.94·ε₀ where the paper prints 2ε₀/t = 0.10·ε₀."""
    bound = convergence_bound(history_of(np.zeros(20)), initial_error=0.0, delta=0.1, epsilon0=1.0)
    assert bound[-1] == pytest.approx(0.94, abs=0.005)


def test_rows_before_the_first_step_do_not_count():
    curvature = np.array([4.0, 1.0])
    rows = {"kind": np.array(["frank-wolfe", "frank-wolfe"]), "curvature": curvature}
    np.testing.assert_array_equal(
        convergence_bound(rows, initial_error=1.0, delta=0.5),
        convergence_bound(history_of(curvature), initial_error=1.0, delta=0.5),
    )


@pytest.mark.parametrize(
    ("argument", "value"),
    [("delta", 0.0), ("delta", 1.1), ("delta", float("nan")), ("initial_error", -1.0), ("epsilon0", -0.1)],
)
def test_bad_values_are_named(argument, value):
    with pytest.raises(ValueError, match=argument):
        convergence_bound(history_of(np.ones(3)), **({"initial_error": 1.0} | {argument: value}))


def test_a_fallback_has_no_bound():
    with pytest.raises(ValueError, match="step 2 has no curvature estimate"):
        convergence_bound(history_of(np.array([1.0, np.nan, 1.0])), initial_error=1.0)


def test_it_is_public():
    assert bv.convergence_bound is convergence_bound
