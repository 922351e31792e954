"""Parts of a whole that stay honest where numbers are missing, overflow or vanish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def ratio(part: Any, whole: Any) -> np.ndarray:
    """part / whole, elementwise: 0 only where both are exactly 0; part / 0 is inf; NaN stays."""
    part, whole = np.broadcast_arrays(np.asarray(part, float), np.asarray(whole, float))
    beyond = np.where((part == 0) | np.isnan(part), part, np.copysign(np.inf, part))
    return np.divide(part, whole, out=beyond, where=whole != 0)


def check_finite(where: str, norms: Mapping[str, Any]) -> None:
    """ValueError naming the matrices whose norm (..) is NaN or infinite."""
    wrong = {
        name: int(np.size(norm) - np.isfinite(norm).sum())
        for name, norm in norms.items()
        if name != "all" and not np.isfinite(norm).all()
    }
    if wrong:
        found = ", ".join(f"{n} of {np.size(norms[name])} of {name}" for name, n in wrong.items())
        raise ValueError(
            f"{where}: norms that are NaN or infinite: {found}; the weights hold NaN or are so "
            f"large that products overflow; allowed: finite ones, as of an earlier checkpoint"
        )
