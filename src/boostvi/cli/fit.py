"""`boostvi fit`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from boostvi.cli import options
from boostvi.cli.options import add_budgets, add_command, add_outcome

DESCRIPTION = """Fit a NumPyro model. MODEL.py:function names a function in a Python file; its arguments are taken
from a data file (csv, tsv, npz, json, parquet):

  - a column or array with the name of an argument goes to that argument;
  - X takes all numeric columns that are left, as a matrix (rows × columns);
  - text becomes codes 0, 1, … of the sorted labels, which are told and kept;
  - an argument with a default may be left out;
  - --arg says it explicitly: name=column, name=column,column (a matrix; `name=column,` with one column),
    name=column:codes (0, 1, … for the distinct values), name=* (all others), name=10 (a value).

Everything is kept in the folder --out. A fit that was stopped or killed goes on when the same command is
given again; budgets may be larger then."""

EXAMPLES = """  boostvi fit model.py:model --data patients.csv
  boostvi fit model.py:model --data patients.csv --arg y=outcome X=age,bmi clinic=site:codes
  boostvi fit model.py:model --data schools.json --arg J=8 --max-seconds 60 --out run
  boostvi fit model.py --data d.npz --json --quiet --require usable > result.json"""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "fit", run, help="fit a NumPyro model to a data file", description=DESCRIPTION, examples=EXAMPLES,
        usage="boostvi fit MODEL.py:function [--data FILE] [--arg NAME=COLUMN ...] [--out DIR] [options]",
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL.py:function", help="the function is `model` if it is not named")
    parser.add_argument("--data", metavar="FILE", type=Path, help="csv, tsv, npz, json or parquet")
    parser.add_argument(
        "--arg", metavar="NAME=COLUMN", nargs="+", action="extend", default=[], type=_pair,
        help="which data go to an argument",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", type=Path, help="the run folder (from the model's name)")
    parser.add_argument("--recipe", choices=options.RECIPES, default="auto", metavar="NAME",
                        help="%(choices)s (%(default)s)")  # fmt: skip
    parser.add_argument("--family", choices=options.FAMILIES, metavar="NAME",
                        help="of the components: %(choices)s (the recipe's own)")  # fmt: skip
    parser.add_argument("--seed", type=options.seed, default=0, help="same seed, same result (%(default)s)")
    add_budgets(parser)
    add_outcome(parser)


def run(arguments: argparse.Namespace) -> int:
    from boostvi.cli import model_file, run_folder
    from boostvi.cli.fitting import execute, prepare
    from boostvi.cli.terminal import say

    model, function = model_file.split(arguments.model)
    folder = arguments.out or default_folder(model, function)
    plan = run_folder.Plan(
        model=model.absolute(),
        function=function,
        data=arguments.data.absolute() if arguments.data else None,
        arg=tuple(arguments.arg),
        recipe=arguments.recipe,
        family=arguments.family,
        seed=arguments.seed,
        budgets=given_budgets(arguments),
    )
    problem = prepare(plan, arguments.quiet)
    run_folder.check_same(folder, plan, problem.bound)
    say(f"the run folder is {folder}", arguments.quiet)
    return execute(folder, problem, arguments)


def _pair(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(
            f"takes name=column, name=column,column or name=value, got {text!r} (the model goes before --arg)"
        )
    return text


def default_folder(model: Path, function: str) -> Path:
    return Path(f"{model.stem}-fit" if function == "model" else f"{model.stem}-{function}-fit")


def given_budgets(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name in options.BUDGETS if (value := getattr(arguments, name)) is not None}
