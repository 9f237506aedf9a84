"""A result for people and for scripts."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from boostvi import __version__, trees
from boostvi.cli.terminal import coloured
from boostvi.result import Result
from boostvi.summary import DRAWS, headline, modes, parameters

RANK = {"unreliable": 0, "usable": 1, "good": 2}
BUDGET_STATUS = ("max-seconds", "max-steps", "max-components", "max-evals", "interrupted")


def text(result: Result, folder: Path) -> str:
    """The page that `result.summary()` prints, with commands as advice."""
    first, _, rest = headline(result).replace("importance=True", "--importance").partition(":")
    head = f"{coloured(first, result.verdict, sys.stdout)}:{rest}"
    parts = [head, modes(result), advice(result, folder), "", parameters(result)]
    return "\n".join(part for part in parts if part is not None)


def advice(result: Result, folder: Path) -> str:
    more = f"boostvi resume {folder} with a larger budget" if result.status in BUDGET_STATUS else ""
    if result.verdict == "good":
        return f"next: boostvi sample {folder}, boostvi report {folder}"
    if result.verdict == "usable":
        return f"next: boostvi sample {folder} --importance" + (f", or {more}" if more else "")
    return "next: " + (
        f"{more}; do not use the draws yet" if more
        else "reparameterise the model (non-centred, standardised data); do not use the draws as they are"
    )  # fmt: skip


def as_json(result: Result, folder: Path) -> dict[str, Any]:
    """Numbers by name; what is not finite is null, since JSON has no word for it."""
    columns = trees.columns(result.sample(DRAWS, seed=0))
    return _finite(
        {
            "boostvi": __version__,
            "folder": str(folder),
            **numbers(result),
            "reasons": list(result.reasons),
            "modes": [
                {
                    "weight": mode.weight,
                    "components": len(mode.members),
                    "location": {name: np.asarray(value).tolist() for name, value in mode.location.items()},
                }
                for mode in result.modes
            ],
            "parameters": {name: _described(values) for name, values in columns.items()},
        }
    )


def numbers(result: Result) -> dict[str, Any]:
    """What `fit --json` and `compare --json` have in common."""
    return {
        "verdict": result.verdict,
        "status": result.status,
        "elbo": result.elbo,
        "elbo_se": result.elbo_se,
        "kl_estimate": result.kl_estimate,
        "kl_se": result.kl_se,
        "log_evidence": result.log_evidence,
        "khat": result.khat,
        "ess": result.ess,
        "components": result.mixture.n_active,
        "family": result.mixture.family_name,
        "steps": result.history.rows[-1]["step"],
        "evals": result.evals,
        "seconds": result.run.seconds,
    }


def _described(values: Any) -> dict[str, float]:
    quantiles = np.quantile(values, [0.05, 0.5, 0.95])
    return dict(zip(("mean", "sd", "q5", "q50", "q95"), [values.mean(), values.std(), *quantiles], strict=True))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) or hasattr(value, "item"):
        value = value.item() if hasattr(value, "item") else value
        return value if not isinstance(value, float) or math.isfinite(value) else None
    return value
