"""The paper's subproblem: approximate the residual p/q_t."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from boostvi import mixture as mixtures
from boostvi._jit import counted_jit, map_chunked, sub_keys
from boostvi._struct import check_count, static, struct
from boostvi.families.base import Family, Params, to_raw, to_scale
from boostvi.mixture import Mixture
from boostvi.next_component.adam import Adam
from boostvi.next_component.base import NextComponent, pathwise
from boostvi.next_component.search import name_to_optimiser, search
from boostvi.next_component.starts import check_starts, starting_components
from boostvi.target import Target

SCHEDULES = {
    "constant": lambda t: jnp.ones_like(t),  # the paper
    "inverse-sqrt": lambda t: 1.0 / jnp.sqrt(t + 1.0),  # the default of the authors' code
    "inverse": lambda t: 1.0 / (t + 1.0),
    "linear": lambda t: t,
    "log": lambda t: 1.0 + jnp.log(t),
    "sqrt": lambda t: jnp.sqrt(t + 1.0),
    "zero": lambda t: jnp.zeros_like(t),  # only with a bound on the entropy
}
"""λ_t, the weight of the entropy, at step t = 1, 2, …"""
ENTROPY_PENALTY = 100.0
"""Price, in nats per nat, of entropy below the bound while climbing; at the end the scales are widened to meet it."""
ENTROPY_DRAWS = 128


@struct
class ResidualElbo(NextComponent):
    """argmax over s of E_s[ln p − ln q_t] + λ_t H(s) (equation 4 with λ_t = 1).

    entropy_weight: the schedule of λ_t, one of SCHEDULES.
    min_entropy: the bound −M in H(s) ≥ −M (equation 2), or None. Without it the problem is ill-posed wherever q_t has
        lighter tails than p.
    optimiser: Adam() or LBFGS(). starts: kinds of starting points, taken in turn by the n_starts starts; the best end
        is kept by selection_draws fresh draws.
    """

    optimiser: Any = Adam()
    min_entropy: float | None = None
    entropy_weight: str = static(default="constant")
    starts: tuple[str, ...] = static(default=("prior",))
    n_starts: int = static(default=1)
    selection_draws: int = static(default=100)

    name = "residual-elbo"

    def __post_init__(self):
        if self.entropy_weight not in SCHEDULES:
            choices = ", ".join(map(repr, SCHEDULES))
            raise ValueError(f"entropy_weight={self.entropy_weight!r} is not known; choose one of {choices}")
        if self.entropy_weight == "zero" and self.min_entropy is None:
            raise ValueError("entropy_weight='zero' needs min_entropy=: the best component would be a point")
        check_count("n_starts", self.n_starts)
        check_count("selection_draws", self.selection_draws)
        check_starts(self.starts)
        name_to_optimiser(self)

    def __call__(self, target, mixture, table, t, key):
        key_starts, key_search = sub_keys(key, 2)
        objective, starts = _prepare(self, target, mixture, table, t, key_starts)
        return search(objective, starts, self.optimiser, self.selection_draws, key_search)


@counted_jit
def _prepare(rule: ResidualElbo, target: Target, mixture: Mixture, table: Any, t: Array, key: Array):
    key_starts, key_entropy = jax.random.split(key)
    weight = SCHEDULES[rule.entropy_weight](jnp.asarray(t, jnp.float64))
    bound = noise = None
    if rule.min_entropy is not None:
        bound = jnp.asarray(rule.min_entropy, jnp.float64)
        noise = mixture.family.noise(key_entropy, (ENTROPY_DRAWS, target.dim))
    starts = starting_components(rule.starts, rule.n_starts, target, mixture, table, key_starts)
    return EntropicObjective(target, mixture, weight, bound, noise, mixture.family), starts


@struct
class EntropicObjective:
    """E_s[ln p − ln q] + λ H(s); plain VI's ELBO when there is no q."""

    target: Target
    mixture: Mixture | None
    entropy_weight: Float[Array, ""]
    min_entropy: Float[Array, ""] | None
    entropy_noise: Any
    family: Family = static()

    def variables(self, params: Params) -> Params:
        return params

    def component(self, variables: Params) -> Params:
        """The component, widened to the bound on its entropy if the climb ended below it."""
        if self.min_entropy is None or "raw_scale" not in variables:
            return variables
        missing = self.min_entropy - self.entropy(variables, self.entropy_noise)
        scale = to_scale(variables["raw_scale"])
        wider = scale * jnp.exp(jnp.maximum(missing, 0.0) / scale.size)
        return variables | {"raw_scale": to_raw(wider)}

    def residual(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        value = self.target.log_density(z)
        return value if self.mixture is None else value - mixtures.log_prob(self.mixture, z)

    def entropy(self, params: Params, noise: Any) -> Float[Array, ""]:
        _, log_s = jax.vmap(self.family.sample_and_log_prob, in_axes=(None, 0))(params, noise)
        return -jnp.mean(log_s)

    def penalty(self, params: Params) -> Float[Array, ""]:
        if self.min_entropy is None:
            return jnp.zeros(())
        missing = self.min_entropy - self.entropy(params, self.entropy_noise)
        return ENTROPY_PENALTY * jnp.maximum(missing, 0.0)

    def gradient(self, params, noise):
        _, _, gradients, nonfinite = pathwise(self.residual, self.family, params, noise, self.target.chunk)

        def surrogate(params):
            z = jax.vmap(self.family.sample, in_axes=(None, 0))(params, noise)
            climb = jnp.sum(gradients * z) / z.shape[0]
            return climb + self.entropy_weight * self.entropy(params, noise) - self.penalty(params)

        return jax.grad(surrogate)(params), nonfinite

    def value(self, params, noise):
        z, log_s = jax.vmap(self.family.sample_and_log_prob, in_axes=(None, 0))(params, noise)
        residuals = map_chunked(self.residual, z, self.target.chunk)
        return jnp.mean(residuals - self.entropy_weight * log_s) - self.penalty(params)
