"""The tools that `compare.py` runs, each under one clock, and what is kept of a run. Settings: see `compare.py`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from targets import Problem

import boostvi as bv

BLOCK = 2_000
"""Draws made and evaluated at once: one compiled program, and well below where jaxlib 0.10's batches go wrong."""
FINAL_DRAWS = 20_000
"""Fresh draws behind every final ELBO."""
FRESH = 10_000_019
"""Added to the seed of a run for the draws that judge it, so that they have no part in it."""

SVI_STEPS, PARTICLES, LEARNING_RATE = 10_000, 10, 1e-2
CHECKPOINTS = np.unique(np.logspace(1, 4, 10).round().astype(int))
"""Steps of SVI whose ELBO is drawn in the plot."""
CAUTION = 0.5
"""Share of the time left that the next chunk of SVI may be expected to take: it ends close to the budget."""

PATHS, PATH_DRAWS, START_RADIUS = 10, 200, 2.0
PATH_ITERATIONS = 100
"""BlackJAX's own default of 30 stops far too early on the harder regressions and on the robot."""
CHAINS, WARM_UP, DRAWS = 4, 1000, 1000

Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]


class Clock:
    """Wall-clock seconds since it was made, and how many of them went into tracing and compiling.

    Compilation is read from JAX's own events, for every tool in the same way. Events nest (a program traces the
    programs it calls), so it is the length of their union that counts.
    """

    def __init__(self) -> None:
        jax.block_until_ready(jnp.zeros(1))  # the first use of the backend is nobody's fault
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        self._begin, self._cpu = time.perf_counter(), time.process_time()

    def _listen(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self._spans.append((now - seconds, now))

    def elapsed(self) -> float:
        return time.perf_counter() - self._begin

    def stop(self) -> dict[str, float]:
        """Seconds in all, those of compilation, and those of all cores together."""
        seconds, cpu = self.elapsed(), time.process_time() - self._cpu
        compiling, end = 0.0, self._begin
        for first, last in sorted(self._spans):
            compiling += max(0.0, last - max(first, end))
            end = max(end, last)
        return {"seconds": seconds, "compiling": compiling, "cpu": cpu}


@dataclass(frozen=True)
class Fit:
    """What a tool made of a problem.

    times: what the clock said. at_least: `evals` leaves out some that the tool does not report.
    curve: (seconds, ELBO, evaluations) on the way. draw: n fresh draws of the approximation and ln q at each; None for
    a sampler, which has `samples` instead.
    """

    times: dict[str, float]
    evals: int
    at_least: bool = False
    curve: list[tuple[float, float, int]] = field(default_factory=list)
    draw: Draw | None = None
    samples: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)


# -- boostvi


def boost(problem: Problem, seed: int, budget: float) -> Fit:
    curve: list[tuple[float, float, int]] = []

    def note(step: bv.Step) -> None:
        curve.append((clock.elapsed(), float(step.row["elbo"]), int(step.row["evals"])))

    clock = Clock()
    target = bv.Target(problem.log_density, problem.dim)
    left = budget - clock.elapsed()
    result = bv.fit(target, seed=seed, max_seconds=left, progress=False, callbacks=[note])
    times = clock.stop()

    begin = time.perf_counter()
    notes = {"verdict": result.verdict, "reasons": list(result.reasons)}
    notes |= {"verdict_seconds": time.perf_counter() - begin, "status": result.status}
    notes |= {name: float(getattr(result, name)) for name in ("khat", "kl_estimate", "kl_se")}
    notes |= {"components": result.mixture.n_active, "family": result.mixture.family.name}

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        z = result.mixture.sample(n, seed=FRESH + seed)
        return z, result.mixture.log_prob(z)

    return Fit(times, int(result.evals), curve=curve, draw=draw, notes=notes)


# -- NumPyro: guides and NUTS


def numpyro_model(problem: Problem) -> Callable[[], None]:
    import numpyro
    from numpyro import distributions as dist

    def model() -> None:
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), (problem.dim,))
        numpyro.factor("log_density", problem.log_density(numpyro.sample("z", flat)))

    return model


def guide_distribution(guide: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """The base distribution of a guide on R^d and the transform that follows it."""
    from numpyro import distributions as dist

    if "z_auto_loc" in params:  # AutoNormal has no get_transform
        loc, scale = params["z_auto_loc"], params["z_auto_scale"]
        shift = dist.transforms.IndependentTransform(dist.transforms.AffineTransform(loc, scale), 1)
        return dist.Normal(jnp.zeros_like(loc), 1.0).to_event(1), shift
    return guide.get_base_dist(), guide.get_transform(params)


def svi_states(svi: Any, state: Any, clock: Clock, budget: float) -> Iterator[tuple[int, float, Any]]:
    """Steps done, seconds, state: at the checkpoints that the budget allows, and at the end."""

    @jax.jit
    def advance(state: Any, n: int) -> Any:
        return jax.lax.fori_loop(0, n, lambda _, now: svi.stable_update(now)[0], state)

    done, rate = 1, 0.0
    state = jax.block_until_ready(advance(state, 1))  # compiles
    while done < SVI_STEPS and clock.elapsed() < budget:
        n = min(int(checkpoint) for checkpoint in CHECKPOINTS if checkpoint > done) - done
        if rate:
            n = min(n, max(1, int(CAUTION * (budget - clock.elapsed()) / rate)))
        begin = clock.elapsed()
        state = jax.block_until_ready(advance(state, n))
        done, rate = done + n, (clock.elapsed() - begin) / n
        if done in CHECKPOINTS[:-1]:
            yield done, clock.elapsed(), state
    yield done, clock.elapsed(), state


def svi(guide_name: str, problem: Problem, seed: int, budget: float) -> Fit:
    import optax
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    clock = Clock()
    model = numpyro_model(problem)
    guide = getattr(autoguide, guide_name)(model)
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, SVI_STEPS))
    svi = SVI(model, guide, optimiser, Trace_ELBO(num_particles=PARTICLES))
    states = list(svi_states(svi, svi.init(jax.random.key(seed)), clock, budget))
    times = clock.stop()

    @jax.jit
    def block(params: dict[str, Any], key: jax.Array) -> tuple[jax.Array, jax.Array]:
        base, transform = guide_distribution(guide, params)
        noise = base.sample(key, (BLOCK,))
        z, intermediates = transform.call_with_intermediates(noise)
        return z, base.log_prob(noise) - transform.log_abs_det_jacobian(noise, z, intermediates)

    def draw(n: int, state: Any) -> tuple[np.ndarray, np.ndarray]:
        keys = jax.random.split(jax.random.key(FRESH + seed), -(-n // BLOCK))
        parts = [jax.device_get(block(svi.get_params(state), key)) for key in keys]
        return np.concatenate([z for z, _ in parts])[:n], np.concatenate([log_q for _, log_q in parts])[:n]

    curve = [(at, elbo(problem, *draw(BLOCK, state))[0], PARTICLES * step) for step, at, state in states]
    steps, _, last = states[-1]
    draw_last = functools.partial(draw, state=last)
    return Fit(times, PARTICLES * steps, curve=curve, draw=draw_last, notes={"steps": steps})


def nuts(problem: Problem, seed: int, budget: float) -> Fit:
    """The budget is not looked at: NUTS runs to its end."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    clock = Clock()
    sizes = {"num_warmup": WARM_UP, "num_samples": DRAWS, "num_chains": CHAINS}
    mcmc = MCMC(NUTS(numpyro_model(problem)), **sizes, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(seed), extra_fields=("num_steps", "diverging"))
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
    times = clock.stop()
    extra = {name: np.asarray(values) for name, values in mcmc.get_extra_fields().items()}
    notes = {
        "min_ess": float(effective_sample_size(draws).min()),
        "max_rhat": float(split_gelman_rubin(draws).max()),
        "divergences": int(extra["diverging"].sum()),
    }
    samples = draws.reshape(-1, problem.dim)
    return Fit(times, int(extra["num_steps"].sum()), at_least=True, samples=samples, notes=notes)


# -- BlackJAX Pathfinder


def path_as_is(problem: Problem, key: jax.Array, start: jax.Array) -> Any:
    """The approximation that BlackJAX chooses on one path: ELBO, x, g, and the factors of H.

    Its mean is x + H g with g the gradient of −ln p, which is a sign error: the step goes uphill in −ln p.
    """
    from blackjax.vi import pathfinder

    state, _ = pathfinder.approximate(key, problem.log_density, start, PATH_DRAWS, maxiter=PATH_ITERATIONS)
    return state


def path_corrected(problem: Problem, key: jax.Array, start: jax.Array) -> Any:
    """The same path and H with the mean x − H g (Zhang et al. 2022): the iterate with the best ELBO then."""
    from blackjax.optimizers.lbfgs import bfgs_sample
    from blackjax.vi import pathfinder

    _, info = pathfinder.approximate(key, problem.log_density, start, PATH_DRAWS, maxiter=PATH_ITERATIONS)
    path = info.path._replace(grad_position=-info.path.grad_position)
    moved = jnp.any(jnp.diff(path.position, axis=0) != 0, axis=1)  # a finished path stands still
    keys = jax.random.split(jax.random.fold_in(key, 1), PATH_ITERATIONS + 1)

    def elbo_of(args: tuple[jax.Array, Any]) -> jax.Array:
        key, state = args
        parts = (state.position, state.grad_position, state.alpha, state.beta, state.gamma)
        z, log_q = bfgs_sample(key, PATH_DRAWS, *parts)
        return jnp.mean(jax.vmap(problem.log_density)(z) - log_q)

    elbos = jax.lax.map(elbo_of, (keys, path))
    usable = jnp.isfinite(elbos) & jnp.concatenate([jnp.ones(1, bool), moved])
    elbos = jnp.where(usable, elbos, -jnp.inf)
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(elbos)], path._replace(elbo=elbos))


@dataclass(frozen=True)
class Gaussian:
    """N(mean, root·rootᵀ)."""

    mean: np.ndarray
    root: np.ndarray

    @classmethod
    def of_path(cls, state: Any) -> Gaussian:
        """Mean x + H g and a root of H = diag(α) + β γ βᵀ, by the same algebra as BlackJAX's sampler."""
        x, g, alpha, beta, gamma = (
            np.asarray(getattr(state, name)) for name in ("position", "grad_position", "alpha", "beta", "gamma")
        )
        Q, R = np.linalg.qr(beta / np.sqrt(alpha)[:, None])
        identity = np.eye(R.shape[0])
        L = np.linalg.cholesky(identity + R @ gamma @ R.T)
        root = np.sqrt(alpha)[:, None] * (np.eye(x.size) + Q @ (L - identity) @ Q.T)
        return cls(x + alpha * g + beta @ (gamma @ (beta.T @ g)), root)

    def log_prob(self, z: np.ndarray) -> np.ndarray:
        noise = np.linalg.solve(self.root, (z - self.mean).T)
        constant = np.linalg.slogdet(self.root)[1] + 0.5 * self.mean.size * np.log(2.0 * np.pi)
        return -0.5 * np.sum(noise**2, axis=0) - constant


def pathfinder(path: Callable[..., Any], problem: Problem, seed: int, budget: float) -> Fit:
    """Paths one after the other, since the vmapped program can hang on a CPU; as many as the budget allows."""
    import blackjax  # noqa: F401  (the import is not on the clock)

    clock = Clock()
    key_starts, key_paths = jax.random.split(jax.random.key(seed))
    starts = jax.random.uniform(key_starts, (PATHS, problem.dim), minval=-START_RADIUS, maxval=START_RADIUS)
    run = jax.jit(functools.partial(path, problem))
    states: list[Any] = []
    last = 0.0
    for key, start in zip(jax.random.split(key_paths, PATHS), starts, strict=True):
        begin = clock.elapsed()
        if states and begin + last > budget:
            break
        states.append(jax.device_get(run(key, start)))
        last = clock.elapsed() - begin if len(states) > 1 else 0.0  # the first path compiles: it tells nothing
    used = [state for state in states if np.isfinite(state.elbo)]
    if not used:
        raise RuntimeError("no path has an approximation with a finite ELBO")
    gaussians = [Gaussian.of_path(state) for state in used]
    weights = np.exp(np.array([state.elbo for state in used]) - max(state.elbo for state in used))
    weights /= weights.sum()
    times = clock.stop()

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(FRESH + seed)
        chosen = rng.choice(len(gaussians), size=n, p=weights)
        z = np.empty((n, problem.dim))
        for k, gaussian in enumerate(gaussians):
            rows = chosen == k
            z[rows] = gaussian.mean + rng.standard_normal((int(rows.sum()), problem.dim)) @ gaussian.root.T
        terms = np.stack([gaussian.log_prob(z) for gaussian in gaussians]) + np.log(weights)[:, None]
        return z, np.logaddexp.reduce(terms)

    evals = len(states) * (PATH_ITERATIONS + 1) * PATH_DRAWS  # for the ELBOs; the line searches do not tell theirs
    notes = {"paths": len(states), "finite_paths": len(used)}
    return Fit(times, evals, at_least=True, draw=draw, notes=notes)


# -- the same judgement for all


@functools.cache
def _batched(log_density: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.jit(jax.vmap(log_density))


def log_densities(problem: Problem, z: np.ndarray) -> np.ndarray:
    """ln p at each row; what is no number counts as no mass."""
    blocks = [z[i : i + BLOCK] for i in range(0, len(z), BLOCK)]
    values = np.concatenate([np.asarray(_batched(problem.log_density)(block)) for block in blocks])
    return np.where(np.isnan(values), -np.inf, values)


def elbo(problem: Problem, z: np.ndarray, log_q: np.ndarray) -> tuple[float, float]:
    """Mean of ln p − ln q and its standard error."""
    log_ratio = log_densities(problem, z) - log_q
    log_ratio = np.where(np.isnan(log_ratio), -np.inf, log_ratio)
    if not np.isfinite(log_ratio).all():
        return -np.inf, np.inf
    return float(log_ratio.mean()), float(log_ratio.std(ddof=1) / np.sqrt(log_ratio.size))


TOOLS: dict[str, Callable[[Problem, int, float], Fit]] = {
    "boostvi": boost,
    "autonormal": functools.partial(svi, "AutoNormal"),
    "automvn": functools.partial(svi, "AutoMultivariateNormal"),
    "autobnaf": functools.partial(svi, "AutoBNAFNormal"),
    "pathfinder": functools.partial(pathfinder, path_as_is),
    "pathfinder-corrected": functools.partial(pathfinder, path_corrected),
    "nuts": nuts,
}
