"""Bad input gets one clear error in the user's words, before any work is done."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture

import boostvi as bv
from boostvi import boosting
from boostvi.corrections import FullyCorrective
from boostvi.directions import Away, BlendedPairwise
from boostvi.families import DiagonalNormal, DiagonalStudentT, LowRankNormal
from boostvi.next_component import LBFGS, Adam, LaplaceApproximation, MixtureElbo, PlainVI, RandomFirst, ResidualElbo
from boostvi.recipes import Recipe
from boostvi.step_sizes import Adaptive, Exact, LineSearch, ShortStep

CHEAP = {"recipe": "bbbvi", "first": "random", "next_component": "random", "n_draws": 16, "elbo_draws": 16}


@pytest.fixture(scope="module")
def target() -> bv.Target:
    return gaussian_mixture([1.0], [[0.0, 0.0]], [[1.0, 1.0]])


@pytest.fixture(scope="module")
def fitted(target) -> bv.Result:
    return bv.fit(target, max_steps=1, **CHEAP)


@pytest.fixture
def untouched(monkeypatch):
    """Fails the test if any fitting starts."""

    def started(*args, **kwargs):
        raise AssertionError("the fit had begun before the input was refused")

    monkeypatch.setattr(boosting, "start", started)
    monkeypatch.setattr(boosting, "step", started)


def refused(error, match, target, **arguments):
    with pytest.raises(error, match=match) as caught:
        bv.fit(target, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("untouched")
class TestParts:
    @pytest.mark.parametrize(
        ("argument", "choice"),
        [
            ("recipe", "fully-corrective"),
            ("family", "diagonal-student-t"),
            ("first", "laplace"),
            ("next_component", "mixture-elbo"),
            ("direction", "blended-pairwise"),
            ("step_size", "line-search"),
            ("correction", "fully-corrective"),
        ],
    )
    def test_unknown_names_list_the_choices(self, target, argument, choice):
        refused(
            ValueError,
            f"{argument}='nonsense' is not known; choose one of .*'{choice}'",
            target,
            **{argument: "nonsense"},
        )

    @pytest.mark.parametrize(
        ("argument", "cls"),
        [
            ("family", DiagonalNormal),
            ("first", PlainVI),
            ("next_component", MixtureElbo),
            ("direction", Away),
            ("step_size", Adaptive),
            ("correction", FullyCorrective),
            ("recipe", Recipe),
        ],
    )
    def test_a_class_for_an_instance(self, target, argument, cls):
        refused(TypeError, rf"{argument} got the class {cls.__name__}; pass an instance", target, **{argument: cls})

    @pytest.mark.parametrize(
        ("argument", "part"),
        [
            ("family", Exact()),
            ("first", MixtureElbo()),
            ("next_component", RandomFirst()),
            ("direction", Exact()),
            ("step_size", Away()),
            ("correction", Exact()),
            ("recipe", Exact()),
            ("recipe", 3),
            ("recipe", ""),
            ("family", 3),
            ("step_size", 0.5),
            ("direction", ["away"]),
        ],
    )
    def test_a_part_of_another_kind(self, target, argument, part):
        refused((TypeError, ValueError), f"^{argument}", target, **{argument: part})

    def test_a_part_of_a_recipe_is_checked_too(self, target):
        refused(ValueError, "direction='up' is not known", target, recipe=Recipe(direction="up"))


@pytest.mark.usefixtures("untouched")
class TestBudgets:
    @pytest.mark.parametrize("argument", ["max_steps", "max_components", "max_evals"])
    @pytest.mark.parametrize("value", [-1, 2.5, 3.0, True, False, "10", np.nan, [1]])
    def test_counts(self, target, argument, value):
        refused(ValueError, f"{argument} must be an integer of at least", target, **{argument: value})

    @pytest.mark.parametrize("argument", ["max_components", "max_evals"])
    def test_zero_of_what_must_be_there(self, target, argument):
        refused(ValueError, f"{argument} must be an integer of at least 1", target, **{argument: 0})

    @pytest.mark.parametrize("argument", ["max_seconds", "kl_tol", "gap_tol"])
    @pytest.mark.parametrize("value", [-1, 0, 0.0, -0.5, True, "10", np.nan, [1.0]])
    def test_amounts(self, target, argument, value):
        refused(ValueError, f"{argument} must be a positive number", target, **{argument: value})

    @pytest.mark.parametrize("argument", ["n_draws", "elbo_draws"])
    @pytest.mark.parametrize("value", [1, 0, -5, 2.5, True, "100"])
    def test_draws(self, target, argument, value):
        refused(ValueError, f"{argument} must be an integer of at least 2", target, **{argument: value})

    @pytest.mark.parametrize("value", [-0.1, True, np.nan, "1"])
    def test_growth_of_draws(self, target, value):
        refused((ValueError, TypeError), "draws_growth must be", target, draws_growth=value)

    @pytest.mark.parametrize("value", [-1, 1.5, True, "0", 2**63, [0]])
    def test_seed(self, target, value):
        refused(ValueError, "seed must be an integer", target, seed=value)

    @pytest.mark.parametrize("value", [-1, 2.5, "10", True])
    def test_budgets_of_a_recipe_are_checked_like_those_of_fit(self, target, value):
        with pytest.raises((ValueError, TypeError), match="max_steps must be"):
            bv.fit(target, recipe=Recipe(max_steps=value))


@pytest.mark.usefixtures("untouched")
class TestCallbacks:
    def test_one_function_that_is_not_in_a_list(self, target):
        refused(TypeError, "callbacks must be a list of functions", target, callbacks=print)

    @pytest.mark.parametrize("callbacks", [3, "print", [3], [print, None]])
    def test_things_that_are_not_functions(self, target, callbacks):
        refused(TypeError, "callbacks must be a list of functions", target, callbacks=callbacks)


@pytest.mark.usefixtures("untouched")
class TestTargets:
    @pytest.mark.parametrize(
        "wrong", [lambda z: -(z**2).sum(), None, 3, "target", bv.Target], ids=lambda wrong: type(wrong).__name__
    )
    def test_something_else_than_a_target(self, wrong):
        refused(TypeError, "target must be a boostvi.Target.*bv.Target.*from_numpyro", wrong)

    @pytest.mark.parametrize("dim", [0, -1, 2.0, True, "2", None])
    def test_dim_is_a_positive_integer(self, dim):
        with pytest.raises(ValueError, match="dim must be a positive integer"):
            bv.Target(lambda z: -jnp.sum(z**2), dim)

    def test_another_dim_than_the_functions(self):
        data = np.ones((10, 3))
        with pytest.raises(ValueError, match=r"log_density raised TypeError when called with .* shape \(2,\).*dim"):
            bv.Target(lambda z: jnp.sum(data @ z), 2)

    @pytest.mark.parametrize(
        ("function", "found"),
        [
            (lambda z: -(z**2), r"float64\[2\]"),
            (lambda z: jnp.sum(z, keepdims=True), r"float64\[1\]"),
            (lambda z: jnp.argmax(z), "int"),
            (lambda z: z[0] + 1j, "complex"),
            (lambda z: (z[0], z[1]), r"float64\[\], float64\[\]"),
            (lambda z: None, "nothing"),
        ],
    )
    def test_not_one_real_number(self, function, found):
        with pytest.raises(ValueError, match=f"log_density must return one real number, got .*{found}"):
            bv.Target(function, 2)

    def test_not_a_function(self):
        with pytest.raises(TypeError, match="log_density must be a function"):
            bv.Target(3.0, 2)

    def test_init_that_is_not_a_function(self):
        with pytest.raises(TypeError, match="init must be a function"):
            bv.Target(lambda z: -jnp.sum(z**2), 2, init=np.zeros(2))

    def test_names_of_another_number(self):
        with pytest.raises(ValueError, match="names must hold one label for each of the 2 coordinates, got 3"):
            bv.Target(lambda z: -jnp.sum(z**2), 2, names="abc")

    def test_a_function_that_raises_when_traced(self):
        def broken(z):
            raise RuntimeError("no such column")

        with pytest.raises(ValueError, match=r"log_density raised RuntimeError.*no such column"):
            bv.Target(broken, 2)

    def test_a_function_written_with_numpy(self):
        with pytest.raises(ValueError, match=r"log_density raised .*written with jax\.numpy"):
            bv.Target(lambda z: math.exp(z[0]), 2)

    def test_nan_everywhere(self):
        refused(
            ValueError,
            "log_density is NaN at all 64 .*log of a negative",
            bv.Target(lambda z: jnp.log(-1.0 - z[0] ** 2), 1),
        )

    def test_nan_in_the_data(self):
        data = np.array([1.0, np.nan, 2.0])
        target = bv.Target(lambda z: -jnp.sum((data - z[0]) ** 2), 1)
        refused(ValueError, "log_density is NaN at all 64 .*data it uses contain NaN", target)

    def test_minus_infinity_at_the_start(self):
        target = bv.Target(lambda z: jnp.where(z[0] > 100.0, 0.0, -jnp.inf), 1)
        refused(ValueError, "log_density is infinite at all 64 .*init=", target)

    def test_a_function_that_raises_when_run(self):
        def broken(z):
            raise OSError("the other process is gone")

        def log_density(z):
            return jax.pure_callback(broken, jax.ShapeDtypeStruct((), jnp.float64), z, vmap_method="sequential")

        refused(ValueError, "log_density raised .* at the starting points", bv.Target(log_density, 1))


def test_no_mass_under_the_first_component():
    """Starts are inside the support, but a component around them is not: refused after it, still with a clear word."""

    def log_density(z):
        return jnp.where(jnp.abs(z[0] - 3.0) < 1e-9, 0.0, -jnp.inf)

    target = bv.Target(log_density, 1, lambda key: jnp.full(1, 3.0))
    with pytest.raises(ValueError, match="not finite at any draw of the first component"):
        bv.fit(target, max_steps=0, **CHEAP)


@pytest.mark.usefixtures("fitted")
class TestResume:
    def test_of_another_target(self, fitted, untouched):
        other = gaussian_mixture([1.0], [[0.1, 0.0]], [[1.0, 1.0]])
        refused(ValueError, "resume= is a fit of another target", other, resume=fitted)

    def test_of_another_dimension(self, fitted, untouched):
        other = gaussian_mixture([1.0], [[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]])
        refused(ValueError, "resume= is a fit of 2 parameters, but target has 3", other, resume=fitted)

    def test_of_the_same_density_written_again(self, fitted):
        again = gaussian_mixture([1.0], [[0.0, 0.0]], [[1.0, 1.0]])
        assert bv.fit(again, resume=fitted, max_steps=1).status == "max-steps"

    @pytest.mark.parametrize("wrong", [3, {}, True])
    def test_of_something_else(self, target, wrong, untouched):
        refused(TypeError, "resume must be the Result of an earlier fit", target, resume=wrong)

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            ("recipe", "auto"),
            ("family", "diagonal-normal"),
            ("first", "vi"),
            ("next_component", "random"),
            ("direction", Away()),
            ("step_size", "exact"),
            ("correction", "none"),
            ("n_draws", 100),
            ("draws_growth", 1.0),
            ("elbo_draws", 100),
            ("seed", 0),
        ],
    )
    def test_with_new_parts(self, target, fitted, argument, value, untouched):
        refused(ValueError, f"leave out {argument}", target, resume=fitted, **{argument: value})

    def test_with_a_bad_budget(self, target, fitted, untouched):
        refused(ValueError, "max_steps", target, resume=fitted, max_steps=-1)


class TestHyperparameters:
    """Refused at construction, naming the argument."""

    @pytest.mark.parametrize(
        ("make", "argument"),
        [
            (lambda v: Adaptive(grow=v), "grow"),
            (lambda v: Adaptive(shrink=v), "shrink"),
            (lambda v: Adaptive(epsilon0=v), "epsilon0"),
            (lambda v: Adaptive(max_trials=v), "max_trials"),
            (lambda v: Adaptive(initial=v), "initial"),
            (lambda v: Adaptive(min_gamma=v), "min_gamma"),
            (lambda v: LineSearch(b0=v), "b0"),
            (lambda v: LineSearch(iterations=v), "iterations"),
            (lambda v: Exact(tol=v), "tol"),
            (lambda v: ShortStep(curvature=v), "curvature"),
            (lambda v: FullyCorrective(tol=v), "tol"),
            (lambda v: BlendedPairwise(patience=v), "patience"),
            (lambda v: Adam(learning_rate=v), "learning_rate"),
            (lambda v: Adam(decay=v), "decay"),
            (lambda v: Adam(steps=v), "steps"),
            (lambda v: Adam(draws=v), "draws"),
            (lambda v: LBFGS(draws=v), "draws"),
            (lambda v: LBFGS(max_iterations=v), "max_iterations"),
            (lambda v: PlainVI(n_starts=v), "n_starts"),
            (lambda v: LaplaceApproximation(n_starts=v), "n_starts"),
            (lambda v: MixtureElbo(n_starts=v), "n_starts"),
            (lambda v: ResidualElbo(selection_draws=v), "selection_draws"),
            (lambda v: LowRankNormal(rank=v), "rank"),
            (lambda v: DiagonalStudentT(df=v), "df"),
        ],
        ids=lambda x: x if isinstance(x, str) else "",
    )
    @pytest.mark.parametrize("value", [-1, np.int64(-1), np.nan, True, "2"])
    def test_values(self, make, argument, value):
        with pytest.raises((ValueError, TypeError), match=f"{argument} must be"):
            make(value)

    @pytest.mark.parametrize("value", [1.0, 1, 0.5])
    def test_grow_must_exceed_one(self, value):
        with pytest.raises(ValueError, match="grow must be greater than 1"):
            Adaptive(grow=value)

    @pytest.mark.parametrize(
        "make",
        [
            lambda v: Adam(steps=v),
            lambda v: Adam(draws=v),
            lambda v: LBFGS(draws=v),
            lambda v: MixtureElbo(n_starts=v),
            lambda v: PlainVI(selection_draws=v),
        ],
    )
    def test_counts_are_whole(self, make):
        with pytest.raises((ValueError, TypeError), match="must be"):
            make(2.5)

    @pytest.mark.parametrize(
        ("make", "choice"),
        [
            (lambda: Adaptive(form="newton"), "lipschitz"),
            (lambda: Adaptive(distance="l1"), "l2"),
            (lambda: Adaptive(draws="new"), "fresh"),
            (lambda: Adaptive(fallback="hope"), "predefined"),
            (lambda: LineSearch(draws="new"), "fresh"),
            (lambda: ResidualElbo(entropy_weight="square"), "inverse-sqrt"),
            (lambda: ResidualElbo(optimiser="sgd"), "lbfgs"),
            (lambda: MixtureElbo(starts=("best",)), "residual"),
            (lambda: MixtureElbo(starts=()), "residual"),
            (lambda: LaplaceApproximation(polish="sgd"), "adam"),
        ],
    )
    def test_choices_are_listed(self, make, choice):
        with pytest.raises(ValueError, match=f"'{choice}'"):
            make()

    @pytest.mark.parametrize("make", [lambda o: PlainVI(optimiser=o), lambda o: MixtureElbo(optimiser=o)])
    @pytest.mark.parametrize("optimiser", [3, Adam, Exact()])
    def test_an_optimiser_of_another_kind(self, make, optimiser):
        with pytest.raises(TypeError, match="optimiser"):
            make(optimiser)

    @pytest.mark.parametrize("fallback", [3, Exact, Away()])
    def test_a_fallback_of_another_kind(self, fallback):
        with pytest.raises(TypeError, match="fallback"):
            Adaptive(fallback=fallback)

    def test_no_entropy_and_no_bound(self):
        with pytest.raises(ValueError, match="entropy_weight='zero' needs min_entropy="):
            ResidualElbo(entropy_weight="zero")
