"""NumPyro models with continuous latent variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import constrain_fn, potential_energy

from boostvi._jit import float64, new_key
from boostvi.target import Target

UNIFORM_RADIUS = 2.0
"""Unconstrained starting values of sites whose prior is improper are drawn from U(−2, 2), as NumPyro and Stan do."""


@float64
def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Target:
    """The posterior of `model(*args, **kwargs)` on its unconstrained space.

    Draws of the result come back constrained, with the model's deterministic sites. Starting points are drawn from the
    prior; sites with an improper prior start uniformly on (−2, 2) in unconstrained space.
    """
    if not callable(model):
        raise TypeError(f"model must be a NumPyro model function, got {model!r}")
    trace = _trace(model, args, kwargs)
    latents = [name for name, site in trace.items() if _is_latent(site)]
    discrete = [name for name in latents if trace[name]["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"site {discrete[0]!r} is a discrete latent variable; boostvi needs continuous ones: sum it out of the "
            "model, for example with MixtureSameFamily or a factor statement"
        )
    if not latents:
        raise ValueError("the model has no latent variables: every sample site is observed")
    if any(_may_be_nan(site) for site in trace.values()):
        _reject_nan_data(_trace(model, args, kwargs, abstract=False))
    shapes = jax.eval_shape(lambda key: _prior_draw(model, args, kwargs, key, latents), new_key(0))
    zeros = {name: np.zeros(shape.shape) for name, shape in shapes.items()}
    start, unravel = ravel_pytree(zeros)

    def init(key: jax.Array) -> jax.Array:
        return ravel_pytree(_prior_draw(model, args, kwargs, key, latents))[0]

    return Target(
        lambda z: -potential_energy(model, args, kwargs, unravel(z)),
        start.size,
        init,
        constrain=lambda z: constrain_fn(model, args, kwargs, unravel(z), return_deterministic=True),
        names=_names(zeros),
    )


def _trace(model: Callable[..., Any], args: Any, kwargs: Any, abstract: bool = True) -> Any:
    """Sites of one execution; of an abstract one nothing is compiled or computed. Improper priors cannot be sampled:
    they start from a uniform draw instead."""
    sites: dict[str, Any] = {}

    def run(key: jax.Array) -> None:
        uniform = init_to_uniform(radius=UNIFORM_RADIUS)
        seeded = handlers.substitute(handlers.seed(model, key), substitute_fn=uniform)
        sites.update(handlers.trace(seeded).get_trace(*args, **kwargs))

    try:
        if abstract:
            jax.eval_shape(run, new_key(0))
        else:
            run(new_key(0))
    except Exception as error:
        raise ValueError(
            f"the model raised {type(error).__name__} when called with the given arguments: {error}"
        ) from error
    return sites


def _is_latent(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _is_improper(distribution: Any) -> bool:
    while hasattr(distribution, "base_dist"):  # expanded, made an event, or masked
        distribution = distribution.base_dist
    return isinstance(distribution, numpyro.distributions.ImproperUniform)


def _prior_draw(model: Callable[..., Any], args: Any, kwargs: Any, key: jax.Array, latents: list[str]) -> dict:
    """One draw of the prior on the unconstrained space."""

    def improper_only(site):
        if _is_latent(site) and _is_improper(site["fn"]):
            return init_to_uniform(site, radius=UNIFORM_RADIUS)
        return None

    seeded = handlers.seed(model, key)
    trace = handlers.trace(handlers.substitute(seeded, substitute_fn=improper_only)).get_trace(*args, **kwargs)
    return {name: biject_to(trace[name]["fn"].support).inv(trace[name]["value"]) for name in latents}


def _may_be_nan(site: dict[str, Any]) -> bool:
    """Whether an observed value has NaN in it, or is computed by the model, which an abstract execution does not do."""
    if site["type"] != "sample" or not site["is_observed"]:
        return False
    value = site["value"]
    return isinstance(value, jax.core.Tracer) or bool(np.isnan(np.asarray(value, dtype=np.float64)).any())


def _reject_nan_data(trace: Any) -> None:
    for name, site in trace.items():
        if site["type"] != "sample" or not site["is_observed"]:
            continue
        value = site["value"]
        if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            continue
        missing = int(np.isnan(np.asarray(value)).sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPyro warns of the very NaN that is being looked for
            masked = missing and bool(jnp.isfinite(jnp.sum(site["fn"].log_prob(value))))
        if missing and not masked:
            raise ValueError(
                f"observed site {name!r} has {missing} NaN values; remove or impute them, or mask them with "
                "numpyro.handlers.mask"
            )


def _names(values: dict[str, Any]) -> list[str]:
    """One label per unconstrained coordinate, in the order of the flat vector."""
    labels = []
    for name in sorted(values):
        shape = jnp.shape(values[name])
        labels += [f"{name}[{','.join(map(str, index))}]" if index else name for index in np.ndindex(shape)]
    return labels
