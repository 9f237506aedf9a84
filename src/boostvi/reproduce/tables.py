"""A table as Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "τ": r"$\tau$",
          "η": r"$\eta$", "≤": r"$\le$", "₋₁": r"$_{-1}$", "₀": r"$_0$", "γ": r"$\gamma$", "–": "--", "≥": r"$\ge$",
          "‖": r"$\|$", "∈": r"$\in$", "λ": r"$\lambda$", "̂": "", "ε": r"$\epsilon$", "²": "$^2$"}  # fmt: skip

LONG = 40
"""Characters of a cell that one line has room for."""


@dataclass(frozen=True)
class Spread:
    """A value with its error, standard deviation or range: one cell to read, two columns of a CSV. A spread that is
    NaN, as of a single run, is left out. spread_digits: None is as many as the value has."""

    value: float
    spread: float = math.nan
    digits: int = 4
    spread_digits: int | None = None
    form: str = "{} ± {}"

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "–"
        digits = self.digits if self.spread_digits is None else self.spread_digits
        value, spread = f"{self.value:.{self.digits}f}", f"{self.spread:.{digits}f}"
        return minus(value if math.isnan(self.spread) else self.form.format(value, spread))


def wrapped(text: str) -> str:
    """The attribute of an HTML cell whose text may be broken into lines."""
    return " class=long" if len(text) > LONG else ""


def minus(text: str) -> str:
    """A text whose negative numbers have a true minus sign."""
    return re.sub(r"(?<!\w)-(?=[\d.])", "−", text)


@dataclass(frozen=True)
class Table:
    """Cells are text, `Spread`, or numbers that are shown with `digits` digits after the point. A header such as "Train
    LL ± sd" says what the spread of its cells is."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[list[Any]] = field(default_factory=list)
    notes: Sequence[str] = ()
    digits: int = 3

    def __post_init__(self) -> None:
        names = list(chain(*self._csv_names()))
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"table {self.name}: columns must have different names, got {sorted(twice)} twice")

    def text(self, cell: Any) -> str:
        if isinstance(cell, float):
            if math.isnan(cell):
                return "–"
            return minus(f"{cell:.{self.digits}f}")
        return str(cell)

    def _csv_names(self) -> list[list[str]]:
        """Of every column its name, or two where it has cells with a spread."""
        names = []
        for i, column in enumerate(self.columns):
            value, _, spread = column.partition(" ± ")
            both = any(isinstance(row[i], Spread) for row in self.rows)
            names.append([value, f"{value}, {spread or 'spread'}"] if both else [column])
        return names

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(map(self.text, row)) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def latex(self) -> str:
        def escape(text: str) -> str:
            for sign, code in _LATEX.items():
                text = text.replace(sign, code)
            return text

        body = [" & ".join(escape(self.text(cell)) for cell in row) + r" \\" for row in self.rows]
        head = " & ".join(map(escape, self.columns)) + r" \\"
        spec = "l" + "c" * (len(self.columns) - 1)
        notes = [f"% {note}" for note in self.notes]
        return "\n".join(
            [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
             rf"% {self.title}", *notes, ""]
        )  # fmt: skip

    def csv(self) -> str:
        def cells(cell: Any, names: list[str]) -> list[Any]:
            both = [cell.value, cell.spread] if isinstance(cell, Spread) else [cell, math.nan]
            return ["" if isinstance(c, float) and math.isnan(c) else c for c in both[: len(names)]]

        out, names = io.StringIO(), self._csv_names()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(chain(*names))
        writer.writerows([list(chain(*map(cells, row, names))) for row in self.rows])
        return out.getvalue()

    def html(self) -> str:
        def cells(tag: str, row: Sequence[Any]) -> str:
            return "".join(f"<{tag}{wrapped(text)}>{html.escape(text)}</{tag}>" for text in map(self.text, row))

        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in self.notes)
        head = f"<thead><tr>{cells('th', self.columns)}</tr></thead>"
        title = f"<h2 id={self.name}>{html.escape(self.title)}</h2>"
        return f"{title}<div class=scroll><table>{head}<tbody>{body}</tbody></table></div>{notes}"

    def write(self, folder: Path) -> None:
        for suffix, text in (("md", self.markdown()), ("tex", self.latex()), ("csv", self.csv())):
            (folder / f"{self.name}.{suffix}").write_text(text, encoding="utf-8")
