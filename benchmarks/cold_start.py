"""Eight schools from a cold start: a new process, import to result, for boostvi and for NumPyro's NUTS, in turn.

    python benchmarks/cold_start.py [--repeats 3]

Nothing is cached between processes. Both run the same non-centred model; NUTS draws 4 × 1000 after 1000 iterations of
warm-up, with its chains one after the other, as NumPyro does on one device, or vectorised, whichever is quicker.
boostvi is timed to its draws, and to its verdict. A second fit in the same process must compile nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
from _data import machine, markdown

MODEL = """
import time; begin = time.perf_counter()
import json
import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
se = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
def model():
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", 8):
        eta = numpyro.sample("eta", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + tau * eta, se), obs=y)
"""
BOOSTVI = """
import boostvi as bv
from boostvi._jit import trace_counts
target = bv.from_numpyro(model)
result = bv.fit(target, progress=False)
draws = result.sample(4000)
fitted = time.perf_counter() - begin
verdict = result.verdict
judged = time.perf_counter() - begin
before = sum(trace_counts.values())
again = time.perf_counter()
bv.fit(target, progress=False).sample(4000)
print(json.dumps({"fitted": fitted, "judged": judged, "verdict": verdict, "evals": result.evals,
                  "second": time.perf_counter() - again, "second_traces": sum(trace_counts.values()) - before}))
"""
NUTS = """
from numpyro.infer import MCMC, NUTS
mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4, chain_method="METHOD", progress_bar=False)
mcmc.run(jax.random.key(0))
draws = jax.block_until_ready(mcmc.get_samples())
print(json.dumps({"fitted": time.perf_counter() - begin, "mu": float(draws["mu"].mean())}))
"""


def run(script: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    ours, theirs = [], []
    for _ in range(options.repeats):
        ours.append(run(MODEL + BOOSTVI))
        methods = [run(MODEL + NUTS.replace("METHOD", method)) for method in ("sequential", "vectorized")]
        theirs.append(min(methods, key=lambda row: row["fitted"]))
    rows = [
        [str(i + 1), *(f"{value:.1f}" for value in (a["fitted"], a["judged"], b["fitted"])),
         f"{a['fitted'] / b['fitted']:.2f}", f"{a['second']:.2f}", str(a["second_traces"])]
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]  # fmt: skip
    header = ["run", "boostvi, s", "with verdict, s", "NUTS, s", "ratio", "second fit, s", "compiled in it"]
    print(markdown(header, rows))
    ratio = np.median([a["fitted"] / b["fitted"] for a, b in zip(ours, theirs, strict=True)])
    print(f"\nmedian ratio {ratio:.2f}; verdict {ours[0]['verdict']}; {ours[0]['evals']:,} evaluations\n{machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
