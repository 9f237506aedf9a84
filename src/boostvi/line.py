"""F along one direction, φ(γ) = F(w + γδ): all that a step-size rule sees.

Two kinds of estimates stand behind it. `TableLine` reads the table: exact convexity, shared draws, no model calls.
`FreshLine` draws anew at every trial and calls the model each time, as the paper does.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from boostvi import mixture as mixtures
from boostvi._struct import replace, static, struct
from boostvi.directions.base import Direction
from boostvi.mixture import Mixture
from boostvi.table import TableEstimates, floored
from boostvi.target import Target

Scalar = Float[Array, ""]
Weights = Float[Array, " slots"]


class Line(Protocol):
    """What a step-size rule may ask. `trial` numbers the question: fresh draws differ from trial to trial."""

    @property
    def t(self) -> Scalar: ...
    @property
    def gap(self) -> Scalar: ...
    @property
    def gamma_max(self) -> Scalar: ...
    @property
    def value_cost(self) -> int: ...
    @property
    def slope_cost(self) -> int: ...

    def value(self, gamma: Scalar, trial: Int[Array, ""] | int = 0) -> Scalar:
        """φ(γ)."""

    def slope(self, gamma: Scalar, trial: Int[Array, ""] | int = 0) -> Scalar:
        """φ'(γ)."""

    def divergence(self, gamma: Scalar, trial: Int[Array, ""] | int = 0) -> Scalar:
        """D(γ) = φ(γ) − φ(0) + γ·gap, an estimate of KL(q_{w+γδ}‖q_w)."""

    def distance(self, kind: str) -> Scalar:
        """dist(s, q) between the new component and the mixture: "kl" or "l2"."""


@struct
class TableLine:
    """φ on the table: x(γ) = x + γ·dx, so a trial costs one logarithm per draw."""

    t: Scalar
    gap: Scalar
    gamma_max: Scalar
    estimates: TableEstimates
    weights: Weights
    slot: Int[Array, ""]
    x: Float[Array, " draws"]
    log_x: Float[Array, " draws"]
    dx: Float[Array, " draws"]

    value_cost = 0
    slope_cost = 0

    def x_at(self, gamma: Scalar) -> Float[Array, " draws"]:
        return jnp.maximum(self.x + gamma * self.dx, 0.0)

    def value(self, gamma, trial=0):
        return self.estimates.objective(self.x_at(gamma))

    def slope(self, gamma, trial=0):
        x = self.x_at(gamma)
        log_x = jnp.where(gamma > 0, jnp.log(x), self.log_x)  # at γ = 0, x may have underflown
        return self.estimates.slope(self.dx, log_x)

    def divergence(self, gamma, trial=0):
        return self.estimates.divergence(self.x_at(gamma), self.x, self.log_x)

    def distance(self, kind):
        return self.estimates.distance(self.weights, self.slot, kind)


@struct
class FreshEstimates:
    """The paper's estimates: new draws, and new evaluations of the model, for every question."""

    target: Target
    mixture: Mixture
    key: Array
    n_draws: int = static()

    def mean_potential(self, draw_weights: Weights, weights: Weights, key: Array) -> Scalar:
        """E over the mixture with `draw_weights` of ln q_w − ln p."""
        z, _ = mixtures.draw(self.mixture, draw_weights, key, self.n_draws)
        log_q = jax.vmap(lambda one: mixtures.log_prob(_with(self.mixture, weights), one))(z)
        return jnp.mean(log_q - floored(self.target.log_density_of(z)))

    def along(self, weights: Weights, delta: Weights, key: Array) -> Scalar:
        """Σ δ_k g_k: its positive and its negative part are each a distribution to draw from."""
        up, down = jnp.maximum(delta, 0.0), jnp.maximum(-delta, 0.0)
        mass = jnp.sum(up)
        key_up, key_down = jax.random.split(key)
        rise = self.mean_potential(up / mass, weights, key_up)
        return mass * (rise - self.mean_potential(down / mass, weights, key_down))

    def gradients(self, weights: Weights, candidates: Weights) -> Weights:
        """g_k for every slot with a positive entry in `candidates`, 0 elsewhere; n draws from each."""

        def one(slot_and_key):
            slot, key = slot_and_key
            alone = jnp.zeros_like(weights).at[slot].set(1.0)
            return jax.lax.cond(
                candidates[slot] > 0, lambda: self.mean_potential(alone, weights, key), lambda: jnp.zeros(())
            )

        slots = jnp.arange(weights.size)
        return jax.lax.map(one, (slots, jax.random.split(jax.random.fold_in(self.key, 0), weights.size)))


@struct
class FreshLine:
    """φ re-estimated at every trial."""

    t: Scalar
    gap: Scalar
    gamma_max: Scalar
    estimates: FreshEstimates
    weights: Weights
    slot: Int[Array, ""]
    delta: Weights

    @property
    def value_cost(self):
        return self.estimates.n_draws

    @property
    def slope_cost(self):
        return 2 * self.estimates.n_draws

    def value(self, gamma, trial=0):
        weights = self._weights_at(gamma)
        return self.estimates.mean_potential(weights, weights, self._key(1, trial))

    def slope(self, gamma, trial=0):
        return self.estimates.along(self._weights_at(gamma), self.delta, self._key(2, trial))

    def divergence(self, gamma, trial=0):
        start = self.estimates.mean_potential(self.weights, self.weights, self._key(3, 0))  # the same at every trial
        return self.value(gamma, trial) - start + gamma * self.gap

    def distance(self, kind):
        alone = jnp.zeros_like(self.weights).at[self.slot].set(1.0)
        mixture, key = self.estimates.mixture, self._key(4, 0)
        z, log_s = mixtures.draw(mixture, alone, key, self.estimates.n_draws)
        log_q = mixtures.log_prob(_with(mixture, self.weights), z)
        if kind == "kl":
            return jnp.maximum(jnp.mean(log_s - log_q), 0.0)
        z_q, log_q_q = mixtures.draw(mixture, self.weights, key, self.estimates.n_draws)
        log_s_q = mixtures.log_prob(_with(mixture, alone), z_q)
        inner = jnp.mean(jnp.exp(log_s) - jnp.exp(log_q)) - jnp.mean(jnp.exp(log_s_q) - jnp.exp(log_q_q))
        return jnp.maximum(inner, 0.0)

    def _weights_at(self, gamma: Scalar) -> Weights:
        return jnp.maximum(self.weights + gamma * self.delta, 0.0)

    def _key(self, purpose: int, trial: Int[Array, ""] | int) -> Array:
        return jax.random.fold_in(jax.random.fold_in(self.estimates.key, purpose), trial)


def _with(mixture: Mixture, weights: Weights) -> Mixture:
    return replace(mixture, weights=weights)


def along_table(estimates: TableEstimates, weights: Weights, direction: Direction, slot: Array, t: Array) -> TableLine:
    """The line of a direction, on the table."""
    return TableLine(
        t=t,
        gap=direction.gap,
        gamma_max=direction.gamma_max,
        estimates=estimates,
        weights=weights,
        slot=slot,
        x=estimates.x(weights),
        log_x=estimates.log_x(weights),
        dx=estimates.x(direction.delta),
    )
