"""Mixtures of full-rank components on the host: draws, densities and their gradients.

All of it is matrix products and a few functions of arrays, for which NumPy is as fast as a compiled program, and there
is nothing to compile: of everything that `auto` does only the model is. Numbers of components and draws may change at
every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from boostvi._struct import replace
from boostvi.families.base import Params
from boostvi.families.linear import LinearFamily, RadialFamily

if TYPE_CHECKING:
    from boostvi.mixture import Mixture

BLOCK_NUMBERS = 2**17
"""Points are taken in blocks such that arrays with numbers for all of them fit into a cache (1 MB)."""
MOST_CANCELLING = 1e8
"""Squared distance of a component's centre from the mixture's, in its own units, up to which quadratic forms keep at
least seven digits of what is left after cancelling."""


def compact(mixture: Mixture) -> Mixture:
    """The same mixture as NumPy arrays without free slots, in the same order."""
    weights = np.asarray(mixture.weights)
    active = np.flatnonzero(weights)
    return replace(mixture, params=take(mixture.params, active), weights=weights[active])


def take(params: Params, which: Any) -> Params:
    """Some of the components, or one."""
    return {name: np.asarray(leaf)[which] for name, leaf in params.items()}


def join(*several: Params) -> Params:
    return {name: np.concatenate([np.asarray(p[name]) for p in several]) for name in several[0]}


def kl_between(params: Params) -> Float[np.ndarray, "n n"]:
    """KL(j‖i) of the Normals with these scale matrices, [j, i]."""
    dim = params["loc"].shape[1]
    volume, columns = np.asarray(params["log_volume"]), []
    for i, inverse in enumerate(np.asarray(params["inverse"])):
        trace = np.sum((inverse @ np.asarray(params["factor"])) ** 2, axis=(1, 2))
        columns.append(0.5 * (trace - dim) + volume[i] - volume)
    return np.stack(columns, axis=1) + 0.5 * distances(params) ** 2


def distances(params: Params) -> Float[np.ndarray, "n n"]:
    """Distance of centre j from centre i in the units of component i, [j, i]."""
    loc = np.asarray(params["loc"])
    with np.errstate(over="ignore"):  # of a component far away, or very narrow: just far
        columns = [np.linalg.norm((loc - loc[i]) @ inverse.T, axis=1) for i, inverse in enumerate(params["inverse"])]
    return np.stack(columns, axis=1)


def draws_of_each(
    family: LinearFamily, params: Params, n: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "components n dim"], Float[np.ndarray, "components n dim"]]:
    """n draws of each component, and their noise."""
    noise = family.host_noise(rng, (params["loc"].shape[0], n, params["loc"].shape[1]))
    return params["loc"][:, None] + noise @ params["factor"].swapaxes(1, 2), noise


def draws_by_count(
    family: LinearFamily, params: Params, counts: Int[np.ndarray, " components"], rng: np.random.Generator
) -> Float[np.ndarray, "n dim"]:
    """So many draws of each component, one component after the other."""
    z = family.host_noise(rng, (int(counts.sum()), params["loc"].shape[1]))
    ends = np.cumsum(counts)
    for k, end in enumerate(ends):
        rows = slice(end - counts[k], end)
        z[rows] = params["loc"][k] + z[rows] @ params["factor"][k].T
    return z


def by_owner(
    matrices: Float[np.ndarray, "components dim dim"], owners: Int[np.ndarray, " n"], rows: Float[np.ndarray, "n dim"]
) -> Float[np.ndarray, "n dim"]:
    """Every row times the matrix of the component that it belongs to, row by row M x."""
    product = np.empty_like(rows)
    for k in np.unique(owners):
        product[owners == k] = rows[owners == k] @ matrices[k].T
    return product


def log_own(family: LinearFamily, params: Params, noise: Float[np.ndarray, "components n dim"]) -> np.ndarray:
    """ln s_k at draws of component k, from their noise: solving for it again would invent some."""
    return family.log_base(noise) - params["log_volume"][:, None]


def draw(
    mixture: Mixture, rng: np.random.Generator, n: int, stratified: bool = True
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """n draws of the mixture, ln q at each, and the component that it came from.

    Stratified draws visit each component in proportion to its weight (unbiased, and never noisier than independent
    ones).
    """
    mixture = compact(mixture)
    family: LinearFamily = mixture.family  # type: ignore[assignment]
    points = (np.arange(n) + rng.random(n)) / n if stratified else rng.random(n)
    ends = np.cumsum(mixture.weights)
    owners = np.minimum(np.searchsorted(ends, points * ends[-1], side="right"), len(ends) - 1)
    noise = family.host_noise(rng, (n, mixture.dim))
    z = mixture.params["loc"][owners] + by_owner(mixture.params["factor"], owners, noise)
    own = family.log_base(noise) - mixture.params["log_volume"][owners]
    log_q = np.empty(n)
    for rows, at in blocks(mixture, z):
        at.log_s[np.arange(rows.stop - rows.start), owners[rows]] = own[rows]
        log_q[rows] = at.ratios()[1]
    return z, log_q, owners


class Densities(ABC):
    """At some points z, for every component of a mixture: ln s_k, and sums of its gradients."""

    mixture: Mixture
    log_s: Float[np.ndarray, "n components"]

    def ratios(self) -> tuple[Float[np.ndarray, "n components"], Float[np.ndarray, " n"]]:
        """s_k relative to the largest of them, and ln Σ_j w_j s_j."""
        top = self.log_s.max(axis=1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        ratio = np.exp(self.log_s - top)
        with np.errstate(divide="ignore"):  # far out no component has any density
            return ratio, top[:, 0] + np.log(ratio @ self.mixture.weights)

    def gradient_q(self, ratio: Float[np.ndarray, "n components"]) -> Float[np.ndarray, "n dim"]:
        """∇ ln q = Σ_k (w_k s_k/q) ∇ ln s_k, from the ratios."""
        weights = np.asarray(self.mixture.weights)
        return self.gradient(shares(ratio, weights) * weights)

    @abstractmethod
    def gradient(self, weights: Float[np.ndarray, "n components"]) -> Float[np.ndarray, "n dim"]:
        """Σ_k weights_k ∇ ln s_k."""

    @abstractmethod
    def sums(
        self, weights: Float[np.ndarray, "n components"], slope: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, "components dim"], Float[np.ndarray, "components dim dim"]]:
        """Over the points, with score_k the gradient of ln s_k by the noise: Σ weights_k score_k, and Σ weights_k slope
        score_kᵀ."""


def shares(
    ratio: Float[np.ndarray, "n components"], of: Float[np.ndarray, " components"]
) -> Float[np.ndarray, "n components"]:
    """s_k/Σ_j of_j s_j."""
    total = ratio @ of
    return ratio / np.where(total > 0, total, 1.0)[:, None]


@dataclass(frozen=True)
class ByNoise(Densities):
    """From the noise that would make the point, for each component: for any family."""

    mixture: Mixture
    log_s: Float[np.ndarray, "n components"]
    score: Float[np.ndarray, "n components dim"]

    def gradient(self, weights):
        n, slots, dim = self.score.shape
        inverse = self.mixture.params["inverse"].reshape(slots * dim, dim)
        return (weights[:, :, None] * self.score).reshape(n, -1) @ inverse

    def sums(self, weights, slope):
        n, slots, dim = self.score.shape
        weighted = weights[:, :, None] * self.score
        return weighted.sum(axis=0), (slope.T @ weighted.reshape(n, -1)).reshape(dim, slots, dim).transpose(1, 0, 2)


@dataclass(frozen=True)
class Quadratic:
    """A mixture of a radial family as quadratic functions, r²_k = yᵀP_k y − 2 b_k·y + c_k, in standard units of its
    own: y = (z − centre)/scale."""

    mixture: Mixture
    centre: Float[np.ndarray, " dim"]
    scale: Float[np.ndarray, " dim"]
    loc: Float[np.ndarray, "components dim"]
    inverse: Float[np.ndarray, "components dim dim"]
    precision: Float[np.ndarray, "components dim*dim"]
    linear: Float[np.ndarray, "components dim"]
    constant: Float[np.ndarray, " components"]

    def at(self, z: Float[np.ndarray, "n dim"]) -> ByPairs:
        family: RadialFamily = self.mixture.family  # type: ignore[assignment]
        y = (z - self.centre) / self.scale
        squares = pairs(y, y) @ self.precision.T
        squares += y @ (-2.0 * self.linear.T)
        squares += self.constant
        squares = np.maximum(squares, 0.0)
        log_s = family.log_radial(squares, z.shape[1]) - self.mixture.params["log_volume"]
        return ByPairs(self.mixture, log_s, self, y, family.pull(squares, z.shape[1]))


@dataclass(frozen=True)
class ByPairs(Densities):
    """From products of pairs of coordinates: no number for each point, component *and* coordinate, which many
    components in few dimensions would need."""

    mixture: Mixture
    log_s: Float[np.ndarray, "n components"]
    form: Quadratic
    y: Float[np.ndarray, "n dim"]
    pull: Float[np.ndarray, "n components"]

    def gradient(self, weights):
        weights = weights * self.pull
        n, dim = self.y.shape
        along = (weights @ self.form.precision).reshape(n, dim, dim) @ self.y[:, :, None]
        return (weights @ self.form.linear - along[:, :, 0]) / self.form.scale

    def sums(self, weights, slope):
        weights, dim = weights * self.pull, self.y.shape[1]
        first = weights.T @ self.y - weights.sum(axis=0)[:, None] * self.form.loc
        second = (weights.T @ pairs(slope, self.y)).reshape(-1, dim, dim)
        second -= (weights.T @ slope)[:, :, None] * self.form.loc[:, None, :]
        turned = self.form.inverse.swapaxes(1, 2)
        return -np.einsum("ki,kij->kj", first, turned), -second @ turned


def pairs(a: Float[np.ndarray, "n dim"], b: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim*dim"]:
    """a_i b_j of every row."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def quadratic(mixture: Mixture) -> Quadratic | None:
    """The mixture as quadratic functions; None where that does not pay, or would lose too many digits."""
    loc, factor, inverse = (mixture.params[name] for name in ("loc", "factor", "inverse"))
    slots, dim = loc.shape
    if not isinstance(mixture.family, RadialFamily) or slots <= dim:
        return None
    centre = mixture.weights @ loc
    variance = mixture.weights @ ((loc - centre) ** 2 + np.sum(factor**2, axis=2))
    scale = np.sqrt(variance)
    if not (np.isfinite(scale) & (scale > 0)).all():
        return None
    loc, inverse = (loc - centre) / scale, inverse * scale
    precision = inverse.swapaxes(1, 2) @ inverse
    linear = np.einsum("kij,kj->ki", precision, loc)
    constant = np.einsum("ki,ki->k", linear, loc)
    if not constant.max() < MOST_CANCELLING:
        return None
    return Quadratic(mixture, centre, scale, loc, inverse, precision.reshape(slots, -1), linear, constant)


def blocks(mixture: Mixture, z: Float[np.ndarray, "n dim"]) -> Iterator[tuple[slice, Densities]]:
    """The densities at all points, some rows at a time. The mixture must be compact."""
    form = quadratic(mixture)
    slots, dim = mixture.params["loc"].shape
    offset = np.einsum("kij,kj->ki", mixture.params["inverse"], mixture.params["loc"])
    size = max(1, BLOCK_NUMBERS // (slots * dim if form is None else max(slots, dim * dim)))
    for begin in range(0, len(z), size):
        rows = slice(begin, min(begin + size, len(z)))
        yield rows, form.at(z[rows]) if form is not None else _by_noise(mixture, offset, z[rows])


@np.errstate(over="ignore", invalid="ignore")  # far out of a narrow component: just far
def _by_noise(mixture: Mixture, offset: np.ndarray, z: np.ndarray) -> ByNoise:
    family: LinearFamily = mixture.family  # type: ignore[assignment]
    inverse = mixture.params["inverse"].reshape(offset.size, -1)
    noise = (z @ inverse.T - offset.ravel()).reshape(-1, *offset.shape)
    return ByNoise(mixture, family.log_base(noise) - mixture.params["log_volume"], family.score(noise))


def log_prob(mixture: Mixture, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    """ln q at the rows of z."""
    out = np.empty(len(z))
    for rows, at in blocks(compact(mixture), z):
        out[rows] = at.ratios()[1]
    return out


def log_prob_and_gradient(
    mixture: Mixture, z: Float[np.ndarray, "n dim"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
    """ln q and its gradient at the rows of z."""
    mixture = compact(mixture)
    values, gradients = np.empty(len(z)), np.empty(z.shape)
    for rows, at in blocks(mixture, z):
        ratio, values[rows] = at.ratios()
        gradients[rows] = at.gradient_q(ratio)
    return values, gradients


def log_components(mixture: Mixture, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n components"]:
    """ln s_k at the rows of z, one column for each slot."""
    mixture = replace(mixture, params=take(mixture.params, slice(None)))
    return np.concatenate([at.log_s for _, at in blocks(mixture, z)])
