"""`boostvi reproduce NAME`: the arguments. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

COMMANDS = {
    "synthetic": "Fig. 1 (left): one step of every rule on mixtures in 1 to 50 dimensions; Theorem 1 on few atoms",
    "chemreact": "Table 1, Fig. 1 (centre), Fig. 2, step kinds: logistic regression on ChemReact",
    "eicu": "Table 2, Fig. 1 (right), step kinds: logistic regression on eICU, or a stand-in of its size",
    "matrix-factorization": "Bayesian matrix factorisation of drawn entries, or of yours (authors' code)",
    "wine": "logistic regression, red or white wine (authors' code)",
    "toy-mixtures": "boosting on mixtures and regressions in one and two dimensions (authors' code)",
}
WITH_DATA = ("chemreact", "eicu", "wine")


def add_parser(commands: Any) -> None:
    """Add `reproduce` with a sub-command for every experiment."""
    text = "regenerate the paper's tables and figures, published beside measured"
    parser = commands.add_parser("reproduce", help=text, description=text[0].upper() + text[1:] + ".")
    names = parser.add_subparsers(title="experiments", required=True, metavar="NAME")
    for name, about in COMMANDS.items():
        own = names.add_parser(name, help=about, description=about + ".")
        own.set_defaults(run=_run, experiment=name, mode="full", data=None, jobs=1, ray=None)
        own.add_argument("--out", type=Path, default=None, help=f"folder for everything (reproduce-{name})")
        size = own.add_mutually_exclusive_group()
        size.add_argument("--quick", dest="mode", action="store_const", const="quick", help="a slice, under 3 minutes")
        size.add_argument("--smoke", dest="mode", action="store_const", const="smoke", help="only to see that it runs")
        if name != "synthetic":  # one program per dimension, in seconds
            own.add_argument("--jobs", type=int, help="processes (%(default)s; one uses all cores already)")
            own.add_argument(
                "--ray", metavar="ADDRESS",
                help='a Ray cluster to run on ("auto": the one that runs here; "local": a new one)',
            )  # fmt: skip
        own.add_argument("--quiet", action="store_true", help="no progress line")
        if name in WITH_DATA:
            own.add_argument("--data", type=Path, default=None, help="your own file, csv or npz (docs/reproduce.md)")
            own.add_argument("--label", metavar="NAME", default=None, help="its label column, or array of an npz")
            own.add_argument(
                "--render", action="store_true", help="only make the page, from the runs that are finished so far"
            )
        if name == "matrix-factorization":
            own.add_argument("--data", type=Path, default=None, help="your own matrix, csv or npz (docs/reproduce.md)")
            own.add_argument("--rank", type=int, default=3, metavar="K", help="columns of each factor (%(default)s)")
            own.add_argument(
                "--noise", type=float, default=0.1, metavar="SD",
                help="of an entry around its product, if they are yours in units of their spread (%(default)s)",
            )  # fmt: skip
        if name == "chemreact":
            own.add_argument(
                "--full-size", action="store_true", help="the stand-in of 26,733 rows instead of the real rows"
            )


def _run(arguments: argparse.Namespace) -> int:
    from boostvi.cli import UsageError

    if arguments.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {arguments.jobs}")
    if arguments.ray:
        from boostvi.reproduce import sweep

        sweep.check_ray()
    if getattr(arguments, "label", None) and not arguments.data:
        raise UsageError("--label names a column of your own file: give it by --data")
    suffix = "" if arguments.mode == "full" else f"-{arguments.mode}"
    arguments.out = arguments.out or Path(f"reproduce-{arguments.experiment}{suffix}")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {arguments.out}: {error.strerror}") from error
    if arguments.mode == "smoke":
        from boostvi import _jit

        _jit.compile_without_optimisation()
    page = _command(arguments.experiment)(arguments, _words(arguments))
    print(f"written: {page}")
    return 0


def _words(arguments: argparse.Namespace) -> list[str]:
    """The command that makes the same again."""
    words = ["reproduce", arguments.experiment, "--out", str(arguments.out)]
    words += [] if arguments.mode == "full" else [f"--{arguments.mode}"]
    words += ["--data", str(arguments.data)] if arguments.data else []
    for name, usual in (("rank", 3), ("noise", 0.1)):
        value = getattr(arguments, name, usual)
        words += [] if value == usual else [f"--{name}", str(value)]
    words += ["--label", arguments.label] if getattr(arguments, "label", None) else []
    words += ["--render"] if getattr(arguments, "render", False) else []
    words += ["--full-size"] if getattr(arguments, "full_size", False) else []
    words += ["--jobs", str(arguments.jobs)] if arguments.jobs > 1 else []
    return words + (["--ray", arguments.ray] if arguments.ray else [])


def _command(name: str) -> Any:
    if name in WITH_DATA:
        from boostvi.reproduce import regression

        return lambda arguments, argv: regression.run(name, arguments, argv)
    if name == "synthetic":
        from boostvi.reproduce import synthetic

        return synthetic.run
    if name == "matrix-factorization":
        from boostvi.reproduce import factorization

        return factorization.run
    from boostvi.reproduce import toys

    return toys.run
