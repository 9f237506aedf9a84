"""Straightening: a warp in which the posterior looks more like the Normal that was fitted to it.

Let R(u) = ln p(z(u)) + ln |det ∂z/∂u| − ln N(u; 0, I), so that the ELBO is E[R]. Moving every point from u to u + v(u)
first changes it by E[v·∇R], to first order. With Hermite polynomials for v, Stein's identity makes that a derivative:

    E[∂_r R · He_β(u)] = E[∂^α R] =: t_α,        α = β + e_r,

the same for every r in α. So one average over draws gives |α| estimates of each t_α, the cumulants by which the
posterior differs from a Normal, and their mean has the least noise. In u the Hessian of −ELBO is nearly the identity:
plain steps along them are Newton's. ∇R vanishes where the warp is perfect, and the noise with it: that is how tens of
thousands of coefficients can be fitted from as many draws.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from boostvi import polynomials
from boostvi import warp as warps
from boostvi._struct import replace
from boostvi.families.base import Params
from boostvi.natural_gradient import trust_region
from boostvi.next_component.local import CountedTarget
from boostvi.polynomials import Features, Polynomial
from boostvi.target import Target, Warped
from boostvi.warp import Layer, Warp

BLOCK = 256
"""Pairs of draws (u and −u) that are evaluated at once."""
ROWS = 128
"""Draws whose products with ∇R are summed at once: their monomials must fit into a cache."""
MIN_PAIRS = 512
MAX_PAIRS = 2048
CHEAP = 6_000_000
"""Pairs of a round: half the number of monomials, and so many that they cost little (this by the number of
coefficients), between these bounds."""
MAX_MONOMIALS, MAX_COEFFICIENTS = 9000, 1_200_000
"""In all coordinates for degree 3 up to 35 dimensions, for degree 2 up to 132."""
LEAST_INPUTS, WORTH = 8, 0.1
"""Coordinates that the polynomials see, where these cannot be all: so many, and those that have at least this share of
the power to set the scale of others that the first one has."""
MOST_ROUNDS = 12
"""Rounds at full step size, at most; it ends sooner when the ELBO rises no more."""
LEAST_AVERAGED, MOST_AVERAGED = 3, 16
"""Rounds after these whose coefficients are averaged (Polyak & Juditsky 1992), which takes their noise away."""
NOISE_SHARE = 0.1
LEAST_NOISE = 5e-4
"""Averaging ends when the noise of the coefficients costs less than this share of the KL left, or so many nats."""
WORSE = 4.0
"""Standard errors by which the ELBO may fall before a round is taken back, and the steps halved."""


@dataclass
class Sums:
    """Over draws: ∇R with every monomial; ∂_i R · u_i with those of one degree less, for coordinates i that are no
    inputs; ∇R with the slopes of f; (∇R)²; R and R²."""

    products: Float[np.ndarray, "dim monomials"]
    scaled: Float[np.ndarray, "outside fewer"]
    skew: Float[np.ndarray, " dim"]
    tail: Float[np.ndarray, " dim"]
    squares: Float[np.ndarray, " dim"]
    residual: float = 0.0
    residual_squared: float = 0.0
    usable: int = 0

    def add(self, noise: np.ndarray, values: np.ndarray, gradients: np.ndarray, features: Features) -> None:
        usable = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        slope = np.where(usable[:, None], gradients + noise, 0.0)
        residual = np.where(usable, values + np.sum(0.5 * (noise**2 + math.log(2.0 * math.pi)), axis=1), 0.0)
        inputs = len(features.u)
        for i in range(0, len(noise), ROWS):
            for c, column in enumerate(noise[i : i + ROWS, :inputs].T):
                features.learn(c, column)
            own = slope[i : i + ROWS].astype(features.u.dtype)
            self.products += (features.until(inputs - 1, features.degree) @ own).T
            own = own[:, inputs:] * noise[i : i + ROWS, inputs:].astype(features.u.dtype)
            self.scaled += (features.until(inputs - 1, features.degree - 1) @ own).T
        level, along, *_ = _own_terms()
        root = np.sqrt(1.0 + noise**2)
        self.skew += np.sum(slope * (root - level), axis=0)
        self.tail += np.sum(slope * (np.arcsinh(noise) * root - along * noise), axis=0)
        self.squares += np.sum(slope**2, axis=0)
        self.residual += float(np.sum(residual))
        self.residual_squared += float(np.sum(residual**2))
        self.usable += int(np.sum(usable))


@dataclass(frozen=True)
class Cumulants:
    """Where the estimates of the cumulants t_α stand among the products, and where they go.

    Row by row the pairs (r, He_β) with α = β + e_r; shares: (α_r/|α|)·√β!, which averages the estimates that
    orthonormal products give. `shift` and `log_scale` pick the α whose highest coordinate i occurs once, or twice.
    """

    rows: np.ndarray
    places: np.ndarray
    shares: np.ndarray
    shift: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    log_scale: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@functools.lru_cache(maxsize=8)
def cumulants(dim: int, degree: int) -> Cumulants:
    alphas = polynomials.exponents(dim, degree + 1)[1:]
    which = np.arange(len(alphas))
    order = np.sum(alphas >= 0, axis=1)
    rows, places, shares = [], [], []
    for position in range(degree + 1):
        beta = np.delete(alphas, position, axis=1)
        rows.append(np.where(alphas[:, position] >= 0, alphas[:, position], 0))
        places.append(polynomials.place_of(beta))
        shares.append(np.where(alphas[:, position] >= 0, np.sqrt(_factorials(beta)) / order, 0.0))

    def picked(times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """α, the row, the place, and the factor from t_α to a coefficient, where coordinate i occurs so many times."""
        mine = np.sum(alphas == alphas[:, :1], axis=1) == times
        rest = alphas[mine][:, times:]
        return which[mine], alphas[mine, 0], polynomials.place_of(rest), 1.0 / np.sqrt(_factorials(rest))

    return Cumulants(np.stack(rows), np.stack(places), np.stack(shares), picked(1), picked(2))


def _factorials(exponents: np.ndarray) -> np.ndarray:
    """β! of each row."""
    product = np.ones(len(exponents))
    for j in range(exponents.shape[1]):
        occurs = np.sum(exponents[:, : j + 1] == exponents[:, j : j + 1], axis=1)  # so far
        product *= np.where(exponents[:, j] >= 0, occurs, 1.0)
    return product


@functools.cache
def _own_terms() -> tuple[float, float, float, float]:
    """Of f's slopes by skew and tail: their part along 1, and along u, which m and s have already; and the second
    derivatives of −ELBO along what is left of them."""
    u, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    skew, tail = np.sqrt(1.0 + u**2), np.arcsinh(u) * np.sqrt(1.0 + u**2)
    level, slope = float(weights @ skew), float(weights @ (u * tail))
    by_u = u / np.sqrt(1.0 + u**2), 1.0 + u * np.arcsinh(u) / np.sqrt(1.0 + u**2)
    left = ((skew - level, by_u[0]), (tail - slope * u, by_u[1] - slope))
    curvatures = [float(weights @ (value**2 + derivative**2)) for value, derivative in left]
    return level, slope, curvatures[0], curvatures[1]


def layer_size(dim: int, degree: int, matter: int) -> tuple[int, int] | None:
    """Degree and number of inputs of the polynomials of a layer: of this degree and all coordinates, if there are not
    too many monomials; else of those that matter, up to degree 3; else of a lower degree and all of them; or None."""
    few = min(max(matter, LEAST_INPUTS), dim)
    for size in ((degree, dim), (3, few), (degree - 1, dim), (2, few)):
        if size[0] > 1 and polynomials.n_monomials(size[1], size[0]) <= min(MAX_MONOMIALS, MAX_COEFFICIENTS // dim):
            return size
    return None


def straighten(
    target: Target, normal: Params, degree: int, rng: np.random.Generator, out_of_time: Callable[[], bool]
) -> tuple[Warp, float, CountedTarget] | None:
    """A warp with one layer more than `target` has, fitted from the Normal `normal` (`loc`, `factor`) on, with
    polynomials of this degree if possible (see `layer_size`); how many nats it gains, less twice its error; and what
    that took. None if it would be too large."""
    warp = target.warp if isinstance(target, Warped) else None
    count = CountedTarget(target)
    order, matter = _order(count, normal, rng)
    if (shape := layer_size(target.dim, degree, matter)) is None:
        return None
    degree, inputs = shape
    first = layer = warps.identity(normal["loc"], _root(normal, order), degree, inputs)
    n_features = polynomials.n_monomials(inputs, degree)
    cheap = CHEAP / (n_features * target.dim)
    pairs = BLOCK * math.ceil(min(max(MIN_PAIRS, n_features / 2, cheap), MAX_PAIRS) / BLOCK)
    full = 1.0 / (1.0 + n_features / (2.0 * pairs))  # the quickest that products with so many features allow
    elbos: list[float] = []
    errors: list[float] = []
    best, averaged, beta = layer, 0, full

    def through(layer: Layer) -> CountedTarget:
        return CountedTarget(target.original.through(warps.append(warp, layer)))

    for i in range(MOST_ROUNDS + MOST_AVERAGED):
        model = through(layer)
        sums = _sums(model, degree, inputs, pairs, rng)
        count.add(model)
        elbo, error = _elbo(sums, 2 * pairs)
        if not elbos and not np.isfinite(elbo):
            break  # the model is not finite where the Normal goes
        if elbos and not elbo > max(elbos) - WORSE * math.hypot(error, errors[int(np.argmax(elbos))]):
            layer, full, averaged = best, 0.5 * full, 0
            continue
        if averaged or i >= MOST_ROUNDS or (len(elbos) > 1 and elbo - elbos[-2] < 2.0 * error):
            averaged += 1
        elbos.append(elbo)
        errors.append(error)
        best = _mean(best, layer, averaged) if averaged else layer
        # Steps of size β leave the noise of β/(2 − β) rounds, and their average less and less of it.
        left = _noise(sums, degree, inputs) * min(beta / (2.0 - beta), 1.0 / max(averaged, 1))
        settled = averaged >= LEAST_AVERAGED and left < max(NOISE_SHARE * pairs * error**2, LEAST_NOISE)
        if settled or out_of_time() or averaged > MOST_AVERAGED:
            break
        step, size = _newton(sums, degree, inputs)
        beta = min(full, math.sqrt(trust_region(target.dim) / size)) if size > 0 else 0.0
        layer = _moved(layer, step, beta)
    if not elbos or best is first:
        return warps.append(warp, best), -np.inf, count
    noise = rng.standard_normal((2 * pairs, target.dim))
    before, after = through(first), through(best)
    with np.errstate(invalid="ignore"):  # both may be −inf: then it gains nothing that could be told
        gains = after(noise)[0] - before(noise)[0]  # paired, and fresh
        gain = gains.mean() - 2.0 * gains.std() / math.sqrt(gains.size)
    count.add(before)
    count.add(after)
    return warps.append(warp, best), float(gain), count


def _noise(sums: Sums, degree: int, inputs: int) -> float:
    """Nats that the noise of one round's coefficients costs: those of inputs are the mean of degree + 1 estimates."""
    n_inside = inputs * polynomials.n_monomials(inputs, degree) / (degree + 1) ** 2
    n_outside = (sums.squares.size - inputs) * (sums.products.shape[1] + 0.5 * sums.scaled.shape[1])
    return 0.5 * (n_inside + n_outside) * float(np.mean(sums.squares)) / sums.usable**2


def _elbo(sums: Sums, n: int) -> tuple[float, float]:
    if sums.usable < n:
        return -np.inf, np.inf
    mean = sums.residual / n
    return mean, math.sqrt(max(sums.residual_squared / n - mean**2, 0.0) / n)


def _order(model: CountedTarget, normal: Params, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """The coordinates, first those that set the scale of others: E[G_i u_i u_j], G = ∇R in whitened units, is how the
    width along i changes with j. A funnel's neck comes before its mouth. (A fit's factor is nearly symmetric: axis i of
    the whitened units is mostly coordinate i.) And how many of them have most of it all."""
    root, dim = np.asarray(normal["factor"]), normal["loc"].size
    noise = rng.standard_normal((max(2 * MIN_PAIRS, 4 * dim), dim))
    values, gradients = model(normal["loc"] + noise @ root.T)
    usable = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
    slope = np.where(usable[:, None], gradients @ root + noise, 0.0)
    drives = (slope * noise).T @ noise / len(noise)
    np.fill_diagonal(drives, 0.0)
    power = np.sum(drives**2, axis=0)
    return np.argsort(-power), int(np.sum(power > WORTH * power.max()))


def _root(normal: Params, order: np.ndarray) -> Float[np.ndarray, "dim dim"]:
    """A root of the covariance, lower triangular when its rows are in this order."""
    covariance = normal["factor"] @ normal["factor"].T
    root = np.zeros_like(covariance)
    root[order] = np.linalg.cholesky(covariance[np.ix_(order, order)])
    return root


def _sums(model: CountedTarget, degree: int, inputs: int, pairs: int, rng: np.random.Generator) -> Sums:
    dim = model.target.dim
    products = np.zeros((dim, polynomials.n_monomials(inputs, degree)))
    scaled = np.zeros((dim - inputs, polynomials.n_monomials(inputs, degree - 1)))
    total = Sums(products, scaled, *np.zeros((3, dim)))
    # Half the precision, and twice as fast: an average of few draws has no more digits.
    features = Features(ROWS, inputs, degree, np.float32)
    for _ in range(pairs // BLOCK):
        noise = rng.standard_normal((BLOCK, dim))
        noise = np.concatenate([noise, -noise])
        total.add(noise, *model(noise), features)
    return total


def _newton(sums: Sums, degree: int, inputs: int) -> tuple[dict[str, np.ndarray], float]:
    """The change of every coefficient, those of polynomials in terms of Hermite's; and the nats that it moves."""
    n = sums.usable
    where = cumulants(inputs, degree)
    products = (polynomials.hermite(inputs, degree) @ sums.products.T).T / n
    t = np.sum(where.shares * products[where.rows, where.places], axis=0)
    level, along, skew_curvature, tail_curvature = _own_terms()
    skew, tail = sums.skew / n / skew_curvature, sums.tail / n / tail_curvature
    # A coordinate that is no input has each of its cumulants once: E[∂_i R · He_β], E[∂_i R · u_i · He_β].
    scaled = (polynomials.hermite(inputs, degree - 1) @ sums.scaled.T).T / n
    shift = np.concatenate([np.zeros((inputs, products.shape[1])), products[inputs:]])
    log_scale = np.concatenate([np.zeros((inputs, scaled.shape[1])), 0.5 * scaled])
    which, row, place, factor = where.shift
    shift[row, place] = t[which] * factor
    which, row, place, factor = where.log_scale
    log_scale[row, place] = 0.5 * t[which] * factor
    estimates = np.where(np.arange(sums.squares.size) < inputs, degree + 1, 1)  # of each cumulant
    variances = sums.squares / n**2 / estimates
    shift, log_scale = _shrunk(shift, variances), _shrunk(log_scale, 0.25 * variances)
    size = 0.5 * (np.sum(shift**2) + 2.0 * np.sum(log_scale**2))
    size += 0.5 * (skew_curvature * np.sum(skew**2) + tail_curvature * np.sum(tail**2))
    shift[:, 0] -= level * skew
    log_scale[:, 0] -= along * tail
    return {"shift": shift, "log_scale": log_scale, "skew": skew, "tail": tail}, float(size)


def _shrunk(
    coefficients: Float[np.ndarray, "dim monomials"], variances: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim monomials"]:
    """All coefficients of a monomial times the share of their squares that is no noise (James & Stein 1961)."""
    squares, noise = np.sum(coefficients**2, axis=0), variances @ (coefficients != 0)
    return coefficients * np.maximum(1.0 - noise / np.where(squares > 0, squares, 1.0), 0.0)


def _mean(mean: Layer, new: Layer, n: int) -> Layer:
    """The mean of n layers, from that of n − 1 and the last. They differ in coefficients only."""
    return jax.tree.map(lambda a, b: a + (b - a) / n, mean, new)


def _moved(layer: Layer, step: dict[str, np.ndarray], beta: float) -> Layer:
    def moved(name: str) -> Polynomial:
        old: Polynomial = getattr(layer, name)
        by = (polynomials.hermite(old.inputs, old.degree).T @ (beta * step[name]).T).T
        return replace(old, coefficients=old.coefficients + by)

    return replace(
        layer,
        shift=moved("shift"),
        log_scale=moved("log_scale"),
        skew=layer.skew + beta * step["skew"],
        tail=layer.tail + beta * step["tail"],
    )
