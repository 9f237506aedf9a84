"""A result without its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from boostvi.result import Result
from boostvi.summary import DRAWS, MOST_PARAMETERS, STATUS
from boostvi.target import Target


class NoTarget:
    """Stands for the model, which no file holds: it knows the names of the coordinates, and asks for the rest."""

    def __init__(self, file: Path, names: Sequence[str], constrained: bool):
        self.file, self.names, self.dim, self.constrained = file, tuple(names), len(names), constrained

    @property
    def remedy(self) -> str:
        return f"bv.load({str(self.file)!r}, target=target)"

    @property
    def constrain(self) -> None:
        """None, if the target's own space is R^d."""
        if self.constrained:
            raise ValueError(
                f"draws in the model's own space need the model: {self.remedy} gives it again; those on R^d are "
                "result.mixture.sample(n)"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(f"this needs the model, which the file does not hold: {self.remedy} gives it again")

    def __repr__(self) -> str:
        return f"NoTarget(dim={self.dim})"


class LoadedResult(Result):
    """It samples, evaluates ln q and reports what was stored; whatever needs the model asks for it."""

    def __init__(self, target: NoTarget, run: Any, status: str, known: dict[str, Any], summary: str | None):
        super().__init__(cast(Target, target), run, status)
        vars(self).update(known)
        self.stored_summary = summary

    def summary(self) -> str:
        """Print, and return, what the result said when it was saved; of a checkpoint, where the run stood."""
        text = self._standing() if self.stored_summary is None else self.stored_summary
        print(text)
        return text

    def _standing(self) -> str:
        row, target = self.history.rows[self.best_step], cast(NoTarget, self.target)
        draws = self.mixture.sample(DRAWS)
        columns = list(zip(target.names, draws.mean(axis=0), draws.std(axis=0), strict=True))
        return "\n".join(
            [
                f"not judged yet: {target.remedy} gives the model, and with it a verdict",
                f"step {self.best_step} of {self.history.rows[-1]['step']} had the highest ELBO, "
                f"{row['elbo']:.4f} ± {row['elbo_se']:.2g}, with {row['n_active']} components of family "
                f"{self.mixture.family_name}",
                f"{self.evals:,} target evaluations in {self.run.seconds:.1f} s; stopped: {STATUS[self.status]}",
                "",
                *(f"{name} = {mean:.4g} ± {sd:.4g}" for name, mean, sd in columns[:MOST_PARAMETERS]),
            ]
        )

    def __repr__(self) -> str:
        if "_judgement" in vars(self):
            return super().__repr__()
        return f"Result(not judged: {self.mixture.n_active} components, {self.status})"
