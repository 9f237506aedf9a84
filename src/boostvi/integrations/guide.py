"""The fitted mixture as a NumPyro guide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Distribution, constraints
from numpyro.infer.autoguide import AutoContinuous

from boostvi import mixture as mixtures
from boostvi.mixture import Mixture

PREFIX = "boostvi"
PARAM = f"{PREFIX}_mixture"


class MixtureGuide(AutoContinuous):
    """A guide for output: `Predictive(model, guide=guide, params=guide.params, num_samples=n)`, `sample_posterior`.

    It holds the fitted mixture; another one of the same family may be given as `params`. Do not train it with SVI: a
    choice between components has no reparameterised gradient.
    """

    def __init__(self, model: Callable[..., Any], mixture: Mixture):
        super().__init__(model, prefix=PREFIX)
        self.params = {PARAM: {"params": mixture.params, "weights": mixture.weights}}
        self.family, self.warp = mixture.family, mixture.warp

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        with numpyro.handlers.seed(rng_seed=0):
            super()._setup_prototype(*args, **kwargs)
        sizes = {name: np.size(value) for name, value in self._init_locs.items()}
        ours = {}  # our flat vector has the sites in the order of their names, NumPyro's in the order of the model
        begin = 0
        for name in sorted(sizes):
            ours[name] = np.arange(begin, begin + sizes[name])
            begin += sizes[name]
        self._order = np.concatenate([ours[name] for name in sizes])

    def _get_posterior(self) -> Distribution:
        stored = numpyro.param(PARAM, self.params[PARAM])
        params, weights = jax.tree.map(jnp.asarray, (stored["params"], stored["weights"]))
        return MixtureDistribution(Mixture(params, weights, self.family, self.warp), self._order)


class MixtureDistribution(Distribution):
    """A mixture on R^d as a NumPyro distribution, its coordinates in the given order."""

    support = constraints.real_vector
    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("mixture", "order")

    def __init__(self, mixture: Mixture, order: Any, *, validate_args: bool | None = None):
        self.mixture = mixture
        self.order = order
        super().__init__(batch_shape=(), event_shape=(mixture.dim,), validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        n = math.prod(sample_shape)
        draws, _ = mixtures.draw(self.mixture, self.mixture.weights, key, n, stratified=False)
        if self.mixture.warp is not None:
            draws, _ = jax.vmap(self.mixture.warp.forward)(draws)
        return draws[:, self.order].reshape(*sample_shape, self.mixture.dim)

    def log_prob(self, value: Any) -> Any:
        return mixtures.traced_log_prob(self.mixture, value[..., jnp.argsort(jnp.asarray(self.order))])
