"""One HTML page that holds everything a command made, and how it was made."""

from __future__ import annotations

import base64
import datetime
import html
import importlib.metadata
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boostvi.reproduce import provenance
from boostvi.reproduce.store import Store
from boostvi.reproduce.tables import Table, wrapped

PACKAGES = ("boostvi", "jax", "jaxlib", "numpy", "scipy", "optax", "numpyro", "matplotlib")
DPI = 130
SLICE = "This is a slice (--{mode}): less of everything than the full command, and not its protocol."
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:78rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.7rem}ul,p,figcaption{max-width:62rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;font-size:.9rem}th,td{padding:.25rem .7rem;text-align:left}
td{white-space:nowrap}th{vertical-align:bottom}
td.long,th.long{white-space:normal;min-width:18rem;max-width:40rem}
thead th{border-bottom:2px solid #444}tbody tr:nth-child(even){background:#f4f4f4}
.scroll{overflow-x:auto}.note{color:#444;font-size:.9rem;margin:.4rem 0}figure{margin:1.5rem 0}
figcaption{font-size:.9rem;color:#444}img{max-width:100%}pre{background:#f4f4f4;padding:.6rem;overflow-x:auto}
"""


@dataclass
class Report:
    """What a command found, in the order in which it is shown."""

    title: str
    out: Path
    mode: str = "full"  # "quick" and "smoke" are slices, and the page says so
    facts: dict[str, str] = field(default_factory=dict)  # data, sizes, seeds
    caveats: list[str] = field(default_factory=list)  # where we follow the paper against our better judgement
    findings: list[str] = field(default_factory=list)
    parts: list[tuple[str, Any]] = field(default_factory=list)

    def table(self, table: Table) -> None:
        table.write(self.out)
        self.parts.append((table.name, table))

    def figure(self, name: str, figure: Any, caption: str) -> None:
        figure.savefig(self.out / f"{name}.png", dpi=DPI)
        if self.mode == "full":  # for print too
            figure.savefig(self.out / f"{name}.pdf")
        self.parts.append((name, caption))

    def write(self, argv: Sequence[str]) -> Path:
        """The page, and the same tables and words as one Markdown file."""
        facts = {**self.facts, **_surroundings(argv)}
        part = "" if self.mode == "full" else SLICE.format(mode=self.mode)
        body = [f"<h1>{html.escape(self.title)}</h1>", part and f"<p><strong>{part}</strong></p>"]
        body.append(_list("What was found", self.findings))
        text = [f"# {self.title}", "", *([part, ""] if part else []), *(f"- {line}" for line in self.findings), ""]
        for name, part in self.parts:
            if isinstance(part, Table):
                body.append(part.html())
                text.append(part.markdown())
            else:
                image = _image(self.out / f"{name}.png", part)
                body.append(f"<figure>{image}<figcaption>{html.escape(part)}</figcaption></figure>")
        body.append(_list("Where the paper is followed against our better judgement, or not followed", self.caveats))
        rows = "".join(
            f"<tr><td>{html.escape(k)}</td><td{wrapped(v)}>{html.escape(v)}</td></tr>" for k, v in facts.items()
        )
        body.append(f"<h2>How this page was made</h2><div class=scroll><table>{rows}</table></div>")
        text += ["## Notes", "", *(f"- {line}" for line in self.caveats), ""] if self.caveats else []
        text += ["## How this was made", ""]
        text += [f"- {name}: {value}" for name, value in facts.items()]
        (self.out / "report.md").write_text("\n".join(text) + "\n", encoding="utf-8")
        page = self.out / "index.html"
        page.write_text(
            f"<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>"
            f"<body>{''.join(body)}</body></html>\n",
            encoding="utf-8",
        )
        return page


def made_by(store: Store) -> dict[str, str]:
    """Facts: which code made what is in a record, where and when; the page itself may be made by another."""
    runs, results = store.made()
    return {"runs made by": runs, "other results made by": results}


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def _image(path: Path, alt: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<img alt='{html.escape(alt, quote=True)}' src='data:image/png;base64,{data}'>"


def _surroundings(argv: Sequence[str]) -> dict[str, str]:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "command": "boostvi " + shlex.join(argv),
        "page made with": f"Python {sys.version.split()[0]}, " + ", ".join(versions),
        "machine": provenance.machine(),
        "page made on": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
