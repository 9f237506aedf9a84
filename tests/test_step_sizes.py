"""Step sizes: each rule against its definition, on every direction, and on targets whose weights are known."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture, tabulate
from scipy import optimize, stats

import boostvi as bv
from boostvi import boosting
from boostvi import table as tables
from boostvi._struct import replace
from boostvi.boosting import update
from boostvi.directions import DIRECTIONS, FrankWolfe, Kind
from boostvi.line import FreshEstimates, FreshLine, along_table
from boostvi.step_sizes import STEP_SIZES, Adaptive, Exact, LineSearch, Predefined, ShortStep, Zero

ADAPTIVE = {
    "curvature": Adaptive(),
    "lipschitz-kl": Adaptive(form="lipschitz"),
    "lipschitz-l2": Adaptive(form="lipschitz", distance="l2"),
    "slack": Adaptive(epsilon0=0.1),
    "min-gamma": Adaptive(min_gamma=0.01),
    "slow": Adaptive(grow=1.1, shrink=0.9, max_trials=40),
}
RULES = {
    "predefined": Predefined(),
    "line-search": LineSearch(),
    "exact": Exact(),
    "short-step": ShortStep(curvature=3.0),
    "zero": Zero(),
    **ADAPTIVE,
}


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


# -- every rule on every direction of one table

TRUE = ([0.2, 0.5, 0.3], [[-3.0], [0.0], [2.5]], [[0.7], [1.0], [0.6]])
ATOMS = ([*TRUE[1], [-1.0], [4.0], [1.0]], [*TRUE[2], [2.0], [1.0], [0.3]])


@pytest.fixture(scope="module")
def six_atoms(double):
    return tabulate(gaussian_mixture(*TRUE), *ATOMS, 200)[1]


@pytest.fixture(scope="module")
def lines(six_atoms):
    """Fifty random weights of six components, the slot of a new one, and the four directions from there."""
    rng = np.random.default_rng(0)
    weights = rng.gamma(np.full((50, 6), 0.5)) + 1e-12
    weights[rng.random((50, 6)) < 0.3] = 0.0
    weights[:, 0] += 0.1
    weights[:5] = np.eye(6)[:5]
    slots = np.where(weights.min(axis=1) == 0.0, np.argmin(weights, axis=1), rng.integers(6, size=50))
    weights /= weights.sum(axis=1, keepdims=True)

    @jax.jit
    def prepare(table, weights, slots):
        def one(weights, slot):
            estimates = tables.estimates(table, weights)
            gradients = estimates.gradients(weights)
            made = [cls()(gradients, weights, slot) for cls in DIRECTIONS.values()]
            return estimates, jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)

        estimates, directions = jax.vmap(one)(weights, slots)
        t = jnp.arange(1.0, 51.0)

        def line(estimates, weights, direction, slot, t):
            return along_table(estimates, weights, direction, slot, t)

        per_direction = jax.vmap(line, in_axes=(None, None, 0, None, None))
        return jax.vmap(per_direction)(estimates, weights, directions, slots, t), directions

    return prepare(six_atoms, weights, slots)


@jax.jit
def take(rule, lines):
    """The rule on every line, and what came of it."""

    def one(line):
        gamma, state, failed = rule(line, rule.init())
        return Answers(
            gamma=gamma, failed=failed, curvature=state.curvature, estimate=state.estimate, trials=state.trials,
            evals=state.evals, before=line.value(jnp.zeros(())), after=line.value(gamma),
            divergence=line.divergence(gamma), gap=line.gap, gamma_max=line.gamma_max, t=line.t,
        )  # fmt: skip

    return jax.vmap(jax.vmap(one))(lines)


class Answers(dict):
    """A dictionary with attributes, which JAX sees as a tree."""

    __getattr__ = dict.__getitem__


jax.tree_util.register_pytree_node(
    Answers,
    lambda tree: (tuple(tree.values()), tuple(tree)),
    lambda names, values: Answers(zip(names, values, strict=True)),
)


@pytest.fixture(scope="module")
def taken(lines):
    """Each rule's answers on all lines, computed once: arrays (weights, directions)."""
    answers = {}

    def of(name: str) -> Answers:
        if name not in answers:
            answers[name] = jax.tree.map(np.asarray, take(RULES[name], lines[0]))
        return answers[name]

    return of


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_in_every_direction(taken, name):
    found = taken(name)
    assert np.isfinite(found.gamma).all()
    assert np.all(found.gamma >= 0.0)
    assert np.all(found.gamma <= found.gamma_max)
    assert np.isfinite(found.after).all()
    assert np.all(found.evals == 0)  # the table is free of model calls
    if name not in ADAPTIVE:
        assert not found.failed.any()


def test_predefined_is_two_over_t_plus_two(taken):
    found = taken("predefined")
    np.testing.assert_allclose(found.gamma, np.minimum(2.0 / (found.t + 2.0), found.gamma_max), rtol=1e-15)
    assert found.gamma[0, 0] == pytest.approx(2.0 / 3.0)  # the first boosting step is t = 1
    assert np.any(found.gamma == found.gamma_max)


def test_short_step_is_gap_over_curvature(taken):
    found = taken("short-step")
    np.testing.assert_allclose(found.gamma, np.clip(found.gap / 3.0, 0.0, found.gamma_max), rtol=1e-15)
    assert np.all(found.curvature == 3.0)
    for clipped in (found.gap < 0, found.gap / 3.0 > found.gamma_max, (found.gamma > 0) & (found.gamma < 0.3)):
        assert clipped.any()


def test_zero_stays(taken):
    assert np.all(taken("zero").gamma == 0.0)


def test_exact_never_loses_and_is_optimal(taken, lines):
    found = taken("exact")
    assert np.all(found.after <= found.before + 1e-14)
    assert np.all(found.gamma[found.gap <= 0] == 0.0)
    assert np.all(found.gamma[found.gap > 1e-12] > 0.0)
    for ratio in np.linspace(0.0, 1.0, 41):
        others = np.asarray(values_at(lines[0], ratio * found.gamma_max))
        assert np.all(found.after <= others + 1e-12 * np.maximum(1.0, found.gamma_max))
    inside = (found.gamma > 0) & (found.gamma < found.gamma_max)
    assert inside.any()
    assert (found.gamma == found.gamma_max).any()


@jax.jit
def values_at(lines, gammas):
    return jax.vmap(jax.vmap(lambda line, gamma: line.value(gamma)))(lines, gammas)


@jax.jit
def slopes_at(lines, gammas):
    return jax.vmap(jax.vmap(lambda line, gamma: line.slope(gamma)))(lines, gammas)


@pytest.mark.parametrize("index", [(7, 0), (20, 1), (33, 2), (45, 3)])
def test_exact_agrees_with_scipy(taken, lines, index):
    found = taken("exact")
    line = jax.tree.map(lambda leaf: np.asarray(leaf)[index], lines[0])
    x, dx, share, potential = line.x, line.dx, line.estimates.share, line.estimates.log_target_ratio

    def slope(gamma):
        return np.sum(share * dx * (np.log(x + gamma * dx) + potential - line.estimates.center))

    if line.gap <= 0:
        expected = 0.0
    elif slope(line.gamma_max * (1 - 1e-12)) <= 0:
        expected = float(line.gamma_max)
    else:
        expected = optimize.brentq(slope, 0.0, line.gamma_max * (1 - 1e-12), xtol=1e-13)
    assert found.gamma[index] == pytest.approx(expected, abs=1e-8 * max(1.0, line.gamma_max))


def test_line_search_follows_its_formula(taken, lines):
    """γ ← clip(γ − b₀/(i+1)·φ'(γ), 0, γ_max) from 2/(t+2), 25 times or until it moves less than 1e-6."""
    found = taken("line-search")
    gamma = np.minimum(2.0 / (found.t + 2.0), found.gamma_max)
    moving, trials = np.ones(gamma.shape, bool), np.zeros(gamma.shape, int)
    for i in range(25):
        new = np.clip(gamma - 0.1 / (i + 1) * np.asarray(slopes_at(lines[0], gamma)), 0.0, found.gamma_max)
        trials += moving
        new = np.where(moving, new, gamma)
        moving &= np.abs(new - gamma) >= 1e-6
        gamma = new
    np.testing.assert_allclose(found.gamma, gamma, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.trials, trials)
    assert set(np.unique(trials)) > {2, 25}


# -- adaptive backtracking


@pytest.mark.parametrize("name", list(ADAPTIVE))
def test_adaptive_meets_its_own_condition(taken, name):
    """Unless it gives up: D(γ) ≤ C γ²/2 + 2ε_t with γ = min{gap/C, γ_max}, and F falls when there is no slack."""
    rule, found = RULES[name], taken(name)
    good = ~found.failed
    assert good.sum() > 50
    slack = 2.0 * rule.epsilon0 / (found.t + 1.0) ** 2
    bound = found.curvature * found.gamma**2 / 2.0 + slack
    # D once from the rule's own estimate, once from the values of F.
    assert np.all((found.divergence <= bound + 1e-15)[good])
    assert np.all((found.after - found.before + found.gamma * found.gap <= bound + 1e-12)[good])
    np.testing.assert_allclose(
        found.gamma[good], np.minimum(found.gap / found.curvature, found.gamma_max)[good], rtol=1e-12
    )
    falls = found.after < found.before + slack
    assert np.all(falls[good])
    # The promise of the proof: at least half of γ·gap, less the slack.
    assert np.all((found.before - found.after >= 0.5 * found.gamma * found.gap - slack - 1e-12)[good])


@pytest.mark.parametrize("name", list(ADAPTIVE))
def test_adaptive_grows_only_when_it_must(taken, lines, name):
    """L = shrink·L₋₁·grow^(trials − 1), and the trial before the accepted one violated the condition."""
    rule, found = RULES[name], taken(name)
    good = ~found.failed
    expected = rule.shrink * rule.initial * rule.grow ** (found.trials - 1.0)
    np.testing.assert_allclose(found.estimate[good], expected[good], rtol=1e-12)
    again = good & (found.trials > 1)
    assert again.any()
    smaller = found.curvature / rule.grow
    gamma = np.minimum(found.gap / np.where(good, smaller, 1.0), found.gamma_max)
    gamma = np.where(again, gamma, 0.0)
    rise = np.asarray(values_at(lines[0], gamma)) - found.before + gamma * found.gap
    allowed = smaller * gamma**2 / 2.0 + 2.0 * rule.epsilon0 / (found.t + 1.0) ** 2
    assert np.all((rise > allowed - 1e-12)[again])


@pytest.mark.parametrize("name", list(ADAPTIVE))
def test_adaptive_says_when_it_gives_up(taken, name):
    rule, found = RULES[name], taken(name)
    bad = found.failed
    assert bad.any()
    assert np.all(found.gamma[bad] == 0.0)
    assert np.all(found.estimate[bad] == rule.initial)  # kept as it stood before the step
    assert np.isnan(found.curvature[bad]).all()
    assert np.isfinite(found.curvature[~bad]).all()
    assert np.all(found.trials <= rule.max_trials + 1)
    hopeless = found.gap <= 0
    assert np.all(bad[hopeless])
    assert np.all(found.trials[hopeless] == 0)
    if rule.min_gamma == 0.0:
        assert np.all(found.trials[bad & ~hopeless] == rule.max_trials + 1)


def one_line(lines, index):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index][None, None], lines[0])


@functools.partial(jax.jit, static_argnums=1)
def distance_along(line, kind):
    return jax.vmap(jax.vmap(lambda one: one.distance(kind)))(line)


@pytest.mark.parametrize("distance", ["kl", "l2"])
def test_lipschitz_form_is_the_curvature_form_times_the_distance(lines, distance):
    lipschitz = Adaptive(form="lipschitz", distance=distance, initial=4.0)
    for index in ((12, 0), (25, 1), (40, 2)):
        line = one_line(lines, index)
        unit = distance_along(line, distance).item()
        assert unit > 0.0
        ours, theirs = take(lipschitz, line), take(Adaptive(initial=4.0 * unit), line)
        assert ours.trials.item() == theirs.trials.item()
        assert ours.gamma.item() == pytest.approx(theirs.gamma.item(), rel=1e-12)
        assert ours.curvature.item() == pytest.approx(theirs.curvature.item(), rel=1e-12, nan_ok=True)
        if not ours.failed.item():
            assert ours.estimate.item() * unit == pytest.approx(theirs.estimate.item(), rel=1e-12)


def test_slack_is_two_epsilon(lines, taken):
    """The first trial passes when 2ε₀/(t+1)² just covers what it lacks, and not when it just does not."""
    found = taken("curvature")
    index = tuple(np.argwhere(~found.failed & (found.trials > 2) & (found.t > 3))[0])
    line = one_line(lines, index)
    first = 0.1 * 1.0
    gamma = np.minimum(found.gap[index] / first, found.gamma_max[index])
    rise = values_at(line, np.full((1, 1), gamma)).item() - found.before[index] + gamma * found.gap[index]
    lacking = rise - first * gamma**2 / 2.0
    epsilon0 = 0.5 * lacking * (found.t[index] + 1.0) ** 2
    assert take(Adaptive(epsilon0=float(1.001 * epsilon0)), line).trials.item() == 1
    assert take(Adaptive(epsilon0=float(0.999 * epsilon0)), line).trials.item() == 2


def test_min_gamma_gives_up_early(lines, taken):
    """It stops as soon as gap/C is below min_gamma; a small γ_max alone is no reason to."""
    found, patient = taken("min-gamma"), taken("curvature")
    good = ~found.failed
    assert np.all((found.gap / np.where(good, found.curvature, 1.0))[good] >= 0.01 / 2.0)
    early = found.failed & (found.trials < 11) & (found.gap > 0)
    assert early.any()
    first = 0.1
    assert np.all((found.gap / (first * 2.0 ** (found.trials - 1.0)) < 0.01)[early])
    assert np.all(patient.trials[early] > found.trials[early])


def test_max_trials_counts_how_often_the_estimate_grows(lines, taken):
    found = taken("curvature")
    index = tuple(np.argwhere(~found.failed & (found.trials == found.trials[~found.failed].max()))[0])
    line, needed = one_line(lines, index), int(found.trials[index]) - 1
    assert needed >= 2
    assert not take(Adaptive(max_trials=needed), line).failed.item()
    assert take(Adaptive(max_trials=needed - 1), line).failed.item()


def test_the_estimate_is_carried_to_the_next_step(lines):
    line = jax.tree.map(lambda leaf: np.asarray(leaf)[30, 0], lines[0])
    rule = Adaptive(shrink=0.5, grow=3.0)
    state = replace(rule.init(), estimate=np.array(64.0))
    _, after, failed = jax.jit(lambda *args: rule(*args))(line, state)
    assert not failed
    assert float(after.estimate) == pytest.approx(32.0 * 3.0 ** (int(after.trials) - 1))


# -- targets that are known mixtures

MODES = {"overlapping": 2.5, "separated": 30.0}
WEIGHT = 0.35


@pytest.fixture(scope="module", params=list(MODES))
def known(request, double):
    """p = 0.65·N(0, 1) + 0.35·N(m, 0.8²); q holds its first component and s is its second."""
    mean = MODES[request.param]
    target = gaussian_mixture([1 - WEIGHT, WEIGHT], [[0.0], [mean]], [[1.0], [0.8]])
    mixture, table = tabulate(target, [[0.0], [mean]], [[1.0], [0.8]], 1000, capacity=4)
    weights = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    return SimpleNamespace(
        name=request.param, target=target, mixture=replace(mixture, weights=weights), table=table, weights=weights
    )


def move(known, rule, *, t=1, direction=None):
    """Lines 4 to 6 of Algorithm 1 with the second component as the new one."""
    return boosting._move(
        direction or FrankWolfe(), rule, known.target, known.mixture, known.table, jnp.asarray(1), rule.init(),
        jnp.asarray(t), jax.random.key(5),
    )  # fmt: skip


estimates_of = jax.jit(tables.estimates)


@jax.jit
def objective_at(table, center, weights):
    estimates = tables.estimates(table, center)
    return estimates.objective(estimates.x(weights))


def weight_error(known) -> float:
    """Standard error of the best weight on the table.

    At the true weights ln q = ln p, so φ' = −c·mean[dx]: its noise over φ'' = mean[dx²/x], c being the centre.
    """
    estimates = estimates_of(known.table, known.weights)
    real = np.asarray(estimates.share) > 0
    ratios = np.exp(np.asarray(estimates.log_ratios))[:, real]
    dx = ratios[1] - ratios[0]
    x = (1 - WEIGHT) * ratios[0] + WEIGHT * ratios[1]
    noise = np.sqrt((dx.reshape(2, 1000).var(axis=1, ddof=1) / 1000).sum()) / 2
    return abs(float(estimates.center)) * noise / np.mean(dx**2 / x)


def test_exact_recovers_the_weight(known):
    weights, _, info = move(known, Exact())
    se = weight_error(known)
    assert se < 0.02
    assert abs(float(weights[1]) - WEIGHT) < 4 * se + 1e-8
    assert int(info.kind) == Kind.FRANK_WOLFE
    assert float(info.gamma) == pytest.approx(float(weights[1]))
    assert int(info.evals) == 0


@pytest.mark.parametrize("name", ["curvature", "lipschitz-kl", "lipschitz-l2"])
def test_adaptive_on_a_known_mixture(known, name):
    """Overlapping modes: a step that lowers F. Separated modes: it gives up, says so, and the fallback recovers p."""
    weights, state, info = move(known, RULES[name])
    before, after = (float(objective_at(known.table, known.weights, w)) for w in (known.weights, weights))
    if known.name == "overlapping":
        assert int(info.kind) == Kind.FRANK_WOLFE
        assert after < before - 0.5 * float(info.gamma) * float(info.gap) + 1e-12
    else:
        assert int(info.kind) == Kind.FALLBACK
        assert np.isnan(float(info.curvature))
        assert int(info.trials) == 11
        assert float(state.estimate) == 1.0
        assert abs(float(weights[1]) - WEIGHT) < 4 * weight_error(known) + 1e-8
        assert float(info.gamma) == pytest.approx(float(weights[1]))


@pytest.mark.parametrize("known", ["separated"], indirect=True)
@pytest.mark.parametrize(("fallback", "weight"), [("predefined", 2 / 3), ("zero", 0.0)])
def test_other_fallbacks(known, fallback, weight):
    weights, _, info = move(known, Adaptive(fallback=fallback))
    assert int(info.kind) == Kind.FALLBACK
    assert float(weights[1]) == pytest.approx(weight, abs=1e-15)
    assert np.isnan(float(info.curvature))


@pytest.mark.parametrize("known", ["separated"], indirect=True)
def test_the_paper_falls_back_to_a_frank_wolfe_step(known):
    """Whatever the direction was: here pairwise, whose γ_max is 0.2."""
    known.mixture = replace(known.mixture, weights=jnp.asarray([0.8, 0.0, 0.0, 0.0]).at[2].set(0.2))
    extra = tabulate(
        known.target, [[0.0], [MODES["separated"]], [-8.0]], [[1.0], [0.8], [1.0]], 1000, capacity=4
    )  # fmt: skip
    known.table, known.mixture = extra[1], replace(extra[0], weights=known.mixture.weights)
    weights, _, info = move(known, Adaptive(fallback="predefined"), t=2, direction=DIRECTIONS["pairwise"]())
    assert int(info.kind) == Kind.FALLBACK
    np.testing.assert_allclose(weights, [0.4, 0.5, 0.1, 0.0], rtol=1e-12)
    assert float(info.gamma_max) == 1.0


@jax.jit
def forty_steps(rule, table, chosen):
    """Towards the best of six atoms, from the fourth, along the direction numbered `chosen`."""
    weights = jnp.asarray([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    estimates = tables.estimates(table, weights)

    def step(carry, t):
        weights, state = carry
        gradients = estimates.gradients(weights)
        slot = jnp.argmin(gradients)
        all_directions = [cls()(gradients, weights, slot) for cls in DIRECTIONS.values()]
        direction = jax.tree.map(lambda *leaves: jnp.stack(leaves)[chosen], *all_directions)
        line = along_table(estimates, weights, direction, slot, t)
        gamma, state, failed = rule(line, state)
        new, _ = update(weights, direction, gamma)
        values = (line.value(jnp.zeros(())), estimates.objective(estimates.x(new)))
        return (new, state), (*values, line.divergence(gamma), gamma, state.curvature, failed, new)

    return jax.lax.scan(step, (weights, rule.init()), jnp.arange(1.0, 41.0))[1]


@pytest.mark.parametrize("direction", ["frank-wolfe", "away", "pairwise"])
@pytest.mark.parametrize("name", ["curvature", "lipschitz-kl", "lipschitz-l2"])
def test_adaptive_descends_at_every_step(six_atoms, name, direction):
    """F never rises, the condition holds wherever the rule does not give up, and F ends near its least value."""
    steps = forty_steps(RULES[name], six_atoms, jnp.asarray(list(DIRECTIONS).index(direction)))
    before, after, divergence, gamma, curvature, failed, weights = (np.asarray(a) for a in steps)
    good = ~failed
    assert good.sum() >= 5
    assert np.all(after <= before + 1e-14)
    assert np.all(after[good] < before[good])
    assert np.all((divergence <= curvature * gamma**2 / 2 + 1e-15)[good])
    np.testing.assert_allclose(before[1:], after[:-1], rtol=0, atol=1e-13)
    # The least value is that of the true weights, 0 up to the noise of the table.
    assert before[0] > 0.3
    assert after[-1] < 0.05
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-14)


# -- fresh draws, as the paper does it

N_FRESH = 20_000
TRUE_THIRD = (2.5, 0.6)


@pytest.fixture(scope="module")
def fresh(double):
    """A line with fresh draws, and the same line by quadrature."""
    target = gaussian_mixture(*TRUE)
    means, scales = np.array(ATOMS[0][:4]), np.array(ATOMS[1][:4])
    mixture, _ = tabulate(target, means, scales, 10)
    weights = np.array([0.5, 0.2, 0.0, 0.3])
    grid = np.linspace(-25.0, 25.0, 20_001)
    densities = stats.norm.pdf(grid, means, scales)
    log_p = np.log(np.asarray(TRUE[0]) @ stats.norm.pdf(grid, np.asarray(TRUE[1]), np.asarray(TRUE[2])))

    def potential(weights):
        """g_k of every slot, and the standard deviation of ln q − ln p under each."""
        values = np.log(weights @ densities) - log_p
        g = np.trapezoid(densities * values, grid, axis=1)
        return g, np.sqrt(np.trapezoid(densities * (values - g[:, None]) ** 2, grid, axis=1))

    estimates = FreshEstimates(target, replace(mixture, weights=jnp.asarray(weights)), jax.random.key(8), N_FRESH)
    return SimpleNamespace(estimates=estimates, weights=weights, potential=potential, densities=densities, grid=grid)


def test_fresh_gradients(fresh):
    g, sd = fresh.potential(fresh.weights)
    candidates = jnp.asarray([1.0, 1.0, 1.0, 0.0])
    found = np.asarray(
        jax.jit(lambda e, w, c: e.gradients(w, c))(fresh.estimates, jnp.asarray(fresh.weights), candidates)
    )
    assert np.all(np.abs(found - g)[:3] < 4 * sd[:3] / np.sqrt(N_FRESH))
    assert found[3] == 0.0


@pytest.mark.parametrize("name", ["frank-wolfe", "away", "pairwise"])
def test_fresh_direction_and_its_gap(fresh, name):
    g, sd = fresh.potential(fresh.weights)
    rule = DIRECTIONS[name]()
    found, evals = jax.jit(boosting._fresh_direction)(fresh.estimates, rule, fresh.weights, 2)
    exact = jax.jit(lambda *args: rule(*args))(g, fresh.weights, 2)
    np.testing.assert_allclose(found.delta, exact.delta, atol=1e-14)
    assert int(found.kind) == int(exact.kind)
    # Drawn from the positive and the negative part, or from each slot: the noise is at most that of all slots together.
    largest = np.sqrt(sd**2 + (g - g.mean()) ** 2).max() / np.sqrt(N_FRESH)
    assert abs(float(found.gap) - float(exact.gap)) < 4 * np.sqrt(2) * largest
    assert int(evals) == (2 * N_FRESH if name == "frank-wolfe" else 4 * N_FRESH)


@jax.jit
def ask(estimates, direction, weights, gamma, trial):
    """All that the line towards slot 2 knows."""
    line = FreshLine(jnp.ones(()), direction.gap, direction.gamma_max, estimates, weights, 2, direction.delta)
    return (
        line.value(gamma, trial), line.slope(gamma, trial), line.divergence(gamma, trial),
        line.distance("kl"), line.distance("l2"),
    )  # fmt: skip


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.7])
def test_fresh_line(fresh, gamma):
    g, _ = fresh.potential(fresh.weights)
    direction = jax.jit(lambda *args: FrankWolfe()(*args))(g, fresh.weights, 2)
    first, second = (np.array(ask(fresh.estimates, direction, fresh.weights, gamma, trial)) for trial in (0, 1))
    assert np.all(first[:3] != second[:3])  # new draws at every trial
    np.testing.assert_array_equal(first[3:], second[3:])
    value, slope, divergence, kl, l2 = first

    delta = np.asarray(direction.delta)
    start, moved = fresh.weights, fresh.weights + gamma * delta
    at_start, sd_start = fresh.potential(start)
    at_moved, sd_moved = fresh.potential(moved)
    root = np.sqrt(N_FRESH)

    def spread(weights, g, sd):
        return np.sqrt(weights @ (sd**2 + g**2) - (weights @ g) ** 2)

    se = spread(moved, at_moved, sd_moved) / root
    assert abs(value - moved @ at_moved) < 4 * se
    down = -np.minimum(delta, 0.0)
    up_se, down_se = sd_moved[2] / root, down.sum() * spread(down / down.sum(), at_moved, sd_moved) / root
    assert abs(slope - delta @ at_moved) < 4 * np.hypot(up_se, down_se)
    truth = moved @ at_moved - start @ at_start + gamma * float(direction.gap)
    assert abs(divergence - truth) < 4 * np.hypot(se, spread(start, at_start, sd_start) / root)

    s, q = fresh.densities[2], fresh.weights @ fresh.densities
    log_ratio = stats.norm.logpdf(fresh.grid, *TRUE_THIRD) - np.log(q)
    true_kl = np.trapezoid(s * log_ratio, fresh.grid)
    kl_se = np.sqrt(np.trapezoid(s * (log_ratio - true_kl) ** 2, fresh.grid)) / root
    assert abs(kl - true_kl) < 4 * kl_se
    difference = s - q
    true_l2 = np.trapezoid(difference**2, fresh.grid)
    noise = [
        np.trapezoid(d * difference**2, fresh.grid) - np.trapezoid(d * difference, fresh.grid) ** 2 for d in (s, q)
    ]
    assert abs(l2 - true_l2) < 4 * (np.sqrt(noise[0]) + np.sqrt(noise[1])) / root


@pytest.mark.parametrize("known", ["overlapping"], indirect=True)
@pytest.mark.parametrize(
    "rule",
    [Adaptive(draws="fresh", form="lipschitz", distance="l2", max_trials=20), LineSearch(draws="fresh", b0=0.3)],
    ids=["adaptive", "line-search"],
)
def test_fresh_steps_count_their_evaluations(known, rule):
    """The model is called for the gap (both parts of δ), for every trial, and once for the value at γ = 0."""
    weights, _, info = move(known, rule)
    n, trials = known.table.n_draws, int(info.trials)
    assert trials >= 1
    expected = 2 * n + ((trials + 1) * n if isinstance(rule, Adaptive) else 2 * trials * n)
    assert int(info.evals) == expected
    assert 0.05 < float(weights[1]) < 0.7
    assert float(weights[1]) == pytest.approx(float(info.gamma))


# -- construction


@pytest.mark.parametrize(
    ("rule", "argument", "value"),
    [
        *((Adaptive, "grow", v) for v in (1.0, 0.5, -2.0, float("nan"), True)),
        *((Adaptive, "shrink", v) for v in (0.0, 1.0, 1.5, -0.1)),
        (Adaptive, "epsilon0", -1e-9),
        (Adaptive, "max_trials", 0),
        *((Adaptive, "initial", v) for v in (0.0, -1.0)),
        *((Adaptive, "min_gamma", v) for v in (-0.1, 1.0)),
        (LineSearch, "b0", 0.0),
        (LineSearch, "iterations", 0),
        (LineSearch, "tol", -1e-9),
        (Exact, "tol", 0.0),
        (ShortStep, "curvature", 0.0),
    ],
)
def test_bad_values_are_named(rule, argument, value):
    with pytest.raises(ValueError, match=rf"^{argument} must be .*got {value!r}"):
        rule(**{argument: value})


@pytest.mark.parametrize(
    ("rule", "argument", "choices"),
    [
        (Adaptive, "form", ("curvature", "lipschitz")),
        (Adaptive, "distance", ("kl", "l2")),
        (Adaptive, "draws", ("table", "fresh")),
        (Adaptive, "fallback", ("exact", "predefined", "zero")),
        (LineSearch, "draws", ("table", "fresh")),
    ],
)
def test_unknown_names_list_the_choices(rule, argument, choices):
    with pytest.raises(ValueError, match=f"^{argument}='nonsense' is not known") as caught:
        rule(**{argument: "nonsense"})
    assert all(repr(choice) in str(caught.value) for choice in choices)


@pytest.mark.parametrize(("rule", "argument"), [(Adaptive, "grow"), (LineSearch, "b0"), (ShortStep, "curvature")])
def test_text_is_not_a_number(rule, argument):
    with pytest.raises((ValueError, TypeError), match=argument):
        rule(**{argument: "2"})


def test_rules_cannot_be_mistaken_for_each_other():
    """A jitted function looks its program up by the structure of its arguments: it must tell the rules apart."""
    structures = [jax.tree.structure(cls()) for cls in STEP_SIZES.values()]
    for i, one in enumerate(structures):
        assert [one == other for other in structures] == [i == j for j in range(len(structures))]


def test_names():
    assert set(STEP_SIZES) == {"predefined", "line-search", "exact", "adaptive", "short-step", "zero"}
    assert all(cls().name == name for name, cls in STEP_SIZES.items())
    assert isinstance(Adaptive().fallback, Exact)
    assert isinstance(Adaptive(fallback=Predefined()).fallback, Predefined)


def test_a_run_with_predefined_steps(bimodal):
    """The first boosting step is t = 1: γ = 2/3, 2/4, 2/5, …"""
    result = bv.fit(
        bimodal, recipe="bbbvi", family="diagonal-normal", first="random", next_component="random",
        n_draws=50, elbo_draws=50, max_steps=5, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(result.history["gamma"][1:], 2.0 / (np.arange(1, 6) + 2.0), rtol=1e-14)
    assert list(result.history["kind"]) == ["init"] + 5 * ["frank-wolfe"]
