"""The example models in PyMC. Variables have the names that they have in `_models_numpyro`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered

Arrays = Any


def eight_schools_centred(y: Arrays, se: Arrays) -> pm.Model:
    with pm.Model(coords={"school": np.arange(y.size)}) as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Normal("y", theta, se, observed=y, dims="school")
    return model


def eight_schools_noncentred(y: Arrays, se: Arrays) -> pm.Model:
    with pm.Model(coords={"school": np.arange(y.size)}) as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        raw = pm.Normal("raw", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * raw, dims="school")
        pm.Normal("y", theta, se, observed=y, dims="school")
    return model


def logistic_regression(X: Arrays, y: Arrays) -> pm.Model:
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 2.5)
        beta = pm.Normal("beta", 0.0, 2.5, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=alpha + X @ beta, observed=y)
    return model


def poisson_regression(X: Arrays, exposure: Arrays, y: Arrays) -> pm.Model:
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 5.0)
        beta = pm.Normal("beta", 0.0, 1.0, shape=X.shape[1])
        pm.Poisson("y", pt.exp(np.log(exposure) + alpha + X @ beta), observed=y)
    return model


def horseshoe(X: Arrays, y: Arrays) -> pm.Model:
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2.0)
        tau = pm.HalfCauchy("tau", 0.5)
        local = pm.HalfCauchy("local", 1.0, shape=X.shape[1])
        raw = pm.Normal("raw", 0.0, 1.0, shape=X.shape[1])
        beta = pm.Deterministic("beta", raw * local * tau)
        pm.Normal("y", X @ beta, sigma, observed=y)
    return model


def gaussian_process(x: Arrays, y: Arrays) -> pm.Model:
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5.0, 5.0)
        amplitude = pm.HalfNormal("amplitude", 2.0)
        noise = pm.HalfNormal("noise", 1.0)
        process = pm.gp.Marginal(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, ls=length))
        process.marginal_likelihood("y", X=x[:, None], y=y, sigma=noise, jitter=0.0)
    return model


def state_space(y: Arrays) -> pm.Model:
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        phi = pm.Uniform("phi", -1.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        stationary = pm.Normal.dist(0.0, sigma / pt.sqrt(1.0 - phi**2))
        level = pm.AR("level", rho=pt.stack([phi]), sigma=sigma, init_dist=stationary, shape=y.size)
        pm.Poisson("y", pt.exp(mu + level), observed=y)
    return model


def mixture(y: Arrays) -> pm.Model:
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.array([2.0, 2.0]))
        mu = pm.Normal("mu", 0.0, 5.0, shape=2, transform=ordered, initval=np.array([-1.0, 1.0]))
        sigma = pm.HalfNormal("sigma", 2.0, shape=2)
        pm.NormalMixture("y", w=shares, mu=mu, sigma=sigma, observed=y)
    return model


def ordered_logistic(X: Arrays, y: Arrays) -> pm.Model:
    size = int(y.max())
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 2.0, shape=X.shape[1])
        start = np.linspace(-1.0, 1.0, size)
        cut = pm.Normal("cut", 0.0, 3.0, shape=size, transform=ordered, initval=start)
        pm.OrderedLogistic("y", eta=X @ beta, cutpoints=cut, observed=y, compute_p=False)
    return model


def dirichlet_multinomial(counts: Arrays) -> pm.Model:
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(counts.shape[1]))
        precision = pm.LogNormal("precision", 2.0, 1.0)
        pm.DirichletMultinomial("counts", n=counts.sum(axis=1), a=precision * shares, observed=counts)
    return model


def lkj_normal(y: Arrays) -> pm.Model:
    k = y.shape[1]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0, shape=k)
        factor, corr, sigma = pm.LKJCholeskyCov("cov", n=k, eta=2.0, sd_dist=pm.HalfNormal.dist(2.0, shape=k))
        pm.Deterministic("corr", corr)
        pm.Deterministic("sigma", sigma)
        pm.MvNormal("y", mu, chol=factor, observed=y)
    return model
