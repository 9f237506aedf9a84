"""PyMC models with continuous latent variables."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from boostvi import trees
from boostvi._jit import float64, map_chunked
from boostvi.model import Draws
from boostvi.target import Target

START_DRAWS = 256
"""Prior draws made once, from which `init` picks its starting points."""
LIKELIHOOD_ROWS = 512
"""Draws whose log likelihood is computed at a time."""


def from_pymc(model: Any) -> Target:
    """The posterior of a `pymc.Model` on its unconstrained space, with the data that the model holds now.

    Draws of the result come back constrained, with the model's deterministics; dims and coords travel along. Starting
    points are drawn from the prior, or jittered around `initval` where the model gives one. The log density is PyMC's
    own, translated to JAX: no PyTensor code runs during the fit.
    """
    try:
        import pymc
    except ImportError as error:
        raise ImportError("from_pymc needs PyMC: pip install 'boostvi[pymc]'") from error
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model must be a pymc.Model, the object of `with pymc.Model() as model`, got {model!r}")
    _check(model)
    return _target(model)


@float64
def _target(model: Any) -> Target:
    starts = _starts(model)
    shapes = [np.shape(value) for value in starts[0]]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    points = np.stack([np.concatenate([np.ravel(value) for value in start]) for start in starts])

    def split(z: jax.Array) -> list[jax.Array]:
        return [part.reshape(shape) for part, shape in zip(jnp.split(z, ends[:-1]), shapes, strict=True)]

    def init(key: jax.Array) -> jax.Array:
        return jnp.asarray(points)[jax.random.randint(key, (), 0, len(points))]

    sites = model.free_RVs + model.deterministics
    log_density = _jaxified(model.value_vars, [model.logp()])
    constrained = _jaxified(model.value_vars, model.replace_rvs_by_values(sites))
    labelled = [trees.labels({rv.name: np.zeros(s)}) for rv, s in zip(model.free_RVs, shapes, strict=True)]
    return Target(
        lambda z: log_density(*split(z))[0],
        int(ends[-1]),
        init,
        constrain=lambda z: dict(zip([site.name for site in sites], constrained(*split(z)), strict=True)),
        names=[label for labels in labelled for label in labels],
        model=PymcModel(model),
    )


class PymcModel:
    """The model, for predictions and reports. After `pymc.set_data` its predictions are those for the new data."""

    name = "pymc"

    def __init__(self, model: Any):
        self.model = model
        self.dims: Mapping[str, tuple[str, ...]] = {
            name: tuple(dim if dim is not None else f"{name}_dim_{i}" for i, dim in enumerate(dims))
            for name, dims in model.named_vars_to_dims.items()
        }
        self.coords: Mapping[str, Any] = {
            name: np.asarray(values) for name, values in model.coords.items() if values is not None
        }

    @cached_property
    def observed(self) -> Draws:
        return _observed(self.model)

    @float64
    def log_likelihood(self, draws: Draws) -> Draws:
        return {name: np.asarray(values) for name, values in self._pointwise(dict(draws)).items()}

    @cached_property
    def _pointwise(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        from pymc.model.transform.conditioning import remove_value_transforms

        plain = remove_value_transforms(
            self.model
        )  # a copy, whose values are the constrained ones; its order may differ
        function = _jaxified(plain.value_vars, plain.logp(plain.observed_RVs, sum=False))
        latents, observed = ([rv.name for rv in rvs] for rvs in (plain.free_RVs, plain.observed_RVs))

        def one(draw: dict[str, Any]) -> dict[str, Any]:
            return dict(zip(observed, function(*(draw[name] for name in latents)), strict=True))

        return jax.jit(lambda draws: map_chunked(one, {name: draws[name] for name in latents}, LIKELIHOOD_ROWS))

    def posterior_predictive(self, draws: Draws, seed: int = 0) -> Draws:
        """By hand, as PyMC's own function draws latents anew whose dims or data are not in the trace's coords."""
        from pymc.pytensorf import compile as compile_function

        latents, observed = self.model.free_RVs, self.model.observed_RVs
        # not compiled: one pass through NumPy per draw costs less than a C compiler
        function = compile_function(latents, observed, random_seed=seed, mode="FAST_COMPILE", on_unused_input="ignore")
        columns = [np.asarray(draws[rv.name], dtype=rv.dtype) for rv in latents]
        replicates = [function(*row) for row in zip(*columns, strict=True)]
        return {rv.name: np.stack(values) for rv, values in zip(observed, zip(*replicates, strict=True), strict=True)}


def _check(model: Any) -> None:
    """Refuse what cannot be fitted, naming it."""
    from pymc.data import MinibatchOp
    from pytensor.graph.traversal import ancestors

    if not model.free_RVs:
        raise ValueError("the model has no latent variables: every variable is observed or deterministic")
    for rv in model.free_RVs:
        if np.issubdtype(model.rvs_to_values[rv].dtype, np.floating):
            continue
        if rv.name.endswith("_unobserved"):
            raise ValueError(
                f"{rv.name!r} stands for the missing values of discrete observations; boostvi needs continuous latent "
                "variables: leave those rows out"
            )
        raise ValueError(
            f"{rv.name!r} is a discrete latent variable; boostvi needs continuous ones: sum it out of the model, for "
            "example with pymc.Mixture"
        )
    for rv in model.observed_RVs:
        graph = ancestors([rv, model.rvs_to_values[rv]])
        if any(node.owner is not None and isinstance(node.owner.op, MinibatchOp) for node in graph):
            raise ValueError(f"observed variable {rv.name!r} uses pymc.Minibatch; pass it all of the data instead")
    for name, values in _observed(model).items():
        missing = int(np.isnan(np.asarray(values, dtype=np.float64)).sum())
        if missing:
            raise ValueError(f"observed variable {name!r} has {missing} NaN values; remove or impute them")
    if not model.observed_RVs and not model.potentials:
        warnings.warn(
            "the model has no observed variable: this is a fit of the prior. Pass the data with observed=", stacklevel=3
        )


def _observed(model: Any) -> Draws:
    from pymc.backends.arviz import find_observations

    return {name: np.asarray(values) for name, values in find_observations(model).items()}


def _starts(model: Any) -> list[list[np.ndarray]]:
    """Unconstrained starting values, in the order of `model.free_RVs`."""
    from pymc.initial_point import make_initial_point_fn

    given = {rv for rv in model.free_RVs if model.rvs_to_initial_values.get(rv) is not None}
    for strategy, jittered in (("prior", given), ("support_point", set(model.free_RVs))):
        draw = make_initial_point_fn(model=model, default_strategy=strategy, jitter_rvs=jittered)
        try:
            starts = [list(draw(seed).values()) for seed in range(START_DRAWS)]
        except NotImplementedError:  # an improper prior: start where pymc.sample does
            continue
        finite = [start for start in starts if all(np.isfinite(value).all() for value in start)]
        if finite:
            return finite
    raise ValueError("no finite starting point was found; pass initval= to the model's variables")


def _jaxified(inputs: list[Any], outputs: list[Any]) -> Callable[..., Any]:
    with _settings_kept():
        from pymc.sampling.jax import get_jaxified_graph
    try:
        return get_jaxified_graph(inputs=inputs, outputs=outputs)
    except (NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"PyMC cannot translate this model to JAX: {reason}") from error


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Importing PyMC's JAX part switches 64 bits on for the whole process and asks XLA for 100 devices: undo both."""
    flags, x64 = os.environ.get("XLA_FLAGS"), _global_x64()
    try:
        yield
    finally:
        if _global_x64() != x64:
            jax.config.update("jax_enable_x64", x64)
        if flags is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = flags


def _global_x64() -> bool:
    """The global switch, read in a thread that no scope around this call reaches."""
    found = []
    thread = threading.Thread(target=lambda: found.append(jax.config.jax_enable_x64))  # type: ignore[attr-defined]
    thread.start()
    thread.join()
    return bool(found[0])
