"""L-BFGS on a fixed set of draws.

SciPy's L-BFGS-B around one compiled value-and-gradient: on a CPU it is quicker, compilation included, than a compiled
line search, and its stopping rules are well tested.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from boostvi._jit import counted_jit
from boostvi._struct import check_count, static, struct
from boostvi.next_component.base import Objective, Optimiser

FORBIDDEN = 1e100
"""Stands for an infinite loss: the line search steps back from it."""


@struct
class LBFGS(Optimiser):
    """At most `max_iterations` on `draws` fixed draws. The fixed draws overfit when they are not many more than the
    parameters of a component: use it with diagonal families, or with many draws."""

    draws: int = static(default=100)
    max_iterations: int = static(default=200)

    name = "lbfgs"

    def __post_init__(self):
        check_count("draws", self.draws)
        check_count("max_iterations", self.max_iterations)

    def maximise(self, objective: Objective, starts: Any, key: Array) -> tuple[Any, int, int]:
        noise = objective.family.noise(key, (self.draws, objective.target.dim))
        ends, evals = [], 0
        for i in range(jax.tree.leaves(starts)[0].shape[0]):
            flat, unravel = ravel_pytree(jax.tree.map(lambda leaf, i=i: leaf[i], starts))
            found = minimise(lambda x, u=unravel: _loss_and_gradient(objective, u(x), noise), flat, self.max_iterations)
            ends.append(unravel(jnp.asarray(found.x)))
            evals += found.nfev * self.draws
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *ends), evals, 0


def minimise(loss_and_gradient: Any, start: Array, max_iterations: int) -> scipy.optimize.OptimizeResult:
    """L-BFGS-B that steps back from non-finite values."""

    def finite(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = loss_and_gradient(jnp.asarray(x))
        gradient = np.asarray(ravel_pytree(gradient)[0], dtype=np.float64)
        if np.isfinite(value) and np.isfinite(gradient).all():
            return float(value), gradient
        return FORBIDDEN, np.zeros_like(gradient)

    options = {"maxiter": max_iterations, "maxcor": 20}
    return scipy.optimize.minimize(finite, np.asarray(start), jac=True, method="L-BFGS-B", options=options)


@counted_jit
def _loss_and_gradient(objective: Objective, variables: Any, noise: Any) -> tuple[Array, Any]:
    return jax.value_and_grad(lambda v: -objective.value(v, noise))(variables)
