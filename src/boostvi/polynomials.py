"""Polynomials in many variables: monomials in an order that suits triangular maps, and Hermite's."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi._struct import static, struct

BLOCKS = 4
"""Rows of coefficients are multiplied in this many blocks: row i has coefficients for coordinates before i only."""


def n_monomials(dim: int, degree: int) -> int:
    return math.comb(dim + degree, degree)


def monomials(u: Float[Array, " dim"], degree: int) -> Float[Array, " monomials"]:
    """All monomials of u up to `degree`.

    They are listed by their last coordinate: those with u_c behind are u_c times all monomials of one degree less in
    u_0 … u_c, so that the ones without u_i, u_(i+1), … come first.
    """
    if degree == 0:
        return jnp.ones(1, u.dtype)
    with_one = jnp.concatenate([jnp.ones(1, u.dtype), u])
    if degree == 1:
        return with_one
    # Picked by products with unit vectors: their derivatives are products again, where those of indexing are slow.
    picks = np.eye(u.shape[0] + 1)[exponents(u.shape[0], degree) + 1]
    factors = [with_one @ picks[:, j].T for j in range(degree)]
    return functools.reduce(jnp.multiply, factors)


@functools.lru_cache(maxsize=16)
def exponents(dim: int, degree: int) -> np.ndarray:
    """The coordinates in each monomial up to `degree`, highest first, in the order of `monomials`; −1: none."""
    listed = np.full((1, 0), -1)
    for k in range(1, degree + 1):
        groups = [np.insert(listed[: n_monomials(c + 1, k - 1)], 0, c, axis=1) for c in range(dim)]
        listed = np.concatenate([np.full((1, k), -1), *groups])
    return listed


def place_of(coordinates: np.ndarray) -> np.ndarray:
    """Where `monomials` lists these (rows as in `exponents`)."""
    place = np.zeros(coordinates.shape[0], dtype=int)
    for k, last in zip(range(coordinates.shape[1], 0, -1), coordinates.T, strict=True):
        before = np.maximum(last, 0)  # monomials of degree k in so many coordinates come first: C(before + k, k)
        place += np.where(last >= 0, np.prod([before + j for j in range(1, k + 1)], axis=0) // math.factorial(k), 0)
    return place


@struct
class Polynomial:
    """One polynomial for each coordinate i, of the coordinates before it.

    slopes[i, c, :] are the coefficients of u_c times the monomials in u_0 … u_c of one degree less, in the order of
    `monomials`, and exactly 0 for c ≥ i; constant[i] is that of 1.
    """

    constant: Float[Array, " dim"]
    slopes: Float[Array, "dim dim monomials"]
    degree: int = static()

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        dim, features = u.shape[0], monomials(u, self.degree - 1)
        ends = np.unique(np.linspace(0, dim, BLOCKS + 1).astype(int)).tolist()
        parts = []
        for begin, end in pairwise(ends):
            before = end - 1  # coordinates that concern some row of the block
            n = n_monomials(before, self.degree - 1)
            slopes = self.slopes[begin:end, :before, :n].reshape(-1, n)
            by_coordinate = (features[:n] @ slopes.T).reshape(end - begin, before)
            parts.append(jnp.sum(by_coordinate * u[:before], axis=1))
        return self.constant + jnp.concatenate(parts)

    @property
    def n_params(self) -> int:
        return int(np.count_nonzero(self.slopes)) + self.constant.shape[0]


def zero(dim: int, degree: int) -> Polynomial:
    return Polynomial(np.zeros(dim), np.zeros((dim, dim, n_monomials(dim, degree - 1))), degree)  # type: ignore[arg-type]


def from_list(coefficients: Float[np.ndarray, "dim monomials"], degree: int) -> Polynomial:
    """The polynomials with these coefficients of all monomials, in the order of `monomials`."""
    empty = zero(len(coefficients), degree)
    empty.slopes[:, *_places(len(coefficients), degree)] = coefficients[:, 1:]
    return Polynomial(coefficients[:, 0], empty.slopes, degree)  # type: ignore[arg-type]


def to_list(constant: Float[np.ndarray, " dim"], slopes: Float[np.ndarray, "dim dim fewer"], degree: int) -> np.ndarray:
    """`from_list` backwards, for any numbers that belong to monomials."""
    return np.concatenate([constant[:, None], slopes[:, *_places(slopes.shape[1], degree)]], axis=1)


@functools.lru_cache(maxsize=16)
def _places(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The last coordinate of every monomial but 1, and where the rest of it is listed."""
    listed = exponents(dim, degree)[1:]
    return listed[:, 0], place_of(listed[:, 1:])


@functools.lru_cache(maxsize=8)
def hermite(dim: int, degree: int) -> Any:
    """Hermite polynomials, orthonormal under N(0, I), as combinations of the monomials; a sparse matrix, its
    rows in the same order."""
    from scipy.sparse import csr_array

    listed = exponents(dim, degree)
    plain = np.all((listed[:, 1:] != listed[:, :-1]) | (listed[:, 1:] < 0), axis=1)  # no coordinate twice: u_a·u_b·…
    rows, columns, values = [*np.flatnonzero(plain)], [*np.flatnonzero(plain)], [1.0] * int(plain.sum())
    for i in np.flatnonzero(~plain):
        coordinates, powers = np.unique(listed[i][listed[i] >= 0], return_counts=True)
        terms: dict[tuple[int, ...], float] = {(): 1.0}
        for c, power in zip(coordinates[::-1].tolist(), powers[::-1].tolist(), strict=True):
            series = np.polynomial.hermite_e.herme2poly([0] * power + [1]) / math.sqrt(math.factorial(power))
            terms = {
                (*sofar, *([c] * p)): weight * float(series[p])
                for sofar, weight in terms.items() for p in range(power + 1) if series[p]
            }  # fmt: skip
        padded = [[*term, *([-1] * (degree - len(term)))] for term in terms]
        rows += [int(i)] * len(terms)
        columns += place_of(np.array(padded)).tolist()
        values += list(terms.values())
    return csr_array((values, (rows, columns)), shape=(len(listed), len(listed)))


def is_triangular(polynomial: Polynomial) -> bool:
    """Whether row i has no coefficients but for monomials of the coordinates before it."""
    slopes = np.asarray(polynomial.slopes)
    row, last, place = np.indices(slopes.shape)
    ends = np.array([n_monomials(c + 1, polynomial.degree - 1) for c in range(slopes.shape[1])])
    return not np.any(slopes[(last >= row) | (place >= ends[last])])
