"""What the paper's tables leave out: `auto`, NUTS, predictions by cross-validation, an intercept, and honest times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import boostvi as bv
from boostvi.reproduce import batch, logistic, methods, programs, select
from boostvi.reproduce import data as datasets
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.store import Store

CV_ROWS = 6_000
"""Up to this many rows methods are also judged by 10-fold cross-validation; beyond, one split has enough positives."""
SMALL_ENTRIES = 600_000
"""Rows × columns up to which NUTS is run beside the fits, and `auto` before the sweep."""
DRAWS = 1000
QUICK_SECONDS = 30.0
"""Budget of `auto` in a quick look."""
REPEATS = {"full": 3, "quick": 2}
"""Timed runs of each method, in turn: of every step's times the least counts, which other work on the machine disturbs
least."""


def before(store: Store, data: Data, mode: str, quiet: bool) -> None:
    """`auto`, where it takes no longer than minutes: a page of a sweep in the middle has it too."""
    if mode != "smoke" and _is_small(data):
        _store(store, {"auto": _default(data, mode)}, quiet)


def _default(data: Data, mode: str) -> Callable[[], Any]:
    return partial(fit_auto, data, QUICK_SECONDS if mode == "quick" else None)


def _is_small(data: Data) -> bool:
    return bool(data.X[data.train].size <= SMALL_ENTRIES)


def after(store: Store, data: Data, mode: str, size: Size, quiet: bool) -> None:
    """The rest, which takes longer or needs the cells that the finished sweep selects."""
    parts: dict[str, Callable[[], Any]] = {}
    if mode != "smoke":
        parts["auto"] = _default(data, mode)
        parts["timing"] = partial(timing, data, size, mode)
    if mode == "full" and _is_small(data):
        parts["nuts"] = partial(nuts, data)
    if mode != "smoke" and len(data.y) <= CV_ROWS:
        for method in select.methods_of(store) if mode == "full" else ("adaafw", "mixture-elbo"):
            cell = select.best(store, method, "train_ll", ("elbo",))
            fold_by_fold = partial(cross_validate, data, method, cell.config, cell.step, size)
            parts[f"cv {method}"] = fold_by_fold
            if method == "mixture-elbo":
                parts[f"cv {method} + intercept"] = partial(fold_by_fold, intercept=True)
        if mode == "full":
            parts["cv auto"] = partial(cross_validate_auto, data)
            parts["cv auto + intercept"] = partial(cross_validate_auto, data, intercept=True)
    _store(store, parts, quiet)


def _store(store: Store, parts: dict[str, Callable[[], Any]], quiet: bool) -> None:
    """Each part is stored when it is finished, and not done again by a command that is given again."""
    there = store.results()
    for name, part in parts.items():
        if not quiet and name not in there:
            print(f"beside the sweep: {name}", file=sys.stderr, flush=True)
        store.result(name, part)


def _scores(out_of_fold: dict[str, np.ndarray], data: Data) -> dict[str, float]:
    """AUROC per fold and pooled, log predictive density, calibration: all on rows that had no say."""
    folds = range(int(data.fold.max()) + 1)
    each = np.array([logistic.auroc(out_of_fold["logit"][data.fold == k], data.y[data.fold == k]) for k in folds])
    each_lpd = np.array([out_of_fold["lpd"][data.fold == k].mean() for k in folds])
    return {
        "auroc": float(np.nanmean(each)),
        "auroc_se": float(np.nanstd(each, ddof=1) / np.sqrt(len(each))),
        "auroc_pooled": logistic.auroc(out_of_fold["logit"], data.y),
        "lpd": float(out_of_fold["lpd"].mean()),
        "lpd_se": float(each_lpd.std(ddof=1) / np.sqrt(len(each))),
        "calibration": logistic.calibration_error(out_of_fold["prob"], data.y),
    }


def cross_validate(
    data: Data, method: str, config: dict[str, float], step: int, size: Size, intercept: bool = False
) -> dict[str, float]:
    """The selected cell, fitted ten times without one fold each, in one batch."""
    problem, gathered = logistic.folds_problem(data.X, data.y, data.fold, intercept=intercept)
    count = int(data.fold.max()) + 1
    parts = [methods.parts(method, config, size.iterations)] * count
    settings = batch.Settings(step, size.n_draws, size.elbo_draws)
    rows = batch.run(problem, parts, range(count), settings)
    return {**_scores(gathered[-1], data), "train_ll": float(np.mean([run[-1]["train_ll"] for run in rows]))}


def cross_validate_auto(data: Data, intercept: bool = False) -> dict[str, float]:
    problem, gathered = logistic.folds_problem(data.X, data.y, data.fold, intercept=intercept)
    train_ll = []
    for k in range(int(data.fold.max()) + 1):
        with jax.enable_x64(True):
            target = programs.target_of(problem.target, problem.axes, k)
        result = bv.fit(target, seed=k, progress=False)
        measured = _measured(problem, target, result.mixture.sample(DRAWS, seed=k))
        train_ll.append(problem.summarise(measured, k)["train_ll"])
    return {**_scores(gathered[-1], data), "train_ll": float(np.mean(train_ll))}


def _measured(problem: batch.Problem, target: bv.Target, draws: np.ndarray) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, problem.measure(target, jax.numpy.asarray(draws)))


def fit_auto(data: Data, max_seconds: float | None) -> dict[str, Any]:
    """The default recipe on the training rows."""
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    begin = time.perf_counter()
    result = bv.fit(problem.target, seed=0, max_seconds=max_seconds, progress=False)
    seconds = time.perf_counter() - begin
    found = problem.summarise(_measured(problem, problem.target, result.mixture.sample(DRAWS, seed=1)), 0)
    return {
        **found, "elbo": result.elbo, "elbo_se": result.elbo_se, "kl_estimate": result.kl_estimate, "khat": result.khat,
        "n_active": int(result.mixture.n_active),
        "n_params": int(result.history["n_params"][-1]), "seconds": seconds,
        "log_evidence": result.log_evidence, "verdict": result.verdict, "status": result.status,
        "family": result.mixture.family_name,
    }  # fmt: skip


def nuts(data: Data) -> dict[str, float]:
    """NUTS on the training rows: the reference draws beside the real rows if there are any, else four "
    "NumPyro chains."""
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    path = datasets.beside("blr_chem10_reference.npz") if data.source.startswith("chem10.npz") else None
    begin = time.perf_counter()
    if path:
        with np.load(path) as stored:
            draws = np.asarray(stored["draws"], dtype=np.float64)
    else:
        from numpyro.infer import MCMC, NUTS

        with jax.enable_x64(True):
            kernel = NUTS(potential_fn=lambda z: -problem.target.log_density(z))
            chains = MCMC(
                kernel, num_warmup=500, num_samples=500, num_chains=4, chain_method="vectorized", progress_bar=False
            )
            chains.run(jax.random.PRNGKey(0), init_params=np.zeros((4, problem.target.dim)))
            draws = np.asarray(chains.get_samples())
    seconds = float("nan") if path else time.perf_counter() - begin
    return {**problem.summarise(_measured(problem, problem.target, draws), 0), "seconds": seconds, "draws": len(draws)}


TIMED = (
    ("adaafw", "table"), ("adapfw", "table"), ("adafw", "table"), ("predefined", "table"), ("line-search", "table"),
    ("adaafw", "fresh"), ("adafw", "fresh"), ("line-search", "fresh"),
)  # fmt: skip


def timing(data: Data, size: Size, mode: str) -> list[dict[str, Any]]:
    """Single runs of each method outside any batch, as a user runs it; compiled before the clock starts."""
    target = logistic.problem(data.X, data.y, data.train, data.test).target
    steps = size.steps if mode == "full" else 4
    timed = TIMED if mode == "full" else TIMED[2:5]
    seconds: dict[tuple[str, str], list[np.ndarray]] = {key: [] for key in timed}
    evals = {}
    for repeat in range(REPEATS[mode] + 1):
        for method, draws in timed:
            config = methods.METHODS[method].winner
            recipe = _recipe(methods.parts(method, config, size.iterations, draws), size.n_draws)
            history = bv.fit(target, recipe=recipe, max_steps=steps, seed=0, progress=False).history
            evals[method, draws] = int(history["evals"][-1])
            if repeat > 0:  # the first one compiles
                both = [history[f"seconds_{phase}"][1:] for phase in ("step", "subproblem")]
                seconds[method, draws].append(np.array(both))
    found = []
    for (method, draws), repeats in seconds.items():
        step, subproblem = np.min(repeats, axis=0).sum(axis=1)
        found.append({"method": method, "draws": draws, "steps": steps, "step": float(step),
                      "subproblem": float(subproblem), "evals": evals[method, draws]})  # fmt: skip
    return found


def _recipe(parts: Any, n_draws: int) -> bv.Recipe:
    return bv.Recipe(
        first=parts.first, next_component=parts.next_component, direction=parts.direction, step_size=parts.step_size,
        correction=parts.correction, n_draws=n_draws,
    )  # fmt: skip
