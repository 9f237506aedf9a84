"""What a fit gives back."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from boostvi import diagnostics
from boostvi._jit import counted_jit, float64
from boostvi.diagnostics import Evaluation
from boostvi.history import History
from boostvi.mixture import Mixture
from boostvi.probes import Probes, probe
from boostvi.target import Target, log_densities

if TYPE_CHECKING:
    from boostvi.fit import Run

JUDGING_DRAWS = 10_000
"""Fresh draws behind the final numbers."""
IMPORTANCE_FACTOR = 10
"""Draws of the mixture per draw asked for when they are resampled by importance."""

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


class Result:
    """The mixture with the highest ELBO of the run, how good it is, and the record of the run.

    Every number here (elbo, kl_estimate, khat, …) comes from draws that had no part in the fit, drawn and evaluated
    when first asked for. `run` is the state behind it: `fit(target, resume=result)` goes on from its last step.
    """

    def __init__(self, target: Target, run: Run, status: str):
        self.target = target
        self.run = run
        self.status = status

    @cached_property
    def mixture(self) -> Mixture:
        """The distribution on R^d: .sample(n, seed=), .log_prob(z), .weights; heaviest component first."""
        return self.run.best.active()

    @property
    def history(self) -> History:
        return self.run.history

    @property
    def best_step(self) -> int:
        """The step whose mixture this is."""
        return int(np.argmax(self.history["elbo"]))

    @property
    def evals(self) -> int:
        """Target evaluations of the fit."""
        return self.run.evals

    @cached_property
    @float64
    def _fresh(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws of the mixture that had no part in the fit, with ln p and ln q there."""
        key = diagnostics.key_for(self.run.seed, "final", self.best_step)
        return diagnostics.fresh_log_densities(self.target, self.run.best, key, JUDGING_DRAWS)

    @cached_property
    @float64
    def evaluation(self) -> Evaluation:
        draws, log_target, log_q = self._fresh
        wide = diagnostics.wide_draws(self.target, self.run.best, draws, self.run.seed)
        return diagnostics.evaluate(log_target, log_q, wide)

    @cached_property
    def _importance(self) -> tuple[np.ndarray, float, float]:
        _, log_target, log_q = self._fresh
        return diagnostics.importance(log_target - log_q)

    @property
    def elbo(self) -> float:
        return self.evaluation.elbo

    @property
    def elbo_se(self) -> float:
        return self.evaluation.elbo_se

    @property
    def log_evidence(self) -> float:
        return self.evaluation.log_evidence

    @property
    def kl_estimate(self) -> float:
        """KL to the posterior on the region that the mixture visits, in nats."""
        return self.evaluation.kl_estimate

    @property
    def kl_se(self) -> float:
        return self.evaluation.kl_se

    @property
    def khat(self) -> float:
        """Pareto shape of the importance weights p/q of the whole mixture."""
        return self._importance[1]

    @property
    def ess(self) -> float:
        """Effective number, of 10,000 draws, after Pareto-smoothed reweighting."""
        return self._importance[2]

    @property
    def verdict(self) -> str:
        """ "good": use it as it is; "usable": with importance=True; "unreliable". `reasons` says why."""
        return self._judgement[0]

    @property
    def reasons(self) -> tuple[str, ...]:
        return self._judgement[1]

    @cached_property
    def _judgement(self) -> tuple[str, tuple[str, ...]]:
        probes = self.probes if np.isfinite(self.elbo) else None
        return diagnostics.judge(self.evaluation, self.khat, self.ess / JUDGING_DRAWS, probes)

    @cached_property
    def probes(self) -> Probes | None:
        """Searches for what the mixture misses, made when first asked for; None for families that have none."""
        return probe(self.target, self.run.best, diagnostics.key_for(self.run.seed, "probe", self.best_step))

    @float64
    def sample(self, n: int, *, seed: int = 0, importance: bool = False) -> Any:
        """n draws in the model's own space: what `target.constrain` makes of them, stacked; else an array (n, dim).

        importance: resample 10·n draws of the mixture by Pareto-smoothed weights p/q. Their error falls where the
        mixture is off, and k̂ says whether that can be trusted.
        """
        if not importance:
            return self._constrained(self.mixture.sample(n, seed=seed))
        draws = self.mixture.sample(IMPORTANCE_FACTOR * n, seed=seed)
        log_ratio = log_densities(self.target, draws) - self.mixture.log_prob(draws)
        weights, _, _ = diagnostics.importance(log_ratio)
        chosen = np.random.default_rng(seed).choice(draws.shape[0], size=n, p=weights)
        return self._constrained(draws[chosen])

    def _constrained(self, draws: np.ndarray) -> Any:
        if self.target.constrain is None:
            return draws
        return jax.tree.map(np.asarray, _constrain(self.target.constrain, draws))

    def summary(self) -> str:
        """Print, and return, where the fit stands and what it says about each parameter."""
        text = "\n".join([self._headline(), "", self._parameters()])
        print(text)
        return text

    def _headline(self) -> str:
        last = self.history.rows[-1]["step"]
        step = f"step {last}" if self.best_step == last else f"step {self.best_step}, the best of {last}"
        lines = [
            f"{self.verdict}: {self.reasons[0]}",
            *(f"  {reason}" for reason in self.reasons[1:]),
            f"ELBO {self.elbo:.4f} ± {self.elbo_se:.2g}   log evidence {self.log_evidence:.4f}   "
            f"KL ≈ {self.kl_estimate:.3g} ± {self.kl_se:.2g} nats   k̂ {self.khat:.2f}   "
            f"ESS {self.ess:.0f} of {JUDGING_DRAWS}",
            f"{self.mixture.n_active} components of family {self.mixture.family.name} ({step}); "
            f"{self.evals:,} target evaluations in {self.run.seconds:.1f} s",
            f"stopped: {self.status} ({STATUS[self.status]})",
        ]
        return "\n".join(lines)

    def _parameters(self, n: int = 4000, most: int = 40) -> str:
        draws = self.sample(n, seed=0)
        columns = dict(zip(self.target.names, draws.T, strict=True)) if isinstance(draws, np.ndarray) else _flat(draws)
        width = max([9, *(len(name) for name in columns)])
        rows = [f"{'parameter':<{width}} {'mean':>10} {'sd':>10} {'5 %':>10} {'50 %':>10} {'95 %':>10}"]
        for name, values in list(columns.items())[:most]:
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            numbers = (values.mean(), values.std(), low, middle, high)
            rows.append(f"{name:<{width}} " + " ".join(f"{number:>10.4g}" for number in numbers))
        if len(columns) > most:
            rows.append(f"… and {len(columns) - most} more; result.sample(n) has them all")
        return "\n".join(rows)

    def __repr__(self) -> str:
        return (
            f"Result({self.verdict}: {self.mixture.n_active} components, ELBO {self.elbo:.4f} ± {self.elbo_se:.2g}, "
            f"KL ≈ {self.kl_estimate:.3g}, {self.status})"
        )


def _flat(tree: Any) -> dict[str, np.ndarray]:
    """Scalar columns of stacked draws, named by site and index."""
    columns = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = ".".join(str(getattr(part, "key", getattr(part, "idx", part))) for part in path)
        for index in np.ndindex(leaf.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            columns[label] = np.asarray(leaf[(slice(None), *index)], dtype=np.float64)
    return columns


@counted_jit(static_argnums=0)
def _constrain(constrain: Any, draws: Any) -> Any:
    return jax.vmap(constrain)(draws)
