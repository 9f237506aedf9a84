"""One HTML file that explains a posterior: verdict first, then numbers, parameters, modes, and how it grew."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from boostvi.report import explorer, page
from boostvi.report.columns import columns_of, in_own_space, rows
from boostvi.report.facts import facts, has_model
from boostvi.storage import archive
from boostvi.summary import DRAWS

if TYPE_CHECKING:
    from boostvi.result import Result
    from boostvi.trace import Trace

__all__ = ["write"]


def write(
    result: Result,
    trace: Trace | None,
    path: str | os.PathLike[str],
    *,
    title: str = "Posterior report",
    command: str | None = None,
) -> Path:
    """Write the page, all of it or nothing, and return its path. It needs no network, now or when it is viewed.

    result: of a fit, or of `load`. Without the model a page shows the unconstrained parameters, and says so.
    trace: the `Trace` that the fit had among its callbacks; without it there is no slider over the steps.
    command: how the result was made, for the foot of the page.
    """
    from boostvi.trace import Trace

    if trace is not None and not isinstance(trace, Trace):
        raise TypeError(f"trace must be a boostvi.trace.Trace (see Trace.load) or None, got {type(trace).__name__}")
    file = archive.writable("path", path)
    content = html(result, trace, title=title, command=command)
    archive.replace(file, content.encode("utf-8", errors="replace"))
    return Path(path)


def html(result: Result, trace: Trace | None, *, title: str, command: str | None) -> str:
    said = facts(result)
    z = result.mixture.sample(DRAWS, seed=0)  # the draws of `summary`
    columns = columns_of(result, z)
    own = in_own_space(result)
    data = explorer.data(result, trace, z, columns)
    sections = [
        ("verdict", "Verdict", page.verdict(said)),
        ("numbers", "Key numbers", page.numbers(said)),
        ("parameters", "Parameters", page.table(rows(columns), own, DRAWS)),
        ("modes", "Modes", _modes(result)),
        ("explorer", "How the mixture grew" if trace is not None else "The mixture", page.explorer(len(data["steps"]))),
    ]
    return page.page(title, sections, data, _footer(result, data, command))


def _modes(result: Result) -> str:
    if has_model(result):
        return page.modes(result)
    text = result.stored_summary  # type: ignore[attr-defined]
    missing = "<p>Finding the modes needs the model, which the file does not hold.</p>"
    return missing + (page.stored(text) if text is not None else "")


def _footer(result: Result, data: dict, command: str | None) -> str:
    from boostvi import __version__

    said = [
        f"Verdict and key numbers come from {result.judging_draws:,} draws that had no part in the fit.",
        f"The explorer shows {data['draws']['count']} draws of each step, in 8 bits per axis, and standard deviations "
        f"within {50 * data['components']['log_sd_unit']:.1g} %.",
    ]
    if data["traced"]:
        said.append("Components that a step moved are matched with those of the step before by least distance.")
    if data["thinned"]:
        said.append(f"Only {len(data['steps'])} of the steps are shown, evenly chosen.")
    if data["left_out"]:
        said.append(
            f"{data['left_out']:,} parameters are not in the explorer, to keep the page small: those along which the "
            "components differ least."
        )
    made = f"<p>Made by <code>{escape(command)}</code></p>" if command else ""
    return f"<p>{' '.join(said)}</p>{made}<p>boostvi {__version__}</p>"
