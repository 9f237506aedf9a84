"""From a plan to a judged result in its folder (`fit`, `resume`), and back from the folder (`sample`, `report`)."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boostvi.cli import arguments as mapping
from boostvi.cli import data as datafiles
from boostvi.cli import model_file, run_folder
from boostvi.cli.arguments import Bound
from boostvi.cli.errors import BELOW_REQUIRED, INTERRUPTED, OK, OutputError, UsageError
from boostvi.cli.files import shown
from boostvi.cli.run_folder import RUN, TRACE, Plan
from boostvi.cli.terminal import message, say


@dataclass(frozen=True)
class Problem:
    """A plan with its model and its data in hand."""

    plan: Plan
    target: Any
    bound: Bound


def prepare(plan: Plan, quiet: bool = True) -> Problem:
    """Load model and data, join them, and see whether the model runs; what it prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        function = model_file.load(shown(plan.model), plan.function)
        data = datafiles.read(shown(plan.data)) if plan.data else None
        bound = mapping.bind(function, data, plan.arg)
        for name, how in bound.told.items():
            say(f"  {name}: {how}", quiet)
        for note in bound.notes:
            say(f"  note: {note}", quiet)
        from boostvi.integrations.numpyro import from_numpyro

        args, kwargs = mapping.call(function, bound.values)
        try:
            target = from_numpyro(function, *args, **kwargs)
        except ValueError as error:
            if error.__cause__ is None:
                raise
            given = "; ".join(f"{name}: {how}" for name, how in bound.told.items())
            place = model_file.where(error.__cause__, shown(plan.model))
            raise UsageError(f"{place} raised {model_file.told(error.__cause__)} (given {given})") from error
    return Problem(plan, target, bound)


def execute(folder: Path, problem: Problem, arguments: argparse.Namespace) -> int:
    """Fit, or go on with it; judge; print the result."""
    import boostvi as bv
    from boostvi.trace import Trace

    file, quiet = folder / RUN, arguments.quiet
    if file.exists():
        _loaded(folder, problem)  # refused, and left as it is, if it is a run of another posterior
        say(f"going on with the run in {folder}", quiet)
    run_folder.write(folder, problem.plan, problem.bound)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = bv.fit(
                problem.target, **problem.plan.options(), checkpoint=file, callbacks=[Trace(folder / TRACE)],
                progress=not quiet,
            )  # fmt: skip
    except KeyboardInterrupt:
        begun = "between two steps; the same command goes on"
        none = "before the first component was there; the same command starts again"
        message(f"interrupted {begun if file.exists() else none}")
        return INTERRUPTED
    if result.status == "interrupted":
        row = result.history.rows[result.best_step]
        message(
            f"interrupted after step {result.history.rows[-1]['step']} (ELBO {row['elbo']:.3f} ± {row['elbo_se']:.2g}, "
            f"{row['n_active']} components); `boostvi resume {folder}` goes on"
        )
        return INTERRUPTED
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result, unsaved = _judged(result, file, problem, quiet)
        _report(result, folder, arguments.json)
    except KeyboardInterrupt:
        message(f"interrupted while judging; the fit is complete, and `boostvi resume {folder}` shows it")
        return INTERRUPTED
    if unsaved is not None:
        raise OutputError(f"the result above could not be kept in {file}: {unsaved}")
    return verdict_code(result, arguments.require)


def _judged(result: Any, file: Path, problem: Problem, quiet: bool) -> tuple[Any, OSError | None]:
    """The result with its verdict, which the file keeps: from the file, or computed and written now."""
    if file.exists():
        stored = _loaded(file.parent, problem)
        if "_judgement" in vars(stored) and len(stored.history.rows) == len(result.history.rows):
            return stored, None
    say("judging: fresh draws, and a search for what the mixture misses …", quiet)
    try:
        result.save(file)
    except OSError as error:
        return result, error
    return result, None


def _report(result: Any, folder: Path, as_json: bool) -> None:
    from boostvi.cli import outcome

    if as_json:
        print(json.dumps(outcome.as_json(result, folder), indent=2, allow_nan=False))
    else:
        print(outcome.text(result, folder))
    sys.stdout.flush()


def verdict_code(result: Any, required: str | None) -> int:
    from boostvi.cli.outcome import RANK

    if required is None or RANK[result.verdict] >= RANK[required]:
        return OK
    message(f"the verdict is {result.verdict!r}, and --require asked for {required!r}")
    return BELOW_REQUIRED


def restored(folder: Path, model: Path | None, data: Path | None) -> tuple[Plan, Any]:
    """The plan of a run folder and its result with the model: for draws, and for the report."""
    plan = moved(run_folder.read(folder), model, data)
    if not (folder / RUN).exists():
        raise UsageError(f"{folder} has no {RUN} yet: its fit has not found the first component; run it again")
    return plan, _loaded(folder, prepare(plan))


def _loaded(folder: Path, problem: Problem) -> Any:
    """The result in a folder, if it is one of this model and these data."""
    import boostvi as bv

    try:
        return bv.load(folder / RUN, target=problem.target)
    except ValueError as error:
        changed = run_folder.changed_files(folder, problem.plan)
        if not changed:
            raise
        raise UsageError(
            f"{error}. Changed since it was made: {', '.join(changed)}; undo the change, or fit into another folder"
        ) from error


def moved(plan: Plan, model: Path | None, data: Path | None) -> Plan:
    """The plan with files that are now elsewhere; an error that says how to name them if they are not there."""
    from dataclasses import replace

    plan = replace(plan, model=model.absolute() if model else plan.model, data=data.absolute() if data else plan.data)
    for file, option in ((plan.model, "--model"), (plan.data, "--data")):
        if file is not None and not file.exists():
            raise UsageError(f"{shown(file)}, which the fit was made with, is not there; say where it is with {option}")
    return plan
