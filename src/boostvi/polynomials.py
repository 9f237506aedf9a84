"""Polynomials in many variables: monomials in an order that suits triangular maps, and Hermite's."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from boostvi._struct import static, struct

GROUPS = 6
"""Matrices of a polynomial: the more there are, the less of them is zeros, and the smaller they are."""


@functools.cache
def n_monomials(dim: int, degree: int) -> int:
    return math.comb(dim + degree, degree)


def monomials(u: Float[Array, " dim"], degree: int) -> Float[Array, " monomials"]:
    """All monomials of u up to `degree`; traceable.

    They are listed by their last coordinate: those with u_c behind are u_c times all monomials of one degree less in
    u_0 … u_c, so that the ones without u_i, u_(i+1), … come first.
    """
    listed = jnp.ones(1, u.dtype)
    for k in range(1, degree + 1):
        coordinates = exponents(u.shape[0], k)[1:]
        more = u[coordinates[:, 0]] * listed[place_of(coordinates[:, 1:])]
        listed = jnp.concatenate([jnp.ones(1, u.dtype), more])
    return listed


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
    """One polynomial for each coordinate i, of the coordinates before it, or of the first `inputs` of them.

    coefficients[i] are those of all monomials of these, in the order of `monomials`: exactly 0 from the first with u_i
    on.
    """

    coefficients: Float[Array, "dim monomials"]
    degree: int = static()
    inputs: int = static()

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """At one point; traceable."""
        return monomials(u[: self.inputs], self.degree) @ self.coefficients.T

    @property
    def n_params(self) -> int:
        return int(np.count_nonzero(self.coefficients))


class Packed:
    """A polynomial for many points at once, on the host: its coefficients in matrices, one for some coordinates c each,
    with a row for every pair (c, i > c), the coefficients in row i of the monomials that end with u_c.

    Points are columns here, so that what is done for one coordinate is done in one piece of memory.
    """

    def __init__(self, polynomial: Polynomial):
        self.degree, coefficients = polynomial.degree, np.asarray(polynomial.coefficients)
        self.constant, dim = coefficients[:, :1], len(coefficients)
        seen = min(polynomial.inputs, dim - 1)
        ends = np.cumsum(np.arange(dim - 1, dim - 1 - seen, -1))
        self.pairs = [slice(end - (dim - 1 - c), end) for c, end in enumerate(ends)]
        self.groups: list[tuple[int, slice, np.ndarray]] = []
        size = -(-(seen + 1) // GROUPS)
        for first in range(0, seen, size):
            last = min(first + size, seen) - 1
            rows = slice(self.pairs[first].start, self.pairs[last].stop)
            matrix = np.zeros((rows.stop - rows.start, n_monomials(last + 1, self.degree - 1)))
            for c in range(first, last + 1):
                begin, length = n_monomials(c, self.degree), n_monomials(c + 1, self.degree - 1)
                matrix[self._within(rows, c), :length] = coefficients[c + 1 :, begin : begin + length]
            self.groups.append((last, rows, matrix))

    def _within(self, rows: slice, c: int) -> slice:
        """The rows of coordinate c among these."""
        return slice(self.pairs[c].start - rows.start, self.pairs[c].stop - rows.start)

    def values(self, features: Features) -> tuple[Float[np.ndarray, "dim n"], Float[np.ndarray, "pairs n"]]:
        """At the points of the features; and for every pair (c, i) what multiplies u_c in row i."""
        n = features.u.shape[1]
        slopes = np.empty((self.pairs[-1].stop if self.pairs else 0, n))
        for last, rows, matrix in self.groups:
            np.matmul(matrix, features.until(last, self.degree - 1), out=slopes[rows])
        values = np.tile(self.constant, (1, n))
        for c, rows in enumerate(self.pairs):
            values[c + 1 :] += features.u[c] * slopes[rows]
        return values, slopes

    def pull_back(
        self, by_value: Float[np.ndarray, "dim n"], features: Features, slopes: Float[np.ndarray, "pairs n"],
        by_feature: list[np.ndarray], by_u: Float[np.ndarray, "dim n"],
    ) -> None:  # fmt: skip
        """Add to the derivatives by the features, and by u itself, those by way of the values; `slopes` as `values` has
        made them."""
        weighted = np.empty_like(slopes)
        for c, rows in enumerate(self.pairs):
            by_u[c] += np.einsum("in,in->n", by_value[c + 1 :], slopes[rows])
            np.multiply(by_value[c + 1 :], features.u[c], out=weighted[rows])
        for _, rows, matrix in self.groups:
            by_feature[self.degree - 1][: matrix.shape[1]] += matrix.T @ weighted[rows]

    def add(self, values: Float[np.ndarray, "dim n"], features: Features, c: int) -> None:
        """Add to values that began as `constant` what coordinate c brings to the later rows: for points whose
        coordinates become known one after the other."""
        _, rows, matrix = next(group for group in self.groups if group[1].stop >= self.pairs[c].stop)
        known = features.until(c, self.degree - 1)
        values[c + 1 :] += features.u[c] * (matrix[self._within(rows, c), : len(known)] @ known)


class Features:
    """Monomials of many points up to a degree, on the host, as their coordinates become known one after the other.
    Points are columns."""

    def __init__(self, n: int, inputs: int, degree: int, dtype: Any = np.float64):
        self.u = np.zeros((inputs, n), dtype)
        self._of_degree = [np.ones((n_monomials(inputs, k), n), dtype) for k in range(degree + 1)]

    @property
    def degree(self) -> int:
        return len(self._of_degree) - 1

    def learn(self, c: int, u: Float[np.ndarray, " n"]) -> None:
        """Coordinate c, those before it being known."""
        self.u[c] = u
        for k in range(1, len(self._of_degree)):
            np.multiply(self.until(c, k - 1), self.u[c], out=self._ending(self._of_degree[k], c, k))

    def until(self, c: int, degree: int) -> Float[np.ndarray, "monomials n"]:
        """All monomials in u_0 … u_c up to this degree."""
        return self._of_degree[degree][: n_monomials(c + 1, degree)]

    def no_slopes(self) -> list[np.ndarray]:
        """Zeros for the derivatives by every feature, by degree."""
        return [np.zeros_like(of) for of in self._of_degree]

    def pull_back(self, by_feature: list[np.ndarray], by_u: Float[np.ndarray, "dim n"]) -> None:
        """Add to the derivatives by u those by way of the features; of coordinates that are none nothing is added."""
        for k in range(len(by_feature) - 1, 0, -1):
            for c in range(len(self.u)):
                mine = self._ending(by_feature[k], c, k)
                by_u[c] += np.einsum("mn,mn->n", mine, self.until(c, k - 1))
                if k > 1:  # those of degree 0 are constant
                    by_feature[k - 1][: len(mine)] += self.u[c] * mine

    @staticmethod
    def _ending(of: np.ndarray, c: int, degree: int) -> np.ndarray:
        """The rows of monomials that end with u_c."""
        begin = n_monomials(c, degree)
        return of[begin : begin + n_monomials(c + 1, degree - 1)]


def zero(dim: int, degree: int, inputs: int) -> Polynomial:
    return Polynomial(np.zeros((dim, n_monomials(inputs, degree))), degree, inputs)  # type: ignore[arg-type]


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
    coefficients = np.asarray(polynomial.coefficients)
    rows = enumerate(coefficients[: polynomial.inputs])
    return not any(row[n_monomials(i, polynomial.degree) :].any() for i, row in rows)
