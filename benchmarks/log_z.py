"""log Z of the targets that have no closed form, sharper than the digits that are known of them.

    python benchmarks/log_z.py [--targets seeds,ionosphere,chemreact] [--draws 1000000] [--seeds 100,101,102]

Importance sampling from fits with seeds that no other benchmark uses: unbiased, whatever the fit, for the mass where it
goes, and with k̂ well below 0.5 its errors are known. Fits that differ must agree.
"""

from __future__ import annotations

import argparse

import numpy as np
from _data import machine, markdown
from targets import available, get

import boostvi as bv
from boostvi.target import log_densities

BLOCK = 50_000


def estimate(name: str, seed: int, draws: int) -> tuple[float, float, float]:
    """log Z, its standard error, and the share of the largest weight."""
    problem = get(name)
    target = bv.Target(problem.log_density, problem.dim)
    mixture = bv.fit(target, seed=seed, progress=False).mixture
    ratios = []
    for block in range(-(-draws // BLOCK)):
        z = mixture.sample(BLOCK, seed=1000 * seed + block)
        ratios.append(log_densities(target, z) - mixture.log_prob(z))
    log_ratio = np.concatenate(ratios)
    weights = np.exp(log_ratio - log_ratio.max())
    error = weights.std() / weights.mean() / np.sqrt(weights.size)
    return log_ratio.max() + np.log(weights.mean()), error, weights.max() / weights.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(available(("seeds", "ionosphere", "chemreact"))))
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--seeds", default="100,101,102")
    arguments = parser.parse_args()
    print(machine(), "\n")
    rows = []
    for name in arguments.targets.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            value, error, largest = estimate(name, seed, arguments.draws)
            rows.append([name, str(seed), f"{value:.5f}", f"{error:.5f}", f"{largest:.1e}"])
    print(markdown(["target", "seed", "log Z", "± se", "largest share"], rows))


if __name__ == "__main__":
    main()
