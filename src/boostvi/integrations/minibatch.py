"""NumPyro plates that are subsampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.primitives import Messenger

from boostvi.integrations.numpyro_sites import is_latent


@dataclass(frozen=True)
class Plate:
    name: str
    size: int
    subsample_size: int

    @property
    def share(self) -> float:
        return self.subsample_size / self.size


def subsampled_plate(trace: Mapping[str, Any]) -> Plate | None:
    """The plate that takes only some of its rows; latent variables inside it are refused, and so is a second one."""
    plates = [Plate(name, *site["args"]) for name, site in trace.items() if site["type"] == "plate"]
    found = [plate for plate in plates if plate.subsample_size not in (None, plate.size)]
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(
            f"plates {found[0].name!r} and {found[1].name!r} are both subsampled; boostvi takes minibatches of one "
            "plate: leave out subsample_size in the others"
        )
    (plate,) = found
    for name, site in trace.items():
        if is_latent(site) and any(frame.name == plate.name for frame in site["cond_indep_stack"]):
            raise ValueError(
                f"site {name!r} is a latent variable inside the subsampled plate {plate.name!r}: there is one for "
                "every row, and a minibatch updates only some of them. Leave out subsample_size, or sum the site out"
            )
    return plate


class Rows(Messenger):
    """The model with these rows of the plate instead of a random subsample."""

    def __init__(self, model: Callable[..., Any], plate: Plate, rows: Any):
        super().__init__(model)
        self.plate, self.rows = plate, rows

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate" and msg["name"] == self.plate.name:
            msg["value"] = jnp.asarray(self.rows)
            msg["args"] = (self.plate.size, self.rows.shape[0])


class AllRows(Rows):
    """The model with all its data."""

    def __init__(self, model: Callable[..., Any], plate: Plate):
        super().__init__(model, plate, jnp.arange(plate.size))


def in_blocks(
    log_density: Callable[[Any, Any], Array], model: Callable[..., Any], plate: Plate
) -> Callable[[Any], Array]:
    """ln p with all data, block by block, as large as the minibatch was: bounded memory, however many rows.

    A block of m of N rows gives prior + (N/m)·likelihood of the block, so Σ (m/N)·(that) is the whole.
    """
    size, block = plate.size, plate.subsample_size
    count = size // block
    blocks = jnp.arange(count * block).reshape(count, block)
    rest = jnp.arange(count * block, size)

    def whole(z: Any) -> Array:
        def add(total: Array, rows: Array) -> tuple[Array, None]:
            return total + (block / size) * log_density(Rows(model, plate, rows), z), None

        total, _ = jax.lax.scan(add, jnp.zeros(()), blocks)
        if rest.size:
            total += (rest.size / size) * log_density(Rows(model, plate, rest), z)
        return total

    return whole
