"""A claim of a paper, or ours, and what measurements say of it.

Each claim is a list of comparisons: a number with its 95% interval, and the range in which the
claim says it lies. Confirmed: every interval lies inside its range. Contradicted: one lies outside.
Undetermined at this scale: all else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

CONFIRMED, CONTRADICTED, UNDETERMINED = "confirmed", "contradicted", "undetermined at this scale"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One number of a claim.

    what: in words. value: None where the searches leave it open. bound: what the value is to the
    true one, "=", ">=" or "<=". low, high: 95%; infinite where nothing bounds it. expected:
    the range in which the claim says it lies. short_of: why the interval cannot decide ("steps":
    a search failed for want of optimisation, which says nothing about data; "data seeds": there
    is one only); empty where it can.
    """

    what: str
    value: float | None
    low: float
    high: float
    expected: tuple[float, float]
    bound: str = "="
    short_of: str = ""

    @property
    def verdict(self) -> str:
        least, most = self.expected
        if self.short_of:
            return UNDETERMINED
        if least <= self.low and self.high <= most:
            return CONFIRMED
        return CONTRADICTED if self.high < least or self.low > most else UNDETERMINED


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement with its source, what was measured, and the verdict.

    missing: cells that the study does not have, or that are not finished; then there is no verdict.
    """

    number: str
    source: str
    statement: str
    comparisons: tuple[Comparison, ...]
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        if self.missing or not self.comparisons:
            return NOT_MEASURED
        found = {comparison.verdict for comparison in self.comparisons}
        return next((v for v in (CONTRADICTED, UNDETERMINED) if v in found), CONFIRMED)

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "number": self.number,
            "source": self.source,
            "statement": self.statement,
            "verdict": self.verdict,
            "missing": list(self.missing),
            "comparisons": [
                {
                    "what": c.what,
                    "value": c.value,
                    "bound": c.bound,
                    "short_of": c.short_of,
                    "low": _finite(c.low),
                    "high": _finite(c.high),
                    "expected": [c.expected[0], _finite(c.expected[1])],
                    "verdict": c.verdict,
                }
                for c in self.comparisons
            ],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
