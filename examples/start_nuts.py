"""Start NUTS where the posterior is: initial positions and mass matrix from a fit, instead of a long warm-up.

    python examples/start_nuts.py [--quick] [--out FILE.png]

A logistic regression with strongly correlated columns. NUTS runs twice: with its own warm-up of 1,000 iterations, and
from the fit with 100, in which only the step size is adapted. A gradient of the fit counts like one of NUTS.
"""

import argparse

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS

import boostvi as bv
from boostvi import plots

PARTS = {"fit": plots.ORANGE, "warm-up": plots.BLUE, "draws": plots.SKY}


def model(x, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=intercept + scale * (x @ w)), obs=y)


def run(kernel, warmup, draws, x, y, start=None):
    """Gradients before and after the first draw, and what the draws of 4 chains are worth."""
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=4, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    mcmc.warmup(jax.random.key(1), x, y, init_params=start, collect_warmup=True, extra_fields=("num_steps",))
    before = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(mcmc.post_warmup_state.rng_key, x, y, extra_fields=("num_steps",))
    sites = [np.asarray(values) for values in mcmc.get_samples(group_by_chain=True).values()]
    ess = min(float(np.min(effective_sample_size(site))) for site in sites)
    rhat = max(float(np.max(gelman_rubin(site))) for site in sites)
    after = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    return {"warm-up": before, "draws": after, "ess": ess, "rhat": rhat, "w": sites[-1]}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller model, for tests")
    parser.add_argument("--out", help="save the picture here")
    options = parser.parse_args(argv)
    rows, columns, draws = (100, 4, 200) if options.quick else (300, 25, 1000)
    rng = np.random.default_rng(0)
    x = 3.0 * rng.normal(size=(rows, 1)) + rng.normal(size=(rows, columns))  # correlated by 0.9
    w = rng.normal(size=columns) / np.sqrt(columns)
    y = (rng.random(rows) < 1 / (1 + np.exp(-x @ w))).astype(float)

    result = bv.fit(bv.from_numpyro(model, x, y), max_components=1, seed=0)  # one Normal is enough to start from
    kernel = NUTS(model, dense_mass=True, inverse_mass_matrix=result.inverse_mass_matrix(), adapt_mass_matrix=False)
    ours = run(kernel, 100, draws, x, y, result.initial_positions(4))
    found = {"NUTS": {"fit": 0} | run(NUTS(model), 1000, draws, x, y), "NUTS from a fit": {"fit": result.evals} | ours}
    for name, row in found.items():
        spent = ", ".join(f"{part} {row[part]:,}" for part in PARTS)
        print(f"{name:<15} gradients: {spent}; smallest ESS {row['ess']:.0f}, largest R̂ {row['rhat']:.3f}")
    if options.out:
        draw(found, options.out)
    return found


def draw(found, path):
    figure = plots.figure_class()(figsize=(7, 2.6), layout="constrained")
    axes, left = figure.subplots(), np.zeros(len(found))
    for part, color in PARTS.items():
        axes.barh(list(found), [row[part] for row in found.values()], left=left, color=color, label=part)
        left += [row[part] for row in found.values()]
    axes.set(xlabel="gradients of the model", ylim=(1.5, -0.5))
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
