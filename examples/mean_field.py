"""A logistic regression whose columns are correlated: mean-field VI is far too sure of itself.

    python examples/mean_field.py [--quick] [--out FILE.png]

Eight columns that share one factor. NumPyro's AutoNormal, the usual mean-field guide, gives each coefficient a standard
deviation of its own and no correlations; the boosted mixture has them. A long run of NUTS says what is right: its draws
should fall into a 90 % interval in 90 of 100 cases.
"""

import argparse

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import boostvi as bv
from boostvi import plots

COLUMNS = 8


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller fit, for tests")
    parser.add_argument("--out", help="save the picture here")
    options = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, COLUMNS))
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ rng.normal(size=COLUMNS)))).astype(float)

    result = bv.fit(bv.from_numpyro(model, x, y), max_steps=1 if options.quick else None, seed=0)
    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=10))
    found = svi.run(jax.random.key(0), 1000 if options.quick else 5000, x, y, progress_bar=False)
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=1000 if options.quick else 10_000, progress_bar=False)
    mcmc.run(jax.random.key(2), x, y)
    truth = np.asarray(mcmc.get_samples()["w"])
    draws = {
        "AutoNormal": np.asarray(guide.sample_posterior(jax.random.key(1), found.params, sample_shape=(4000,))["w"]),
        "boosted": result.sample(4000, seed=1)["w"],
    }
    table = {}
    for name, w in draws.items():
        low, high = np.quantile(w, (0.05, 0.95), axis=0)
        cover, sd = np.mean((truth > low) & (truth < high)), np.mean(w.std(axis=0) / truth.std(axis=0))
        table[name] = {"sd": float(sd), "coverage": float(cover)}
        print(f"{name:<10} standard deviations {sd:.2f} × those of NUTS; 90 % intervals hold {100 * cover:.0f} % of it")
    print(f"boosted fit: {result.verdict}, {result.mixture.n_active} components, KL ≈ {result.kl_estimate:.3f} nats")
    if options.out:
        figure = plots.corner(result, most=4, reference=draws["AutoNormal"], reference_label="AutoNormal")
        figure.savefig(options.out, dpi=100)
    return table


if __name__ == "__main__":
    main()
