"""How Sphinx builds these pages: `make docs`."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import boostvi

project = "boostvi"
copyright = "the boostvi authors"
release = version = boostvi.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures carry shapes, which are for readers of the code
default_role = "code"
suppress_warnings = ["misc.highlighting_failure"]  # csv has no colours
html_theme = "furo"
html_title = f"boostvi {version}"


class LinkNames(SphinxTransform):
    """`boostvi.boosting.step` in code font becomes a link to what it names, where the reference has it."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            if name.startswith("boostvi.") and not isinstance(literal.parent, pending_xref):
                short = name.removeprefix("boostvi.")
                thing = getattr(boostvi, short) if short in boostvi.__all__ else None  # lives in a module of its own
                full = f"{thing.__module__}.{thing.__qualname__}" if hasattr(thing, "__qualname__") else name
                reference = pending_xref("", refdomain="py", reftype="obj", reftarget=full, refwarn=False)
                literal.replace_self(reference)
                reference += literal


def plain_docstrings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: paragraphs "argument: meaning" become a list, indented formulae are left alone, and
    other marks are made harmless."""
    found: list[str] = []
    state = "text"
    for line in lines:
        indented = line.startswith("    ")
        if indented and state != "argument":
            found += ["::", ""] if state == "text" else []
            found.append(line)
            state = "formula"
            continue
        pieces = line.split("`")  # every other one is code
        line = "`".join(re.sub(r"([|*])", r"\\\1", p) if i % 2 == 0 else p for i, p in enumerate(pieces))
        argument = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if argument:
            found += ["", f"* **{argument[1]}**: {argument[2]}"]
            state = "argument"
        elif indented:
            found.append("  " + line.strip())
        else:
            found += ["", line] if state != "text" and line else [line]
            state = "text" if line else state
    lines[:] = found


def setup(app: Sphinx) -> None:
    app.add_transform(LinkNames)
    app.connect("autodoc-process-docstring", plain_docstrings)
