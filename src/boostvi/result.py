"""What a fit gives back."""

from __future__ import annotations

import os
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from boostvi import diagnostics
from boostvi._jit import counted_jit, float64, host_generator
from boostvi._struct import replace
from boostvi.diagnostics import Evaluation
from boostvi.families.linear import LinearFamily
from boostvi.history import History
from boostvi.integrations.arviz import to_arviz
from boostvi.mixture import Mixture
from boostvi.modes import Mode, clusters
from boostvi.next_component.base import Proposal
from boostvi.probes import HINTS, Probes, probe
from boostvi.run import Run, best_step
from boostvi.summary import summary
from boostvi.target import Target, log_densities, starting_points
from boostvi.verdict import judge, runaway
from boostvi.wide import Wide, log_weights, wide_draws

if TYPE_CHECKING:
    from boostvi.check import Check
    from boostvi.trace import Trace

JUDGING_DRAWS = 10_000
"""Fresh draws behind the final numbers."""
IMPORTANCE_FACTOR = 10
"""Draws of the mixture per draw asked for when they are resampled by importance."""
LEAST_POOL = 1000
"""And the least number of them."""


class Result:
    """The mixture with the highest ELBO of the run, how good it is, and the record of the run.

    Every number here (elbo, kl_estimate, khat, …) comes from draws that had no part in the fit, drawn and evaluated
    when first asked for. `run` is the state behind it: `fit(target, resume=result)` goes on from its last step.
    """

    judging_draws = JUDGING_DRAWS

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
        return best_step(self.history)

    @property
    def evals(self) -> int:
        """Target evaluations of the fit."""
        return self.run.evals

    @cached_property
    @float64
    def _inner(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws of the mixture that had no part in the fit, where its components live, with ln p and ln q there."""
        key = diagnostics.key_for(self.run.seed, "final", self.best_step)
        return diagnostics.fresh_log_densities(self._space, self.run.best, key, JUDGING_DRAWS)

    @cached_property
    def _fresh(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These draws where the target lives, with ln p and ln q: of the same difference, which is all that counts."""
        draws, log_target, log_q = self._inner
        return self.mixture.warped(draws), log_target, log_q

    @property
    def _space(self) -> Target:
        """The target where the components live: behind the mixture's warp, if it has one."""
        return self.target.through(self.run.best.warp)

    @cached_property
    @float64
    def evaluation(self) -> Evaluation:
        _, log_target, log_q = self._inner
        has_moments = self.run.best.family.has_variance
        return diagnostics.evaluate(log_target, log_q, self._wide, self._fresh[0] if has_moments else None, tail=True)

    @cached_property
    @float64
    def _wide(self) -> Wide | None:
        """As many draws of something wider than the mixture."""
        rng = host_generator(diagnostics.key_for(self.run.seed, "wide", self.best_step))
        return wide_draws(partial(log_densities, self._space), self.run.best, self._inner[0], rng, JUDGING_DRAWS)

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
        verdict, reasons = judge(self.evaluation, self.khat, self.ess / JUDGING_DRAWS, probes)
        if verdict == "good":
            return verdict, reasons
        starts = starting_points(self.target, diagnostics.key_for(self.run.seed, "start", 0))
        improper = runaway(self._fresh[0], starts, self.target.names)
        return (verdict, reasons) if improper is None else ("unreliable", (*reasons, improper))

    @cached_property
    def probes(self) -> Probes | None:
        """Searches for what the mixture misses, made when first asked for; None for families that have none."""
        key = diagnostics.key_for(self.run.seed, "probe", self.best_step)
        return probe(self._space, self.run.best, key, hints=self._highest())

    @property
    def finds(self) -> Proposal | None:
        """Components that the mixture misses, if the search behind the verdict, as far as it was made, found any: a fit
        that goes on from here begins with them."""
        probes = vars(self).get("probes")
        return None if probes is None or not probes.found.elbos.size else probes.found.proposal

    def _highest(self) -> np.ndarray | None:
        """Of the wide draws those with the highest ln p − ln q, where the components live."""
        if self._wide is None:
            return None
        with np.errstate(invalid="ignore"):
            excess = self._wide.log_target - self._wide.log_q
        order = np.argsort(-np.where(np.isnan(excess), -np.inf, excess))[:HINTS]
        return self._wide.inner[order]

    @float64
    def sample(self, n: int, *, seed: int = 0, importance: bool = False) -> Any:
        """n draws in the model's own space: what `target.constrain` makes of them, stacked; else an array (n, dim).

        importance: resample 10·n draws, half of the mixture and half of something wider, by Pareto-smoothed weights
        (`weighted_draws`). They are right also where the mixture is off, if the verdict is not "unreliable".
        """
        return self.in_own_space(self.unconstrained_draws(n, seed=seed, importance=importance))

    @float64
    def unconstrained_draws(self, n: int, *, seed: int = 0, importance: bool = False) -> np.ndarray:
        """What `sample` gives, on R^d."""
        if not importance:
            return self.mixture.sample(n, seed=seed)
        draws, weights, _ = self.weighted_draws(max(IMPORTANCE_FACTOR * n, LEAST_POOL), seed=seed)
        return draws[np.random.default_rng([seed, 1]).choice(draws.shape[0], size=n, p=weights)]

    @float64
    def weighted_draws(self, n: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
        """n draws on R^d, half of the mixture and half of something wider, with Pareto-smoothed weights that make them
        stand for the posterior (they sum to 1); and how many independent draws they are worth. (All are of the mixture
        if its family has no full-rank factor.)"""
        rng, inner = np.random.default_rng(seed), replace(self.mixture, warp=None)
        log_density = partial(log_densities, self._space)
        is_linear = isinstance(inner.family, LinearFamily)
        own = inner.sample(-(-n // 2) if is_linear else n, seed=seed)
        wide = wide_draws(log_density, inner, own, rng, n // 2)
        draws = own if wide is None else np.concatenate([own, wide.draws])
        weights, _, ess = diagnostics.importance(log_weights(log_density(own), inner.log_prob(own), wide)[0])
        return self.mixture.warped(draws), weights, ess

    @float64
    def in_own_space(self, draws: np.ndarray) -> Any:
        """Draws on R^d as the model has them."""
        if self.target.constrain is None:
            return draws
        return jax.tree.map(np.asarray, _constrain(self.target.constrain, draws))

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """Clusters of components with their weight, location and members, heaviest first."""
        weights, loc = np.asarray(self.mixture.weights), self.mixture.centres
        found = clusters(self._space, self.mixture)
        places = self.in_own_space(loc[[top for _, top in found]])
        return tuple(
            Mode(
                float(weights[members].sum()), jax.tree.map(lambda leaf, i=i: leaf[i], places), tuple(members.tolist())
            )
            for i, (members, _) in enumerate(found)
        )

    # -- to other tools

    @property
    def guide(self) -> Any:
        """A NumPyro guide, for a target of from_numpyro: `Predictive(model, guide=guide, params=guide.params, …)`."""
        model = self._model("guide")
        if not hasattr(model, "guide"):
            raise ValueError(f"guide is for NumPyro models; this target comes from {model.name}")
        return model.guide(self.mixture)

    def posterior_predictive(self, n: int = 1000, *, seed: int = 0, importance: bool = False) -> dict[str, np.ndarray]:
        """Replicates of the observed sites, one for each of n draws."""
        model = self._model("posterior_predictive")
        return dict(model.posterior_predictive(self.sample(n, seed=seed, importance=importance), seed))

    def log_likelihood(self, n: int = 1000, *, seed: int = 0, importance: bool = False) -> dict[str, np.ndarray]:
        """Log likelihood of every observation at n draws, by observed site."""
        return dict(self._model("log_likelihood").log_likelihood(self.sample(n, seed=seed, importance=importance)))

    def to_arviz(
        self, n: int = 1000, *, seed: int = 0, importance: bool = False, coords: Any = None, dims: Any = None
    ) -> Any:
        """n draws as ArviZ's InferenceData (0.23) or DataTree (1.x), in one chain.

        With a model: log_likelihood, posterior_predictive and observed_data, too. sample_stats has lp (ln p), log_prob
        (ln q), importance_weight and component. coords, dims: as ArviZ takes them; they go before the model's own.
        """
        return to_arviz(self, n, seed=seed, importance=importance, coords=coords, dims=dims)

    @float64
    def initial_positions(self, chains: int = 4, *, seed: int = 0) -> Any:
        """Starting points for MCMC, resampled by importance: an array (chains, dim) for BlackJAX, or the tree of
        unconstrained values that NumPyro's `MCMC.run(..., init_params=)` takes, chains first."""
        z = self.unconstrained_draws(chains, seed=seed, importance=True)
        return z if self.target.unravel is None else jax.tree.map(np.asarray, jax.vmap(self.target.unravel)(z))

    @float64
    def inverse_mass_matrix(self, *, dense: bool = True) -> np.ndarray:
        """Covariance of the posterior on R^d by importance (dense=False: the variances), to start NUTS with."""
        draws, weights = self._fresh[0], self._importance[0]
        centred = draws - weights @ draws
        return (centred * weights[:, None]).T @ centred if dense else weights @ centred**2

    def _model(self, wanted: str) -> Any:
        if self.target.model is None:
            raise ValueError(f"{wanted} needs a model with data: make the target with from_numpyro or from_pymc")
        return self.target.model

    def check(self, reference_draws: Any, *, n: int = 2000, seed: int = 0, importance: bool = False) -> Check:
        """Compare n draws with reference draws, of MCMC say: every difference beside what chance would give.

        reference_draws: site -> array of shape (n, …) or (chains, draws, …); an ArviZ posterior; or, for a target
            without `constrain`, an array (n, dim) or (chains, draws, dim). By chain, their autocorrelation counts.
        importance: compare the draws that `sample(n, importance=True)` gives.
        """
        from boostvi.check import compare

        return compare(self, reference_draws, n=n, seed=seed, importance=importance)

    def summary(self) -> str:
        """Print, and return, where the fit stands, its modes, what to do next, and what it says of each parameter."""
        text = summary(self)
        print(text)
        return text

    def report(
        self, path: str | os.PathLike[str], trace: Trace | None = None, *, title: str = "Posterior report"
    ) -> Path:
        """Write one HTML file that explains this posterior, and return its path; needs no network.

        trace: the `boostvi.trace.Trace` that the fit had in callbacks=, for a slider over the steps.
        """
        from boostvi.report import write

        return write(self, trace, path, title=title)

    def _repr_html_(self) -> str:
        from boostvi.report.notebook import card

        return card(self)

    def save(self, path: str | os.PathLike[str], *, evaluate: bool = True) -> None:
        """Write the run to a file, all of it or nothing; `bv.load(path)` gives it back, and `fit(resume=path)` goes on.

        evaluate: compute the verdict, its numbers and the summary first, so that the file has them.
        """
        from boostvi.storage import save

        save(self, path, evaluate)

    def __repr__(self) -> str:
        return (
            f"Result({self.verdict}: {self.mixture.n_active} components, ELBO {self.elbo:.4f} ± {self.elbo_se:.2g}, "
            f"KL ≈ {self.kl_estimate:.3g}, {self.status})"
        )


@counted_jit(static_argnums=0)
def _constrain(constrain: Any, draws: Any) -> Any:
    return jax.vmap(constrain)(draws)
