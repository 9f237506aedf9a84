"""Two posteriors, each by plain VI and by boosting: what `boostvi demo` prints and draws."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from boostvi import plots
from boostvi.fit import Step, fit
from boostvi.integrations.numpyro import from_numpyro
from boostvi.next_component import Adam, PlainVI
from boostvi.recipes import RECIPES
from boostvi.result import Result
from boostvi.target import Target, log_densities

PLAIN_VI = PlainVI(optimiser=Adam(learning_rate=0.1, decay=0.85, decay_every=100, steps=3000, draws=10))
"""Plain VI until it has converged, or the comparison would flatter boosting: on the regression three times as many
steps change its ELBO by 0.02 nats at most, while a rate that fell sooner (0.05 · 0.8^(i/100)) ended 1.8 nats lower."""
BUDGET_SECONDS = 20.0
LEAST_STEPS = 2
"""A boosted fit that is not done by itself stops after this time, but not before it has boosted: see `Budget`."""
PREDICTIVE_DRAWS = 1000
DPI = 110

SENSORS = np.array([[-0.8, 0.0], [0.8, 0.0]])
DISTANCES = np.array([1.9, 1.5])
NOISE = 0.3
PRIOR_SD = 2.0
QUADRATURE_SDS, QUADRATURE_POINTS = 5.0, 400


@dataclass(frozen=True)
class Fit:
    """One row of a table."""

    name: str
    result: Result
    auroc: float | None = None


# -- a posterior with two modes


def sensors_model(distances: Any) -> None:
    """Where is an object whose distance to two sensors was measured? Above their line, or mirrored below it."""
    position = numpyro.sample("position", dist.Normal(0.0, PRIOR_SD).expand([2]).to_event(1))
    away = jnp.sqrt(jnp.sum((position - SENSORS) ** 2, axis=-1) + 1e-12)
    numpyro.sample("distance", dist.Normal(away, NOISE), obs=distances)


def quadrature(target: Target) -> float:
    """log Z of a target in the plane, by the midpoint rule."""
    edges = PRIOR_SD * np.linspace(-QUADRATURE_SDS, QUADRATURE_SDS, QUADRATURE_POINTS + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    grid = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    logs = log_densities(target, grid)
    return float(logs.max() + np.log(np.exp(logs - logs.max()).sum()) + 2 * np.log(edges[1] - edges[0]))


# -- a regression on real data


@dataclass(frozen=True)
class Split:
    """Standardised by the training rows, a column of ones first."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def breast_cancer(test_share: float = 0.3, seed: int = 0) -> Split:
    """scikit-learn's breast_cancer: 569 tumours, 30 measurements; y = 1 is malignant."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError("the demo needs scikit-learn: pip install 'boostvi[demo]'") from error
    x, y = load_breast_cancer(return_X_y=True)
    y = 1 - y
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [round(test_share * len(y))])
    x = (x - x[train].mean(axis=0)) / x[train].std(axis=0)
    x = np.column_stack([np.ones(len(y)), x])
    return Split(x[train], y[train], x[test], y[test])


def regression_model(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def auroc(result: Result, data: Split) -> float:
    """Held-out AUROC of the posterior predictive mean."""
    from sklearn.metrics import roc_auc_score

    w = result.sample(PREDICTIVE_DRAWS, seed=1)["w"]
    probability = np.mean(jax.nn.sigmoid(data.x_test @ w.T), axis=1)
    return float(roc_auc_score(data.y_test, probability))


# -- the demo


def run(out: Path, *, seed: int = 0, progress: bool = True, max_steps: int | None = None) -> list[Path]:
    """Fit, compare, draw; returns the pictures it wrote into `out`. max_steps shortens the boosted fits."""
    out, begin = Path(out), time.perf_counter()
    plots.figure_class()  # what is missing is said before anything is fitted
    data = breast_cancer()
    written = sensors(out, seed, progress, max_steps) + regression(out, data, seed, progress, max_steps)
    print(f"\ntook {time.perf_counter() - begin:.0f} s")
    return written


def sensors(out: Path, seed: int, progress: bool, max_steps: int | None = None) -> list[Path]:
    print("1. Two sensors, one object: a posterior with two modes (NumPyro, 2 parameters)")
    target = from_numpyro(sensors_model, DISTANCES)
    families = {"plain VI, full-rank Normal": "full-rank-normal"}
    results, record = _compare(target, families, seed, progress, max_steps)
    plain, boosted = results.values()
    print(table([Fit(*item) for item in results.items()], quadrature(target), "by quadrature"))
    pictures = {
        "sensors-density.png": plots.density(boosted, reference=plain, reference_label="plain VI"),
        "sensors-elbo.png": plots.elbo(boosted, references={"plain VI": plain.elbo}),
        "sensors-weights.png": plots.weights(boosted, record),
    }
    return _save(pictures, out)


def regression(out: Path, data: Split, seed: int, progress: bool, max_steps: int | None = None) -> list[Path]:
    rows, dim = data.x_train.shape
    print(f"\n2. Logistic regression on breast_cancer ({rows} rows, {len(data.y_test)} held out; {dim} parameters)")
    target = from_numpyro(regression_model, data.x_train, data.y_train)
    families = {"plain VI, diagonal Normal": "diagonal-normal", "plain VI, full-rank Normal": "full-rank-normal"}
    results, record = _compare(target, families, seed, progress, max_steps)
    diagonal, full, boosted = results.values()
    fits = [Fit(name, result, auroc(result, data)) for name, result in results.items()]
    print(table(fits, boosted.log_evidence, "of the boosted fit"))
    pictures = {
        "regression-density.png": plots.density(
            boosted, coordinates=_most_correlated(boosted), reference=diagonal, reference_label="plain VI, diagonal"
        ),
        "regression-elbo.png": plots.elbo(boosted, references={"plain VI, full-rank Normal": full.elbo}),
    }
    if max(boosted.history["n_active"]) > 1:
        pictures["regression-weights.png"] = plots.weights(boosted, record)
    return _save(pictures, out)


@dataclass(frozen=True)
class Budget:
    """A callback that stops a fit after so many seconds, but not before so many steps."""

    seconds: float
    least_steps: int

    def __call__(self, step: Step) -> bool:
        return step.step >= self.least_steps and step.row["seconds"] >= self.seconds


def _compare(
    target: Target, families: dict[str, str], seed: int, progress: bool, max_steps: int | None
) -> tuple[dict[str, Result], plots.WeightRecorder]:
    """Plain VI with each family, then boosting with the default recipe."""
    auto = RECIPES["auto"]()
    results = {}
    for label, family in families.items():
        print(f"   {label} …", flush=True)
        results[label] = fit(
            target,
            recipe="bbbvi",
            family=family,
            first=PLAIN_VI,
            n_draws=auto.n_draws,
            max_steps=0,
            seed=seed,
            progress=False,
        )
    print("   boosting …", flush=True)
    record = plots.WeightRecorder()
    callbacks: list[Callable[[Step], Any]] = [record, Budget(BUDGET_SECONDS, LEAST_STEPS)]
    results["boosted"] = fit(target, max_steps=max_steps, seed=seed, progress=progress, callbacks=callbacks)
    return results, record


def table(rows: list[Fit], log_evidence: float, source: str) -> str:
    """ELBO, KL as each fit sees it itself, KL against one common log evidence, and AUROC where there is one."""
    with_auroc = rows[0].auroc is not None
    head = f"{'':<28}{'components':>10}  {'ELBO':>18}  {'KL, own estimate':>18}  {'KL, common log Z':>16}"
    lines = [head + (f"  {'AUROC':>6}" if with_auroc else "")]
    for row in rows:
        r = row.result
        own = f"{r.kl_estimate:.3f} ± {r.kl_se:.3f}"
        value = f"{r.elbo:.3f} ± {r.elbo_se:.3f}"
        line = f"{row.name:<28}{r.mixture.n_active:>10}  {value:>18}  {own:>18}  {log_evidence - r.elbo:>16.3f}"
        lines.append(line + (f"  {row.auroc:>6.4f}" if with_auroc else ""))
    boosted, best = rows[-1].result, max(rows, key=lambda row: row.result.elbo)
    return "\n".join(
        [
            *lines,
            f"highest ELBO: {best.name}",
            f"common log Z = {log_evidence:.3f} ({source}). A fit's own estimate cannot see what it never visits.",
            f"boosted fit: {boosted.mixture.n_active} × {boosted.mixture.family_name}",
            f"verdict: {boosted.verdict}, {boosted.reasons[0]}",
            f"stopped: {boosted.status} after {boosted.evals:,} target evaluations, {boosted.run.seconds:.0f} s",
        ]
    )


def _most_correlated(result: Result) -> tuple[int, int]:
    """The two coordinates that a diagonal family gets most wrong."""
    correlation = np.abs(np.corrcoef(result.mixture.sample(4000, seed=0).T))
    np.fill_diagonal(correlation, 0.0)
    i, j = np.unravel_index(np.argmax(correlation), correlation.shape)
    return int(i), int(j)


def _save(pictures: dict[str, Any], out: Path) -> list[Path]:
    paths = []
    for name, figure in pictures.items():
        path = out / name
        figure.savefig(path, dpi=DPI)
        print(f"wrote {path}", flush=True)
        paths.append(path)
    return paths
