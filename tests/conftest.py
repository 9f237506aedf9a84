"""Shared set-up: a compilation cache for the session, and targets with known answers."""

from __future__ import annotations

import gc
import os
from importlib.metadata import version
from pathlib import Path

if version("jaxlib").startswith("0.10."):  # an option that XLA does not know would end the process
    # Programs compile more than they run here: no optimisation, and in one part each, not 32.
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
        " --xla_cpu_parallel_codegen_split_count=1",
    )

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import boostvi as bv
from boostvi import _jit
from boostvi import table as tables
from boostvi.families import DiagonalNormal
from boostvi.mixture import Mixture
from boostvi.table import Table

if "optimization_level=0" in os.environ.get("XLA_FLAGS", ""):  # the library's own programs ask for level 1
    _jit.compile_without_optimisation()

_record = jax.jit(tables.record)


MANY_MAPS = 30_000
"""Memory maps of a process at which its programs are forgotten: Linux gives 65,530, and a program takes some forty."""


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Tests fit the same small models again and again, also in processes of their own: each program is compiled once
    per session."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # the workers share it
    settings = {
        "jax_compilation_cache_dir": str(base / "jax-cache"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
        yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten():
    """Without this the last tests of a worker crash."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def x64():
    """64-bit arithmetic for tests that call the library's internals directly."""
    with jax.enable_x64(True):
        yield


def gaussian_mixture(weights, means, scales, shift: float = 0.0) -> bv.Target:
    """A normalised mixture of diagonal Normals (log Z = shift), started from a wide Normal around its centre."""
    weights, means, scales = (np.asarray(a, dtype=np.float64) for a in (weights, means, scales))
    spread = np.abs(means).max() + 1.0

    def log_density(z):
        inside = jnp.sum(norm.logpdf(z, means, scales), axis=-1)
        return jax.nn.logsumexp(jnp.log(weights) + inside) + shift

    return bv.Target(log_density, means.shape[1], lambda key: spread * jax.random.normal(key, (means.shape[1],)))


@pytest.fixture(scope="session")
def bimodal() -> bv.Target:
    """0.3·N(−3, 0.7²) + 0.7·N(2, 1) in one dimension; log Z = 0."""
    return gaussian_mixture([0.3, 0.7], [[-3.0], [2.0]], [[0.7], [1.0]])


def tabulate(
    target: bv.Target, means, scales, n_draws: int = 200, *, capacity: int | None = None, seed: int = 0
) -> tuple[Mixture, Table]:
    """Diagonal Normals in the first slots, all of weight 0, and the table of their draws. Call it in a 64-bit scope."""
    means, scales = (jnp.asarray(a, dtype=jnp.float64) for a in (means, scales))
    count, dim = means.shape
    spare = (capacity or count) - count
    means, scales = jnp.pad(means, ((0, spare), (0, 0))), jnp.pad(scales, ((0, spare), (0, 0)), constant_values=1.0)
    family = DiagonalNormal()
    mixture = Mixture(family.init(jax.random.key(0), means, scales), jnp.zeros(count + spare), family)
    table = tables.empty(dim, count + spare, n_draws)
    for slot in range(count):
        table = _record(table, target, mixture, jnp.asarray(slot), jax.random.fold_in(jax.random.key(seed), slot))
    return mixture, table
