"""Pictures: what is on the axes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from conftest import gaussian_mixture
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.stats import norm

import boostvi as bv
from boostvi import plots
from boostvi.families import DiagonalNormal
from boostvi.history import COLUMNS

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
def plane():
    means, scales = [[-2.0, 1.0], [2.0, -1.0]], [[0.8, 0.5], [0.6, 1.0]]
    return bv.fit(gaussian_mixture([0.5, 0.5], means, scales), max_steps=6, seed=0, **CHEAP)


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
        np.testing.assert_allclose(found, np.sort(sd), rtol=4 / np.sqrt(2 * plots.ELLIPSE_DRAWS) + 0.03)


def test_both_panels_share_their_levels(plane):
    """The same colour is the same density: the levels of the target's panel are those of the mixture's."""
    left, right = plots.density(plane).axes
    np.testing.assert_allclose(left.collections[0].levels, right.collections[0].levels)


def test_levels_enclose_the_shares_they_name():
    side = np.linspace(-6, 6, 301)
    values = norm.pdf(side)[:, None] * norm.pdf(side)
    levels = plots._region_levels(values)
    heights = [(1 - share) / (2 * np.pi) for share in plots.REGIONS]  # of a standard Normal in the plane, exactly
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
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0, abs=3 * plots.TAIL)
    draws = space.mixture.sample(plots.PICTURE_DRAWS, seed=0)[:, 0]
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
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("boosting step", "nats")


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
    (line,) = counts.get_lines()
    np.testing.assert_allclose(line.get_ydata(), steps + 1)
    assert [axes.get_ylabel() for axes in figure.axes] == ["step size γ", "active\ncomponents"]


def test_weights_of_every_component_over_the_steps(line):
    result, record = line
    figure = plots.weights(result, record)
    lines = figure.axes[0].get_lines()
    assert len(lines) == record.weights.shape[1]
    for drawn, values in zip(lines, record.weights.T, strict=True):
        np.testing.assert_allclose(np.nan_to_num(drawn.get_ydata()), values)
    assert figure.axes[0].get_ylabel() == "weight of\neach component"


def test_recorder_agrees_with_the_run(line):
    result, record = line
    np.testing.assert_array_equal(record.steps, result.history["step"])
    np.testing.assert_allclose(record.weights.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.count_nonzero(record.weights, axis=1), result.history["n_active"])
    last = np.sort(record.weights[result.best_step])[::-1]
    np.testing.assert_allclose(last[: result.mixture.n_active], result.mixture.weights)
    assert record.entered[0] == "init"


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


@pytest.mark.parametrize("picture", [plots.elbo, plots.weights])
def test_a_wrong_argument_is_named(picture):
    with pytest.raises(TypeError, match="expected a Result or its history, got list"):
        picture([1.0, 2.0])


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
        "p._panels(1, width=3, height=2)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_error_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None; import boostvi.plots as p; p._panels(1, width=3, height=2)"
    done = run_python(code)
    assert "pip install 'boostvi[plots]'" in done.stderr
