"""Pictures: what is on the axes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import gaussian_mixture
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.stats import norm

import boostvi as bv
from boostvi import plots
from boostvi.families import DiagonalNormal
from boostvi.history import COLUMNS
from boostvi.plots import comparison, densities, follow, grids, ribbon, style, worst

CHEAP = {
    "recipe": "fully-corrective",
    "family": "diagonal-normal",
    "first": "random",
    "next_component": "random",
    "elbo_draws": 500,
    "progress": False,
}
WEIGHTS, MEANS, SCALES = [0.3, 0.7], [[-3.0], [2.0]], [[0.7], [1.0]]
LOG_Z = -2000.0


@pytest.fixture(scope="module")
def line():
    """A fit in one dimension whose log evidence is far from 0, and the record of its weights."""
    record = plots.WeightRecorder()
    target = gaussian_mixture(WEIGHTS, MEANS, SCALES, shift=LOG_Z)
    return bv.fit(target, max_steps=6, seed=3, callbacks=[record], **CHEAP), record


@pytest.fixture(scope="module")
def away():
    """A run of away steps in the plane, with drops and fallbacks among them, and the record of its weights."""
    record = plots.WeightRecorder()
    means, scales = [[-2.0, 1.0], [2.0, -1.0]], [[0.8, 0.5], [0.6, 1.0]]
    target = gaussian_mixture([0.5, 0.5], means, scales)
    return bv.fit(target, max_steps=20, seed=0, callbacks=[record], **(CHEAP | {"recipe": "adaafw"})), record


@pytest.fixture(scope="module")
def plane(away):
    return away[0]


def two_bananas(z):
    left = -0.5 * ((z[0] + 2) / 0.6) ** 2 - 0.5 * ((z[1] - 1 - 0.8 * (z[0] + 2) ** 2) / 0.4) ** 2
    right = -0.5 * ((z[0] - 2) / 0.9) ** 2 - 0.5 * ((z[1] + 1 + 0.5 * (z[0] - 2) ** 2) / 0.5) ** 2
    return jnp.logaddexp(left, right)


BANANAS_LOG_Z = np.log(2 * np.pi * (0.6 * 0.4 + 0.9 * 0.5))


@pytest.fixture(scope="module")
def auto():
    """The default recipe, whose components all move at each step, on two bananas."""
    record = plots.WeightRecorder()
    target = bv.Target(two_bananas, 2, lambda key: 3 * jax.random.normal(key, (2,)))
    return bv.fit(target, max_steps=2, kl_tol=1e-4, seed=0, callbacks=[record], progress=False), record


@pytest.fixture(scope="module")
def space():
    means, scales = [[-2.0, 0.0, 5.0], [2.0, 1.0, 5.0]], [[0.8, 0.5, 1.0], [0.6, 1.0, 1.0]]
    return bv.fit(gaussian_mixture([0.5, 0.5], means, scales), max_steps=3, seed=0, **CHEAP)


def labelled(axes):
    """Lines and steps by their label."""
    return {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}


def analytic(z):
    return sum(w * norm.pdf(z, m[0], s[0]) for w, m, s in zip(WEIGHTS, MEANS, SCALES, strict=True))


def wide(dim, seed=0):
    return np.random.default_rng(seed).normal(size=(5000, dim))


def rows(**columns):
    n = len(next(iter(columns.values())))
    return {name: np.asarray(columns.get(name, np.zeros(n))) for name in COLUMNS}


# -- density


def test_target_and_mixture_in_one_dimension(line):
    result, _ = line
    figure = plots.density(result)
    (axes,) = figure.axes
    drawn = labelled(axes)
    assert list(drawn) == ["components", "target", "mixture"]
    z, target = drawn["target"].get_data()
    error = np.exp(4 * result.evaluation.log_evidence_se) - 1  # of the evidence, which normalises the curve
    np.testing.assert_allclose(target, analytic(z), rtol=error)
    z, mixture = drawn["mixture"].get_data()
    np.testing.assert_allclose(mixture, np.exp(result.mixture.log_prob(z[:, None])))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("z[0]", "density")


def test_components_add_up_to_the_mixture(line):
    result, _ = line
    (axes,) = plots.density(result).axes
    faint = [one.get_ydata() for one in axes.get_lines() if one.get_color() == plots.SKY]
    assert len(faint) == result.mixture.n_active > 1
    np.testing.assert_allclose(np.sum(faint, axis=0), labelled(axes)["mixture"].get_ydata(), atol=1e-12)


@pytest.mark.parametrize("kind", ["result", "mixture", "draws"])
def test_a_reference_in_one_dimension_is_one_more_curve(line, kind):
    result, _ = line
    reference = {"result": result, "mixture": result.mixture, "draws": wide(1)}[kind]
    (axes,) = plots.density(result, reference=reference, reference_label="another").axes
    curve = labelled(axes)["another"]
    if kind == "draws":
        heights, edges, _ = curve.get_data()
        assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0, abs=0.01)
        assert heights[np.searchsorted(edges, 0.0) - 1] == pytest.approx(norm.pdf(0), abs=4 * 0.02)
    else:
        np.testing.assert_allclose(curve.get_ydata(), labelled(axes)["mixture"].get_ydata())


def test_two_dimensions_side_by_side(plane):
    figure = plots.density(plane)
    titles = [axes.get_title() for axes in figure.axes]
    count = plane.mixture.n_active
    assert titles == ["target", f"mixture of {count} components"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["z[0]", "z[0]"]
    assert figure.axes[0].get_ylabel() == "z[1]"
    left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    assert not [p for p in left.patches if isinstance(p, Ellipse)]
    ellipses = [p for p in right.patches if isinstance(p, Ellipse)]
    assert len(ellipses) == count
    np.testing.assert_allclose([e.center for e in ellipses], plane.mixture.params["loc"])


def test_ellipses_have_the_standard_deviations_of_their_components(plane):
    """Diagonal components: four standard errors of an sd from draws, and a little for their chance correlation."""
    right = plots.density(plane).axes[-1]
    scale = np.log1p(np.exp(plane.mixture.params["raw_scale"]))
    for ellipse, sd in zip([p for p in right.patches if isinstance(p, Ellipse)], scale, strict=True):
        found = np.sort([ellipse.width / 2, ellipse.height / 2])
        np.testing.assert_allclose(found, np.sort(sd), rtol=4 / np.sqrt(2 * grids.ELLIPSE_DRAWS) + 0.03)


def test_both_panels_share_their_levels(plane):
    """The same colour is the same density: the levels of the target's panel are those of the mixture's."""
    left, right = plots.density(plane).axes
    np.testing.assert_allclose(left.collections[0].levels, right.collections[0].levels)


def test_levels_enclose_the_shares_they_name():
    side = np.linspace(-6, 6, 301)
    values = norm.pdf(side)[:, None] * norm.pdf(side)
    levels = grids.region_levels(values, densities.REGIONS)
    heights = [(1 - share) / (2 * np.pi) for share in densities.REGIONS]  # of a standard Normal in the plane, exactly
    np.testing.assert_allclose(levels, heights, rtol=0.02)


def test_swapping_the_coordinates_swaps_the_picture(plane):
    plain, swapped = plots.density(plane, coordinates=(0, 1)).axes[0], plots.density(plane, coordinates=(1, 0)).axes[0]
    assert plain.get_xlim() == swapped.get_ylim()
    assert swapped.get_xlabel() == "z[1]"
    ends = [sorted(path.vertices[:, i].max() for path in axes.collections[1].get_paths() if len(path.vertices))
            for axes, i in ((plain, 0), (swapped, 1))]  # fmt: skip
    np.testing.assert_allclose(ends[0], ends[1])


def test_a_reference_in_two_dimensions_is_one_more_panel(plane):
    figure = plots.density(plane, reference=wide(2), reference_label="NUTS")
    assert [axes.get_title() for axes in figure.axes][1] == "NUTS"


def test_marginals_of_a_larger_mixture(space):
    figure = plots.density(space, coordinates=["z[2]", "z[0]"])
    assert len(figure.axes) == 2
    assert "reweighted" in figure.axes[0].get_title()
    assert figure.axes[0].get_xlabel() == "z[2]"
    assert figure.axes[0].get_ylabel() == "z[0]"
    (axes,) = plots.density(space, coordinates=[0]).axes
    drawn = labelled(axes)
    heights, edges, _ = drawn["mixture"].get_data()
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0, abs=3 * grids.TAIL)
    draws = space.mixture.sample(grids.PICTURE_DRAWS, seed=0)[:, 0]
    middle = np.average(0.5 * (edges[1:] + edges[:-1]), weights=heights)
    assert middle == pytest.approx(draws.mean(), abs=4 * draws.std() / np.sqrt(len(draws)) + np.diff(edges)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinates": ["height"]}, r"'height' is not known; the names are 'z\[0\]'"),
        ({"coordinates": [7]}, "integers from 0 to 2, got 7"),
        ({"coordinates": [0, 0]}, "one or two different"),
        ({"coordinates": [0, 1, 2]}, "one or two different"),
        ({"reference": np.zeros((5, 2))}, r"draws of shape \(n, 3\)"),
    ],
)
def test_density_refuses_what_it_cannot_draw(space, options, message):
    with pytest.raises(ValueError, match=message):
        plots.density(space, **options)


# -- marginals and corner


def test_marginals_of_every_coordinate(space):
    figure = plots.marginals(space, reference=wide(3), reference_label="NUTS")
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_xlabel() for axes in shown] == list(space.target.names)
    fresh, weights = space._fresh[0], space._importance[0]
    for i, axes in enumerate(shown):
        drawn = labelled(axes)
        assert set(drawn) >= {"mixture", "NUTS", f"reweighted to the target (k̂ = {space.khat:.2f})"}
        heights, edges, _ = drawn[f"reweighted to the target (k̂ = {space.khat:.2f})"].get_data()
        middle = np.sum(0.5 * (edges[1:] + edges[:-1]) * heights * np.diff(edges))
        assert middle == pytest.approx(weights @ fresh[:, i], abs=0.05)
    only = plots.marginals(space, most=2)
    assert "1 more parameters" in only.get_supxlabel()


def test_components_of_a_marginal_add_up_to_it(auto):
    result, _ = auto
    (axes,) = plots.density(result, coordinates=[0]).axes
    faint = [one.get_ydata() for one in axes.get_lines() if one.get_color() == plots.SKY]
    assert len(faint) == result.mixture.n_active > 1
    np.testing.assert_allclose(np.sum(faint, axis=0), labelled(axes)["mixture"].get_data().values, atol=1e-12)


def test_corner_has_every_pair(space):
    figure = plots.corner(space, reference=wide(3), reference_label="NUTS")
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 6
    assert [axes.get_xlabel() for axes in shown] == ["", "", "", "z[0]", "z[1]", "z[2]"]
    assert [axes.get_ylabel() for axes in shown] == ["", "z[1]", "", "z[2]", "", ""]
    heights, edges, _ = labelled(shown[0])["NUTS"].get_data()
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0, abs=3 * grids.TAIL)
    centres = shown[3].collections[-1].get_offsets()  # z[2] against z[0]
    np.testing.assert_allclose(centres, np.asarray(space.mixture.params["loc"])[:, [0, 2]])


def test_corner_without_reference_shows_the_reweighted_draws(auto):
    result, _ = auto
    figure = plots.corner(result, coordinates=["z[1]", "z[0]"])
    first = labelled(figure.axes[0])
    assert list(first) == ["mixture", f"reweighted to the target (k̂ = {result.khat:.2f})"]
    heights, edges, _ = first["mixture"].get_data()
    expected = grids.histogram(result.mixture.sample(grids.PICTURE_DRAWS, seed=0)[:, 1], edges)
    np.testing.assert_allclose(heights, expected)
    assert figure.axes[-1].get_xlabel() == "z[0]"


def test_corner_of_one_parameter(line):
    (axes,) = plots.corner(line[0]).axes
    assert axes.get_xlabel() == "z[0]"


# -- the run


def test_elbo_with_its_band():
    history = rows(step=[0, 1, 2], elbo=[-3.0, -2.0, -1.5], elbo_se=[0.1, 0.2, 0.05], log_evidence=[-2.5, -1.2, -1.0])
    (axes,) = plots.elbo(history, references={"full-rank": -1.7}).axes
    drawn = labelled(axes)
    assert list(drawn) == ["log evidence", "± 2 se", "ELBO", "first component", "full-rank"]
    np.testing.assert_allclose(drawn["ELBO"].get_data(), [[0, 1, 2], [-3.0, -2.0, -1.5]])
    np.testing.assert_allclose(drawn["log evidence"].get_ydata(), [-2.5, -1.2, -1.0])
    np.testing.assert_allclose(drawn["first component"].get_data(), [[0], [-3.0]])
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(-3.2)
    assert corners[:, 1].max() == pytest.approx(-1.4)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("boosting step", "ELBO (nats)")


def test_elbo_of_a_result_marks_the_mixture_it_returns(line):
    result, _ = line
    drawn = labelled(plots.elbo(result).axes[0])
    ring = drawn["returned mixture"].get_data()
    np.testing.assert_allclose(np.ravel(ring), [result.best_step, result.history["elbo"].max()])


def test_infinite_elbo_is_a_gap():
    history = rows(step=[0, 1, 2], elbo=[-3.0, -np.inf, -1.5], elbo_se=[0.1, np.inf, 0.05], log_evidence=[-2.5, -2, -1])
    (axes,) = plots.elbo(history).axes
    np.testing.assert_array_equal(np.isnan(labelled(axes)["ELBO"].get_ydata()), [False, True, False])
    assert np.isfinite(axes.get_ylim()).all()


@pytest.mark.parametrize(
    ("against", "label"), [("seconds", "seconds since the start"), ("evals", "target evaluations")]
)
def test_a_run_against_time_and_evaluations(away, against, label):
    result, _ = away
    for picture, column, name in ((plots.elbo, "elbo", "ELBO"), (plots.kl, "kl_estimate", "KL estimate")):
        (axes,) = picture(result, against=against).axes
        x, y = labelled(axes)[name].get_data()
        np.testing.assert_allclose(x, result.history[against])
        np.testing.assert_allclose(y, result.history[column])
        assert axes.get_xlabel().startswith(label)
    with pytest.raises(ValueError, match="against must be one of 'step', 'seconds', 'evals', got 'days'"):
        plots.kl(result, against="days")


def test_kl_with_its_band_on_a_log_scale(auto):
    result, _ = auto
    (axes,) = plots.kl(result).axes
    drawn, history = labelled(axes), result.history
    assert list(drawn) == ["± 2 se", "KL estimate", "returned mixture"]
    np.testing.assert_allclose(drawn["KL estimate"].get_ydata(), history["kl_estimate"])
    upper = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    assert upper == pytest.approx(np.max(history["kl_estimate"] + 2 * history["kl_se"]))
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "KL to the posterior (nats)"


def test_a_kl_of_zero_is_a_triangle_at_its_error():
    history = rows(step=[0, 1, 2], kl_estimate=[0.5, 0.0, np.inf], kl_se=[0.1, 0.02, np.inf])
    (axes,) = plots.kl(history).axes
    drawn = labelled(axes)
    np.testing.assert_allclose(drawn["KL estimate"].get_ydata(), [0.5, np.nan, np.nan])
    np.testing.assert_allclose(drawn["0, up to its error"].get_data(), [[1.0], [0.04]])
    assert 0 < axes.get_ylim()[0] < 0.04


def test_convergence_is_elbo_and_kl_against_step_and_time(auto):
    result, _ = auto
    figure = plots.convergence(result, references={"plain VI": result.elbo - 1})
    assert [axes.get_xlabel().split(" ")[0] for axes in figure.axes] == ["", "", "boosting", "seconds"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["ELBO (nats)", "", "KL to the posterior (nats)", ""]
    for axes, column, name in zip(
        figure.axes, ("step", "seconds") * 2, ("ELBO",) * 2 + ("KL estimate",) * 2, strict=True
    ):
        np.testing.assert_allclose(labelled(axes)[name].get_xdata(), result.history[column])
    assert "plain VI" in labelled(figure.axes[0])


def test_steps_are_coloured_by_their_kind():
    kinds = [*plots.KINDS, "something new"]
    steps = np.arange(len(kinds))
    history = rows(step=steps, kind=kinds, gamma=0.1 * steps, n_active=steps + 1)
    figure = plots.weights(history)
    gammas, counts = figure.axes
    drawn = labelled(gammas)
    assert list(drawn) == kinds
    colors = {name: tuple(points.get_facecolor()[0]) for name, points in drawn.items()}
    assert len(set(colors.values())) == len(kinds)
    for i, name in enumerate(kinds):
        np.testing.assert_allclose(drawn[name].get_offsets(), [[i, 0.1 * i]])
    assert_stairs(counts, steps, steps + 1)
    assert [axes.get_ylabel() for axes in figure.axes] == ["step size γ", "active\ncomponents"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == kinds


def assert_stairs(axes, steps, values):
    (stairs,) = axes.patches
    heights, edges, _ = stairs.get_data()
    np.testing.assert_allclose(heights, values)
    np.testing.assert_allclose(edges, [*(steps - 0.5), steps[-1] + 0.5])


def test_step_sizes_and_curvature(away):
    result, _ = away
    history = result.history
    gammas, curvatures = plots.step_sizes(result).axes
    drawn = labelled(gammas)
    np.testing.assert_allclose(drawn["largest allowed"].get_ydata(), history["gamma_max"])
    assert {"init", "away", "drop", "fallback"} <= set(drawn)
    for name in set(history["kind"]):
        here = history["kind"] == name
        np.testing.assert_allclose(
            drawn[name].get_offsets(), np.column_stack([history["step"], history["gamma"]])[here]
        )
    np.testing.assert_allclose(curvatures.get_lines()[0].get_ydata(), history["curvature"])
    assert curvatures.get_yscale() == "log"
    assert (gammas.get_ylabel(), curvatures.get_ylabel()) == ("step size γ", "curvature (nats)")
    assert gammas.get_ylim()[1] > history["gamma"].max()


def test_without_curvature_there_is_no_panel_for_it(auto):
    (axes,) = plots.step_sizes(auto[0]).axes
    assert axes.get_xlabel() == "boosting step"


def test_step_kinds_are_stacked_counts(away):
    result, _ = away
    kind = result.history["kind"]
    figure = plots.step_kinds(result)
    (axes,) = figure.axes
    below = np.zeros(len(kind))
    for layer, name in zip(axes.patches, [name for name in plots.KINDS if name in kind], strict=True):
        heights, _, baseline = layer.get_data()
        np.testing.assert_allclose(baseline, below)
        np.testing.assert_allclose(heights - baseline, np.cumsum(kind == name))
        assert layer.get_label() == f"{name} ({np.sum(kind == name)})"
        below = heights
    np.testing.assert_allclose(below, np.arange(1, len(kind) + 1))
    assert axes.get_ylabel() == "steps so far"
    assert len(figure.legends[0].get_texts()) == len(axes.patches)


def test_parameter_count(auto):
    result, _ = auto
    components, numbers = plots.parameter_count(result).axes
    assert_stairs(components, result.history["step"], result.history["n_active"])
    assert_stairs(numbers, result.history["step"], result.history["n_params"])
    assert (components.get_ylabel(), numbers.get_ylabel()) == ("active components", "parameters")


# -- weights


@pytest.mark.parametrize("recipe", ["away", "auto", "line"])
def test_the_ribbon_is_the_weights_stacked(recipe, request):
    result, record = request.getfixturevalue(recipe)
    figure = plots.weights(result, record)
    ribbon_axes = figure.axes[0]
    lineage = record.lineage()
    shown = [k for k in lineage.order if lineage.weights[:, k].any()]
    bands = ribbon_axes.collections
    assert len(bands) == len(lineage.order)
    below = np.zeros(len(record.steps))
    for band, k in zip(bands, lineage.order, strict=True):
        above = below + lineage.weights[:, k]
        corners = np.concatenate([path.vertices for path in band.get_paths()] or [np.empty((0, 2))])
        for place in np.flatnonzero(lineage.weights[:, k]):
            here = corners[np.isclose(corners[:, 0], record.steps[place] + ribbon.PLATEAU)]
            np.testing.assert_allclose([here[:, 1].min(), here[:, 1].max()], [below[place], above[place]], atol=1e-12)
        below = above
    np.testing.assert_allclose(below, 1.0)
    assert len(shown) == len(lineage.order)
    assert ribbon_axes.get_ylim() == (0.0, 1.0)
    assert ribbon_axes.get_ylabel() == "weight"
    expected = {style.kind_style(kind)[0] for kind in lineage.entered}
    drawn = {tuple(band.get_facecolor()[0][:3]) for band in bands}
    assert drawn == {tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)) for color in expected}


@pytest.mark.parametrize("recipe", ["away", "auto", "line"])
def test_recorder_agrees_with_the_run(recipe, request):
    result, record = request.getfixturevalue(recipe)
    np.testing.assert_array_equal(record.steps, result.history["step"])
    np.testing.assert_allclose(record.weights.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.count_nonzero(record.weights, axis=1), result.history["n_active"])
    last = np.sort(record.weights[result.best_step])[::-1]
    np.testing.assert_allclose(last[: result.mixture.n_active], result.mixture.weights)
    assert record.entered[0] == "init"


def test_moving_components_are_followed(auto):
    """Nothing is lost from step to step but what was pruned: the components of the first step reach the last."""
    result, record = auto
    first = record.weights[0] > 0
    assert first.sum() == 2
    assert (record.weights[-1][first] > 0).all()
    assert record.weights.shape[1] <= result.history["n_active"].max() + 2
    assert set(record.entered) <= set(result.history["kind"])


def mixture_of(locs, weights):
    locs = np.asarray(locs, dtype=float)[:, None]
    return bv.Mixture({"loc": locs, "raw_scale": np.zeros_like(locs)}, np.asarray(weights), DiagonalNormal())


def step(t, kind, locs, weights):
    return bv.Step(t, mixture_of(locs, weights), {"kind": kind}, None)


def test_recorder_follows_components_and_starts_anew_with_another_run():
    record = plots.WeightRecorder()
    assert record(step(0, "init", [0.0], [1.0])) is None
    record(step(1, "frank-wolfe", [5.0, 0.0], [0.6, 0.4]))  # the heaviest comes first, whatever its age
    record(step(2, "drop", [5.0], [1.0]))
    record(step(3, "pairwise", [5.0, 9.0], [0.9, 0.1]))
    np.testing.assert_allclose(record.weights, [[1, 0, 0], [0.4, 0.6, 0], [0, 1, 0], [0, 0.9, 0.1]])
    assert record.entered == ["init", "frank-wolfe", "pairwise"]
    record(step(0, "init", [1.0], [1.0]))
    np.testing.assert_allclose(record.weights, [[1.0]])


def test_an_empty_record_is_refused():
    with pytest.raises(ValueError, match=r"callbacks=\[record\]"):
        plots.weights(rows(step=[0], kind=["init"]), plots.WeightRecorder())


def test_recorder_pairs_components_that_moved():
    record = plots.WeightRecorder()
    record(step(0, "init", [0.0, 10.0], [0.7, 0.3]))
    record(step(1, "refine", [10.2, 0.3], [0.6, 0.4]))  # both moved, and changed places
    record(step(2, "refine", [10.3, 9.5, 0.2], [0.4, 0.3, 0.3]))  # the first was split
    assert record.lineage().order == [0, 1, 2]  # beside the one it came from
    record(step(3, "refine", [0.0, 30.0], [0.5, 0.5]))  # its halves are gone, something far has come
    found = record.lineage()
    np.testing.assert_allclose(
        found.weights, [[0.7, 0.3, 0, 0], [0.4, 0.6, 0, 0], [0.3, 0.4, 0.3, 0], [0.5, 0, 0, 0.5]]
    )
    assert found.entered == ["init", "init", "refine", "refine"]


def test_a_component_beside_frozen_ones_is_new_however_near():
    record = plots.WeightRecorder()
    record(step(0, "init", [0.0, 5.0], [0.5, 0.5]))
    record(step(1, "pairwise", [0.0, 5.01], [0.5, 0.5]))
    np.testing.assert_allclose(record.weights, [[0.5, 0.5, 0], [0.5, 0, 0.5]])


def test_a_record_that_begins_later_says_so():
    record = plots.WeightRecorder()
    record(step(7, "away", [0.0], [1.0]))
    record(step(8, "frank-wolfe", [0.0, 4.0], [0.5, 0.5]))
    assert record.entered == [follow.EARLIER, "frank-wolfe"]
    figure = plots.weights(rows(step=[7, 8], kind=["away", "frank-wolfe"], gamma=[0.1, 0.5], n_active=[1, 2]), record)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["frank-wolfe", "away", follow.EARLIER]


@pytest.mark.parametrize(
    "picture",
    [plots.elbo, plots.kl, plots.convergence, plots.weights, plots.step_sizes, plots.step_kinds, plots.parameter_count],
)
def test_a_wrong_argument_is_named(picture):
    with pytest.raises(TypeError, match="expected a Result or its history, got list"):
        picture([1.0, 2.0])


# -- diagnostics from fresh draws


def test_tail_shows_the_weights_and_their_pareto_fit(plane):
    (axes,) = plots.tail(plane).axes
    drawn = labelled(axes)
    assert list(drawn) == ["10,000 fresh draws", f"fitted tail, k̂ = {plane.khat:.2f}", "the same with k = 0.7"]
    _, log_target, log_q = plane._fresh
    share, height = drawn["10,000 fresh draws"].get_data()
    np.testing.assert_allclose(np.diff(height), np.diff(np.sort(log_target - log_q)), atol=1e-9)
    assert share[-1] == pytest.approx(0.5 / 10_000)
    at, fitted = drawn[f"fitted tail, k̂ = {plane.khat:.2f}"].get_data()
    assert len(at) == 300  # 3 √n
    smoothed = np.log(np.sort(plane._importance[0]))[-300:]
    np.testing.assert_allclose(np.diff(fitted), np.diff(smoothed), atol=1e-9)
    assert fitted[0] == pytest.approx(height[-300], abs=0.05)
    begin, beyond = np.exp(height[-301]), at * 10_000 / 300
    scales = (np.exp(fitted) - begin) * plane.khat / (beyond**-plane.khat - 1)  # a generalised Pareto tail has one
    np.testing.assert_allclose(scales[:-30], scales[100], rtol=0.02)
    _, limit = drawn["the same with k = 0.7"].get_data()
    np.testing.assert_allclose(np.exp(limit) - begin, scales[150] * (beyond**-0.7 - 1) / 0.7, rtol=0.02)
    assert axes.get_xlim()[0] > axes.get_xlim()[1]
    assert axes.get_ylabel().endswith("(nats)")


def test_the_worst_direction_is_where_the_moments_differ():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(20_000, 3)) * [1.0, 5.0, 0.1] + [3.0, 0.0, 0.0]
    tilted = np.exp(0.1 * draws[:, 2] / 0.1 * 8 / 2)  # shifts the third by 0.4 sd
    found = worst.worst_direction(draws, tilted / tilted.sum())
    assert found.correlations[2] == pytest.approx(1.0, abs=0.02)
    assert found.nats == pytest.approx(0.5 * 0.4**2, rel=0.3)
    wider = np.exp(0.25 * (draws[:, 1] / 5.0) ** 2 * 0.8)  # the second: variance 1/(1 − 0.4)
    found = worst.worst_direction(draws, wider / wider.sum())
    assert abs(found.correlations[1]) > 0.98
    assert found.nats == pytest.approx(0.5 * (1 / 0.6 - 1 + np.log(0.6)), rel=0.3)


def test_residual_along_the_worst_direction(plane):
    above, below = plots.residual(plane).axes
    draws, log_target, log_q = plane._fresh
    drawn = labelled(above)
    assert list(drawn) == ["fresh draws", "10 to 90 %", "running median"]
    found = worst.worst_direction(draws, plane._importance[0])
    x, gap = drawn["fresh draws"].get_data()
    every = -(-len(draws) // worst.MAX_POINTS)
    np.testing.assert_allclose(x, found.position[::every])
    np.testing.assert_allclose(gap, (log_target - log_q - plane.log_evidence)[::every])
    x, median = drawn["running median"].get_data()
    assert len(x) == worst.GROUPS
    nearest = np.argsort(found.position)[: len(draws) // worst.GROUPS]
    assert median[0] == pytest.approx(np.median((log_target - log_q)[nearest]) - plane.log_evidence)
    assert above.get_ylabel() == "ln p − ln q − log Ẑ (nats)"
    assert below.get_xlabel().startswith("worst direction, in sd of the mixture\nz[")
    mine, towards = (labelled(below)[name].get_data() for name in labelled(below))
    assert np.sum(mine.values * np.diff(mine.edges)) == pytest.approx(1.0, abs=3 * grids.TAIL)
    middle = 0.5 * (towards.edges[1:] + towards.edges[:-1])
    shift = np.sum(middle * towards.values * np.diff(towards.edges))
    assert shift == pytest.approx(plane._importance[0] @ found.position, abs=0.1)


def half_space(z):
    return jnp.where(z[0] > -1.5, -0.5 * jnp.sum(z**2), -jnp.inf)


def test_draws_without_density_are_counted(plane):
    """ln p = −inf at some fresh draws: the pictures are drawn, and say so."""
    broken = bv.Result(bv.Target(half_space, 2), plane.run, "max-steps")
    lost = int(np.sum(~np.isfinite(broken._fresh[1])))
    assert 0 < lost < 10_000
    assert f"{lost:,} draws have no weight" in plots.tail(broken).get_supxlabel().replace("\n", " ")
    assert f"{lost:,} draws ln p is not finite" in plots.residual(broken).get_supxlabel().replace("\n", " ")
    nowhere = bv.Result(bv.Target(lambda z: jnp.sum(z) * 0 - jnp.inf, 2), plane.run, "max-steps")
    for picture in (plots.tail, plots.residual):
        with pytest.raises(ValueError, match="not finite at any"):
            picture(nowhere)


# -- several runs


def with_history(result, **columns):
    """The same result with other numbers in its history."""
    names = list(columns)
    table = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    blank = dict.fromkeys(COLUMNS, 0.0)
    history = type(result.history)(tuple(blank | row for row in table))
    return bv.Result(result.target, dataclasses.replace(result.run, history=history), "max-steps")


@pytest.fixture
def three(plane):
    def one(elbos, seconds):
        n = len(elbos)
        return with_history(
            plane, step=range(n), elbo=elbos, seconds=seconds, evals=100 * np.arange(1, n + 1), log_evidence=[-1.0] * n
        )

    return {"a": [one([-5.0, -3.0, -2.0], [1, 2, 3]), one([-7.0, -4.0], [2, 4])], "b": one([-9.0, -1.5], [1, 10])}


def test_runs_are_averaged_over_their_seeds(three):
    figure = plots.compare(three)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a (2 seeds)", "b"]
    elbos, gaps = figure.axes[0], figure.axes[3]
    np.testing.assert_allclose(labelled(elbos)["a (2 seeds)"].get_data(), [[0, 1, 2], [-6.0, -3.5, -3.0]])
    np.testing.assert_allclose(labelled(elbos)["b"].get_data(), [[0, 1], [-9.0, -1.5]])
    np.testing.assert_allclose(labelled(gaps)["a (2 seeds)"].get_ydata(), [5.0, 2.5, 2.0])
    (band,) = elbos.collections
    corners = band.get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (-7.0, -2.0)  # one sd of two is beyond their range
    x, values = labelled(figure.axes[1])["a (2 seeds)"].get_data()
    assert (x[0], x[-1]) == (2.0, 4.0)  # from where both have begun to where the last one ends
    np.testing.assert_allclose([values[0], values[-1]], [-5.0, -3.0])
    x, values = labelled(figure.axes[1])["b"].get_data()
    assert (x[0], x[-1]) == (1.0, 10.0)
    np.testing.assert_allclose(values[:-1], -9.0)  # until the second step is done
    assert values[-1] == -1.5
    labels = ["boosting step", "seconds, with compilation", "target evaluations"]
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == labels
    assert (elbos.get_ylabel(), gaps.get_ylabel()) == ("ELBO (nats)", "log Z − ELBO (nats)")
    assert gaps.get_yscale() == "log"
    assert "log Z = -1.000, of the highest ELBO" in figure.get_supxlabel()


def test_a_known_log_evidence_is_used(three):
    figure = plots.compare(three, log_evidence=0.0)
    np.testing.assert_allclose(labelled(figure.axes[3])["b"].get_ydata(), [9.0, 1.5])
    assert "as given" in figure.get_supxlabel()


def test_the_spread_stays_within_the_runs():
    values = np.array([[0.0, 1.0], [0.0, 2.0], [3.0, np.nan]])
    mean, low, high = comparison.spread(values)
    sd = np.sqrt(3.0)
    np.testing.assert_allclose([mean[0], low[0], high[0]], [1.0, 0.0, 1.0 + sd])
    assert np.isnan([mean[1], low[1], high[1]]).all()


def test_real_runs_beside_each_other(away):
    figure = plots.compare({"away": away[0], "the same": [away[0], away[0]]})
    first, second = (labelled(figure.axes[0])[name] for name in ("away", "the same (2 seeds)"))
    np.testing.assert_allclose(first.get_data(), second.get_data())


def test_compare_names_what_is_wrong(plane, line):
    with pytest.raises(TypeError, match=r"such as \{'auto': result\}"):
        plots.compare([plane])
    with pytest.raises(TypeError, match=r"results\['x'\] must be a Result"):
        plots.compare({"x": [plane.history]})
    with pytest.raises(ValueError, match="the same target"):
        plots.compare({"x": plane, "y": line[0]})


# -- odd cases: every picture is drawn, and nothing is cut off


def pictures(result, record):
    return {
        "density": plots.density(result),
        "marginals": plots.marginals(result, most=4),
        "corner": plots.corner(result, most=3),
        "elbo": plots.elbo(result),
        "kl": plots.kl(result),
        "convergence": plots.convergence(result),
        "weights": plots.weights(result, record),
        "step_sizes": plots.step_sizes(result),
        "step_kinds": plots.step_kinds(result),
        "parameter_count": plots.parameter_count(result),
        "residual": plots.residual(result),
        "tail": plots.tail(result),
        "compare": plots.compare({"one": result, "several": [result, result]}),
    }


def assert_inside(name, figure):
    """Titles, labels, captions and legends lie within the figure."""
    FigureCanvasAgg(figure).draw()
    axes = [one for one in figure.axes if one.get_visible()]
    texts = [figure._supxlabel, *(part for one in axes for part in (one.title, one.xaxis.label, one.yaxis.label))]
    legends = [*figure.legends, *(one.get_legend() for one in axes)]
    for artist in filter(None, [*texts, *legends]):
        words = artist.get_text() if artist in texts else "legend"
        if words:
            (left, bottom), (right, top) = artist.get_window_extent().get_points()
            width, height = figure.bbox.max
            assert min(left, bottom) > -1, f"{name}: {words}"
            assert right < width + 1, f"{name}: {words}"
            assert top < height + 1, f"{name}: {words}"


ODD = {"one-step", "long-names", "many", "not-finite"}


def odd(case, plane, record):
    """A result in the plane with one thing that is unusual, and its record."""
    run, target = plane.run, plane.target
    if case == "one-step":
        run = dataclasses.replace(run, history=type(run.history)(run.history.rows[:1]), best=plane.mixture)
        record = plots.WeightRecorder()
        record(bv.Step(0, plane.mixture, {"kind": "init"}, None))
    elif case == "long-names":
        names = [f"the_effect_of_{'a_very_' * 12}long_name[{i}]$" for i in range(2)]
        target = bv.Target(target.log_density, 2, names=names)
    elif case == "many":
        rng, n = np.random.default_rng(0), 200
        params = {"loc": 4 * rng.normal(size=(n, 2)), "raw_scale": rng.normal(size=(n, 2))}
        many = bv.Mixture(params, np.sort(rng.dirichlet(np.ones(n)))[::-1], DiagonalNormal())
        run, record = dataclasses.replace(run, best=many), plots.WeightRecorder()
        for t, shift in enumerate((0.0, 0.1, 0.2)):
            moved = params | {"loc": params["loc"] + shift}
            record(bv.Step(t, bv.Mixture(moved, many.weights, DiagonalNormal()), {"kind": "refine"}, None))
    else:
        rows = [dict(row) for row in run.history.rows]
        rows[0] |= {"elbo": -np.inf, "elbo_se": np.nan, "kl_estimate": np.inf, "kl_se": np.nan, "log_evidence": np.nan}
        rows[2] |= {"gamma": np.nan, "gamma_max": np.inf, "curvature": np.inf, "kl_estimate": 0.0}
        run = dataclasses.replace(run, history=type(run.history)(tuple(rows)))
    return bv.Result(target, run, "max-steps"), record


@pytest.mark.parametrize("case", sorted(ODD))
def test_odd_runs_are_drawn_and_nothing_is_cut_off(case, away):
    for name, figure in pictures(*odd(case, *away)).items():
        assert_inside(name, figure)


def test_one_parameter_is_drawn_and_nothing_is_cut_off(line):
    for name, figure in pictures(*line).items():
        assert_inside(name, figure)


def test_a_result_without_its_model_is_drawn_without_the_target(line, plane, tmp_path):
    for i, result in enumerate((line[0], plane)):
        path = tmp_path / f"{i}.bvi"
        result.save(path, evaluate=False)
        loaded = bv.load(path)
        figure = plots.density(loaded)
        titles = [*labelled(figure.axes[0]), *(axes.get_title() for axes in figure.axes)]
        assert "target" not in titles
        assert any("mixture" in title for title in titles)
        assert list(labelled(plots.corner(loaded).axes[0])) == ["mixture"]
        assert plots.marginals(loaded).axes
        with pytest.raises(ValueError, match="needs the model"):
            plots.tail(loaded)


# -- no side effects


def test_figures_can_be_written_and_belong_to_nobody(line, tmp_path):
    result, _ = line
    figure = plots.elbo(result)
    assert isinstance(figure, Figure)
    path = tmp_path / "elbo.png"
    figure.savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


def test_matplotlib_comes_late_and_pyplot_not_at_all():
    code = (
        "import sys, boostvi.plots as p\n"
        "assert 'matplotlib' not in sys.modules\n"
        "p.figure_class()()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_error_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None; import boostvi.plots as p; p.figure_class()()"
    done = run_python(code)
    assert "pip install 'boostvi[plots]'" in done.stderr
