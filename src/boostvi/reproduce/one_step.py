"""One boosting step towards a random component, for every step-size rule on the same draws: Fig. 1 (left)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import boosting
from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import counted_jit, float64, inlined
from boostvi._struct import replace
from boostvi.corrections import FullyCorrective
from boostvi.directions import FrankWolfe
from boostvi.directions.base import Kind
from boostvi.families import DiagonalNormal
from boostvi.line import FreshEstimates, FreshLine, along_table
from boostvi.mixture import Mixture
from boostvi.step_sizes import Adaptive, Exact, LineSearch, Predefined
from boostvi.table import Table
from boostvi.target import Target

FAMILY = DiagonalNormal()
KL_DRAWS = 4000
FIRST = 1
"""The number of the step: the predefined step size is 2/(1 + 2)."""


def _adaptive(fallback: str, draws: str) -> Adaptive:
    return Adaptive(
        grow=2.0, shrink=0.1, initial=10.0, form="lipschitz", min_gamma=0.01, draws=draws,
        fallback=fallback,  # type: ignore[arg-type]
    )  # fmt: skip


RULES: dict[str, tuple[str, Any]] = {
    "adaptive-zero": ("Adaptive, γ = 0 on failure (authors)", _adaptive("zero", "fresh")),
    "adaptive": ("Adaptive, 2/(t+2) on failure (paper)", _adaptive("predefined", "fresh")),
    "line-search": ("Line search (paper)", LineSearch(b0=0.1, draws="fresh")),
    "predefined": ("Predefined", Predefined()),
    "adaptive-table": ("Adaptive on the table, 2/(t+2) †", _adaptive("predefined", "table")),
    "adaptive-exact": ("Adaptive on the table, exact on failure †", _adaptive("exact", "table")),
    "line-search-table": ("Line search on the table †", LineSearch(b0=0.1)),
    "exact": ("Exact step on the table †", Exact()),
    "fully-corrective": ("Fully corrective †", FullyCorrective()),
}
"""Labels and parts; the hyperparameters are the paper's. † not in the paper."""


def mixture_target(theta: Any) -> Target:
    """A mixture of diagonal Normals; one row (weight, means, scales) per component."""
    theta = jnp.asarray(theta)
    dim = (theta.shape[1] - 1) // 2

    def log_density(z):
        inside = jnp.sum(jax.scipy.stats.norm.logpdf(z, theta[:, 1 : dim + 1], theta[:, dim + 1 :]), axis=1)
        return jax.nn.logsumexp(jnp.log(theta[:, 0]) + inside)

    return Target(log_density, dim)


def random_problems(dim: int, runs: int, seed: int) -> np.ndarray:
    """(runs, 3, 1 + 2·dim): two components of the target, and the random next component."""
    rng = np.random.default_rng([seed, dim])
    weights = rng.dirichlet((1.0, 1.0), size=runs)
    weights = np.concatenate([weights, np.ones((runs, 1))], axis=1)[:, :, None]
    means = rng.standard_normal((runs, 3, dim))
    scales = np.logaddexp(0.0, rng.standard_normal((runs, 3, dim)))
    return np.concatenate([weights, means, scales], axis=2)


@float64
def run(dim: int, runs: int, n_draws: int, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """γ, kind and KL(q‖p) after one step of each rule, and before it ("start"); the runs are paired."""
    target, problems, keys = _problems(dim, runs, seed)
    mixtures_, tables_ = _prepare(target, problems, keys, n_draws)
    # What the rules on the table see has no dimension: they compile once for all.
    blind = Table(jnp.zeros((runs, 2, n_draws, 0)), tables_.log_target, tables_.log_components, tables_.filled)
    steps = _on_table(blind, mixtures_.weights) | _on_fresh_draws(target, problems, mixtures_, tables_, keys)
    # The same trials on the same draws: only what happens after a failure differs.
    steps["adaptive"] = _after_failure(*steps["adaptive-zero"])
    steps = {name: steps[name] for name in RULES}
    weights = {"start": mixtures_.weights} | {name: w for name, (w, _, _) in steps.items()}
    kl = _divergences(target, problems, mixtures_, jnp.stack(list(weights.values()), axis=1), keys)
    kinds = {
        name: np.where(np.asarray(k) == int(Kind.FALLBACK), "fallback", "step") for name, (_, _, k) in steps.items()
    }
    return {
        name: {
            "kl": np.asarray(kl[:, i]),
            "gamma": np.asarray(steps[name][1]) if name in steps else np.zeros(runs),
            "kind": kinds.get(name, np.full(runs, "init")),
        }
        for i, name in enumerate(weights)
    }


@float64
def line_search_paths(dim: int, runs: int, n_draws: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """γ along the paper's line search, from its start to its end, and φ' before every iteration; a row for each run.
    From fresh draws, and from a table, which sees the same draws at every iteration."""
    target, problems, keys = _problems(dim, runs, seed)
    found = _paths(target, problems, *_prepare(target, problems, keys, n_draws), keys)
    return jax.tree.map(np.asarray, found)


def _problems(dim: int, runs: int, seed: int) -> tuple[Target, Any, Any]:
    """The targets' arrays, with one of them as a target, and a key for each."""
    problems = jnp.asarray(random_problems(dim, runs, seed))
    target = mixture_target(np.asarray(problems[0, :2]))
    (theta,) = jax.tree.leaves(target)
    assert theta.shape == problems[0, :2].shape
    return target, problems, jax.random.split(jax.random.key(seed, impl="rbg"), runs)


def _after_failure(weights: Any, gamma: Any, kind: Any) -> tuple[Any, Any, Any]:
    """The paper's fallback in place of the authors' γ = 0: a predefined Frank-Wolfe step."""
    gamma = jnp.where(kind == int(Kind.FALLBACK), 2.0 / (FIRST + 2.0), gamma)
    return jnp.stack([1.0 - gamma, gamma], axis=1), gamma, kind


def _own(target: Target, problem: Any) -> Target:
    return jax.tree.unflatten(jax.tree.structure(target), [problem[:2]])


@counted_jit(static_argnums=3)
@inlined
def _prepare(target: Target, problems: Any, keys: Any, n_draws: int) -> tuple[Mixture, Table]:
    """q: the target's first component; s: the random one, in the second slot with weight 0."""
    dim = target.dim

    def one(args):
        problem, key = args
        ours = problem[jnp.array([0, 2])]
        params = jax.vmap(FAMILY.init, in_axes=(None, 0, 0))(key, ours[:, 1 : dim + 1], ours[:, dim + 1 :])
        mixture = Mixture(params, jnp.array([1.0, 0.0]), FAMILY)
        table = tables.empty(dim, 2, n_draws)
        for slot in (0, 1):
            table = tables.record(
                table, _own(target, problem), mixture, jnp.asarray(slot), jax.random.fold_in(key, slot)
            )
        return mixture, table

    return jax.lax.map(one, (problems, keys))


def _move(rule: Any, target: Any, mixture: Mixture, table: Table, key: Any) -> tuple[Any, Any, Any]:
    slot, t = jnp.asarray(1), jnp.asarray(FIRST)
    if isinstance(rule, FullyCorrective):
        weights = rule(tables.estimates(table, mixture.weights), mixture.weights, table.filled)
        return weights, weights[1], jnp.asarray(int(Kind.FRANK_WOLFE))
    weights, _, info = boosting._move(FrankWolfe(), rule, target, mixture, table, slot, rule.init(), t, key)
    return weights, info.gamma, info.kind


@counted_jit
@inlined
def _on_table(table: Table, weights: Any) -> dict[str, Any]:
    def one(args):
        table, weights = args
        mixture, key = Mixture({"loc": jnp.zeros((2, 0))}, weights, FAMILY), jax.random.key(0)
        rules = {name: rule for name, (_, rule) in RULES.items() if getattr(rule, "draws", "table") == "table"}
        return {name: _move(rule, None, mixture, table, key) for name, rule in rules.items()}

    return jax.lax.map(one, (table, weights))


@counted_jit
@inlined
def _on_fresh_draws(target: Target, problems: Any, mixture: Mixture, table: Table, keys: Any) -> dict[str, Any]:
    def one(args):
        problem, mixture, table, key = args
        own, rules = _own(target, problem), {n: RULES[n][1] for n in ("adaptive-zero", "line-search")}
        return {n: _move(rule, own, mixture, table, jax.random.fold_in(key, 7)) for n, rule in rules.items()}

    return jax.lax.map(one, (problems, mixture, table, keys))


@counted_jit
@inlined
def _paths(target: Target, problems: Any, mixture: Mixture, table: Table, keys: Any) -> dict[str, Any]:
    rule, slot, t = RULES["line-search"][1], jnp.asarray(1), jnp.asarray(FIRST)

    def path(line):
        """γ and its slopes; where the rule has stopped early γ stays, and there are no slopes."""

        def iterate(carry, i):
            gamma, moved = carry
            new, slope = rule.descend(line, gamma, i)
            new, slope = jnp.where(moved >= rule.tol, new, gamma), jnp.where(moved >= rule.tol, slope, jnp.nan)
            return (new, jnp.where(moved >= rule.tol, jnp.abs(new - gamma), moved)), (new, slope)

        start = rule.start(line)
        gammas, slopes = jax.lax.scan(iterate, (start, jnp.asarray(jnp.inf)), jnp.arange(rule.iterations))[1]
        return jnp.append(start, gammas), slopes

    def one(args):
        problem, mixture, table, key = args
        weights, estimates = mixture.weights, tables.estimates(table, mixture.weights)
        direction = FrankWolfe()(estimates.gradients(weights), weights, slot)
        fresh = FreshEstimates(_own(target, problem), mixture, jax.random.fold_in(key, 7), table.n_draws)
        return {
            "fresh": path(FreshLine(t, direction.gap, direction.gamma_max, fresh, weights, slot, direction.delta)),
            "table": path(along_table(estimates, weights, direction, slot, t)),
        }

    return jax.lax.map(one, (problems, mixture, table, keys))


@counted_jit
@inlined
def _divergences(target: Target, problems: Any, mixture: Mixture, weights: Any, keys: Any) -> Any:
    """KL(q‖p) of every rule's weights, on fresh draws."""

    def one(args):
        problem, mixture, of_rules, key = args

        def kl(weights):
            draws, log_q = mixtures.draw(
                replace(mixture, weights=weights), weights, jax.random.fold_in(key, 8), KL_DRAWS
            )
            return jnp.mean(log_q - _own(target, problem).log_density_of(draws))

        return jax.lax.map(kl, of_rules)

    return jax.lax.map(one, (problems, mixture, weights, keys))
