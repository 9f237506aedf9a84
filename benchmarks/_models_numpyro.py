"""The example models in NumPyro. Sites have the names that they have in `_models_pymc`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

Arrays = Any


def eight_schools_centred(y: Arrays, se: Arrays) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", y.size):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, se), obs=y)


def eight_schools_noncentred(y: Arrays, se: Arrays) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", y.size):
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * raw)
        numpyro.sample("y", dist.Normal(theta, se), obs=y)


def logistic_regression(X: Arrays, y: Arrays) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 2.5))
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.5).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=alpha + X @ beta), obs=y)


def poisson_regression(X: Arrays, exposure: Arrays, y: Arrays) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.log(exposure) + alpha + X @ beta)), obs=y)


def horseshoe(X: Arrays, y: Arrays) -> None:
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([X.shape[1]]).to_event(1))
    raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    beta = numpyro.deterministic("beta", raw * local * tau)
    numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def gaussian_process(x: Arrays, y: Arrays) -> None:
    length = numpyro.sample("length", dist.InverseGamma(5.0, 5.0))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    kernel = amplitude**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    covariance = kernel + noise**2 * jnp.eye(x.size)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.size), covariance), obs=y)


def state_space(y: Arrays) -> None:
    """Counts whose log rate is an AR(1) process, started from its stationary law."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    first = numpyro.sample("first", dist.Normal(0.0, sigma / jnp.sqrt(1.0 - phi**2)))

    def transition(level: Any, _: Any) -> tuple[Any, Any]:
        level = numpyro.sample("rest", dist.Normal(phi * level, sigma))
        return level, level

    _, rest = scan(transition, first, None, length=y.size - 1)
    level = numpyro.deterministic("level", jnp.concatenate([first[None], rest]))
    numpyro.sample("y", dist.Poisson(jnp.exp(mu + level)), obs=y)


def mixture(y: Arrays) -> None:
    """Two Normals, their labels summed out; the means are ordered, which tells the components apart."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([2.0, 2.0])))
    mu = _ordered_normal("mu", 5.0, 2)
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(mu, sigma)), obs=y)


def ordered_logistic(X: Arrays, y: Arrays) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    cut = _ordered_normal("cut", 3.0, int(y.max()))
    numpyro.sample("y", dist.OrderedLogistic(X @ beta, cut), obs=y)


def dirichlet_multinomial(counts: Arrays) -> None:
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(counts.shape[1])))
    precision = numpyro.sample("precision", dist.LogNormal(2.0, 1.0))
    likelihood = dist.DirichletMultinomial(precision * shares, total_count=counts.sum(axis=1))
    numpyro.sample("counts", likelihood, obs=counts)


def lkj_normal(y: Arrays) -> None:
    k = y.shape[1]
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0).expand([k]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([k]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(k, 2.0))
    numpyro.deterministic("corr", factor @ factor.T)
    numpyro.sample("y", dist.MultivariateNormal(mu, scale_tril=sigma[:, None] * factor), obs=y)


def _ordered_normal(name: str, scale: float, size: int) -> Any:
    """Independent N(0, scale²), restricted to ascending values."""
    value = numpyro.sample(name, dist.ImproperUniform(constraints.ordered_vector, (), (size,)))
    numpyro.factor(f"{name}_prior", dist.Normal(0.0, scale).log_prob(value).sum())
    return value
