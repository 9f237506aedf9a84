"""A table as Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "τ": r"$\tau$",
          "η": r"$\eta$", "≤": r"$\le$", "₋₁": r"$_{-1}$", "₀": r"$_0$", "γ": r"$\gamma$", "–": "--", "≥": r"$\ge$",
          "‖": r"$\|$", "∈": r"$\in$", "λ": r"$\lambda$", "̂": "", "ε": r"$\epsilon$", "²": "$^2$"}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Cells are text, or numbers that are shown with `digits` digits after the point."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[list[Any]] = field(default_factory=list)
    notes: Sequence[str] = ()
    digits: int = 3

    def text(self, cell: Any) -> str:
        if isinstance(cell, float):
            if math.isnan(cell):
                return "–"
            return f"{cell:.{self.digits}f}".replace("-", "−")
        return str(cell)

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
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if isinstance(c, float) and math.isnan(c) else c for c in row] for row in self.rows])
        return out.getvalue()

    def html(self) -> str:
        def cells(tag: str, row: Sequence[Any]) -> str:
            return "".join(f"<{tag}>{html.escape(self.text(cell))}</{tag}>" for cell in row)

        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in self.notes)
        head = f"<thead><tr>{cells('th', self.columns)}</tr></thead>"
        title = f"<h2 id={self.name}>{html.escape(self.title)}</h2>"
        return f"{title}<div class=scroll><table>{head}<tbody>{body}</tbody></table></div>{notes}"

    def write(self, folder: Path) -> None:
        for suffix, text in (("md", self.markdown()), ("tex", self.latex()), ("csv", self.csv())):
            (folder / f"{self.name}.{suffix}").write_text(text, encoding="utf-8")


def plus_minus(value: float, spread: float, digits: int = 4) -> str:
    """A spread that is NaN, as of a single run, is left out."""
    if math.isnan(value):
        return "–"
    return (f"{value:.{digits}f}" + ("" if math.isnan(spread) else f" ± {spread:.{digits}f}")).replace("-", "−")
