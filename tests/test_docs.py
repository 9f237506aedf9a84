"""The pages are built without a warning, and every name of the theory page leads to its function."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", folder / "doctrees", DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_reached_from_the_first(site):
    index = (site / "index.html").read_text()
    for page in DOCS.glob("*.md"):
        assert f"{page.stem}.html" in index or page.stem == "index", page.name


def test_the_theory_page_links_to_the_code(site):
    page = (site / "theory-to-code.html").read_text()
    named = re.findall(r"<span class=\"pre\">(boostvi\.[\w.]+)</span></code>(</a>)?", page)
    assert len(named) > 20
    assert [name for name, link in named if not link] == []
    reference = (site / "api.html").read_text()
    for anchor in re.findall(r"api\.html#(boostvi[\w.]+)", page):
        assert f'id="{anchor}"' in reference, anchor
