"""What a NumPyro model's sites tell before anything is fitted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import ImproperUniform, Unit
from numpyro.distributions.transforms import biject_to
from numpyro.infer.initialization import init_to_uniform

UNIFORM_RADIUS = 2.0
"""Unconstrained starting values of sites whose prior is improper are drawn from U(−2, 2), as NumPyro and Stan do."""


def trace_of(model: Callable[..., Any], args: Any, kwargs: Any, abstract: bool = True) -> Any:
    """Sites of one execution; of an abstract one nothing is compiled or computed. Improper priors cannot be sampled:
    they start from a uniform draw instead."""
    sites: dict[str, Any] = {}

    def run(key: jax.Array) -> None:
        uniform = init_to_uniform(radius=UNIFORM_RADIUS)
        seeded = handlers.substitute(handlers.seed(model, key), substitute_fn=uniform)
        sites.update(handlers.trace(seeded).get_trace(*args, **kwargs))

    try:
        if abstract:
            jax.eval_shape(run, jax.random.key(0))  # not `new_key`: its generator has no Poisson draws
        else:
            run(jax.random.key(0))
    except Exception as error:
        raise ValueError(
            f"the model raised {type(error).__name__} when called with the given arguments: {error}"
        ) from error
    return sites


def own_arguments(model: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments, as JAX arrays if the model indexes a NumPy array by something traced (rows of a plate, say).

    NumPy arrays are seen through new views: JAX remembers the precision that an array object was traced with, and the
    caller's own objects must stay free for float32 (see docs/numerics.md).
    """
    args, kwargs = jax.tree.map(lambda leaf: leaf.view() if isinstance(leaf, np.ndarray) else leaf, (args, kwargs))
    try:
        trace_of(model, args, kwargs)
    except ValueError as error:
        if isinstance(error.__cause__, jax.errors.TracerArrayConversionError):
            return jax.tree.map(
                lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, (args, kwargs)
            )
        raise
    return args, kwargs


def is_latent(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _base(distribution: Any) -> Any:
    while hasattr(distribution, "base_dist"):  # expanded, made an event, or masked
        distribution = distribution.base_dist
    return distribution


def _is_improper(distribution: Any) -> bool:
    return isinstance(_base(distribution), ImproperUniform)


def prior_draw(model: Callable[..., Any], args: Any, kwargs: Any, key: jax.Array, latents: list[str]) -> dict:
    """One draw of the prior on the unconstrained space."""

    def improper_only(site):
        if is_latent(site) and _is_improper(site["fn"]):
            return init_to_uniform(site, radius=UNIFORM_RADIUS)
        return None

    seeded = handlers.seed(model, key)
    trace = handlers.trace(handlers.substitute(seeded, substitute_fn=improper_only)).get_trace(*args, **kwargs)
    return {name: biject_to(trace[name]["fn"].support).inv(trace[name]["value"]) for name in latents}


def may_be_nan(site: dict[str, Any]) -> bool:
    """Whether an observed value has NaN in it, or is computed by the model, which an abstract execution does not do."""
    if site["type"] != "sample" or not site["is_observed"]:
        return False
    value = site["value"]
    return isinstance(value, jax.core.Tracer) or bool(np.isnan(np.asarray(value, dtype=np.float64)).any())


def reject_nan_data(trace: Any) -> None:
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


def is_data(site: dict[str, Any]) -> bool:
    """Whether it is an observed site, and not a `numpyro.factor`."""
    return site["type"] == "sample" and site["is_observed"] and not isinstance(_base(site["fn"]), Unit)


def check_sites(trace: Mapping[str, Any], data: Any) -> list[str]:
    """The latent sites of a model that was given `data`.

    What boostvi cannot fit is refused, and what is probably a slip is warned of.
    """
    for name, site in trace.items():
        if site["type"] == "param":
            raise ValueError(
                f"site {name!r} is a numpyro.param, which has no prior; give it one with numpyro.sample, or fix its "
                "value with numpyro.handlers.substitute"
            )
    latents = [name for name, site in trace.items() if is_latent(site)]
    discrete = [name for name in latents if trace[name]["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"site {discrete[0]!r} is a discrete latent variable; boostvi needs continuous ones: sum it out of the "
            "model, for example with MixtureSameFamily or a factor statement"
        )
    if not latents:
        raise ValueError("the model has no latent variables: every sample site is observed")
    observed = {name: site for name, site in trace.items() if site["type"] == "sample" and site["is_observed"]}
    if not observed and any(np.ndim(leaf) > 0 for leaf in jax.tree.leaves(data)):
        warnings.warn(
            "the model was given data but has no observed site, so this is a fit of the prior: pass the observations "
            "with obs= in numpyro.sample",
            stacklevel=4,
        )
    for name, site in observed.items():
        if is_data(site) and 0 in np.shape(site["value"]):
            warnings.warn(f"observed site {name!r} is empty: it says nothing about the parameters", stacklevel=4)
    return latents


def dims_of(trace: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Names of the axes of each site: those of its plates, numbered for the others."""
    dims = {}
    for name, site in trace.items():
        if site["type"] not in ("sample", "deterministic"):
            continue
        shape = np.shape(site["value"])
        axes = [f"{name}_dim_{i}" for i in range(len(shape))]
        event_dim = site["fn"].event_dim if site["type"] == "sample" else 0
        for frame in site.get("cond_indep_stack", []):
            axis = frame.dim - event_dim
            if -axis <= len(shape) and shape[axis] == frame.size:
                axes[axis] = frame.name
        if axes:
            dims[name] = tuple(axes)
    return dims
