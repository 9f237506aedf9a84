"""`boostvi sample`."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boostvi.cli.errors import OK, OutputError, UsageError
from boostvi.cli.options import add_command, add_sources, count, seed

FORMATS = {".csv": "csv", ".npz": "npz", ".nc": "netcdf", ".netcdf": "netcdf"}
STDOUT = Path("-")
CHUNK = 1 << 16
"""Bytes written at once: a reader that leaves is noticed at the next chunk."""
DESCRIPTION = """Draws of the posterior, in the model's own terms (positive scales are positive, deterministic sites are
there), as a table, as arrays, or as ArviZ's netcdf with log likelihood and predictions."""

EXAMPLES = """  boostvi sample run > draws.csv
  boostvi sample run --n 4000 --importance --out draws.npz
  boostvi sample run --out posterior.nc          for az.from_netcdf"""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "sample", run, help="draw from a fitted posterior", description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a run folder that `boostvi fit` made")
    parser.add_argument("--n", type=count, default=1000, metavar="N", help="number of draws (%(default)s)")
    parser.add_argument("--format", choices=("csv", "npz", "netcdf"), help="(from the name of --out, else csv)")
    parser.add_argument("--out", metavar="FILE", type=Path, default=STDOUT, help="- is stdout (%(default)s)")
    parser.add_argument("--importance", action="store_true", help="resample by importance: nearer to the posterior")
    parser.add_argument("--seed", type=seed, default=0, help="(%(default)s)")
    add_sources(parser)


def run(arguments: argparse.Namespace) -> int:
    from boostvi.cli.fitting import restored

    kind = arguments.format or FORMATS.get(arguments.out.suffix.lower(), "csv")
    if arguments.out == STDOUT and kind != "csv" and (kind == "netcdf" or sys.stdout.isatty()):
        raise UsageError(f"--format {kind} is not for a terminal or a pipe: name a file with --out")
    if arguments.out != STDOUT and not arguments.out.parent.is_dir():
        raise UsageError(f"cannot write {arguments.out}: there is no folder {arguments.out.parent}")
    _, result = restored(arguments.folder, arguments.model, arguments.data)
    _warn_of(result, arguments.importance)
    options = {"seed": arguments.seed, "importance": arguments.importance}
    if kind == "netcdf":
        content = _netcdf(result, arguments.folder, arguments.n, options)
    else:
        draws = result.sample(arguments.n, **options)
        content = _csv(draws) if kind == "csv" else _npz(draws)
    _write(arguments.out, content)
    return OK


def _warn_of(result: Any, importance: bool) -> None:
    from boostvi.cli.terminal import message

    if "_judgement" not in vars(result):
        message("this fit was not judged yet: `boostvi resume` ends it with a verdict", "warning")
    elif result.verdict == "unreliable":
        message(f"the verdict on this fit is unreliable: {result.reasons[0]}", "warning")
    elif result.verdict == "usable" and not importance:
        message("the verdict on this fit is usable: --importance brings the draws nearer to the posterior", "warning")


def _csv(draws: Mapping[str, Any]) -> bytes:
    """One column per number: theta[0], theta[1], …"""
    from boostvi import trees

    columns = trees.columns(draws)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue().encode()


def _npz(draws: Mapping[str, Any]) -> bytes:
    """One array per site, draws first."""
    import numpy as np

    stream = io.BytesIO()
    np.savez(stream, **draws)
    return stream.getvalue()


def _netcdf(result: Any, folder: Path, n: int, options: Mapping[str, Any]) -> bytes:
    import tempfile

    data = result.to_arviz(n, coords=_coords(result, folder), **options)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "draws.nc"
        data.to_netcdf(str(file))
        return file.read_bytes()


def _coords(result: Any, folder: Path) -> dict[str, list[str]]:
    """Labels of text columns for the axes that are called like them (`school` or `schools`)."""
    from boostvi.cli import run_folder

    found: dict[str, list[str]] = {}
    labels = run_folder.labels(folder)
    draws = result.sample(1)
    for site, axes in result.target.model.dims.items():
        for axis, size in zip(axes, draws[site].shape[1:] if site in draws else (), strict=False):
            for name, values in labels.items():
                if axis in (name, f"{name}s") and size == len(values):
                    found[axis] = values
    return found


def _write(file: Path, content: bytes) -> None:
    from boostvi.cli.files import write_whole

    if file == STDOUT:
        for start in range(0, len(content), CHUNK):
            sys.stdout.buffer.write(content[start : start + CHUNK])
        sys.stdout.buffer.flush()
        return
    try:
        write_whole(file, lambda stream: stream.write(content))
    except OSError as error:
        raise OutputError(f"cannot write {file}: {error.strerror}") from error
