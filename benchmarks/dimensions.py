"""From one dimension to a thousand: correlated Normals with badly scaled coordinates, hierarchical Normals, logistic
regression.

    python benchmarks/dimensions.py [--kinds normal,hierarchy,logistic] [--dimensions 1,10,100,300,1000] [--seed 0]

`bv.fit(target, seed=seed)`, nothing else, once for each target, compilation included. log Z is exact for the Normals
(scales of the coordinates from 10⁻³ to 10³, in random order) and, by quadrature over the two parameters on top, for the
hierarchical Normals; of the regressions the gap is not known, and the table has what the fit says of itself.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _data import machine, markdown
from jax.scipy.stats import norm
from scipy.special import logsumexp

import boostvi as bv

SCALES = (-3.0, 3.0)


def normal(dim: int) -> tuple[bv.Target, float]:
    """N(0, D S D): S has correlations of all sizes, D the scales."""
    rng = np.random.default_rng(dim)
    root = rng.standard_normal((dim, dim)) / math.sqrt(dim)
    covariance = root @ root.T + 0.1 * np.eye(dim)
    precision, scale = jnp.asarray(np.linalg.inv(covariance)), rng.permutation(np.logspace(*SCALES, dim))
    constant = -0.5 * dim * math.log(2.0 * math.pi) - 0.5 * np.linalg.slogdet(covariance)[1] - np.log(scale).sum()
    return bv.Target(lambda z: -0.5 * (z / scale) @ precision @ (z / scale) + constant, dim), 0.0


def hierarchy(dim: int) -> tuple[bv.Target, float]:
    """Groups with means N(mu, tau) and one noisy observation each; unknowns: mu, ln tau and the means (centred)."""
    rng, groups = np.random.default_rng(dim), dim - 2
    noise = rng.uniform(0.5, 2.0, groups)
    y = 1.0 + 0.7 * rng.standard_normal(groups) + noise * rng.standard_normal(groups)

    def log_density(z):
        mu, log_tau, means = z[0], z[1], z[2:]
        top = norm.logpdf(mu, 0.0, 5.0) + norm.logpdf(log_tau)
        return top + jnp.sum(norm.logpdf(means, mu, jnp.exp(log_tau)) + norm.logpdf(y, means, noise))

    mu, log_tau = np.linspace(-15.0, 15.0, 1501)[:, None], np.linspace(-7.0, 5.0, 601)[None]
    log_p = -0.5 * (mu / 5.0) ** 2 - math.log(5.0) - 0.5 * log_tau**2 - math.log(2.0 * math.pi)
    for one, sd in zip(y, noise, strict=True):
        variance = np.exp(2.0 * log_tau) + sd**2
        log_p = log_p - 0.5 * (one - mu) ** 2 / variance - 0.5 * np.log(2.0 * math.pi * variance)
    cell = (mu[1, 0] - mu[0, 0]) * (log_tau[0, 1] - log_tau[0, 0])
    return bv.Target(log_density, dim), float(logsumexp(log_p) + math.log(cell))


def logistic(dim: int) -> tuple[bv.Target, float]:
    """4·d + 10 rows, priors N(0, 1)."""
    rng = np.random.default_rng(dim)
    X = rng.standard_normal((4 * dim + 10, dim))
    logits = X @ (rng.standard_normal(dim) * 2.0 / math.sqrt(dim))
    signs = np.where(rng.random(len(X)) < 1.0 / (1.0 + np.exp(-logits)), 1.0, -1.0)
    signed = jnp.asarray(X * signs[:, None])
    return bv.Target(lambda z: jnp.sum(jax.nn.log_sigmoid(signed @ z)) + jnp.sum(norm.logpdf(z)), dim), math.nan


KINDS: dict[str, Callable[[int], tuple[bv.Target, float]]] = {
    "normal": normal, "hierarchy": hierarchy, "logistic": logistic,
}  # fmt: skip
LEAST = {"hierarchy": 4}
"""Dimensions below which a kind makes no sense."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dimensions", default="1,10,100,300,1000")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    print(machine(), "\n")
    rows = []
    for kind in options.kinds.split(","):
        for dim in (int(of) for of in options.dimensions.split(",")):
            if dim < LEAST.get(kind, 1):
                continue
            target, log_z = KINDS[kind](dim)
            begin = time.perf_counter()
            result = bv.fit(target, seed=options.seed, progress=False)
            fitted = time.perf_counter() - begin
            verdict, judged = result.verdict, time.perf_counter() - begin
            gap, estimate = log_z - result.elbo, f"{result.kl_estimate:.4f} ± {result.kl_se:.4f}"
            layers = len(result.mixture.warp.layers) if result.mixture.warp is not None else 0
            rows.append([
                kind, str(dim), "—" if math.isnan(gap) else f"{gap:.4f}", estimate, verdict, result.status,
                f"{result.mixture.n_active}, {layers}", f"{fitted:.1f}", f"{judged:.1f}",
                f"{result.evals:,}",
            ])  # fmt: skip
            print(f"{kind}, {dim}: {rows[-1]}", file=sys.stderr, flush=True)
    heads = ["target", "d", "gap", "its estimate", "verdict", "stopped", "components, layers", "s", "with verdict, s"]
    print(markdown([*heads, "evaluations"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
