"""Line 3 of Algorithm 1: the next component."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from boostvi._jit import map_chunked
from boostvi._struct import static, struct
from boostvi.families.base import Family, Params
from boostvi.mixture import Mixture
from boostvi.table import Table
from boostvi.target import Target


@struct
class Proposal:
    """A component with what finding it cost. A search may find none (params=None), or several at once (`others`)."""

    params: Params | None
    value: Float[Array, ""]  # its objective on fresh draws; NaN when nothing was compared
    evals: Int[Array, ""]
    nonfinite: Int[Array, ""]  # draws left out of gradients because ∇ ln p was not finite there
    others: tuple[Params, ...] = ()
    shares: Float[Array, " components"] | None = None  # of the mass, where the search knows them
    gap: Float[Array, ""] | None = None  # the Frank-Wolfe gap towards the first, where the search knows it
    family: Family | None = static(default=None)  # of a first component, where the search chose it


class NextComponent(ABC):
    """`rule(target, mixture, table, t, key) -> Proposal`.

    exhaustible: the search can come back empty-handed; a run with it has not converged before it did.
    """

    name: ClassVar[str]
    exhaustible: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, target: Target, mixture: Mixture, table: Table, t: Int[Array, ""], key: Array) -> Proposal:
        """The component to add to `mixture` at step t (1 at the first boosting step)."""


class FirstComponent(ABC):
    """`rule(target, family, key) -> Proposal`: q_0."""

    name: ClassVar[str]

    @abstractmethod
    def __call__(self, target: Target, family: Family, key: Array) -> Proposal:
        """The component to start from."""


class Objective(Protocol):
    """What an optimiser climbs. `variables` holds the component, and whatever else is optimised with it."""

    @property
    def target(self) -> Target: ...
    @property
    def family(self) -> Family: ...

    def variables(self, params: Params) -> Any:
        """The variables for a component at the start."""

    def component(self, variables: Any) -> Params:
        """The component in the variables."""

    def gradient(self, variables: Any, noise: Any) -> tuple[Any, Int[Array, ""]]:
        """An unbiased gradient from a batch of draws, and how many of them were left out."""

    def value(self, variables: Any, noise: Any) -> Float[Array, ""]:
        """The objective on a batch of draws, differentiable."""


class Optimiser(ABC):
    """Climbs an objective from several starts at once."""

    name: ClassVar[str]

    @abstractmethod
    def maximise(self, objective: Objective, starts: Any, key: Array) -> tuple[Any, Any, Any]:
        """Optimised variables from each start (stacked), target evaluations, draws left out of gradients."""


def pathwise(
    residual: Any, family: Family, params: Params, noise: Any, chunk: int
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"], Float[Array, "draws dim"], Int[Array, ""]]:
    """Draws, the residual R there, ∇R (0 where it is not finite), and how many were not finite."""
    z = jax.vmap(family.sample, in_axes=(None, 0))(params, noise)
    values, gradients = map_chunked(jax.value_and_grad(residual), z, chunk)
    finite = jnp.all(jnp.isfinite(gradients), axis=-1) & jnp.isfinite(values)
    return z, values, jnp.where(finite[:, None], gradients, 0.0), jnp.sum(~finite)
