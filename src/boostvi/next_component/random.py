"""A random component: the subproblem of Fig. 1 (left)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from boostvi._jit import counted_jit
from boostvi._struct import struct
from boostvi.next_component.base import NextComponent, Proposal
from boostvi.next_component.starts import from_prior


@struct
class RandomComponent(NextComponent):
    """Located by `target.init`, scale softplus(N(0, 1)); nothing is optimised."""

    name = "random"

    def __call__(self, target, mixture, table, t, key):
        return _random(target, mixture.family, key)


@counted_jit(static_argnums=1)
def _random(target, family, key):
    params = jax.tree.map(lambda leaf: leaf[0], from_prior(target, family, key, 1))
    return Proposal(params, jnp.asarray(jnp.nan), jnp.asarray(0), jnp.asarray(0))
