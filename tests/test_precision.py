"""The library computes in 64 bits and leaves the user's own precision, and everything else, alone."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import boostvi as bv
from boostvi import boosting

CHEAP = {
    "recipe": "bbbvi",
    "family": "diagonal-normal",
    "first": "random",
    "next_component": "random",
    "n_draws": 50,
    "elbo_draws": 50,
}


def configuration() -> dict:
    return dict(jax.config.values)


def precision() -> tuple:
    """What a user's own code sees."""
    return jnp.zeros(2).dtype, jnp.asarray(np.ones(2)).dtype, (jnp.arange(3) * 1.5).dtype, jax.config.jax_enable_x64


SINGLE = (jnp.float32, jnp.float32, jnp.float32, False)


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return bv.Target(lambda z: -0.5 * jnp.sum(z**2), 2)


@pytest.fixture(autouse=True)
def unchanged():
    """Before and after every test of this file the user's world is the same."""
    before = configuration()
    assert precision() == SINGLE
    yield
    assert precision() == SINGLE
    assert configuration() == before


def test_fitting_and_looking_at_the_result(target):
    result = bv.fit(target, max_steps=2, **CHEAP)
    assert precision() == SINGLE
    assert result.mixture.weights.dtype == np.float64
    assert result.mixture.params["loc"].dtype == np.float64
    assert result.sample(10).dtype == np.float64
    assert result.sample(10, importance=True).dtype == np.float64
    assert result.mixture.log_prob(np.zeros((3, 2), dtype=np.float32)).dtype == np.float64
    assert np.isfinite([result.elbo, result.kl_estimate, result.khat, result.ess]).all()
    result.summary()
    bv.fit(target, resume=result, max_steps=3)


def test_callbacks_run_in_the_callers_precision(target):
    seen = []

    def look(step):
        seen.append(precision())
        assert step.mixture.log_prob(np.zeros(2)).dtype == np.float64
        assert jax.jit(lambda x: x * 2)(jnp.ones(3)).dtype == jnp.float32

    bv.fit(target, max_steps=2, callbacks=[look], **CHEAP)
    assert seen == [SINGLE] * 3


def test_callers_who_use_double_precision_keep_it(target):
    seen = []
    with jax.enable_x64(True):
        result = bv.fit(target, max_steps=1, callbacks=[lambda step: seen.append(jnp.zeros(()).dtype)], **CHEAP)
        assert jnp.zeros(()).dtype == jnp.float64
    assert seen == [jnp.float64] * 2
    single = bv.fit(target, max_steps=1, **CHEAP)
    np.testing.assert_array_equal(result.mixture.params["loc"], single.mixture.params["loc"])
    np.testing.assert_array_equal(result.history["elbo"], single.history["elbo"])


class TestAfterExceptions:
    def test_in_a_step(self, target, monkeypatch):
        def broken(*args):
            assert jnp.zeros(()).dtype == jnp.float64  # inside the library's own scope
            raise RuntimeError("inside a step")

        monkeypatch.setattr(boosting, "step", broken)
        with pytest.raises(RuntimeError, match="inside a step"):
            bv.fit(target, max_steps=1, **CHEAP)
        assert precision() == SINGLE

    def test_in_a_callback(self, target):
        def broken(step):
            raise RuntimeError("in the callback")

        with pytest.raises(RuntimeError, match="in the callback"):
            bv.fit(target, max_steps=1, callbacks=[broken], **CHEAP)
        assert precision() == SINGLE

    def test_in_an_interrupted_run(self, target, monkeypatch):
        def interrupt(*args):
            raise KeyboardInterrupt

        monkeypatch.setattr(boosting, "step", interrupt)
        assert bv.fit(target, max_steps=1, **CHEAP).status == "interrupted"
        assert precision() == SINGLE

    def test_in_the_log_density(self):
        def broken(z):
            raise RuntimeError("in the model")

        with pytest.raises(ValueError, match="in the model"):
            bv.Target(broken, 2)
        assert precision() == SINGLE


def test_a_users_compiled_single_precision_program_is_not_traced_again(target):
    traces = []

    @jax.jit
    def program(x):
        traces.append(x.dtype)
        return x * 2

    program(jnp.ones(3))
    bv.fit(target, max_steps=1, **CHEAP)
    program(jnp.ones(3))
    assert traces == [jnp.float32]


def test_a_single_precision_log_density_is_accepted():
    """Data and arithmetic in float32, at ln p ≈ −2000: rounding is in the numbers, and nothing else is."""
    y = jnp.asarray(np.random.default_rng(0).normal(2.0, 1.0, size=1000), dtype=jnp.float32)

    def log_density(z):
        z = z.astype(jnp.float32)
        value = -0.5 * jnp.sum((y - z[0]) ** 2) - 1000 * 0.5 * jnp.log(2 * jnp.pi).astype(jnp.float32)
        assert value.dtype == jnp.float32
        return value

    target = bv.Target(log_density, 1)
    result = bv.fit(target, recipe="bbbvi", family="full-rank-normal", first="laplace", max_steps=0)
    exact = np.asarray(y, dtype=np.float64)
    log_z = -0.5 * np.sum((exact - exact.mean()) ** 2) - 999 * 0.5 * np.log(2 * np.pi) - 0.5 * np.log(1000)
    assert log_z < -1300
    rounding = 20 * abs(log_z) * np.finfo(np.float32).eps  # a sum of 1000 terms, added pairwise
    assert abs(result.elbo - log_z) < 4 * result.elbo_se + rounding
    assert result.mixture.params["loc"][0, 0] == pytest.approx(exact.mean(), abs=0.1 / np.sqrt(1000))


def run(code: str) -> str:
    """What a fresh interpreter prints, on both streams."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_importing_changes_and_prints_nothing():
    said = run(
        "import jax, sys\n"
        "before = dict(jax.config.values)\n"
        "import boostvi\n"
        "import jax.numpy as jnp\n"
        "assert dict(jax.config.values) == before\n"
        "assert jnp.zeros(2).dtype == jnp.float32\n"
        "heavy = {'numpyro', 'matplotlib', 'arviz', 'arviz_stats', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    assert said == ""


def test_importing_makes_no_device_work():
    """The backend is chosen at the first computation, so a user can still configure it after the import."""
    assert run(
        "import boostvi\n"
        "from jax._src import xla_bridge\n"
        "print(xla_bridge.backends_are_initialized())\n"
    ).strip() == "False"  # fmt: skip


def test_unknown_attributes_are_errors():
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = bv.fitt
    assert set(bv.__all__) <= set(dir(bv))
    assert all(hasattr(bv, name) for name in bv.__all__)
