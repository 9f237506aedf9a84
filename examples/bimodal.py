"""Two answers, one more likely: where is an object whose distance to two sensors was measured?

    python examples/bimodal.py [--quick] [--out FILE.png]

It may be on either side of the line through the sensors; a third, noisy reading favours the upper side. Plain VI
(NumPyro's AutoMultivariateNormal) takes one side for granted. Quadrature gives the right answer to compare with.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import boostvi as bv
from boostvi import plots
from boostvi.target import log_densities

SENSORS = jnp.array([[-0.8, 0.0], [0.8, 0.0]])


def model(distances, height):
    position = numpyro.sample("position", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    numpyro.sample("distances", dist.Normal(jnp.linalg.norm(position - SENSORS, axis=-1), 0.3), obs=distances)
    numpyro.sample("height", dist.Normal(position[1], 1.5), obs=height)


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller fit, for tests")
    parser.add_argument("--out", help="save the picture here")
    options = parser.parse_args(argv)
    data = jnp.array([1.9, 1.5]), jnp.array(1.0)

    target = bv.from_numpyro(model, *data)
    result = bv.fit(target, max_steps=1 if options.quick else None, seed=0)
    guide = AutoMultivariateNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=10))
    found = svi.run(jax.random.key(0), 500 if options.quick else 5000, *data, progress_bar=False)
    plain = np.asarray(guide.sample_posterior(jax.random.key(1), found.params, sample_shape=(4000,))["position"])

    side = np.linspace(-8.0, 8.0, 801)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    density = np.exp(log_densities(target, grid))
    above = {
        "quadrature": float(density[grid[:, 1] > 0].sum() / density.sum()),
        "boosted": float(np.mean(result.sample(20_000, seed=1)["position"][:, 1] > 0)),
        "plain VI": float(np.mean(plain[:, 1] > 0)),
    }
    print(f"{result.verdict}: {result.mixture.n_active} components, KL ≈ {result.kl_estimate:.3f} nats")
    print("P(above the line):", ", ".join(f"{name} {share:.3f}" for name, share in above.items()))
    if options.out:
        plots.density(result, reference=plain, reference_label="plain VI").savefig(options.out, dpi=100)
    return above


if __name__ == "__main__":
    main()
