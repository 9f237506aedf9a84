"""Eight schools as one would write it down first: a funnel, in which plain VI cannot turn around.

    python examples/funnel.py [--quick] [--out FILE.png]

The smaller the spread tau between the schools, the closer their effects theta must lie together. A single Normal
(NumPyro's AutoMultivariateNormal) cannot narrow; the mixture does. What is right comes from NUTS on the reparameterised
("non-centred") model, which a user of the centred one would not have.
"""

import argparse

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import reparam
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.infer.reparam import LocScaleReparam

import boostvi as bv
from boostvi import plots

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def model(y, se):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    theta = numpyro.sample("theta", dist.Normal(mu, tau).expand([8]).to_event(1))
    numpyro.sample("y", dist.Normal(theta, se), obs=y)


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller fit, for tests")
    parser.add_argument("--out", help="save the picture here")
    options = parser.parse_args(argv)

    target = bv.from_numpyro(model, EFFECTS, ERRORS)
    result = bv.fit(target, max_steps=1 if options.quick else None, seed=0)
    guide = AutoMultivariateNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=10))
    found = svi.run(jax.random.key(0), 500 if options.quick else 5000, EFFECTS, ERRORS, progress_bar=False)
    mcmc = MCMC(NUTS(reparam(model, {"theta": LocScaleReparam(0.0)}), target_accept_prob=0.95), num_warmup=1000,
                num_samples=1000 if options.quick else 20_000, progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.key(1), EFFECTS, ERRORS)
    truth = mcmc.get_samples()
    draws = {"NUTS": truth, "boosted": result.sample(20_000, seed=1),
             "plain VI": guide.sample_posterior(jax.random.key(2), found.params, sample_shape=(20_000,))}  # fmt: skip
    tau = {name: np.asarray(one["tau"]) for name, one in draws.items()}
    for name, values in tau.items():
        quantiles = ", ".join(f"{value:.2f}" for value in np.quantile(values, (0.05, 0.5, 0.95)))
        print(f"{name:<9} P(tau < 1) = {np.mean(values < 1):.3f}; 5, 50 and 95 % quantiles of tau: {quantiles}")
    print(f"boosted fit: {result.verdict}, {result.mixture.n_active} components, KL ≈ {result.kl_estimate:.3f} nats")
    if options.out:
        free = np.column_stack([truth["mu"], np.log(truth["tau"]), truth["theta"]])  # in the order of target.names
        pair = ("theta[0]", "tau")
        plots.density(result, coordinates=pair, reference=free, reference_label="NUTS").savefig(options.out, dpi=100)
    return tau


if __name__ == "__main__":
    main()
