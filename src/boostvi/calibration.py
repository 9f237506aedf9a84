"""Variational simulation-based calibration (Yao et al. 2018, "Yes, but did it work?", Algorithm 2).

Parameters are drawn from the prior and data from the model, and every simulated data set is fitted. Were the fits the
posteriors, P(draw < truth) would be uniform over the data sets, for each parameter. The fits share their compiled
programs: the data are an argument of them.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import chdtr, chdtrc, ndtri

from boostvi._jit import float64
from boostvi._struct import check_count
from boostvi.check import LEVEL, holm
from boostvi.fit import fit
from boostvi.result import Result
from boostvi.simulation import Simulation
from boostvi.target import Target

DRAWS = 1000
"""Draws of each fit among which the truth is ranked."""
LEAST_FITS = 10
HOPELESS = 3
"""If that many fits fail before one succeeds, the first one's error is raised."""
OWN_OPTIONS = ("seed", "progress", "resume", "callbacks", "checkpoint")
"""Options of `fit` that a series of fits cannot share."""
VERDICTS = ("good", "usable", "unreliable")


@dataclass(frozen=True)
class Parameter:
    """How one coordinate's fits stand to the truths.

    off: how far the fits are too high (+) or too low (−), in their own sd: −mean Φ⁻¹(P(draw < truth)).
    width: their sd over what it should be: 1/sd Φ⁻¹(P(draw < truth)).
    p_bias: symmetry of the histogram (Yao et al.): Kolmogorov–Smirnov between P and 1 − P, exact null.
    p_width: χ² of Φ⁻¹(P) about its mean (Cook, Gelman & Rubin 2006).
    p_uniform: Kolmogorov–Smirnov of P against the uniform distribution.
    p: the smallest of the three, adjusted for the number of all tests (Holm).
    """

    name: str
    off: float
    width: float
    p_bias: float
    p_width: float
    p_uniform: float
    p: float

    @property
    def words(self) -> str:
        """What is wrong, if the adjusted p is below 5 %."""
        if self.p >= LEVEL:
            return ""
        found = []
        if self.p_width < LEVEL:
            found.append(f"too {'narrow' if self.width < 1 else 'wide'} (sd × {self.width:.2f})")
        if self.p_bias < LEVEL:
            found.append(f"too {'high' if self.off > 0 else 'low'} (by {abs(self.off):.2f} sd)")
        return ", ".join(found) or "of another shape"


@dataclass(frozen=True, eq=False)
class Calibration:
    """P(draw < truth) of every fit and parameter, and what it says; `print` it, or see `boostvi.plots.calibration`.

    verdicts: that of each fit, row by row of `probabilities`.
    failures: the messages of fits that raised; they have no row.
    """

    names: tuple[str, ...]
    probabilities: Float[np.ndarray, "fits parameters"]
    verdicts: tuple[str, ...]
    failures: tuple[str, ...] = ()
    importance: bool = False

    @property
    def n(self) -> int:
        return len(self.probabilities)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Worst first."""
        scores = ndtri(self.probabilities)
        pairs = zip(self.probabilities.T, scores.T, strict=True)
        tests = np.array([[_p_symmetric(u), _p_width(z), _p_uniform(u)] for u, z in pairs])
        adjusted = holm(tests.ravel()).reshape(tests.shape).min(axis=1)
        off, width = -scores.mean(axis=0), 1.0 / np.maximum(scores.std(axis=0, ddof=1), 1e-12)
        values = np.column_stack([off, width, tests, adjusted]).tolist()
        rows = [Parameter(name, *numbers) for name, numbers in zip(self.names, values, strict=True)]
        return tuple(sorted(rows, key=lambda one: (one.p, min(one.p_bias, one.p_width, one.p_uniform))))

    @property
    def p_values(self) -> dict[str, float]:
        """The smallest p of each parameter, adjusted for the number of tests."""
        return {one.name: one.p for one in self.parameters}

    @property
    def ok(self) -> bool:
        return not self.flagged

    @property
    def flagged(self) -> tuple[Parameter, ...]:
        """The parameters that chance does not explain at the 5 % level, all together."""
        return tuple(one for one in self.parameters if one.p < LEVEL)

    def histogram(self, name: str, bins: int = 10) -> tuple[np.ndarray, float, float]:
        """Counts of P(draw < truth) in equal bins, and the ends between which 95 % of calibrated bins lie."""
        from scipy.stats import binom

        if name not in self.names:
            raise ValueError(f"name must be one of {', '.join(map(repr, self.names))}, got {name!r}")
        check_count("bins", bins, 2)
        counts, _ = np.histogram(self.probabilities[:, self.names.index(name)], bins, (0.0, 1.0))
        low, high = binom.interval(1 - LEVEL, self.n, 1.0 / bins)
        return counts, float(low), float(high)

    def only(self, *verdicts: str) -> Calibration:
        """The fits with these verdicts alone. They depend on the data but not on the truth, so the test stays valid:
        `only("good")` asks whether "good" can be believed."""
        for verdict in verdicts:
            if verdict not in VERDICTS:
                raise ValueError(f"verdicts must be among {', '.join(map(repr, VERDICTS))}, got {verdict!r}")
        rows = [i for i, verdict in enumerate(self.verdicts) if verdict in verdicts]
        if len(rows) < LEAST_FITS:
            raise ValueError(
                f"only {len(rows)} of {self.n} fits are {' or '.join(verdicts)}, and {LEAST_FITS} are needed; raise n="
            )
        chosen = tuple(self.verdicts[i] for i in rows)
        return dataclasses.replace(self, probabilities=self.probabilities[rows], verdicts=chosen, failures=())

    def __str__(self) -> str:
        bad = self.flagged
        lines = [
            f"not calibrated: {bad[0].name} is {bad[0].words}" + (f"; {len(bad) - 1} more below" if bad[1:] else "")
            if bad
            else "calibrated: the truths lie among the draws as they should, as far as chance lets us see"
        ]
        found = Counter(self.verdicts)
        drawn = "reweighted draws" if self.importance else "draws"
        lines.append(f"{self.n} fits ({', '.join(f'{found[v]} {v}' for v in VERDICTS)}), {DRAWS} {drawn} each")
        if self.failures:
            total = self.n + len(self.failures)
            common, times = Counter(self.failures).most_common(1)[0]
            lines.append(f"{len(self.failures)} of {total} fits failed and are left out; {times} with: {common}")
        lines += ["", *self._rows(), ""]
        lines.append(f"p is adjusted for all {3 * len(self.names)} tests (Holm); the three beside it are not")
        return "\n".join(lines)

    def _rows(self, most: int = 20) -> list[str]:
        width = max([9, *(len(one.name) for one in self.parameters[:most])])
        heads = f"{'off (sd)':>9} {'width':>7} {'p bias':>8} {'p width':>8} {'p uniform':>9} {'p':>8}"
        rows = [f"{'parameter':<{width}} {heads}"]
        for one in self.parameters[:most]:
            rows.append(
                f"{one.name:<{width}} {one.off:>+9.2f} {one.width:>7.2f} {one.p_bias:>8.2g} {one.p_width:>8.2g} "
                f"{one.p_uniform:>9.2g} {one.p:>8.2g}  {one.words}".rstrip()
            )
        if len(self.parameters) > most:
            rows.append(f"… and {len(self.parameters) - most} more, with p of at least {self.parameters[most].p:.2g}")
        return rows


# -- tests of one parameter


def _p_symmetric(p: Float[np.ndarray, " n"]) -> float:
    """Kolmogorov–Smirnov distance between P and 1 − P, which is the largest excursion of a walk: +1 for P > ½ and −1
    for P < ½, in the order of |P − ½|, largest first. Under symmetry the steps are coin tosses (Butler 1969)."""
    away = np.abs(p - 0.5)
    order = np.argsort(-away, kind="stable")
    walk = np.cumsum(np.sign(p - 0.5)[order])
    last = np.append(np.diff(away[order]) != 0, True)  # of a group of ties only the end counts
    return _p_excursion(p.size, int(np.abs(walk[last]).max()))


def _p_excursion(steps: int, reach: int) -> float:
    """P(max |S_k| ≥ reach) of a simple random walk."""
    if reach <= 0:
        return 1.0
    inside = np.zeros(2 * reach + 1)
    inside[reach] = 1.0
    for _ in range(steps):
        inside[1:-1] = 0.5 * (inside[:-2] + inside[2:])
        inside[[0, -1]] = 0.0
    return float(max(1.0 - inside.sum(), 0.0))


def _p_width(z: Float[np.ndarray, " n"]) -> float:
    total = float(np.sum((z - z.mean()) ** 2))
    return float(2.0 * min(chdtr(z.size - 1, total), chdtrc(z.size - 1, total)))


def _p_uniform(p: Float[np.ndarray, " n"]) -> float:
    from scipy.stats import kstest

    return float(kstest(p, "uniform").pvalue)


# -- simulating and fitting


@float64
def calibrate(
    model: Callable[..., Any],
    *args: Any,
    observed: Sequence[str] | None = None,
    sites: Sequence[str] | None = None,
    n: int = 100,
    fit_options: Mapping[str, Any] | None = None,
    importance: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    **kwargs: Any,
) -> Calibration:
    """Fit n data sets simulated from the NumPyro model `model(*args, **kwargs)`; see how the truths lie in the fits.

    The data among the arguments only give the shapes. Keywords of the model with a name used here go in by
    functools.partial(model, n=…).
    observed: the data sites, if the model is called without data (None); else those it observes.
    sites: what is looked at, also deterministic sites; the latent sites if not given.
    fit_options: options of `fit`, such as {"recipe": "bbbvi"}.
    importance: weight the draws of each fit by Pareto-smoothed importance, as `Result.sample(importance=True)` does.
    progress: as in `fit`; Ctrl-C ends with the fits made so far.
    """
    check_count("n", n, LEAST_FITS)
    check_count("seed", seed, 0)
    options = _checked_options(fit_options)
    simulation = Simulation(model, args, kwargs, observed, sites)
    truths, data = simulation.draw(n, seed)
    probabilities: list[np.ndarray] = []
    verdicts: list[str] = []
    failures: list[str] = []
    for i, target in enumerate(_shown(simulation.targets(data), n, progress)):
        fit_seed = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
        try:
            if target is None:
                raise ValueError("the simulated data are not finite: the prior allows what the model cannot compute")
            result = fit(target, **options, seed=fit_seed, progress=False)
            if result.status == "interrupted":
                break
            draws, weights = _weighted_draws(result, fit_seed, importance)
            values = simulation.columns(data[i], draws)
            verdict = result.verdict
        except KeyboardInterrupt:
            break
        except Exception as error:  # of the model or of the fit: counted and reported, not hidden
            failures.append(f"{type(error).__name__}: {error}")
            if len(failures) == HOPELESS and not verdicts:
                raise RuntimeError(f"the first {HOPELESS} fits failed; the last one with {failures[-1]}") from error
            continue
        truth = np.array([truths[name][i] for name in values])
        probabilities.append(_rank(np.stack(list(values.values()), axis=1), truth, weights))
        verdicts.append(verdict)
    if len(verdicts) < LEAST_FITS:
        raise RuntimeError(f"only {len(verdicts)} of {n} fits came to an end, and {LEAST_FITS} are needed")
    return Calibration(tuple(values), np.stack(probabilities), tuple(verdicts), tuple(failures), importance)


def _checked_options(fit_options: Mapping[str, Any] | None) -> dict[str, Any]:
    options = dict(fit_options or {})
    known = [name for name in inspect.signature(fit).parameters if name != "target" and name not in OWN_OPTIONS]
    for name in options:
        if name not in known:
            raise ValueError(f"fit_options[{name!r}] cannot be given; the options are {', '.join(known)}")
    return options


def _shown(targets: Iterator[Target | None], n: int, progress: bool | None) -> Iterator[Target | None]:
    from tqdm.auto import tqdm

    visible = sys.stderr.isatty() if progress is None else progress
    return iter(tqdm(targets, total=n, unit="fit", disable=not visible, dynamic_ncols=True))


def _weighted_draws(result: Result, seed: int, importance: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Draws, with weights or None. The mixture with its free slots has the same shapes in most fits."""
    return (
        result.weighted_draws(DRAWS, seed=seed)[:2] if importance else (result.run.best.sample(DRAWS, seed=seed), None)
    )


def _rank(
    values: Float[np.ndarray, "draws parameters"],
    truth: Float[np.ndarray, " parameters"],
    weights: Float[np.ndarray, " draws"] | None,
) -> Float[np.ndarray, " parameters"]:
    """P(draw < truth), ties counted half, and half a draw on either side: never 0 or 1."""
    weights = np.full(len(values), 1.0 / len(values)) if weights is None else weights
    effective = 1.0 / np.sum(weights**2)
    below = weights @ (values < truth) + 0.5 * (weights @ (values == truth))
    return (effective * below + 0.5) / (effective + 1.0)
