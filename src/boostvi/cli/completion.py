"""`boostvi completion`: a script that makes the shell complete commands, options, files and folders."""

from __future__ import annotations

import argparse
from typing import Any

from boostvi.cli.errors import OK, UsageError
from boostvi.cli.options import add_command

EXAMPLES = """  boostvi completion bash > ~/.local/share/bash-completion/completions/boostvi
  boostvi completion zsh > ~/.zfunc/_boostvi     with fpath+=~/.zfunc before compinit in ~/.zshrc
  boostvi completion fish > ~/.config/fish/completions/boostvi.fish"""


def add_parser(commands: Any) -> None:
    parser = add_command(
        commands, "completion", run, help="print a completion script for the shell",
        description="Print a script that completes boostvi's commands and options; start a new shell afterwards.",
        examples=EXAMPLES,
    )  # fmt: skip
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    from boostvi.cli.parser import build

    try:
        import shtab
    except ImportError as error:
        raise UsageError("completion needs shtab: pip install 'boostvi[completion]'") from error
    parser = build()
    _mark_files(parser, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "MODEL.py:function": shtab.FILE})
    print(shtab.complete(parser, arguments.shell))
    return OK


def _mark_files(parser: argparse.ArgumentParser, kinds: dict[str, Any]) -> None:
    """Tell shtab which arguments are files and folders: their placeholders say so."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_files(command, kinds)
        elif action.metavar in kinds:
            action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
