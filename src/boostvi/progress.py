"""One live line with the numbers that matter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tqdm.auto import tqdm


class Progress:
    """Step, components, ELBO ± error, estimated KL and evaluations; on stderr, and only when somebody watches."""

    def __init__(self, show: bool | None, total: int | None):
        visible = total != 0 and (sys.stderr.isatty() if show is None else show)
        self.bar = tqdm(total=total, unit="step", disable=not visible, leave=True, dynamic_ncols=True)

    def update(self, row: Mapping[str, Any]) -> None:
        self.bar.n = row["step"]
        self.bar.set_postfix_str(
            f"{row['n_active']} components, ELBO {row['elbo']:.3f} ± {row['elbo_se']:.2g}, "
            f"KL ≈ {row['kl_estimate']:.3g}, {row['kind']}, {row['evals']:,} evals"
        )

    def close(self) -> None:
        self.bar.close()
