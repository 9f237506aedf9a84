"""Start NUTS where the posterior is: initial positions and mass matrix from a fit, instead of a long warm-up.

    python examples/start_nuts.py [--rows 300] [--columns 25] [--draws 1000]

A logistic regression with strongly correlated columns. NUTS runs twice: with its own warm-up of 1,000 iterations, and
from the fit with 100, in which only the step size is adapted. Printed are the gradients that each needed before its
first draw, what it got for them (the smallest effective sample size, R̂), and how far the means of the two are apart.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS

import boostvi as bv

CHAINS = 4
WARMUP, SHORT_WARMUP = 1000, 100


def model(X, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=intercept + scale * (X @ w)), obs=y)


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns that share one factor, and so are correlated by 0.9."""
    rng = np.random.default_rng(0)
    X = 3.0 * rng.normal(size=(rows, 1)) + rng.normal(size=(rows, columns))
    w = rng.normal(size=columns) / np.sqrt(columns)
    return X, (rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ w))).astype(np.float64)


def run(kernel: NUTS, warmup: int, draws: int, X, y, start=None) -> dict:
    """Gradients and seconds before and after the first draw, and what the draws are worth."""
    mcmc = MCMC(
        kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    begin = time.perf_counter()
    mcmc.warmup(jax.random.key(1), X, y, init_params=start, collect_warmup=True, extra_fields=("num_steps",))
    warm = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(mcmc.post_warmup_state.rng_key, X, y, extra_fields=("num_steps",))
    chains = mcmc.get_samples(group_by_chain=True)
    return {
        "warm-up gradients": warm,
        "gradients": int(np.sum(mcmc.get_extra_fields()["num_steps"])),
        "ess": min(float(np.min(effective_sample_size(np.asarray(values)))) for values in chains.values()),
        "rhat": max(float(np.max(gelman_rubin(np.asarray(values)))) for values in chains.values()),
        "seconds": time.perf_counter() - begin,
        "w": np.asarray(chains["w"]).reshape(-1, X.shape[1]),
    }


def main(argv: list[str] | None = None) -> dict[str, dict]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--columns", type=int, default=25)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args(argv)
    X, y = data(options.rows, options.columns)

    begin = time.perf_counter()
    result = bv.fit(bv.from_numpyro(model, X, y), max_components=1, seed=0)  # one Normal is enough to start from
    positions, inverse_mass = result.initial_positions(CHAINS), result.inverse_mass_matrix()
    print(f"fit: {result.verdict}, {result.evals:,} evaluations in {time.perf_counter() - begin:.1f} s")

    X, y = jax.numpy.asarray(X), jax.numpy.asarray(y)
    found = {
        f"NUTS, warm-up {WARMUP}": run(NUTS(model), WARMUP, options.draws, X, y),
        f"from the fit, warm-up {SHORT_WARMUP}": run(
            NUTS(model, dense_mass=True, inverse_mass_matrix=inverse_mass, adapt_mass_matrix=False),
            SHORT_WARMUP, options.draws, X, y, positions,
        ),
    }  # fmt: skip
    print(f"{'':<28} {'warm-up gradients':>18} {'gradients':>10} {'smallest ESS':>13} {'largest R̂':>10} {'seconds':>8}")
    for name, row in found.items():
        print(
            f"{name:<28} {row['warm-up gradients']:>18,} {row['gradients']:>10,} {row['ess']:>13.0f} "
            f"{row['rhat']:>10.3f} {row['seconds']:>8.1f}"
        )
    plain, ours = found.values()
    apart = np.max(np.abs(plain["w"].mean(axis=0) - ours["w"].mean(axis=0)) / plain["w"].std(axis=0))
    print(
        f"before the first draw: {plain['warm-up gradients']:,} gradients, and {ours['warm-up gradients']:,} plus the "
        f"{result.evals:,} evaluations of the fit; the means of the two differ by at most {apart:.2f} sd"
    )
    return found


if __name__ == "__main__":
    main()
