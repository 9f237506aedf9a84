"""NumPyro models with continuous latent variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.util import constrain_fn, potential_energy

from boostvi import trees
from boostvi._jit import float64, new_key
from boostvi.integrations.guide import MixtureGuide
from boostvi.integrations.minibatch import AllRows, in_blocks, subsampled_plate
from boostvi.integrations.numpyro_sites import (
    check_sites,
    dims_of,
    is_data,
    may_be_nan,
    own_arguments,
    prior_draw,
    reject_nan_data,
    trace_of,
)  # fmt: skip
from boostvi.minibatch import Minibatch
from boostvi.mixture import Mixture
from boostvi.model import Draws
from boostvi.target import Target


@float64
def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Target:
    """The posterior of `model(*args, **kwargs)` on its unconstrained space.

    Draws of the result come back constrained, with the model's deterministic sites. Starting points are drawn from the
    prior; sites with an improper prior start uniformly on (−2, 2) in unconstrained space. A plate with subsample_size
    makes a target with minibatches: components are optimised on them, and judged on all data.
    """
    if not callable(model):
        raise TypeError(f"model must be a NumPyro model function, got {model!r}")
    args, kwargs = own_arguments(model, args, kwargs)
    plate = subsampled_plate(trace_of(model, args, kwargs))
    whole = model if plate is None else AllRows(model, plate)
    trace = trace_of(whole, args, kwargs)
    latents = check_sites(trace, (args, kwargs))
    if any(may_be_nan(site) for site in trace.values()):
        reject_nan_data(trace_of(whole, args, kwargs, abstract=False))
    shapes = jax.eval_shape(lambda key: prior_draw(whole, args, kwargs, key, latents), new_key(0))

    def log_density(model: Callable[..., Any], z: dict[str, jax.Array]) -> jax.Array:
        return -potential_energy(model, args, kwargs, z)

    density: Callable[[Any], jax.Array] = partial(log_density, model)
    minibatch = None
    if plate is not None:
        dim, unravel = trees.flattener(shapes)
        density = in_blocks(log_density, model, plate)
        minibatch = Minibatch(lambda z, key: log_density(handlers.seed(model, key), unravel(z)), dim, plate.share)
    return Target(
        density,
        shapes,
        lambda key: prior_draw(whole, args, kwargs, key, latents),
        constrain=lambda z: constrain_fn(whole, args, kwargs, z, return_deterministic=True),
        model=NumpyroModel(whole, args, kwargs, latents, dims_of(trace)),
        minibatch=minibatch,
    )


class NumpyroModel:
    """The model with its arguments, for predictions and reports."""

    name = "numpyro"
    coords: Mapping[str, Any] = {}

    def __init__(self, function: Any, args: Any, kwargs: Any, latents: list[str], dims: Mapping[str, Any]):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.latents = latents
        self.dims = dims

    @cached_property
    @float64
    def observed(self) -> Draws:
        trace = trace_of(self.function, self.args, self.kwargs, abstract=False)
        return {name: np.asarray(site["value"]) for name, site in trace.items() if is_data(site)}

    @float64
    def log_likelihood(self, draws: Draws) -> Draws:
        found = log_likelihood(self.function, self._latents_of(draws), *self.args, **self.kwargs)
        return {name: np.asarray(found[name]) for name in self.observed}

    @float64
    def posterior_predictive(self, draws: Draws, seed: int = 0) -> Draws:
        free = handlers.uncondition(self.function)
        predict = Predictive(free, self._latents_of(draws), return_sites=list(self.observed))
        return {name: np.asarray(v) for name, v in predict(jax.random.PRNGKey(seed), *self.args, **self.kwargs).items()}

    def guide(self, mixture: Mixture) -> MixtureGuide:
        """In the caller's precision. It knows the observations already: calls of it may leave them out."""
        arrays = (np.ndarray, jax.Array)
        args, kwargs = jax.tree.map(
            lambda leaf: jnp.asarray(np.array(leaf)) if isinstance(leaf, arrays) else leaf, (self.args, self.kwargs)
        )
        guide = MixtureGuide(self.function, mixture)
        guide._setup_prototype(*args, **kwargs)
        return guide

    def _latents_of(self, draws: Draws) -> dict[str, Any]:
        return {name: jnp.asarray(draws[name]) for name in self.latents}
