"""Eleven models, in NumPyro and in PyMC: do the two adapters agree, and does the fit agree with NUTS?

    python benchmarks/models.py [--only SUBSTRING] [--no-pymc] [--no-nuts] [--json FILE]

Every model is fitted by `bv.fit(target, seed=0)` with nothing else set, once from each language. Densities are compared
at random points: the two unconstrained spaces differ, so points are mapped from one to the other through the model's
own space, and the Jacobian of that map is part of the comparison. Means and standard deviations are compared with NUTS
in unconstrained coordinates and in the model's own, where they exist. A complete run writes docs/models.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _models_numpyro as in_numpyro
import jax
import jax.numpy as jnp
import numpy as np
from _data import machine, markdown
from jax.flatten_util import ravel_pytree
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import unconstrain_fn
from scipy.special import expit

import boostvi as bv
from boostvi._jit import float64

MAX_SECONDS = 120
"""Budget of a fit: most stop long before by themselves."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
DENSITY_TOLERANCE = 1e-8
"""Of the log densities, relative to their magnitude, up to a constant."""
MEAN_TOLERANCE = 0.1
SD_TOLERANCE = 0.1
"""What "good" promises here: means within a tenth of a standard deviation, standard deviations within 10 %."""
MOST_NOT_GOOD = 2
POINTS = 20
DRAWS = 20_000
CHAINS, WARMUP, SAMPLES = 4, 1500, 5000
ACCEPT = 0.95
"""High, for the funnels among the models; and a dense mass matrix, without which the state space model mixes badly."""


@dataclass(frozen=True)
class Example:
    """data: the arguments of both models. match: NumPyro's sites as PyMC's variables, where they differ. heavy: sites
    whose mean does not exist, compared in unconstrained coordinates only. reference: the example whose NUTS draws hold
    this one's sites, where NUTS would be the less accurate of the two."""

    name: str
    data: Callable[[], dict[str, np.ndarray]]
    match: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    heavy: frozenset[str] = frozenset()
    reference: str | None = None

    @property
    def numpyro_model(self) -> Callable[..., None]:
        return getattr(in_numpyro, self.name)

    def numpyro_target(self) -> bv.Target:
        return bv.from_numpyro(self.numpyro_model, **self.data())

    def pymc_model(self) -> Any:
        import _models_pymc as in_pymc

        return getattr(in_pymc, self.name)(**self.data())


def schools() -> dict[str, np.ndarray]:
    """Rubin (1981): effects of coaching in eight schools, and their standard errors."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    return {"y": y, "se": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])}


def clicks() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 5))
    logits = -0.5 + X @ np.array([1.0, -1.5, 0.5, 0.0, 0.25])
    return {"X": X, "y": (rng.random(200) < expit(logits)).astype(int)}


def claims() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    X, exposure = rng.normal(size=(100, 3)), rng.uniform(0.5, 20.0, size=100)
    return {"X": X, "exposure": exposure, "y": rng.poisson(exposure * np.exp(-1.0 + X @ np.array([0.4, -0.3, 0.0])))}


def sparse() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 8))
    return {"X": X, "y": X @ np.array([2.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]) + rng.normal(size=60)}


def curve() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(-3.0, 3.0, size=40))
    return {"x": x, "y": np.sin(1.5 * x) + 0.3 * rng.normal(size=40)}


def series() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    level = np.zeros(40)
    level[0] = rng.normal() * 0.4 / np.sqrt(1.0 - 0.8**2)
    for t in range(1, 40):
        level[t] = 0.8 * level[t - 1] + 0.4 * rng.normal()
    return {"y": rng.poisson(np.exp(2.0 + level))}


def two_groups() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    second = rng.random(150) < 0.65
    return {"y": np.where(second, rng.normal(2.0, 0.8, size=150), rng.normal(-1.5, 1.2, size=150))}


def ratings() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(150, 2))
    latent = X @ np.array([1.2, -0.7]) + rng.logistic(size=150)
    return {"X": X, "y": np.searchsorted(np.array([-1.5, 0.0, 1.5]), latent)}


def votes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    shares = rng.dirichlet(12.0 * np.array([0.4, 0.3, 0.2, 0.1]), size=15)
    return {"counts": np.stack([rng.multinomial(50, row) for row in shares])}


def returns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    corr = np.array([[1.0, 0.6, -0.2], [0.6, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    scale = np.array([1.0, 0.5, 2.0])
    return {"y": rng.multivariate_normal([0.5, -0.5, 0.0], corr * np.outer(scale, scale), size=60)}


def _whole_level(sites: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sites[name] for name in ("mu", "phi", "sigma", "level")}


def _packed_covariance(sites: Mapping[str, Any]) -> dict[str, Any]:
    """PyMC's variable is the Cholesky factor of the covariance, row by row."""
    factor = sites["sigma"][:, None] * sites["factor"]
    return {"mu": sites["mu"], "cov": factor[np.tril_indices(factor.shape[0])]}


EXAMPLES = {
    example.name: example
    for example in (
        Example("eight_schools_centred", schools, reference="eight_schools_noncentred"),
        Example("eight_schools_noncentred", schools),
        Example("logistic_regression", clicks),
        Example("poisson_regression", claims),
        Example("horseshoe", sparse, heavy=frozenset({"tau", "local"})),
        Example("gaussian_process", curve),
        Example("state_space", series, match=_whole_level),
        Example("mixture", two_groups),
        Example("ordered_logistic", ratings),
        Example("dirichlet_multinomial", votes),
        Example("lkj_normal", returns, match=_packed_covariance),
    )
}


@float64
def to_pymc(example: Example, source: bv.Target, model: Any) -> Callable[[Any], Any]:
    """The map of NumPyro's unconstrained space onto PyMC's, through the model's own space."""
    from pymc.sampling.jax import get_jaxified_graph

    values = [rv.type() for rv in model.free_RVs]
    outputs = []
    for rv, value in zip(model.free_RVs, values, strict=True):
        transform = model.rvs_to_transforms[rv]
        outputs.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
    forward = get_jaxified_graph(inputs=values, outputs=outputs)

    def mapped(z: Any) -> Any:
        sites = source.constrain(z)
        sites = sites if example.match is None else example.match(sites)
        return jnp.concatenate([jnp.ravel(v) for v in forward(*(sites[rv.name] for rv in model.free_RVs))])

    return mapped


@float64
def density_disagreement(example: Example, points: int = POINTS) -> float:
    """Largest difference of the two log densities, relative to their magnitude and up to a constant."""
    model = example.pymc_model()
    ours, theirs = example.numpyro_target(), bv.from_pymc(model)
    mapped = to_pymc(example, ours, model)

    def both(z: Any) -> tuple[Any, Any]:
        log_volume = jnp.linalg.slogdet(jax.jacfwd(mapped)(z))[1]
        return ours.log_density(z), theirs.log_density(mapped(z)) + log_volume

    z = np.random.default_rng(0).normal(size=(points, ours.dim))
    first, second = (np.asarray(values) for values in jax.jit(jax.vmap(both))(z))
    difference = first - second
    return float(np.max(np.abs(difference - np.median(difference)) / np.maximum(1.0, np.abs(first))))


@float64
def columns(target: bv.Target, z: np.ndarray, heavy: frozenset[str] = frozenset()) -> np.ndarray:
    """Unconstrained coordinates, then the sites of the model's own space, side by side."""
    sites = jax.jit(jax.vmap(target.constrain))(jnp.asarray(z))
    kept = [np.reshape(sites[name], (len(z), -1)) for name in sorted(sites) if name not in heavy]
    return np.concatenate([z, *kept], axis=1)


def errors(draws: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Largest error of a mean, in standard deviations, and largest relative error of a standard deviation."""
    sd = reference.std(axis=0)
    moving = sd > 1e-8 * np.abs(reference).max(axis=0)
    means = np.abs(draws.mean(axis=0) - reference.mean(axis=0))[moving] / sd[moving]
    return float(means.max()), float(np.abs(draws.std(axis=0)[moving] / sd[moving] - 1.0).max())


@float64
def nuts(example: Example) -> dict[str, np.ndarray]:
    """Draws of NumPyro's own sampler, by site: (chains, draws, …)."""
    kernel = NUTS(example.numpyro_model, target_accept_prob=ACCEPT, dense_mass=True)
    sampler = MCMC(
        kernel, num_warmup=WARMUP, num_samples=SAMPLES, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    sampler.run(jax.random.key(0), **example.data())
    return {name: np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()}


@float64
def reference_draws(example: Example, target: bv.Target) -> tuple[np.ndarray, dict[str, float]]:
    """NUTS draws in the target's coordinates, and how far they can be trusted."""
    begin = time.perf_counter()
    samples = nuts(EXAMPLES[example.reference or example.name])
    seconds = time.perf_counter() - begin
    names = {name.split("[")[0] for name in target.names}
    latents = {name: jnp.asarray(samples[name]) for name in names}

    def flat(sites: dict[str, Any]) -> Any:
        return ravel_pytree(unconstrain_fn(example.numpyro_model, (), example.data(), sites))[0]

    z = np.asarray(jax.jit(jax.vmap(jax.vmap(flat)))(latents))
    quality = {"ess": float(effective_sample_size(z).min()), "rhat": float(split_gelman_rubin(z).max())}
    return z.reshape(-1, target.dim), quality | {"seconds": seconds}


@float64
def fitted(target: bv.Target) -> tuple[bv.Result, np.ndarray, float]:
    """The fit, draws to be used as its verdict says, and its seconds, with those of the verdict."""
    begin = time.perf_counter()
    result = bv.fit(target, seed=0, max_seconds=MAX_SECONDS, progress=False)
    weighted = result.verdict == "usable"
    seconds = time.perf_counter() - begin
    return result, result.unconstrained_draws(DRAWS, seed=1, importance=weighted), seconds


def run(example: Example, with_pymc: bool, with_nuts: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    target = example.numpyro_target()
    building = time.perf_counter() - begin
    result, z, seconds = fitted(target)
    row = {
        "model": example.name, "dim": target.dim, "verdict": result.verdict, "kl": result.kl_estimate,
        "khat": result.khat, "components": result.mixture.n_active, "seconds": building + seconds,
        "reason": result.reasons[0],
    }  # fmt: skip
    if with_nuts:
        reference, quality = reference_draws(example, target)
        ours = columns(target, z, example.heavy)
        row["mean_error"], row["sd_error"] = errors(ours, columns(target, reference, example.heavy))
        row |= {f"nuts_{name}": value for name, value in quality.items()}
    if with_pymc:
        row["density"] = density_disagreement(example)
        row |= against_pymc(example, target, z)
    return row


@float64
def against_pymc(example: Example, target: bv.Target, z: np.ndarray) -> dict[str, Any]:
    """The same fit from PyMC, and how far its means are from those of the draws z."""
    begin = time.perf_counter()
    model = example.pymc_model()
    other = bv.from_pymc(model)
    building = time.perf_counter() - begin
    result, draws, seconds = fitted(other)
    moved = np.asarray(jax.jit(jax.vmap(to_pymc(example, target, model)))(jnp.asarray(z)))
    both = [columns(other, values, example.heavy | {"cov"}) for values in (draws, moved)]
    return {
        "pymc_verdict": result.verdict,
        "pymc_mean_difference": errors(*both)[0],
        "pymc_seconds": building + seconds,
    }


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """What should not be."""
    found = []
    for row in rows:
        name, good = row["model"], row["verdict"] == "good"
        if row.get("density", 0.0) > DENSITY_TOLERANCE:
            found.append(f"{name}: the densities differ by {row['density']:.1e}")
        off = row.get("mean_error", 0.0) > MEAN_TOLERANCE or row.get("sd_error", 0.0) > SD_TOLERANCE
        if good and off:
            found.append(f"{name}: called good, but off by {row['mean_error']:.3f} sd and {row['sd_error']:.1%}")
        both_good = good and row.get("pymc_verdict") == "good"
        if both_good and row["pymc_mean_difference"] > MEAN_TOLERANCE:
            found.append(f"{name}: the fits from NumPyro and PyMC differ by {row['pymc_mean_difference']:.3f} sd")
    not_good = [row["model"] for row in rows if row["verdict"] != "good"]
    if len(not_good) > MOST_NOT_GOOD:
        found.append(f"not good: {', '.join(not_good)}")
    return found


def table(rows: list[dict[str, Any]]) -> str:
    header = [
        "model", "d", "density, NumPyro − PyMC", "verdict", "KL", "k̂", "components", "mean error, sd", "sd error",
        "means, NumPyro − PyMC, sd", "fit, s", "fit from PyMC, s", "NUTS, s", "NUTS ESS",
    ]  # fmt: skip
    formats = {
        "density": "{:.0e}", "verdict": "{}", "kl": "{:.3g}", "khat": "{:.2f}", "components": "{}",
        "mean_error": "{:.2g}", "sd_error": "{:.2g}", "pymc_mean_difference": "{:.2g}", "seconds": "{:.1f}",
        "pymc_seconds": "{:.1f}", "nuts_seconds": "{:.1f}", "nuts_ess": "{:.0f}",
    }  # fmt: skip
    cells = [
        [
            _title(row["model"]),
            str(row["dim"]),
            *(form.format(row[key]).replace("%", " %") if key in row else "–" for key, form in formats.items()),
        ]
        for row in rows
    ]
    return markdown(header, cells)


PAGE_TEXT = """# Models

Eleven models, each written in NumPyro (`benchmarks/_models_numpyro.py`) and in PyMC (`benchmarks/_models_pymc.py`),
fitted by `bv.fit(target, seed=0, max_seconds={seconds})` with nothing else set. Written by

    python benchmarks/models.py

on {where}.{kept}

{table}

- Density: the largest difference of the two log densities at random points, relative to their magnitude, up to a
  constant.
- Errors of means and standard deviations are the largest over all unconstrained coordinates and all sites, against
  {chains} × {samples} draws of NUTS; those of {borrowed} come from the non-centred form of the same posterior. Sites
  whose mean does not exist ({heavy}) are compared in unconstrained coordinates only.
- Draws of a fit called usable are importance-weighted, as it asks for. ESS is the smallest of any coordinate. Seconds
  include tracing, compiling and the verdict.
"""


def page(rows: list[dict[str, Any]], where: str, kept: int) -> str:
    doubtful = [f"- {_title(row['model'])}: {row['reason']}" for row in rows if row["verdict"] != "good"]
    heavy = [f"{name} of the {_title(e.name)}" for e in EXAMPLES.values() for name in sorted(e.heavy)]
    text = PAGE_TEXT.format(
        where=where,
        kept=f" {kept} of the rows were kept from earlier calls of it, and from whatever version it was then."
        if kept
        else "",
        seconds=MAX_SECONDS,
        table=table(rows),
        chains=CHAINS,
        samples=SAMPLES,
        borrowed=", ".join(_title(e.name) for e in EXAMPLES.values() if e.reference),
        heavy=", ".join(heavy),
    )
    return text + ("\nWhy not good:\n\n" + "\n".join(doubtful) + "\n" if doubtful else "")


def _title(name: str) -> str:
    return name.replace("_", " ")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the models whose name contains this")
    parser.add_argument("--no-pymc", action="store_true")
    parser.add_argument("--no-nuts", action="store_true")
    parser.add_argument("--json", type=Path, help="write the rows here as well; models that it has are not run again")
    options = parser.parse_args(argv)
    with_pymc = not options.no_pymc
    if with_pymc and importlib.util.find_spec("pymc") is None:
        print("SKIPPED: the comparison with PyMC; pip install 'boostvi[pymc]'")
        with_pymc = False
    where = machine()
    rows: list[dict[str, Any]] = []
    known = {}
    if options.json and options.json.exists():
        known = {row["model"]: row for row in json.loads(options.json.read_text())}
    for example in [example for name, example in EXAMPLES.items() if options.only in name]:
        rows.append(known.get(example.name) or run(example, with_pymc, not options.no_nuts))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    if len(rows) == len(EXAMPLES) and with_pymc and not options.no_nuts:
        PAGE.write_text(page(rows, where, len(known)))
    print(f"{where}\n\n{table(rows)}")
    wrong = failures(rows)
    print("\n".join(["", *wrong]) if wrong else "\nall as promised")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
