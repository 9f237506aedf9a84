"""Targets made to deceive a search: half of the mass, or a tenth, is where a fit does not look by itself. log Z = 0.

None of them is hard for a mixture of a few components that knows where to look, but for `shell` and `bananas`, which
no small mixture can cover, and the needles, which are so small that a search may pass them by.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from scipy.integrate import quad
from scipy.special import gammaln
from targets import Problem

BUDGET, WANTED = 30, 0.01


def normals(name: str, dim: int, *components: tuple[float, float, float], unit: float = 1.0) -> Problem:
    """A mixture of isotropic Normals: weight, first coordinate of the mean, sd."""
    weights, places, sds = map(np.array, zip(*components, strict=True))
    means = np.zeros((len(places), dim))
    means[:, 0] = places * unit

    def log_density(z):
        return logsumexp(jnp.log(weights) + norm.logpdf(z, means, unit * sds[:, None]).sum(axis=1))

    def exact(rng, n):
        k = rng.choice(len(weights), size=n, p=weights)
        return means[k] + unit * sds[k, None] * rng.standard_normal((n, dim))

    return Problem(name, dim, log_density, 0.0, BUDGET, WANTED, exact=exact)


def shell(name: str, dim: int, radius: float = 8.0, sd: float = 0.3) -> Problem:
    """Half of the mass around the origin, half on a sphere around it."""
    log_area = np.log(2.0) + 0.5 * dim * np.log(np.pi) - gammaln(0.5 * dim)

    def radial(r: float) -> float:
        return (r / radius) ** (dim - 1) * np.exp(-0.5 * ((r - radius) / sd) ** 2)

    constant = log_area + (dim - 1) * np.log(radius) + np.log(quad(radial, radius - 8 * sd, radius + 8 * sd)[0])

    def log_density(z):
        outer = -0.5 * ((jnp.sqrt(z @ z + 1e-12) - radius) / sd) ** 2 - constant
        return jnp.logaddexp(norm.logpdf(z).sum(), outer) - jnp.log(2.0)

    return Problem(name, dim, log_density, 0.0, BUDGET, WANTED)


def bananas(name: str, pairs: int, sd: float) -> Problem:
    """Half of the mass in a Normal, half in a product of bananas, from which every Normal is as many nats."""
    apart = np.zeros(2 * pairs)
    apart[0] = -8.0

    def log_density(z):
        x, y = z[:pairs], z[pairs:]
        product = jnp.sum(norm.logpdf(x) + norm.logpdf(y, x**2, sd))
        return jnp.logaddexp(norm.logpdf(z, apart, 0.5).sum(), product) - jnp.log(2.0)

    return Problem(name, 2 * pairs, log_density, 0.0, BUDGET, WANTED)


DECEPTIVE: dict[str, Callable[[], Problem]] = {
    name: partial(make, name, *arguments, **options)
    for name, (make, *arguments), options in (
        ("spike12", (normals, 12, (0.5, 0.0, 0.1), (0.5, 0.0, 1.0)), {}),
        ("slab10", (normals, 10, (0.5, 0.0, 1.0), (0.5, 0.0, 20.0)), {}),
        ("units5", (normals, 5, (0.5, 0.0, 1.0), (0.5, 50.0, 1.0)), {"unit": 1e3}),
        ("far1", (normals, 1, (0.5, 0.0, 1.0), (0.5, 1e3, 1.0)), {}),
        ("shell8", (shell, 8), {}),
        ("bananas24", (bananas, 12, 0.3), {}),
        ("bananas16", (bananas, 8, 0.2), {}),
        ("needle2", (normals, 2, (0.9, 0.0, 1.0), (0.1, 5.0, 0.01)), {}),
        ("needle5", (normals, 5, (0.9, 0.0, 1.0), (0.1, 5.0, 0.01)), {}),
    )
}
"""The number is the dimension. A spike in a slab; a Normal in a slab; two Normals 50 sd apart in units of 1,000, or
1,000 sd apart; a Normal in a shell; a Normal beside bananas; and a tenth of the mass in a needle of sd 0.01."""
