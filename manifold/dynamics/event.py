"""What happened along a training run, as records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pandas as pd

Bifurcation = Literal["bifurcation", "crossover", "unknown"]
KINDS = (
    "onset",
    "swap",
    "saturation",
    "transience",
    "overfitting",
    "suppression",
    "eigenvalue",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: kind (of KINDS) at `step`, certain to lie in [low, high].

    what: the coordinate or score. evidence: in words, with its numbers. bifurcation: only with an
    eigenvalue that changes sign on a continued branch.
    """

    kind: str
    what: str
    step: float
    low: float
    high: float
    evidence: str
    bifurcation: Bifurcation = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """Events in order of step. unanswered: what could not be asked, and why, in words."""

    events: tuple[Event, ...]
    unanswered: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        columns = ["kind", "what", "step", "low", "high", "bifurcation", "evidence"]
        return pd.DataFrame([asdict(event) for event in self.events], columns=columns)

    def of(self, kind: str) -> tuple[Event, ...]:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; one of {', '.join(KINDS)}")
        return tuple(event for event in self.events if event.kind == kind)
