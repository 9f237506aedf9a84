"""A mixture model whose labels can be exchanged: six posteriors in one, each as good as the others.

    python examples/label_switching.py [--quick] [--out FILE.png]

Three groups in one column of data; nothing in the model says which of them is the first. The posterior has 3! = 6 equal
modes. Chains of NUTS stay in the mode that they fall into; the boosted mixture has all of them, with their weights.
"""

import argparse
from itertools import permutations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import boostvi as bv
from boostvi import plots

CENTRES = (-4.0, 0.0, 5.0)
CHAINS = 4


def model(y):
    means = numpyro.sample("means", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    shares = dist.Categorical(probs=np.full(3, 1 / 3))
    numpyro.sample("y", dist.MixtureSameFamily(shares, dist.Normal(means, 1.0)), obs=y)


def visited(means: np.ndarray) -> dict[tuple[int, ...], float]:
    """Share of the draws in every order of the labels."""
    orders = np.argsort(means, axis=-1)
    return {one: float(np.mean((orders == one).all(axis=-1))) for one in permutations(range(3))}


def main(argv: list[str] | None = None) -> dict[str, dict[tuple[int, ...], float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller fit, for tests")
    parser.add_argument("--out", help="save the picture here")
    options = parser.parse_args(argv)
    y = np.random.default_rng(0).normal(np.repeat(CENTRES, 20), 1.0)

    result = bv.fit(bv.from_numpyro(model, y), max_steps=1 if options.quick else None, seed=0)
    draws = 250 if options.quick else 2000
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=draws, num_chains=CHAINS, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.key(0), y)
    chains = np.asarray(mcmc.get_samples()["means"])
    found = {"boosted": visited(result.sample(20_000, seed=1)["means"]), f"NUTS, {CHAINS} chains": visited(chains)}
    for name, shares in found.items():
        print(f"{name:<15} shares of the 6 orders: {', '.join(f'{share:.3f}' for share in shares.values())}")
    print(f"boosted fit: {result.verdict}, {len(result.modes)} modes, {result.mixture.n_active} components, "
          f"KL ≈ {result.kl_estimate:.3f} nats")  # fmt: skip
    if options.out:
        figure = plots.density(result, coordinates=(0, 1), reference=chains, reference_label="NUTS")
        figure.savefig(options.out, dpi=100)
    return found


if __name__ == "__main__":
    main()
