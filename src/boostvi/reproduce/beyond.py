"""What the paper's tables leave out: `auto`, NUTS, predictions for held-out rows, an intercept, and honest times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from boostvi._struct import replace
from boostvi.reproduce import batch, fits, held_out, logistic, methods, nuts, select, timing
from boostvi.reproduce.data import Data
from boostvi.reproduce.experiments import Size
from boostvi.reproduce.store import Store, config_text
from boostvi.step_sizes import LineSearch

SMALL_ENTRIES = 600_000
"""Rows × columns up to which NUTS is run beside the fits, and `auto` before the sweep."""
QUICK_SECONDS = 30.0
"""Budget of `auto` in a quick look."""
INTERCEPT = " + intercept"
PARITY = "line search with one iteration fewer"
ENTROPY = "entropy weight of the authors' code"
HELD_OUT = "held-out "
"""Beginning of the names of held-out scores in the record."""


def before(store: Store, data: Data, mode: str, quiet: bool) -> None:
    """`auto`, where it takes no longer than minutes: a page of a sweep in the middle has it too."""
    if mode != "smoke" and _is_small(data):
        _store(store, {"auto": _default(data, mode)}, quiet)


def _default(data: Data, mode: str) -> Callable[[], Any]:
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    return partial(fits.default, problem, QUICK_SECONDS if mode == "quick" else None)


def _is_small(data: Data) -> bool:
    return bool(data.X[data.train].size <= SMALL_ENTRIES)


def after(store: Store, data: Data, mode: str, size: Size, quiet: bool) -> None:
    """The rest, which takes longer or needs the cells that the finished sweep selects."""
    if mode == "smoke":
        return
    parts: dict[str, Callable[[], Any]] = {
        "auto": _default(data, mode),
        "times": partial(timing.measure, data, size, mode, _timed(store)),
    }
    if mode == "full" and _is_small(data):
        parts["nuts"] = partial(nuts.fit, data)
        cells = {name: select.best(store, name, "train_ll", ()) for name in methods.PAPER}
        searched, names = cells["line-search"], (*methods.ADAPTIVE, "predefined")
        parts[PARITY] = partial(one_iteration_fewer, data, searched.config["b0"], max(searched.step, 1), size)
        parts[ENTROPY] = partial(falling_entropy_weight, data, {name: cells[name].config for name in names}, size)
    _store(store, parts | _held_out(store, data, mode, size), quiet)


def _timed(store: Store) -> dict[str, methods.Config]:
    """The paper's winner of each method; the selected configuration where the grid is one without it."""
    there = {(method, config) for method, config, _ in store.finished()}
    winners = {name: methods.METHODS[name].winner for name in select.methods_of(store)}
    return {
        name: winner if (name, config_text(winner)) in there else select.best(store, name, "train_ll", ()).config
        for name, winner in winners.items()
    }


def _held_out(store: Store, data: Data, mode: str, size: Size) -> dict[str, Callable[[], Any]]:
    """Every method, and with an intercept the best adaptive one and the mixture ELBO; all but `auto` and NUTS at the
    step that the sweep selected. A quick look has the best adaptive one only."""
    cells = {name: select.best(store, name, "train_ll", ()) for name in select.methods_of(store)}
    adaptive = max(methods.ADAPTIVE, key=lambda name: cells[name].median("train_ll"))
    shown, twice = (tuple(cells), (adaptive, "mixture-elbo")) if mode == "full" else ((adaptive,), (adaptive,))
    parts: dict[str, Callable[[], Any]] = {}
    for name in shown:
        fits = partial(held_out.of_method, data, name, cells[name].config, cells[name].step, size)
        parts[HELD_OUT + name] = fits
        if name in twice:
            parts[HELD_OUT + name + INTERCEPT] = partial(fits, intercept=True)
    others: dict[str, Callable[..., Any]] = {"auto": held_out.of_auto} if mode == "full" else {}
    if mode == "full" and _is_small(data) and not held_out.splits(data).are_folds:  # once, but not once per fold
        others["nuts"] = nuts.held_out_scores
    for name, fit in others.items():
        parts[HELD_OUT + name] = partial(fit, data)
        parts[HELD_OUT + name + INTERCEPT] = partial(fit, data, intercept=True)
    return parts


def _store(store: Store, parts: dict[str, Callable[[], Any]], quiet: bool) -> None:
    """Each part is stored when it is finished, and not done again by a command that is given again."""
    there = store.results()
    for name, part in parts.items():
        if not quiet and name not in there:
            print(f"beside the sweep: {name}", file=sys.stderr, flush=True)
        store.result(name, part)


def one_iteration_fewer(data: Data, b0: float, steps: int, size: Size) -> dict[str, Any]:
    """The selected line search with 25 iterations, as the paper has it, and with 24: a search that jumps to and fro
    returns the one end or the other."""
    target = logistic.problem(data.X, data.y, data.train, data.test).target
    parts = methods.parts("line-search", {"b0": b0}, size.iterations)
    elbo = {}
    for iterations in (LineSearch.iterations, LineSearch.iterations - 1):
        recipe = timing.recipe(replace(parts, step_size=LineSearch(b0=b0, iterations=iterations)), size.n_draws)
        history = fits.whole(target, recipe=recipe, max_steps=steps, seed=0).history
        elbo[str(iterations)] = float(history["elbo"][-1])  # of the last step; a result may be an earlier one
    return {"b0": b0, "steps": steps, "elbo": elbo}


def falling_entropy_weight(data: Data, configs: Mapping[str, methods.Config], size: Size) -> dict[str, Any]:
    """The ELBO after the last step, by seed, with λ_t = 1/√(t+1) in the subproblem, as the authors' code has it."""
    problem = logistic.problem(data.X, data.y, data.train, data.test)
    found = {}
    for name, config in configs.items():
        parts = methods.parts(name, config, size.iterations)
        parts = replace(parts, next_component=replace(parts.next_component, entropy_weight="inverse-sqrt"))
        rows = batch.run(problem, [parts] * size.seeds, range(size.seeds), size.settings)
        found[name] = {"config": dict(config), "elbo": [of_run[-1]["elbo"] for of_run in rows]}
    return found
