"""What a picture of a mixture needs: moments of each component, and a few draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Int8

from boostvi._jit import counted_jit, float64, new_key
from boostvi.families.base import MIN_SCALE, Family
from boostvi.families.diagonal_laplace import DiagonalLaplace
from boostvi.families.diagonal_normal import DiagonalNormal
from boostvi.families.diagonal_student_t import DiagonalStudentT
from boostvi.families.linear import LinearFamily
from boostvi.families.low_rank_normal import LowRankNormal
from boostvi.mixture import GATHER_BYTES, Mixture

if TYPE_CHECKING:
    from boostvi.fit import Step

DRAWS = 200
"""Draws of the mixture that are kept of each step: enough to see its shape."""
MOST_CORRELATED = 128
"""Correlations are kept among this many coordinates, the first: their number grows with the square."""
CORRELATION_UNIT = 127
"""Correlations are kept as integers in units of 1/127: finer than anybody sees in an ellipse."""
MOMENT_DRAWS = 1000
"""Draws behind the moments of components whose family is not the library's."""
DIAGONAL = (DiagonalNormal, DiagonalLaplace, DiagonalStudentT)


@dataclass(frozen=True)
class Snapshot:
    """The mixture after a step, on R^d: heaviest component first."""

    step: int
    kind: str
    elbo: float
    weights: Float[np.ndarray, " components"]
    loc: Float[np.ndarray, "components dim"]
    sd: Float[np.ndarray, "components dim"]
    correlations: Int8[np.ndarray, "components pairs"]  # see `pairs`; without columns: the components have none
    draws: Float[np.ndarray, "draws dim"]
    owners: Int[np.ndarray, " draws"]  # the component that each draw came from


def pairs(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of coordinates that the columns of `correlations` stand for."""
    return np.triu_indices(min(dim, MOST_CORRELATED), 1)


@float64
def snapshot(step: Step) -> Snapshot:
    """What `step` left behind. The same step gives the same snapshot, to the last bit."""
    mixture = step.mixture
    sd, correlations = _moments(mixture)
    draws, owners = _draws(mixture)
    weights, loc = (np.array(of, dtype=np.float64) for of in (mixture.weights, mixture.centres))
    row = step.row
    return Snapshot(step.step, str(row["kind"]), float(row["elbo"]), weights, loc, sd, correlations, draws, owners)


@float64
def standard_deviations(mixture: Mixture) -> Float[np.ndarray, "components dim"]:
    """Of every component, along every coordinate."""
    return _moments(mixture)[0]


def _moments(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations and correlations of every component."""
    n, dim, family = mixture.weights.shape[0], mixture.dim, mixture.family
    params = {name: np.asarray(leaf) for name, leaf in mixture.params.items()}
    if isinstance(family, DIAGONAL):
        return family.unit_sd * _scale(params["raw_scale"]), np.zeros((n, 0), dtype=np.int8)
    sd = np.empty((n, dim))
    correlations = np.empty((n, len(pairs(dim)[0])), dtype=np.int8)
    for k in range(n):
        sd[k], covariance = _covariance(mixture, {name: leaf[k] for name, leaf in params.items()})
        correlations[k] = _as_integers(covariance, sd[k])
    return sd, correlations


def _covariance(mixture: Mixture, params: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All standard deviations of a component, and its covariance among the first coordinates."""
    family, some = mixture.family, slice(0, MOST_CORRELATED)
    if isinstance(family, LinearFamily) and mixture.warp is None:
        factor = family.unit_sd * params["factor"]
        return np.sqrt((factor**2).sum(axis=1)), _gram(factor[some])
    if isinstance(family, LowRankNormal):
        scale = _scale(params["raw_scale"])
        factor = scale[:, None] * params["factor"]
        return np.sqrt(scale**2 + (factor**2).sum(axis=1)), np.diag(scale[some] ** 2) + _gram(factor[some])
    dim = params["loc"].size
    draws = mixture.warped(_component_draws(family, params, family.noise(new_key(0), (MOMENT_DRAWS, dim))))
    centred = draws - draws.mean(axis=0)
    return draws.std(axis=0), centred[:, some].T @ centred[:, some] / MOMENT_DRAWS


def _gram(rows: np.ndarray) -> np.ndarray:
    """rows @ rows.T without BLAS, whose threads wait for each other when a fit keeps the cores busy."""
    return np.einsum("ik,jk->ij", rows, rows)


def _as_integers(covariance: np.ndarray, sd: np.ndarray) -> np.ndarray:
    i, j = pairs(sd.size)
    correlation = np.clip(covariance[i, j] / np.maximum(sd[i] * sd[j], np.finfo(float).tiny), -1.0, 1.0)
    return np.round(CORRELATION_UNIT * np.nan_to_num(correlation)).astype(np.int8)


def _scale(raw: np.ndarray) -> np.ndarray:
    """`families.base.to_scale`, without a compilation for every number of components."""
    return np.logaddexp(0.0, raw) + MIN_SCALE


def _draws(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Draws that visit each component in proportion to its weight, always with the same noise: pictures of one step
    and the next differ by what changed in the mixture. The shapes do not depend on the number of components."""
    weights, family = np.asarray(mixture.weights), mixture.family
    points = (np.arange(DRAWS) + 0.5) / DRAWS * weights.sum()
    owners = np.minimum(np.searchsorted(np.cumsum(weights), points), weights.size - 1)
    noise = family.noise(new_key(0), (DRAWS, mixture.dim))
    each = sum(np.asarray(leaf).nbytes for leaf in mixture.params.values()) // weights.size
    chunk = next(size for size in (200, 40, 8, 1) if size * each <= GATHER_BYTES or size == 1)
    parts = []
    for i in range(0, DRAWS, chunk):
        own = jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[owners[i : i + chunk]], mixture.params)
        parts.append(np.asarray(_owned_draws(family, own, jax.tree.map(lambda leaf, i=i: leaf[i : i + chunk], noise))))
    return mixture.warped(np.concatenate(parts)), owners.astype(np.int32)


@counted_jit(static_argnums=0)
def _owned_draws(family: Family, params: Any, noise: Any) -> Array:
    return jax.vmap(family.sample)(params, noise)


@counted_jit(static_argnums=0)
def _component_draws(family: Family, params: Any, noise: Any) -> Array:
    return jax.vmap(family.sample, in_axes=(None, 0))(params, noise)
