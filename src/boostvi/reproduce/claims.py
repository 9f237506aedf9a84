"""The paper's claims about logistic regression, each with what was measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from boostvi.reproduce import methods
from boostvi.reproduce.methods import METHODS
from boostvi.reproduce.select import Cell
from boostvi.reproduce.store import Store

MOSTLY = 0.9
"""Share of steps that is told as what a rule does."""


def findings(store: Store, cells: dict[str, Cell], plain: dict[str, np.ndarray], extra: dict[str, Any]) -> list[str]:
    """The published claims, each with what was measured."""

    def verdict(ok: bool) -> str:
        return "holds" if ok else "does not hold here"

    base, found = cells["predefined"], []
    final = {name: store.curves("elbo", name)[1][:, -1] for name in cells}
    for name in methods.ADAPTIVE:
        difference = cells[name].median("train_ll") - base.median("train_ll")
        error = math.hypot(cells[name].median_se("train_ll"), base.median_se("train_ll"))
        gain = cells[name].mean("elbo") - base.mean("elbo")
        found.append(
            f"Train LL of {METHODS[name].label} is at least that of predefined steps: "
            + ("cannot be said from one seed " if math.isnan(error) else f"{verdict(difference > -2 * error)} ")
            + f"({difference:+.4f} ± {error:.4f}; ELBO of the selected cells {gain:+.1f} nats)."
        )
    gave_up = {name: float(np.mean(store.curves("kind", name)[1][:, 1:] == "fallback")) for name in methods.ADAPTIVE}
    found.append(
        "Backtracking gave up and left the step to the fallback in "
        + ", ".join(f"{share:.0%} ({METHODS[name].label})" for name, share in gave_up.items())
        + " of all steps; where it always does, the method is predefined steps."
    )
    sd = {name: float(np.std(values)) for name, values in final.items()}
    noise = sd["line-search"] / math.sqrt(2 * max(len(final["line-search"]) - 1, 1))  # se of a standard deviation
    steady = max(sd[name] for name in methods.ADAPTIVE) < sd["line-search"] - 2 * noise
    found.append(
        f"Adaptive steps are more stable than line search (spread of the final ELBO over configurations and seeds): "
        f"{verdict(steady)} ("
        + ", ".join(f"{METHODS[n].label} {sd[n]:.0f}" for n in (*methods.ADAPTIVE, "line-search"))
        + " nats)."
    )  # fmt: skip
    active = {name: float(store.curves("n_active", name)[1][:, -1].mean()) for name in cells}
    fewest = active["adaafw"] <= min(active[n] for n in ("adafw", "predefined")) + 1e-9
    found.append(
        "Away steps keep no more components than Frank-Wolfe steps: " + verdict(fewest) + " (after the last step "
        + ", ".join(f"{METHODS[n].label} {a:.1f}" for n, a in active.items())
        + (f"; auto {extra['auto']['n_active']}" if "auto" in extra else "") + ")."
    )  # fmt: skip
    best_ours = max(cells[n].mean("elbo") for n in cells)
    vi = float(plain["elbo"].mean())
    moved, name = max((cells[n].mean("elbo"), n) for n in cells if not METHODS[n].ours)
    error = math.hypot(cells[name].sd("elbo"), float(np.std(plain["elbo"], ddof=1))) / math.sqrt(len(plain["elbo"]))
    found.append(
        f"Boosting improves on its first component: {verdict(moved - vi > 2 * error)} for the paper's methods (best "
        f"selected cell {moved:.1f}, {METHODS[name].label}; plain VI {vi:.1f}; se of the difference {error:.1f})"
        + (f"; with the mixture ELBO {cells['mixture-elbo'].mean('elbo'):.1f}." if "mixture-elbo" in cells else ".")
    )
    if "auto" in extra:
        ahead = extra["auto"]["elbo"] - max(best_ours, max(float(np.median(v)) for v in final.values()))
        found.append(
            f"auto: ELBO {extra['auto']['elbo']:.1f} with {extra['auto']['n_active']} component(s) in "
            f"{extra['auto']['seconds']:.0f} s (stopped by {extra['auto']['status']}), {ahead:.1f} nats above the best "
            "diagonal-Laplace variant."
        )
    stays = float(np.mean(store.curves("gamma", "line-search")[1][:, 1:] <= 0))
    found.append(
        f"Line search returns γ = 0 in {stays:.0%} of its steps"
        + (" and so keeps plain VI" if stays > MOSTLY else "")
        + f"; its selected train LL is {cells['line-search'].median('train_ll'):.4f}, plain VI's "
        f"{np.median(plain['train_ll']):.4f}."
    )
    if extra.get("timing"):
        times = {(t["method"], t["draws"]): t for t in extra["timing"]}
        whole = {k: t["step"] + t["subproblem"] for k, t in times.items()}
        reference = whole["predefined", "table"]
        found.append(
            "Time with the subproblem, relative to predefined steps: "
            + ", ".join(
                f"{METHODS[m].label}{' with fresh draws' if d == 'fresh' else ''} {seconds / reference:.2f}×"
                for (m, d), seconds in whole.items() if m != "predefined"
            ) + "."
        )  # fmt: skip
    return found
