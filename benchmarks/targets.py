"""Public targets with a known log evidence: what the comparison and the honesty benchmark run on.

All are normalised or have a log Z known to the digits given (of seeds, ionosphere and chemreact by `log_z.py`; they
are within the errors of the published −73.409 ± 0.003, −111.610 ± 0.003 and −2022.250). Targets that need data files
say so and are left out where the files are missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm, t

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Problem:
    """A log density of known log Z.

    budget: seconds, compilation included, that every tool is given. wanted: the gap to log Z aimed at, in nats.
    modes: locations that must each be found, if there are several; factors: of the scale matrix of each.
    exact: n independent draws, where there is a way.
    """

    name: str
    dim: int
    log_density: Callable[[Any], Any]
    log_z: float
    budget: float
    wanted: float
    modes: np.ndarray | None = None
    factors: np.ndarray | None = field(default=None, repr=False)
    exact: Callable[[np.random.Generator, int], np.ndarray] | None = field(default=None, repr=False)


def banana() -> Problem:
    def log_density(z):
        return norm.logpdf(z[0]) + norm.logpdf(z[1], z[0] ** 2, 0.3)

    def exact(rng, n):
        first = rng.standard_normal(n)
        return np.stack([first, first**2 + 0.3 * rng.standard_normal(n)], axis=1)

    return Problem("banana", 2, log_density, 0.0, 15, 0.005, exact=exact)


def funnel() -> Problem:
    def log_density(z):
        return norm.logpdf(z[0], 0.0, 3.0) + jnp.sum(norm.logpdf(z[1:], 0.0, jnp.exp(0.5 * z[0])))

    def exact(rng, n):
        v = 3.0 * rng.standard_normal(n)
        return np.concatenate([v[:, None], np.exp(0.5 * v)[:, None] * rng.standard_normal((n, 9))], axis=1)

    return Problem("funnel", 10, log_density, 0.0, 30, 0.03, exact=exact)


def mog40() -> Problem:
    means = 40.0 * jax.random.uniform(jax.random.PRNGKey(0), (40, 2), minval=-1, maxval=1, dtype=jnp.float32)
    means = np.asarray(means, dtype=np.float64)

    def log_density(z):
        return logsumexp(jnp.sum(norm.logpdf(z, means), axis=1)) - jnp.log(40.0)

    def exact(rng, n):
        return means[rng.integers(40, size=n)] + rng.standard_normal((n, 2))

    factors = np.broadcast_to(np.eye(2), (40, 2, 2))
    return Problem("mog40", 2, log_density, 0.0, 30, 0.002, modes=means, factors=factors, exact=exact)


def stm20() -> Problem:
    rng = np.random.default_rng([2020, 0, 20, 1])
    means = rng.uniform(-20, 20, (10, 20))
    scales = []
    for _ in range(10):
        a = 2 * rng.standard_normal((20, 20))
        scales.append(np.linalg.inv(a.T @ a + np.eye(20)))
    factors = np.linalg.cholesky(np.stack(scales))
    inverses = np.linalg.inv(factors)
    log_dets = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
    constant = gammaln(11.0) - gammaln(1.0) - 10.0 * np.log(2.0 * np.pi) - log_dets - np.log(10.0)

    def log_density(z):
        u = jnp.einsum("kij,kj->ki", inverses, z - means)
        return logsumexp(constant - 11.0 * jnp.log1p(0.5 * jnp.sum(u**2, axis=1)))

    def exact(rng, n):
        k = rng.integers(10, size=n)
        noise = rng.standard_normal((n, 20)) / np.sqrt(rng.chisquare(2, size=(n, 1)) / 2)
        return means[k] + np.einsum("nij,nj->ni", factors[k], noise)

    return Problem("stm20", 20, log_density, 0.0, 30, 0.02, modes=means, factors=factors, exact=exact)


def mos20() -> Problem:
    locs = jax.random.uniform(jax.random.PRNGKey(0), (10, 20), minval=-10, maxval=10, dtype=jnp.float32)
    locs = np.asarray(locs, dtype=np.float64)

    def log_density(z):
        return logsumexp(jnp.sum(t.logpdf(z - locs, 2.0), axis=1)) - jnp.log(10.0)

    def exact(rng, n):
        return locs[rng.integers(10, size=n)] + rng.standard_t(2, size=(n, 20))

    return Problem("mos20", 20, log_density, 0.0, 30, 0.2, modes=locs, exact=exact)


GOALS = np.array([[7.0, 0.0], [-7.0, 0.0], [0.0, 7.0], [0.0, -7.0]])


def robot() -> Problem:
    sd = np.array([1.0] + [0.2] * 9)

    def log_density(z):
        angles = jnp.cumsum(z)
        end = jnp.stack([jnp.sum(jnp.cos(angles)), jnp.sum(jnp.sin(angles))])
        return jnp.sum(norm.logpdf(z, 0.0, sd)) + jnp.max(jnp.sum(norm.logpdf(end, GOALS, 0.01), axis=1))

    return Problem("robot", 10, log_density, -10.61, 120, 1.5)


def robot_modes(draws: np.ndarray) -> int:
    """How many of the eight modes (goal × bend) some of the draws lie in."""
    angles = np.cumsum(draws, axis=1)
    end = np.stack([np.cos(angles).sum(1), np.sin(angles).sum(1)], axis=1)
    goal = np.argmin(((end[:, None] - GOALS) ** 2).sum(-1), axis=1)
    bend = draws[:, 1:].sum(1) > 0
    return len(set(zip(goal.tolist(), bend.tolist(), strict=True)))


def _logistic(X: np.ndarray, y: np.ndarray, prior_sd: float) -> Callable[[Any], Any]:
    design, labels = np.asarray(X, np.float64), np.asarray(y, np.float64)

    def log_density(w):
        logits = jnp.asarray(design) @ w
        return jnp.sum(labels * logits - jnp.logaddexp(0.0, logits)) + jnp.sum(norm.logpdf(w, 0.0, prior_sd))

    return log_density


def cancer() -> Problem:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([np.ones(len(X)), X / X.std(0)])
    return Problem("cancer", 31, _logistic(X, 1 - y, 10.0), -77.58, 30, 0.6)


def seeds() -> Problem:
    with np.load(DATA / "seeds.npz") as file:
        data = {name: np.asarray(file[name], np.float64) for name in file.files}
    r, n, x1, x2 = (data[name].ravel() for name in ("r", "n", "x1", "x2"))
    coefficient = gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)

    def log_density(z):
        log_tau, a, b = z[0], z[1:5], z[5:]
        logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b
        prior_tau = 0.01 * jnp.log(0.01) - gammaln(0.01) + 0.01 * log_tau - 0.01 * jnp.exp(log_tau)
        prior = prior_tau + jnp.sum(norm.logpdf(a, 0.0, 10.0)) + jnp.sum(norm.logpdf(b, 0.0, jnp.exp(-0.5 * log_tau)))
        return prior + jnp.sum(coefficient + r * logits - n * jnp.logaddexp(0.0, logits))

    return Problem("seeds", 26, log_density, -73.4063, 20, 0.02)


def ionosphere() -> Problem:
    with np.load(DATA / "ionosphere.npz") as file:
        X, y = np.asarray(file["X"], np.float64), np.asarray(file["y"], np.float64)
    sd = X.std(0)
    X = np.where(sd > 0, (X - X.mean(0)) / np.where(sd > 0, sd, 1.0), 0.0)
    X = np.column_stack([np.ones(len(X)), X])
    return Problem("ionosphere", X.shape[1], _logistic(X, y, 1.0), -111.6106, 30, 0.05)


def chemreact() -> Problem:
    with np.load(DATA / "chem10.npz") as file:
        X, y = file["X"], file["y"]
    return Problem("chemreact", 100, _logistic(X, y, 1.0), -2022.2505, 30, 0.01)


def gaussian100() -> Problem:
    """A correlated Gaussian: one component is exact."""
    rng = np.random.default_rng(100)
    root = rng.standard_normal((100, 100)) / 10.0 + np.eye(100)
    inverse, log_det = np.linalg.inv(root), np.linalg.slogdet(root)[1]

    def log_density(z):
        return jnp.sum(norm.logpdf(jnp.asarray(inverse) @ z)) - log_det

    def exact(rng, n):
        return rng.standard_normal((n, 100)) @ root.T

    return Problem("gaussian100", 100, log_density, 0.0, 30, 0.01, exact=exact)


def scales20() -> Problem:
    """A Gaussian whose coordinates' scales differ by 10⁶."""
    sd = np.logspace(-3, 3, 20)

    def exact(rng, n):
        return sd * rng.standard_normal((n, 20))

    return Problem("scales20", 20, lambda z: jnp.sum(norm.logpdf(z, 0.0, sd)), 0.0, 30, 0.01, exact=exact)


MAKERS = {
    make.__name__: make
    for make in (
        banana, funnel, mog40, stm20, mos20, robot, cancer, seeds, ionosphere, chemreact, gaussian100, scales20,
    )
}  # fmt: skip
LISTED = tuple(MAKERS)[:10]
"""The targets of the published comparison."""


@functools.cache
def get(name: str) -> Problem:
    return MAKERS[name]()


def available(names: tuple[str, ...] = LISTED) -> list[str]:
    """The names whose data files are here."""
    needs = {"seeds": "seeds.npz", "ionosphere": "ionosphere.npz", "chemreact": "chem10.npz"}
    return [name for name in names if name not in needs or (DATA / needs[name]).exists()]
