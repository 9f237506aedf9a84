"""Options that several commands share, and how their values are checked."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECIPES = ("auto", "bbbvi", "line-search", "adafw", "adaafw", "adapfw", "fully-corrective")
FAMILIES = (
    "diagonal-normal", "diagonal-laplace", "diagonal-student-t", "full-rank-normal", "low-rank-normal",
    "full-rank-student-t", "product-student-t",
)  # fmt: skip
"""Names only: the registries they stand for import JAX. A test compares them."""

BUDGETS = ("max_seconds", "max_steps", "max_components", "max_evals", "kl_tol")


def add_command(
    commands: Any, name: str, run: Any, *, help: str, description: str, examples: str = "", usage: str | None = None
) -> Any:
    """A sub-parser with what every command has."""
    epilog = f"examples:\n{examples}" if examples else None
    parser = commands.add_parser(
        name, help=help, description=description, epilog=epilog, usage=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_debug(parser, argparse.SUPPRESS)  # it may also stand before the command
    parser.set_defaults(run=run)
    return parser


def add_debug(parser: Any, default: Any = False) -> None:
    parser.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")


def add_budgets(parser: Any) -> None:
    group = parser.add_argument_group("budgets", "totals, also for a run that goes on; looked at between steps")
    group.add_argument("--max-seconds", type=positive, metavar="S", help="stop after this time")
    group.add_argument("--max-steps", type=count, metavar="N", help="stop after so many boosting steps")
    group.add_argument("--max-components", type=count, metavar="N", help="stop at so many components")
    group.add_argument("--max-evals", type=count, metavar="N", help="stop after so many evaluations of the model")
    group.add_argument("--kl-tol", type=positive, metavar="NATS", help="stop when the estimated KL is below this")


def add_outcome(parser: Any) -> None:
    """What happens when the fit is done."""
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    parser.add_argument(
        "--require", choices=("good", "usable"), help="exit with 1 if the verdict is less than this (for scripts)"
    )


def add_sources(parser: Any) -> None:
    """For a run folder whose model or data have moved."""
    parser.add_argument("--model", metavar="FILE", type=Path, help="the model file, if it has moved since the fit")
    parser.add_argument("--data", metavar="FILE", type=Path, help="the data file, if it has moved since the fit")


def count(text: str) -> int:
    return _number(text, int, "a whole number", lambda value: value >= 1, "must be at least 1")


def positive(text: str) -> float:
    return _number(text, float, "a number", lambda value: 0 < value < float("inf"), "must be a positive number")


def seed(text: str) -> int:
    allowed = "must not be negative, and below 2^63"
    return _number(text, int, "a whole number", lambda value: 0 <= value < 2**63, allowed)


def _number(text: str, kind: Any, noun: str, holds: Callable[[Any], bool], allowed: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {noun}, got {text!r}") from None
    if not holds(value):
        raise argparse.ArgumentTypeError(f"{allowed}, got {text}")
    return value
