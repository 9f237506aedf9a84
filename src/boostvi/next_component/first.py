"""q_0: plain VI, a Laplace approximation, or a random component."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi._jit import counted_jit, sub_keys
from boostvi._struct import check_count, static, struct
from boostvi.families.base import Family, Params
from boostvi.next_component.adam import Adam
from boostvi.next_component.base import FirstComponent, Proposal
from boostvi.next_component.lbfgs import minimise
from boostvi.next_component.random import _random
from boostvi.next_component.residual_elbo import EntropicObjective
from boostvi.next_component.search import _best, name_to_optimiser, search
from boostvi.next_component.starts import from_prior
from boostvi.target import Target

START_FACTOR = 8
"""Starting points evaluated per start that is used, so that the ones used have a finite log density."""
POLISH_FACTOR = 4
"""Times as many draws decide whether polishing was worth it: the two differ little."""
MIN_CURVATURE = 1e-8
"""Smallest |eigenvalue| of the Hessian at the mode, relative to the largest: a flat direction gets a finite spread."""


@struct
class PlainVI(FirstComponent):
    """argmax over the family of E_s[ln p − ln s] from random starts; the best end is kept on fresh draws."""

    optimiser: Any = Adam()
    n_starts: int = static(default=1)
    selection_draws: int = static(default=100)

    name = "vi"

    def __post_init__(self):
        check_count("n_starts", self.n_starts)
        check_count("selection_draws", self.selection_draws)
        name_to_optimiser(self)

    def __call__(self, target, family, key):
        key_starts, key_search = sub_keys(key, 2)
        starts = _starting_components(target, family, key_starts, self.n_starts)
        return search(elbo(target, family), starts, self.optimiser, self.selection_draws, key_search)


@struct
class LaplaceApproximation(FirstComponent):
    """A mode of p found by L-BFGS, with the inverse of |Hessian| there as covariance; the best of n_starts by ELBO.

    polish: an optimiser that goes on from the best one by plain VI, or None.
    """

    polish: Any = None
    n_starts: int = static(default=4)
    max_iterations: int = static(default=500)
    selection_draws: int = static(default=100)

    name = "laplace"

    def __post_init__(self):
        check_count("n_starts", self.n_starts)
        check_count("max_iterations", self.max_iterations)
        check_count("selection_draws", self.selection_draws)
        if self.polish is not None:
            name_to_optimiser(self, "polish")

    def __call__(self, target, family, key):
        key_starts, key_family, key_select, key_polish = sub_keys(key, 4)
        fits, evals = [], START_FACTOR * self.n_starts
        for start in _finite_starts(target, key_starts, self.n_starts):
            found = minimise(lambda z: _loss_and_gradient(target, z), start, self.max_iterations)
            fits.append(_gaussian_at(target, family, jnp.asarray(found.x), key_family))
            evals += found.nfev + target.dim  # a Hessian costs about d gradients
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *fits)
        objective = elbo(target, family)
        params, value = _best(objective, stacked, key_select, self.selection_draws)
        evals += self.n_starts * self.selection_draws
        if self.polish is None:
            return Proposal(params, value, jnp.asarray(evals), jnp.asarray(0))
        start = jax.tree.map(lambda leaf: leaf[None], params)
        better = search(objective, start, self.polish, self.selection_draws, key_polish)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), params, better.params)
        draws = POLISH_FACTOR * self.selection_draws
        params, value = _best(objective, both, jax.random.fold_in(key_polish, 1), draws)
        evals = evals + better.evals + 2 * draws
        return Proposal(params, value, evals, better.nonfinite)


@struct
class RandomFirst(FirstComponent):
    """Located by `target.init`, scale softplus(N(0, 1))."""

    name = "random"

    def __call__(self, target, family, key):
        return _random(target, family, key)


def elbo(target: Target, family: Family) -> EntropicObjective:
    return EntropicObjective(target, None, jnp.ones(()), None, None, family)


@counted_jit(static_argnums=(1, 3))
def _starting_components(target: Target, family: Family, key: Array, n: int) -> Params:
    return from_prior(target, family, key, n)


def _finite_starts(target: Target, key: Array, n: int) -> Float[np.ndarray, "n dim"]:
    """n starting points with a finite log density (fewer when few have one)."""
    starts, values = _starts(target, key, START_FACTOR * n)
    finite = np.flatnonzero(np.isfinite(values))[:n]
    return np.asarray(starts)[np.resize(finite if finite.size else np.arange(n), n)]


@counted_jit(static_argnums=2)
def _starts(target: Target, key: Array, n: int) -> tuple[Array, Array]:
    starts = jax.vmap(target.init)(jax.random.split(key, n)).astype(jnp.float64)
    return starts, target.log_density_of(starts)


@counted_jit
def _loss_and_gradient(target: Target, z: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda z: -target.log_density(z))(z)


@counted_jit(static_argnums=1)
def _gaussian_at(target: Target, family: Family, mode: Array, key: Array) -> Params:
    hessian = jax.hessian(lambda z: -target.log_density(z))(mode)
    eigenvalues, vectors = jnp.linalg.eigh(jnp.where(jnp.isfinite(hessian), hessian, 0.0))
    size = jnp.abs(eigenvalues)
    size = jnp.maximum(size, jnp.maximum(MIN_CURVATURE * jnp.max(size), MIN_CURVATURE))
    return family.from_gaussian(key, mode, (vectors / size) @ vectors.T)
