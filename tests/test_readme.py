"""The README and docs: their code runs, their links lead somewhere, what they name exists, and no part is left out."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import boostvi as bv
from boostvi.corrections import CORRECTIONS
from boostvi.directions import DIRECTIONS
from boostvi.families import FAMILIES
from boostvi.history import COLUMNS
from boostvi.next_component import FIRST_COMPONENTS, NEXT_COMPONENTS, OPTIMISERS
from boostvi.step_sizes import STEP_SIZES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PARTS = {
    f"{cls.__module__}.{name}": (name, cls)
    for registry in (FAMILIES, FIRST_COMPONENTS, NEXT_COMPONENTS, OPTIMISERS, DIRECTIONS, STEP_SIZES, CORRECTIONS)
    for name, cls in registry.items()
}


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def execute(page):
    """Run the page's Python blocks one after another, as a reader would."""
    namespace = {"__name__": "__main__"}
    for i, block in enumerate(blocks(page)):
        exec(compile(block, f"{page.name} block {i}", "exec"), namespace)
    return namespace


def test_quickstart_runs_and_finds_both_sides(capsys):
    readme = ROOT / "README.md"
    (block,) = blocks(readme)
    assert len([line for line in block.splitlines() if line.strip()]) <= 20
    names = execute(readme)
    result, draws = names["result"], names["draws"]
    above = np.mean(draws[:, 1] > 0)  # the posterior is its own mirror image
    assert above == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(len(draws)) + 0.05)  # draws, and the fitted weight
    printed = capsys.readouterr().out
    assert result.verdict in printed
    assert "position[1]" in printed  # the summary's table


def test_the_parts_of_the_extension_guide_work():
    names = execute(ROOT / "docs" / "extending.md")
    history = names["result"].history
    np.testing.assert_allclose(history["gamma"][1:], 0.2 * history["gamma_max"][1:])
    assert set(history["kind"][1:]) == {"pairwise"}
    assert names["result"].mixture.family.name == "diagonal-logistic"
    assert names["DiagonalLogistic"].unit_sd == pytest.approx(np.pi / np.sqrt(3))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ("README.md", "extending.md")], ids=lambda page: page.name
)
def test_other_pages_run_too(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    execute(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    for name in re.findall(r"`((?:src|docs|tests|benchmarks)/[\w/.-]*)`", page.read_text()):
        assert (ROOT / name).exists(), name


def resolve(dotted):
    """The object behind boostvi.module.name.attribute."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(dotted)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_code_font_can_be_imported(page):
    for dotted in re.findall(r"`(boostvi(?:\.\w+)+)`", page.read_text()):
        resolve(dotted)


def test_theory_page_names_code_for_every_line():
    text = (ROOT / "docs" / "theory-to-code.md").read_text()
    assert len(re.findall(r"`boostvi\.", text)) > 20  # the test above has something to check
    for equation in range(1, 16):
        first = [row.split("|")[1] for row in text.splitlines() if row.startswith("|")]
        assert any(equation in numbers(cell) for cell in first), f"equation {equation}"


def numbers(cell):
    """The numbers in a first cell such as "2, 7" or "10–12"."""
    found = set()
    for piece in cell.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:–(\d+))?\s*", piece)
        if ends:
            found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_every_part_and_parameter_is_on_the_recipes_page(part):
    name, cls = PARTS[part]
    text = (ROOT / "docs" / "recipes.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith(f"| `{name}` | `{cls.__name__}`")]
    assert len(rows) == 1, f"one row for {name} ({cls.__name__})"
    for field in dataclasses.fields(cls):
        assert f"`{field.name}`" in rows[0], field.name


@pytest.mark.parametrize("name", bv.RECIPES)
def test_every_recipe_is_described_as_it_is(name):
    text = (ROOT / "docs" / "recipes.md").read_text()
    (row,) = [row for row in text.splitlines() if row.startswith(f"| `{name}` |") and row.count("|") == 8]
    recipe = bv.RECIPES[name]()
    parts = recipe.parts(recipe.family_for(2))
    for part in (parts.next_component, parts.direction, parts.step_size):
        assert f"`{type(part).__name__}" in row
    assert ("none" in row) == (parts.correction.name == "none")
    assert parts.correction.name == "none" or f"`{type(parts.correction).__name__}`" in row
    assert f'`"{name}"`' in (ROOT / "README.md").read_text()


def test_history_columns_that_are_named_exist():
    for page in PAGES:
        for column in re.findall(r'history\["(\w+)"\]', page.read_text()):
            assert column in COLUMNS, f"{page.name}: {column}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_absolute_paths(page):
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp)/", page.read_text())
