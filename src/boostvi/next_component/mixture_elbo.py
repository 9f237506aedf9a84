"""The well-posed subproblem: the component that improves the *mixture* most."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from boostvi import mixture as mixtures
from boostvi import table as tables
from boostvi._jit import counted_jit, map_chunked, sub_keys
from boostvi._struct import check_count, static, struct
from boostvi.families.base import Family
from boostvi.mixture import Mixture
from boostvi.next_component.adam import Adam
from boostvi.next_component.base import NextComponent, pathwise
from boostvi.next_component.search import name_to_optimiser, search
from boostvi.next_component.starts import check_starts, starting_components
from boostvi.target import Target

RESERVOIR = 256
"""Draws of q_t, taken from the table with their ln p, that stand for q_t while the new component moves."""
LOGIT_LIMIT = 7.0
"""γ stays within (0.001, 0.999): a start far off must not switch its own component off for good."""


@struct
class MixtureElbo(NextComponent):
    """argmax over s and γ of the ELBO of q_γ = (1 − γ) q_t + γ s (Miller et al. 2016).

    It is bounded by log Z whatever the tails of q_t. For s the gradient is that of E_s[ln p − ln q_γ] along the draws,
    the parameters inside q_γ held constant (the rest has expectation 0).
    optimiser, starts, n_starts, selection_draws: as in ResidualElbo.
    """

    optimiser: Any = Adam()
    starts: tuple[str, ...] = static(default=("residual", "prior"))
    n_starts: int = static(default=4)
    selection_draws: int = static(default=100)

    name = "mixture-elbo"

    def __post_init__(self):
        check_count("n_starts", self.n_starts)
        check_count("selection_draws", self.selection_draws)
        check_starts(self.starts)
        name_to_optimiser(self)

    def __call__(self, target, mixture, table, t, key):
        key_starts, key_search = sub_keys(key, 2)
        objective, starts = _prepare(self, target, mixture, table, key_starts)
        return search(objective, starts, self.optimiser, self.selection_draws, key_search)


@counted_jit
def _prepare(rule: MixtureElbo, target: Target, mixture: Mixture, table: tables.Table, key: Array):
    key_starts, key_reservoir = jax.random.split(key)
    estimates = tables.estimates(table, mixture.weights)
    mass = estimates.share * estimates.x(mixture.weights)
    finite = jnp.isfinite(table.log_target).ravel()
    chosen = jax.random.categorical(key_reservoir, jnp.log(jnp.where(finite, mass, 0.0)), shape=(RESERVOIR,))
    objective = MixtureObjective(
        target=target,
        mixture=mixture,
        draws=table.draws.reshape(-1, target.dim)[chosen],
        log_target=table.log_target.ravel()[chosen],
        log_mixture=(estimates.log_reference + estimates.log_x(mixture.weights))[chosen],
        family=mixture.family,
    )
    starts = starting_components(rule.starts, rule.n_starts, target, mixture, table, key_starts)
    return objective, starts


@struct
class MixtureObjective:
    """(1 − γ) E_{q_t}[ln p − ln q_γ] + γ E_s[ln p − ln q_γ], γ = sigmoid(logit)."""

    target: Target
    mixture: Mixture
    draws: Float[Array, "reservoir dim"]
    log_target: Float[Array, " reservoir"]
    log_mixture: Float[Array, " reservoir"]
    family: Family = static()

    def variables(self, params):
        n_active = jnp.sum(self.mixture.weights > 0)
        return {"component": params, "logit": -jnp.log(n_active.astype(jnp.float64))}  # γ = 1/(n + 1)

    def component(self, variables):
        return variables["component"]

    def log_joint(self, params, logit, z, log_mixture):
        """ln q_γ(z)."""
        return jnp.logaddexp(
            jax.nn.log_sigmoid(-logit) + log_mixture, jax.nn.log_sigmoid(logit) + self.family.log_prob(params, z)
        )

    def residual(self, params, logit, z):
        return self.target.log_density(z) - self.log_joint(params, logit, z, mixtures.log_prob(self.mixture, z))

    def reservoir_residuals(self, params, logit):
        log_joint = jax.vmap(lambda z, log_q: self.log_joint(params, logit, z, log_q))(self.draws, self.log_mixture)
        return self.log_target - log_joint

    def gradient(self, variables, noise):
        params, logit = variables["component"], jnp.clip(variables["logit"], -LOGIT_LIMIT, LOGIT_LIMIT)
        frozen = lambda z: self.residual(params, logit, z)  # noqa: E731
        _, values, gradients, nonfinite = pathwise(frozen, self.family, params, noise, self.target.chunk)

        def surrogate(params):
            z = jax.vmap(self.family.sample, in_axes=(None, 0))(params, noise)
            return jnp.sum(gradients * z) / z.shape[0]

        ours = jnp.mean(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        theirs = jnp.mean(self.reservoir_residuals(params, logit))
        gamma = jax.nn.sigmoid(logit)
        slope = gamma * (1.0 - gamma) * jnp.clip(ours - theirs, -1.0, 1.0)  # Adam needs its sign more than its size
        outward = (jnp.abs(variables["logit"]) >= LOGIT_LIMIT) & (slope * variables["logit"] > 0)
        return {"component": jax.grad(surrogate)(params), "logit": jnp.where(outward, 0.0, slope)}, nonfinite

    def value(self, variables, noise):
        params, logit = variables["component"], jnp.clip(variables["logit"], -LOGIT_LIMIT, LOGIT_LIMIT)
        z = jax.vmap(self.family.sample, in_axes=(None, 0))(params, noise)
        ours = jnp.mean(map_chunked(lambda one: self.residual(params, logit, one), z, self.target.chunk))
        theirs = jnp.mean(self.reservoir_residuals(params, logit))
        gamma = jax.nn.sigmoid(logit)
        return (1.0 - gamma) * theirs + gamma * ours
