"""The parser of all commands. It imports none of the library: `--help` and completion answer at once."""

from __future__ import annotations

import argparse

from boostvi import __version__
from boostvi.cli import bench, compare, completion, demo, fit, report, resume, sample
from boostvi.cli.errors import EXIT_CODES
from boostvi.cli.options import add_debug
from boostvi.reproduce import cli as reproduce

COMMANDS = (demo, fit, resume, sample, report, compare, bench, reproduce, completion)

DESCRIPTION = """Boosting variational inference: approximate a Bayesian posterior by a mixture that grows
component by component, and learn how far it still is from the truth, in nats."""

EXAMPLES = """from a model and a table to a posterior:

  boostvi fit model.py:model --data patients.csv --out run
  boostvi report run                           a page to read and to show
  boostvi sample run --n 1000 > draws.csv      draws of the posterior
  boostvi resume run --max-components 64       spend more, get closer

`boostvi COMMAND --help` explains each command. Results go to stdout, everything else to stderr.
NO_COLOR=1 switches colours off.
"""


def build() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="boostvi",
        description=DESCRIPTION,
        epilog=f"{EXAMPLES}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"boostvi {__version__}")
    add_debug(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
