"""NUTS beside the fits: stored reference draws where they are of the same data, else four NumPyro chains."""

from __future__ import annotations

import time

import jax
import numpy as np

import boostvi as bv
from boostvi.reproduce import data as datasets
from boostvi.reproduce import fits, held_out, logistic
from boostvi.reproduce.data import Data

CHAINS, WARMUP, DRAWS = 4, 500, 500
ROWS, REFERENCE = "chem10.npz", "blr_chem10_reference.npz"
"""Real rows beside the project, and draws of the posterior of their train rows as they are."""


def sample(target: bv.Target, seed: int = 0) -> np.ndarray:
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        kernel = NUTS(potential_fn=lambda z: -target.log_density(z))
        chains = MCMC(
            kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized",
            progress_bar=False,
        )  # fmt: skip
        chains.run(jax.random.PRNGKey(seed), init_params=np.zeros((CHAINS, target.dim)))
        return np.asarray(chains.get_samples())


def reference(data: Data) -> np.ndarray | None:
    """The stored draws, if these are the data they were made of."""
    rows, draws = datasets.beside(ROWS), datasets.beside(REFERENCE)
    if rows is None or draws is None or datasets.load(rows, standardise=False).fingerprint != data.fingerprint:
        return None
    with np.load(draws) as stored:
        return np.asarray(stored["draws"], dtype=np.float64)


def fit(data: Data) -> dict[str, float]:
    """On the training rows, as the sweep measures its mixtures; NaN seconds where the draws were stored."""
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    begin, stored = time.perf_counter(), reference(data)
    draws = sample(problem.target) if stored is None else stored
    seconds = time.perf_counter() - begin if stored is None else float("nan")
    found = problem.summarise(fits.measured(problem, problem.target, draws), 0)
    return {**found, "seconds": seconds, "draws": len(draws)}


def held_out_scores(data: Data, intercept: bool = False) -> held_out.Scores:
    return held_out.one_by_one(data, intercept, sample)
