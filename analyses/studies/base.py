"""What every study shares: the task of the demo, a section of a report, and numbers as words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyses.figures import Figure

Progress = Callable[[float, str], None]
"""progress(fraction done, what is happening)."""

RECALL = {
    "name": "associative_recall",
    "n_blocks": 4,
    "n_common": 8,
    "n_rare": 8,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
    "burstiness": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Section:
    """One question of a report: what was found, in sentences with numbers, and its figures.

    findings go on the first screen; text explains what was done and how to read it.
    """

    anchor: str
    title: str
    findings: tuple[str, ...]
    text: tuple[str, ...]
    figures: tuple[Figure, ...]


def interval(low: float, high: float, digits: int = 2) -> str:
    return f"[{low:.{digits}f}, {high:.{digits}f}]"
