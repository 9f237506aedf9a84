"""The table: every draw with its ln p, evaluated once, and ln s_k of every slot there.

With it, F(w) = KL(q_w‖p) − log Z and its gradient are estimated for *any* weights without a call of the model. With
q̄ the mixture that the draws came from, x = q_w/q̄ at each draw, and c a constant near F (it centres ln p):

    F(w)    = mean[ x (ln q_w − ln p − c) − x ] + 1 + c
    g_k(w)  = mean[ (s_k/q̄)(ln q_w − ln p − c) ] + c        so that ∂F/∂w_k = g_k − c

F is exactly convex in w on the draws, and F(w + γδ) − F(w) − γ δ·g = mean[ x' ln(x'/x) − x' + x ] =: D ≥ 0 exactly.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Bool, Float, Int

from boostvi import mixture as mixtures
from boostvi._struct import replace, struct
from boostvi.mixture import Mixture
from boostvi.target import Target

FLOOR_BELOW_WORST = 100.0
"""Where ln p is −inf the table uses the lowest finite ln p minus this: a finite, forbidding value keeps F convex."""

LOWEST = -1e300
"""Stands for ln 0, so that 0 · ln 0 = 0 in a matrix product."""


@struct
class Table:
    """Draws of every slot that ever held a component; a reused slot's draws are replaced."""

    draws: Float[Array, "slots draws dim"]
    log_target: Float[Array, "slots draws"]
    log_components: Float[Array, "slots slots draws"]  # ln s_k at draw j of slot i: [k, i, j]
    filled: Bool[Array, " slots"]

    @property
    def n_draws(self) -> int:
        return self.log_target.shape[1]


def empty(dim: int, capacity: int, n_draws: int) -> Table:
    zeros: Any = np.zeros  # on the host, where they take no memory until they are used
    return Table(
        draws=zeros((capacity, n_draws, dim)),
        log_target=zeros((capacity, n_draws)),
        log_components=zeros((capacity, capacity, n_draws)),
        filled=zeros(capacity, dtype=bool),
    )


def record(table: Table, target: Target, mixture: Mixture, slot: Int[Array, ""], key: Array) -> Table:
    """Draw from the component in `slot`, evaluate ln p there once, and fill its row and column."""
    table = jax.tree.map(jnp.asarray, table)
    family, params = mixture.family, mixtures.component(mixture, slot)
    noise = family.noise(key, (table.n_draws, mixture.dim))
    draws, own = jax.vmap(family.sample_and_log_prob, in_axes=(None, 0))(params, noise)
    all_draws = table.draws.at[slot].set(draws)
    column = jax.vmap(jax.vmap(family.log_prob, in_axes=(None, 0)), in_axes=(0, None))(mixture.params, draws)
    row = jax.vmap(jax.vmap(family.log_prob, in_axes=(None, 0)), in_axes=(None, 0))(params, all_draws)
    return Table(
        draws=all_draws,
        log_target=table.log_target.at[slot].set(target.log_density_of(draws)),
        log_components=table.log_components.at[:, slot].set(column).at[slot].set(row).at[slot, slot].set(own),
        filled=table.filled.at[slot].set(True),
    )


@struct
class TableEstimates:
    """Everything the table says about weights: values, slopes and slot gradients, free of model calls."""

    log_ratios: Float[Array, "slots draws"]  # ln s_k/q̄ over all draws of the table
    log_target_ratio: Float[Array, " draws"]  # ln q̄ − ln p
    share: Float[Array, " draws"]  # 1/N for a real draw, 0 for an unfilled slot's
    log_reference: Float[Array, " draws"]  # ln q̄
    slot_of: Int[Array, " draws"]
    center: Float[Array, ""]

    def log_x(self, weights: Float[Array, " slots"]) -> Float[Array, " draws"]:
        """ln q_w/q̄, exact also where q_w underflows."""
        return log_sum_exp(mixtures.log_weights(weights)[:, None] + self.log_ratios)

    def x(self, weights: Float[Array, " slots"]) -> Float[Array, " draws"]:
        """q_w/q̄, linear in w (also for a signed direction); bounded, because q̄ holds every slot."""
        return weights @ jnp.exp(self.log_ratios)

    def objective(self, x: Float[Array, " draws"]) -> Float[Array, ""]:
        """F as a function of x ≥ 0."""
        x = jnp.where(self.share > 0, x, 1.0)  # unfilled slots have no share, and no say in a derivative either
        terms = xlogy(x, x) + x * (self.log_target_ratio - self.center - 1.0)
        return jnp.sum(self.share * terms) + 1.0 + self.center

    def slope(self, dx: Float[Array, " draws"], log_x: Float[Array, " draws"]) -> Float[Array, ""]:
        """Derivative of F along dx = q_δ/q̄."""
        potential = log_x + self.log_target_ratio - self.center
        return jnp.sum(jnp.where(dx == 0.0, 0.0, self.share * dx * potential))

    def gradients(self, weights: Float[Array, " slots"]) -> Float[Array, " slots"]:
        """g_k = E_{s_k}[ln q_w − ln p] for every slot."""
        potential = jnp.maximum(self.log_x(weights) + self.log_target_ratio - self.center, LOWEST)
        return jnp.exp(self.log_ratios) @ (self.share * potential) + self.center

    def divergence(self, x_new: Float[Array, " draws"], x: Float[Array, " draws"], log_x: Float[Array, " draws"]):
        """D = mean[ x' ln(x'/x) − x' + x ] ≥ 0, an estimate of KL(q_{w'}‖q_w)."""
        terms = xlogy(x_new, x_new) - jnp.where(x_new == 0.0, 0.0, x_new * log_x) - x_new + x
        # Near x the four terms cancel; with u = x'/x − 1 what is left, x u²/2, keeps its digits.
        u = jnp.where(x > 0.0, (x_new - x) / jnp.where(x > 0.0, x, 1.0), 1.0)
        near = jnp.abs(u) < 0.5
        u = jnp.where(near, u, 0.0)
        terms = jnp.where(near, x * ((1.0 + u) * jnp.log1p(u) - u), terms)
        return jnp.sum(self.share * jnp.maximum(terms, 0.0))

    def distance(self, weights: Float[Array, " slots"], slot: Int[Array, ""], kind: str) -> Float[Array, ""]:
        """dist(s, q_w) for the Lipschitz form: KL(s‖q), or the squared L2 distance of the densities."""
        if kind == "kl":
            own = (self.slot_of == slot) & (self.share > 0)
            gap = self.log_ratios[slot] - self.log_x(weights)
            return jnp.maximum(jnp.sum(jnp.where(own, gap, 0.0)) / jnp.sum(own), 0.0)
        difference = jnp.exp(self.log_ratios[slot]) - self.x(weights)
        return jnp.sum(self.share * difference**2 * jnp.exp(self.log_reference))


def log_sum_exp(terms: Float[Array, "slots ..."]) -> Float[Array, "..."]:
    """ln Σ_k exp(terms_k). A product with ones: XLA's own sum over a leading axis takes several times as long."""
    top = jnp.max(terms, axis=0)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0.0))
    return top + jnp.log(jnp.tensordot(jnp.ones(terms.shape[0]), jnp.exp(terms - top), axes=1))


def floored(log_target: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln p with a finite, forbidding value where it is not finite."""
    finite = jnp.isfinite(log_target)
    lowest = jnp.min(jnp.where(finite, log_target, jnp.inf))
    return jnp.where(finite, log_target, jnp.where(jnp.isfinite(lowest), lowest, 0.0) - FLOOR_BELOW_WORST)


def estimates(table: Table, weights: Float[Array, " slots"]) -> TableEstimates:
    """Prepare the table for work near `weights` (they set the centring constant)."""
    n_slots, n_draws = table.log_target.shape
    filled = table.filled
    log_components = jnp.where(filled[:, None, None], table.log_components, -jnp.inf)
    log_reference = log_sum_exp(log_components) - jnp.log(jnp.sum(filled))
    log_reference = jnp.where(filled[:, None], log_reference, 0.0)

    log_target = floored(jnp.where(filled[:, None], table.log_target, jnp.inf))

    share = jnp.broadcast_to(filled[:, None] / (jnp.sum(filled) * n_draws), (n_slots, n_draws))
    prepared = TableEstimates(
        # An unfilled slot's draws are at the origin, where a component's density means nothing: ratio 0, not 0·∞.
        log_ratios=jnp.where(filled[:, None], log_components - log_reference, -jnp.inf).reshape(n_slots, -1),
        log_target_ratio=jnp.where(filled[:, None], log_reference - log_target, 0.0).ravel(),
        share=share.ravel(),
        log_reference=log_reference.ravel(),
        slot_of=jnp.repeat(jnp.arange(n_slots), n_draws),
        center=jnp.zeros(()),
    )
    return recenter(prepared, weights)


def recenter(estimates: TableEstimates, weights: Float[Array, " slots"]) -> TableEstimates:
    """The same table with c at the self-normalised estimate of F(w)."""
    x = estimates.x(weights)
    mass = estimates.share * x
    value = jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, x, 1.0)) + estimates.log_target_ratio, 0.0)
    return replace(estimates, center=jnp.sum(mass * value) / jnp.sum(mass))
