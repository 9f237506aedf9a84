"""Adam inside one compiled scan: the paper's optimiser of the subproblem."""

from __future__ import annotations

import math
from typing import Any

import jax
import optax
from jaxtyping import Array

from boostvi._jit import counted_jit
from boostvi._struct import check, check_count, replace, static, struct
from boostvi.next_component.base import Objective, Optimiser


@struct
class Adam(Optimiser):
    """`steps` iterations with `draws` reparameterised draws each; the last iterate is returned.

    A target with minibatches is seen through a new one at every step, and counts as that share of an evaluation.

    learning_rate falls by the factor `decay` every `decay_every` steps. The defaults are the authors' settings.
    """

    learning_rate: float = 0.1
    decay: float = 0.9
    decay_every: int = 100
    steps: int = static(default=1000)
    draws: int = static(default=1)

    name = "adam"

    def __post_init__(self):
        check("learning_rate", self.learning_rate, lambda v: v > 0, "positive")
        check("decay", self.decay, lambda v: 0 < v <= 1, "in (0, 1]")
        check_count("decay_every", self.decay_every)
        check_count("steps", self.steps)
        check_count("draws", self.draws)

    def maximise(self, objective: Objective, starts: Any, key: Array) -> tuple[Any, Any, Any]:
        variables, nonfinite = _climb(self, objective, starts, key)
        gradients = jax.tree.leaves(starts)[0].shape[0] * self.steps * self.draws
        minibatch = objective.target.minibatch
        return variables, gradients if minibatch is None else math.ceil(gradients * minibatch.share), nonfinite


@counted_jit
def _climb(adam: Adam, objective: Objective, starts: Any, key: Array) -> tuple[Any, Array]:
    target = objective.target

    def rate(i):
        return adam.learning_rate * adam.decay ** (i // adam.decay_every)

    rule = optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(rate))  # plus signs: it climbs

    def climb(start, key):
        def iterate(carry, key):
            variables, memory = carry
            noise = objective.family.noise(key, (adam.draws, target.dim))
            sampled = replace(objective, target=target.subsampled(jax.random.fold_in(key, 1)))
            gradient, nonfinite = sampled.gradient(variables, noise)
            update, memory = rule.update(gradient, memory)
            return (optax.apply_updates(variables, update), memory), nonfinite

        (variables, _), nonfinite = jax.lax.scan(iterate, (start, rule.init(start)), jax.random.split(key, adam.steps))
        return variables, nonfinite.sum()

    count = jax.tree.leaves(starts)[0].shape[0]
    variables, nonfinite = jax.vmap(climb)(starts, jax.random.split(key, count))
    return variables, nonfinite.sum()
