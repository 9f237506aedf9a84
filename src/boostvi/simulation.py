"""Data sets drawn from a generative NumPyro model, and their targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from boostvi._jit import counted_jit, new_key
from boostvi.target import Target
from boostvi.trees import columns


class Simulation:
    """A generative model: draws of its prior with data, and one target per data set that all share their programs."""

    def __init__(self, model: Any, args: Any, kwargs: Any, observed: Any, sites: Any):
        from boostvi.integrations.numpyro_sites import check_sites, own_arguments, trace_of

        if not callable(model):
            raise TypeError(f"model must be a NumPyro model function, got {model!r}")
        args, kwargs = own_arguments(_seeded(model), args, kwargs)
        self.model, self.args, self.kwargs = model, args, kwargs
        trace = trace_of(_seeded(model), args, kwargs)
        self.observed = _observed(trace, observed)
        _check_generative(trace, self.observed)
        fitted = {
            name: {**site, "is_observed": True} if name in self.observed else site for name, site in trace.items()
        }
        self.latents = check_sites(fitted, (args, kwargs))
        self.sites = _looked_at(trace, self.latents, sites)

    def draw(self, n: int, seed: int) -> tuple[dict[str, np.ndarray], jax.Array]:
        """n draws of the prior by label, and their data as flat rows."""
        from numpyro import handlers

        free, key = handlers.uncondition(self.model), jax.random.key(seed)

        def one(i):
            trace = handlers.trace(handlers.seed(free, jax.random.fold_in(key, i))).get_trace(*self.args, **self.kwargs)
            return tuple({name: trace[name]["value"] for name in names} for names in (self.sites, self.observed))

        _, like = jax.eval_shape(one, 0)
        _, self.unravel_data = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like))
        truths, data = jax.jit(lambda rows: jax.lax.map(one, rows))(np.arange(n))
        return columns(truths), jax.vmap(lambda row: ravel_pytree(row)[0])(data)

    def targets(self, data: jax.Array) -> Iterator[Target | None]:
        """One target per row of data; None where they are not finite.

        The first is traced with its data as a constant of the log density. A constant is a leaf of the target's pytree,
        an argument of every compiled program: the others are the same tree with another leaf.
        """
        finite = np.asarray(np.isfinite(np.asarray(data, dtype=np.float64)).all(axis=1))
        if not finite.any():
            raise ValueError("the simulated data are never finite: the prior allows what the model cannot compute")
        first = data[int(np.argmax(finite))]
        template = self._target(first)
        self.unravel = template.unravel
        leaves, tree = jax.tree.flatten(template)
        if not any(leaf is first for leaf in leaves):
            raise ValueError(f"the log density does not depend on the data sites {', '.join(self.observed)}")
        for row, usable in zip(data, finite, strict=True):
            yield jax.tree.unflatten(tree, [row if leaf is first else leaf for leaf in leaves]) if usable else None

    def _target(self, row: jax.Array) -> Target:
        from numpyro.infer.util import potential_energy

        from boostvi.integrations.numpyro_sites import prior_draw

        def given(*args, **kwargs):
            return self._given(row)(*args, **kwargs)

        def start(key):
            return prior_draw(given, self.args, self.kwargs, key, self.latents)

        shapes = jax.eval_shape(start, new_key(0))
        return Target(lambda z: -potential_energy(given, self.args, self.kwargs, z), shapes, start)

    def columns(self, row: jax.Array, draws: np.ndarray) -> dict[str, np.ndarray]:
        """The sites looked at, in the model's own space, as scalar columns."""
        return columns(jax.tree.map(np.asarray, self._constrained(row, draws)))

    @cached_property
    def _constrained(self) -> Any:
        from numpyro.infer.util import constrain_fn

        @counted_jit
        def constrained_sites(row, draws):
            given = self._given(row)

            def one(z):
                own = constrain_fn(given, self.args, self.kwargs, self.unravel(z), return_deterministic=True)
                return {name: own[name] for name in self.sites}

            return jax.vmap(one)(draws)

        return constrained_sites

    def _given(self, row: jax.Array) -> Any:
        """The model with these data in place of its own."""
        from numpyro import handlers

        return handlers.condition(self.model, data=self.unravel_data(row))


def _seeded(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model with a key of JAX's default generator, the only one that can draw Poisson variables."""
    from numpyro import handlers

    return lambda *args, **kwargs: handlers.seed(model, jax.random.key(0))(*args, **kwargs)


def _observed(trace: Mapping[str, Any], observed: Any) -> list[str]:
    """The sites to simulate as data: the observed ones of the model, and those named."""
    from boostvi.integrations.numpyro_sites import is_data

    found = [name for name, site in trace.items() if is_data(site)]
    if observed is None:
        if not found:
            raise ValueError("the model has no observed site; pass its data, or name the data sites with observed=")
        return found
    named = [observed] if isinstance(observed, str) else list(observed)
    samples = [name for name, site in trace.items() if site["type"] == "sample"]
    for name in named:
        if name not in samples:
            raise ValueError(f"observed={name!r} is not a sample site; the model has {', '.join(map(repr, samples))}")
    left = [name for name in found if name not in named]
    if left:
        raise ValueError(f"the model observes {left[0]!r} too; name it in observed= so that it is simulated as well")
    return named


def _check_generative(trace: Mapping[str, Any], observed: Sequence[str]) -> None:
    """Refuse a model whose log density is not that of what it simulates."""
    from boostvi.integrations import numpyro_sites

    for name, site in trace.items():
        if site["type"] != "sample":
            continue
        if name not in observed and site["is_observed"]:
            raise ValueError(
                f"site {name!r} is a factor: it changes the posterior, but nothing can be simulated from it"
            )
        if numpyro_sites._is_improper(site["fn"]):
            raise ValueError(
                f"the prior of {name!r} is improper: nothing can be simulated from it; give it a proper one"
            )
        if site.get("scale") is not None:
            raise ValueError(
                f"the log density of site {name!r} is scaled (handlers.scale, or a plate with subsample_size), so it "
                "is not that of simulated data; leave the scaling out"
            )
        if site["is_observed"] and site.get("_control_flow_done"):
            raise ValueError(
                f"site {name!r} is observed inside a scan or cond, where its data cannot be replaced; pass None for "
                f"them and observed=[{name!r}]"
            )


def _looked_at(trace: Mapping[str, Any], latents: Sequence[str], sites: Any) -> list[str]:
    if sites is None:
        return list(latents)
    known = [*latents, *(name for name, site in trace.items() if site["type"] == "deterministic")]
    chosen = [sites] if isinstance(sites, str) else list(sites)
    for name in chosen:
        if name not in known:
            raise ValueError(f"sites={name!r} is not known; choose among {', '.join(map(repr, known))}")
    return chosen
