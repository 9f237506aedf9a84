"""Theorem 1 and the local curvature where everything is exact: distributions on a finite set, finitely many atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi._jit import counted_jit, float64, inlined
from boostvi.boosting import update
from boostvi.corrections.weights import solve
from boostvi.directions import FrankWolfe
from boostvi.line import along_table
from boostvi.step_sizes import Adaptive
from boostvi.table import TableEstimates, recenter
from boostvi.theory import convergence_bound

POINTS, ATOMS, SEED = 12, 6, 7
CERTIFIED = 1e-12
"""Gap, in nats, to which the optimum is solved."""


@dataclass(frozen=True)
class Path:
    """Along one run: KL(q_t) − KL(q*), its bound and the bound's terms of E₀ and of ε₀, the curvature estimates C_t;
    and what they are compared with."""

    error: np.ndarray
    bound: np.ndarray
    initial_term: np.ndarray
    epsilon_term: np.ndarray
    curvature: np.ndarray
    global_curvature: float

    @property
    def bound_holds(self) -> bool:
        return bool(np.all(self.error <= self.bound))


@float64
def run(steps: int, tau: float = 2.0, delta: float = 1.0, epsilon0: float = 0.0) -> Path:
    """Algorithm 1 from the first atom, towards the worst of those atoms whose gap is at least δ times the best one."""
    rng = np.random.default_rng(SEED)
    atoms = rng.dirichlet(np.full(POINTS, 1.5), size=ATOMS) + 1e-3
    atoms /= atoms.sum(axis=1, keepdims=True)
    target = rng.dirichlet(np.full(ATOMS, 2.0)) @ atoms
    estimates, optimum = _prepare(atoms, target)
    rule = Adaptive(initial=0.01, grow=tau, shrink=0.1, max_trials=200, epsilon0=epsilon0)
    found = _frank_wolfe(rule, estimates, jnp.asarray(delta), jnp.arange(1, steps + 1))
    weights, curvature, gaps, failed = map(np.asarray, found)
    if failed.any():
        raise RuntimeError("backtracking gave up on the finite-atom problem, where its test is exact")
    mixed = weights @ atoms
    error = np.sum(mixed * np.log(mixed / target), axis=1) - float(optimum)

    def bound(curvature: np.ndarray, initial_error: float, epsilon0: float) -> np.ndarray:
        history = {"kind": np.array(["frank-wolfe"] * steps), "curvature": curvature}
        return convergence_bound(history, initial_error=initial_error, delta=delta, epsilon0=epsilon0)

    initial, flat = float(gaps[0]), np.zeros(steps)  # the gap to the best atom is an upper bound of E₀
    return Path(
        np.maximum(error, 0.0), bound(curvature, initial, epsilon0), bound(flat, initial, 0.0),
        bound(flat, 0.0, epsilon0), curvature, global_curvature(atoms),
    )  # fmt: skip


@counted_jit
@inlined
def _prepare(atoms: Any, target: Any) -> tuple[TableEstimates, Any]:
    """The estimates, and F at the best weights."""
    estimates, count = exact_estimates(atoms, target), atoms.shape[0]
    best = solve(estimates, jnp.full(count, 1.0 / count), jnp.ones(count, dtype=bool), CERTIFIED)
    return estimates, estimates.objective(estimates.x(best))


def exact_estimates(atoms: Any, target: Any) -> TableEstimates:
    """F(w) = KL(q_w‖p) without error: every point of the set is a draw, and the reference is uniform on them."""
    points, uniform = atoms.shape[1], -np.log(atoms.shape[1])
    estimates = TableEstimates(
        log_ratios=jnp.log(atoms) - uniform,
        log_target_ratio=uniform - jnp.log(target),
        share=jnp.full(points, 1.0 / points),
        log_reference=jnp.full(points, uniform),
        slot_of=jnp.zeros(points, dtype=int),
        center=jnp.zeros(()),
    )
    return recenter(estimates, jnp.full(len(atoms), 1.0 / len(atoms)))


def global_curvature(atoms: np.ndarray) -> float:
    """C_Q = sup of (2/γ²)·KL(q + γ(s − q)‖q). By convexity q is an atom too, and γ → 0 (χ²) or γ = 1 (2·KL)."""
    pairs = [(s, q) for s in atoms for q in atoms if s is not q]
    return max(max(float(np.sum((s - q) ** 2 / q)), 2.0 * float(np.sum(s * np.log(s / q)))) for s, q in pairs)


@counted_jit
@inlined
def _frank_wolfe(rule: Adaptive, estimates: TableEstimates, delta: Any, steps: Any) -> tuple[Any, ...]:
    def step(carry, t):
        weights, state = carry
        gradients = estimates.gradients(weights)
        gaps = jnp.sum(weights * gradients) - gradients
        atom = jnp.argmin(jnp.where(gaps >= delta * jnp.max(gaps), gaps, jnp.inf))
        direction = FrankWolfe()(gradients, weights, atom)
        line = along_table(estimates, weights, direction, atom, t)
        gamma, state, failed = rule(line, state)
        weights, _ = update(weights, direction, gamma)
        return (weights, state), (weights, state.curvature, jnp.max(gaps), failed & (direction.gap > CERTIFIED))

    start = jnp.zeros(ATOMS).at[0].set(1.0)
    return jax.lax.scan(step, (start, rule.init()), steps)[1]
