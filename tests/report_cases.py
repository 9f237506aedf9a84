"""Results to make report pages of: a small fit, and a large run put together from arrays, without a fit."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import boostvi as bv
from boostvi.diagnostics import Evaluation
from boostvi.families import DiagonalNormal, FullRankNormal
from boostvi.history import COLUMNS, History
from boostvi.run import Run
from boostvi.storage.loaded import LoadedResult, NoTarget
from boostvi.trace import Trace

HOSTILE = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"
STEPS = 8


def _log_density(tree):
    """Two humps in the plane; the second parameter is a logarithm."""
    z = jnp.stack([tree["place"], tree[HOSTILE]])
    means, scales = jnp.array([[-2.0, 0.5], [2.0, -0.5]]), jnp.array([[0.8, 0.5], [0.6, 0.7]])
    inside = -0.5 * jnp.sum(((z - means) / scales) ** 2, axis=-1) - jnp.sum(jnp.log(scales), axis=-1)
    return jnp.logaddexp(inside[0], inside[1])


def _constrain(tree):
    width = jnp.exp(tree[HOSTILE])
    return {"place": tree["place"], HOSTILE: width, f"sum{CLOSING}": tree["place"] + width}


def fit_small() -> tuple[bv.Result, Trace]:
    """A real fit whose model has constrained, derived and badly named parameters, and its trace."""
    target = bv.Target(_log_density, {"place": 0.0, HOSTILE: 0.0}, constrain=_constrain)
    trace = Trace()
    result = bv.fit(
        target, recipe="fully-corrective", family="diagonal-normal", first="random", next_component="random",
        n_draws=200, elbo_draws=500, max_steps=STEPS, seed=4, progress=False, callbacks=[trace],
    )  # fmt: skip
    return result, trace


def row(step: int, **known) -> dict:
    return dict.fromkeys(COLUMNS, 0.0) | {"step": step, "kind": "refine" if step else "init"} | known


def assembled(mixtures: list[bv.Mixture], names: list[str], verdict: str = "usable") -> tuple[bv.Result, Trace]:
    """A result as if loaded, with a trace: one step for each mixture, the last the best."""
    n = len(mixtures)
    rows = tuple(
        row(
            t, elbo=-50.0 * np.exp(-0.1 * t) - 300, elbo_se=0.2, kl_estimate=20.0 * np.exp(-0.1 * t), kl_se=0.1,
            log_evidence=-300.0, n_active=mixture.n_active, evals=1000 * (t + 1), seconds=0.5 * t, gamma=0.1,
        )
        for t, mixture in enumerate(mixtures)
    )  # fmt: skip
    history = History(rows)
    run = Run(None, None, 0, None, history, mixtures[-1], 1000 * n, 0.5 * n)
    evaluation = Evaluation(rows[-1]["elbo"], 0.1, -300.0, 0.1, 0.05, 0.01, 0)
    known = {
        "evaluation": evaluation,
        "_importance": (np.zeros(0), 0.4, 6000.0),
        "_judgement": (verdict, ("the first reason", f"another {HOSTILE}")),
    }
    target = NoTarget(Path("run.bvi"), names, constrained=False)
    result = LoadedResult(target, run, "max-steps", known, None)
    trace = Trace()
    for t, mixture in enumerate(mixtures):
        trace(bv.Step(t, mixture, rows[t], History(rows[: t + 1])))
    return result, trace


def large(components: int = 50, dim: int = 100, steps: int = 60) -> tuple[bv.Result, Trace]:
    """Full-rank components that all move at every step: nothing can be stored once for several steps."""
    rng = np.random.default_rng(0)
    loc, factor = 3.0 * rng.normal(size=(components, dim)), rng.normal(size=(components, dim, dim)) / np.sqrt(dim)
    mixtures = []
    for _ in range(steps):
        loc = loc + 0.1 * rng.normal(size=loc.shape)
        factor = factor * (1.0 + 0.01 * rng.normal(size=(components, dim, 1)))
        params = {"loc": loc, "factor": factor, "inverse": factor, "log_volume": np.zeros(components)}
        mixtures.append(bv.Mixture(params, rng.dirichlet(np.full(components, 3.0)), FullRankNormal()))
    return assembled([mixture.active() for mixture in mixtures], [f"beta[{i}]" for i in range(dim)])


def growing(dim: int = 2, steps: int = 6) -> tuple[bv.Result, Trace]:
    """A component more at each step, at (t, t, …) and of scale 1 + t, the earlier ones as they were."""
    mixtures = []
    for t in range(steps):
        loc = np.repeat(np.arange(t + 1.0)[:, None], dim, axis=1)
        raw = np.log(np.expm1(1.0 + loc))
        mixtures.append(bv.Mixture({"loc": loc, "raw_scale": raw}, np.full(t + 1, 1 / (t + 1)), DiagonalNormal()))
    return assembled(mixtures, [f"z[{i}]" for i in range(dim)])
