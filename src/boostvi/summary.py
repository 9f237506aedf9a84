"""The page of text that a result prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from boostvi import trees

if TYPE_CHECKING:
    from boostvi.result import Result

STATUS = {
    "converged": "the tolerance was reached",
    "no-improvement": "further components no longer raised the ELBO",
    "max-steps": "the budget of steps was used",
    "max-components": "the budget of components was used",
    "max-seconds": "the budget of time was used",
    "max-evals": "the budget of target evaluations was used",
    "callback": "a callback asked to stop",
    "interrupted": "it was interrupted",
}

MOST_PARAMETERS = 40
MOST_MODES = 10
MODE_COLUMNS = 4
"""Parameters, the ones that differ most between the modes, that locate a mode."""
DRAWS = 4000
NEAR_ZERO = 1e-6
"""In units of the standard deviation: smaller values are printed as 0."""


def summary(result: Result) -> str:
    parts = [headline(result), modes(result), advice(result), "", parameters(result)]
    return "\n".join(part for part in parts if part is not None)


def headline(result: Result) -> str:
    last = result.history.rows[-1]["step"]
    step = f"step {last}" if result.best_step == last else f"step {result.best_step}, the best of {last}"
    n = result.mixture.n_active
    lines = [
        f"{result.verdict}: {result.reasons[0]}",
        *(f"  {reason}" for reason in result.reasons[1:]),
        f"ELBO {result.elbo:.4f} ± {result.elbo_se:.2g}   log evidence {result.log_evidence:.4f}   "
        f"KL ≈ {result.kl_estimate:.3g} ± {result.kl_se:.2g} nats   k̂ {result.khat:.2f}   "
        f"ESS {result.ess:.0f} of {result.judging_draws}",
        f"{n} component{'s' if n > 1 else ''} of family {result.mixture.family_name} ({step}); "
        f"{result.evals:,} target evaluations in {result.run.seconds:.1f} s",
        f"stopped: {result.status} ({STATUS[result.status]})",
    ]
    return "\n".join(lines)


def modes(result: Result) -> str | None:
    """The modes, if there are several: their weights, and where they are in the parameters that tell them apart."""
    found = result.modes
    if len(found) < 2:
        return None
    places = _columns(result, jax.tree.map(lambda *leaves: np.stack(leaves), *(mode.location for mode in found)))
    sds = {name: values.std() for name, values in _columns(result, result.sample(DRAWS, seed=0)).items()}
    places = {name: np.where(np.abs(at) < NEAR_ZERO * sds[name], 0.0, at) for name, at in places.items()}
    telling = sorted(places, key=lambda name: -np.ptp(places[name]) / (sds[name] or 1.0))[:MODE_COLUMNS]
    lines = [f"{len(found)} modes:"]
    for i, mode in enumerate(found[:MOST_MODES]):
        place = ", ".join(f"{name} = {places[name][i]:.4g}" for name in telling)
        n = len(mode.members)
        lines.append(f"  {100 * mode.weight:5.1f} % at {place} ({n} component{'s' if n > 1 else ''})")
    if len(found) > MOST_MODES:
        lines.append(f"  … and {len(found) - MOST_MODES} more in result.modes")
    return "\n".join(lines)


def advice(result: Result) -> str:
    """What to do next."""
    if result.verdict == "good":
        return "next: use result.sample(n) as draws of the posterior"
    if result.verdict == "usable":
        more = "" if result.status in ("converged", "no-improvement") else ", or go on with fit(target, resume=result)"
        return f"next: use result.sample(n, importance=True){more}"
    if result.status in ("max-seconds", "max-steps", "max-components", "max-evals", "callback", "interrupted"):
        return "next: go on with fit(target, resume=result) and a larger budget; do not use the draws yet"
    return (
        "next: reparameterise the model (non-centred, standardised) or start NUTS from result.initial_positions(); "
        "do not use the draws as they are"
    )


def parameters(result: Result) -> str:
    columns = _columns(result, result.sample(DRAWS, seed=0))
    width = max([9, *(len(name) for name in columns)])
    rows = [f"{'parameter':<{width}} {'mean':>10} {'sd':>10} {'5 %':>10} {'50 %':>10} {'95 %':>10}"]
    for name, values in list(columns.items())[:MOST_PARAMETERS]:
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        numbers = (values.mean(), values.std(), low, middle, high)
        rows.append(f"{name:<{width}} " + " ".join(f"{number:>10.4g}" for number in numbers))
    if len(columns) > MOST_PARAMETERS:
        rows.append(f"… and {len(columns) - MOST_PARAMETERS} more; result.sample(n) has them all")
    return "\n".join(rows)


def _columns(result: Result, draws: Any) -> dict[str, np.ndarray]:
    """Scalar columns of draws in the model's own space."""
    if isinstance(draws, np.ndarray):
        return dict(zip(result.target.names, draws.T, strict=True))
    return trees.columns(draws)
