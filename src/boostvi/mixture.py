"""The approximation: a mixture in slots. A slot of weight 0 is free."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from boostvi import linear_mixture
from boostvi._jit import counted_jit, float64, map_chunked, new_key
from boostvi._struct import replace, static, struct
from boostvi.families.base import Family, Params
from boostvi.families.linear import LinearFamily
from boostvi.warp import Warp

GATHER_BYTES = 2**25
"""Component parameters gathered at once when drawing: bounds the memory of full-rank components."""


@struct
class Mixture:
    """q = Σ_k weights[k]·s_k, the components stacked along the first axis of every leaf of `params`.

    With a warp, that is the distribution of u, and the approximation is that of z = warp(u): the methods speak of z,
    the functions of this module, and all that fits the mixture, of u (see `Target.through`).
    """

    params: Params
    weights: Float[Array, " slots"]
    family: Family = static()
    warp: Warp | None = None

    @property
    def capacity(self) -> int:
        return self.weights.shape[0]

    @property
    def dim(self) -> int:
        return self.params["loc"].shape[-1]

    @property
    def n_active(self) -> int:
        return int(np.count_nonzero(np.asarray(self.weights)))

    @property
    def n_params(self) -> int:
        """Numbers that describe the active components, and the warp."""
        return self.n_active * self.family.n_params(self.dim) + (self.warp.n_params if self.warp is not None else 0)

    @property
    def family_name(self) -> str:
        """In words: the components' family, and whether a warp is before it."""
        if self.warp is None:
            return self.family.name
        n = len(self.warp.layers)
        return f"{self.family.name} behind a warp of {n} layer{'s' if n > 1 else ''}"

    # -- for people: concrete arrays in, NumPy arrays out, whatever the ambient precision

    @float64
    def sample(self, n: int, *, seed: int = 0) -> np.ndarray:
        """`n` independent draws, shape (n, dim)."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"n must be a positive integer, got {n!r}")
        if isinstance(self.family, LinearFamily):
            return self.warped(linear_mixture.draw(self, np.random.default_rng(seed), int(n), stratified=False)[0])
        return np.asarray(_sample(self, new_key(seed), int(n)))

    def warped(self, u: Any) -> np.ndarray:
        """z at the rows of u."""
        return np.asarray(u) if self.warp is None else self.warp.to_z(u)[0]

    def _behind(self, z: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
        """The u of the rows of z, and ln |det ∂z/∂u|."""
        return (z, np.zeros(len(z))) if self.warp is None else self.warp.to_u(z)

    @property
    def centres(self) -> np.ndarray:
        """Where the centre of each component lies."""
        return self.warped(self.params["loc"])

    def log_prob(self, z: Any) -> Any:
        """ln q(z) for z of shape (..., dim). Traceable: inside jit or grad it returns a JAX array."""
        if isinstance(z, jax.core.Tracer):
            return traced_log_prob(self, z)
        with jax.enable_x64(True):
            z = np.asarray(z, dtype=np.float64)
            if z.shape[-1:] != (self.dim,):
                raise ValueError(f"z must have shape (..., {self.dim}), got {z.shape}")
            if not isinstance(self.family, LinearFamily):
                return np.asarray(_log_prob(self, z))
            u, log_det = self._behind(z.reshape(-1, self.dim))
            return (linear_mixture.log_prob(self, u) - log_det).reshape(z.shape[:-1])

    @float64
    def component_log_probs(self, z: Any) -> np.ndarray:
        """ln s_k at the rows of z, one column for each component."""
        z = np.asarray(z, dtype=np.float64)
        if not isinstance(self.family, LinearFamily):
            return np.asarray(_log_components(self, z))
        u, log_det = self._behind(z)
        return linear_mixture.log_components(self, u) - log_det[:, None]

    @float64
    def components_of(self, z: Any, *, seed: int = 0) -> np.ndarray:
        """A component for each row of z, drawn with the probability that z came from it."""
        log_shares = np.asarray(log_weights(self.weights)) + self.component_log_probs(z)
        return np.argmax(log_shares + np.random.default_rng(seed).gumbel(size=log_shares.shape), axis=1)

    def active(self) -> Mixture:
        """The same distribution without its free slots, heaviest component first, as NumPy arrays."""
        weights = np.asarray(self.weights)
        order = np.argsort(-weights, kind="stable")[: max(1, np.count_nonzero(weights))]
        params = jax.tree.map(lambda leaf: np.asarray(leaf)[order], self.params)
        return replace(self, params=params, weights=weights[order], warp=jax.tree.map(np.asarray, self.warp))


def empty(family: Family, dim: int, capacity: int) -> Mixture:
    """A mixture whose slots are all free (at harmless parameters)."""
    loc = jnp.zeros(dim)
    params = family.freeze(family.init(new_key(0), loc, loc + 1.0))
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (capacity, *leaf.shape)), params)
    return Mixture(stacked, jnp.zeros(capacity), family)


def of(family: Family, params: Params, weights: Any, warp: Warp | None = None) -> Mixture:
    """A mixture of exactly these components (frozen parameters, stacked), on the host."""
    return Mixture({name: np.asarray(leaf) for name, leaf in params.items()}, np.asarray(weights), family, warp)  # type: ignore[arg-type]


def insert(mixture: Mixture, slot: Int[Array, ""], params: Params) -> Mixture:
    """Put a component into a slot; its weight stays what it was (0 for a free slot)."""
    frozen = mixture.family.freeze(params)
    return replace(mixture, params=jax.tree.map(lambda all_, one: all_.at[slot].set(one), mixture.params, frozen))


def component(mixture: Mixture, slot: Int[Array, ""]) -> Params:
    return jax.tree.map(lambda leaf: leaf[slot], mixture.params)


def log_weights(weights: Float[Array, " slots"]) -> Float[Array, " slots"]:
    """ln w with −inf for free slots, never differentiating through log 0."""
    active = weights > 0
    return jnp.where(active, jnp.log(jnp.where(active, weights, 1.0)), -jnp.inf)


def log_components(mixture: Mixture, z: Float[Array, " dim"]) -> Float[Array, " slots"]:
    """ln s_k(z) for every slot, at one point."""
    return jax.vmap(mixture.family.log_prob, in_axes=(0, None))(mixture.params, z)


def log_prob(mixture: Mixture, z: Float[Array, "... dim"]) -> Float[Array, "..."]:
    """ln q(z)."""
    if z.ndim > 1:
        return jax.vmap(log_prob, in_axes=(None, 0))(mixture, z)
    return jax.nn.logsumexp(log_weights(mixture.weights) + log_components(mixture, z))


def traced_log_prob(mixture: Mixture, z: Float[Array, "... dim"]) -> Float[Array, "..."]:
    """ln q(z), with the warp, inside a traced program."""
    if mixture.warp is None:
        return log_prob(mixture, z)
    if z.ndim > 1:
        return jax.vmap(traced_log_prob, in_axes=(None, 0))(mixture, z)
    u = mixture.warp.backward(z)
    return log_prob(mixture, u) - mixture.warp.forward(u)[1]


def draw(
    mixture: Mixture, weights: Float[Array, " slots"], key: Array, n: int, stratified: bool = True
) -> tuple[Float[Array, "n dim"], Float[Array, " n"]]:
    """`n` draws of the mixture with these weights, and ln q at each.

    Stratified draws visit each component in proportion to its weight (unbiased, and never noisier than independent
    ones). The own component's log density comes from the draw's noise, so an ill-conditioned solve cannot invent any.
    """
    key_slot, key_noise = jax.random.split(key)
    if stratified:
        points = (jnp.arange(n) + jax.random.uniform(key_slot, (n,))) / n
    else:
        points = jax.random.uniform(key_slot, (n,))
    last = mixture.capacity - 1 - jnp.argmax((weights > 0)[::-1])
    slots = jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), points * jnp.sum(weights), side="right"), last)

    def one(slot_and_noise):
        slot, noise = slot_and_noise
        z, own = mixture.family.sample_and_log_prob(component(mixture, slot), noise)
        terms = log_components(mixture, z).at[slot].set(own)
        return z, jax.nn.logsumexp(log_weights(weights) + terms)

    bytes_each = sum(leaf.nbytes for leaf in jax.tree.leaves(mixture.params)) // mixture.capacity
    chunk = max(1, GATHER_BYTES // bytes_each)
    return map_chunked(one, (slots, mixture.family.noise(key_noise, (n, mixture.dim))), chunk)


@counted_jit(static_argnums=2)
def _sample(mixture: Mixture, key: Array, n: int) -> Float[Array, "n dim"]:
    return draw(mixture, mixture.weights, key, n, stratified=False)[0]


@counted_jit
def _log_components(mixture: Mixture, z: Float[Array, "n dim"]) -> Float[Array, "n slots"]:
    return map_chunked(lambda one: log_components(mixture, one), z, 1024)


@counted_jit
def _log_prob(mixture: Mixture, z: Float[Array, "... dim"]) -> Float[Array, "..."]:
    return log_prob(mixture, z)
