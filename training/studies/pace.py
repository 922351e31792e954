"""How much of a study is done and how long the rest takes, from its searches' estimated costs."""

from __future__ import annotations

import time
from collections.abc import Mapping

MINIMUM = 0.02
"""Below this share of the work nothing is said about the time left."""


class Pace:
    """Mutable. costs: search name to its estimated cost, in any unit."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._costs = dict(costs)
        self._shares = dict.fromkeys(costs, 0.0)
        self._start = time.monotonic()

    def at(self, name: str, share: float) -> None:
        """A search got to `share` of its work; one that starts over does not go back."""
        self._shares[name] = max(self._shares[name], share)

    @property
    def share(self) -> float:
        """Of the work of this call, 0 to 1."""
        total = sum(self._costs.values())
        done = sum(self._costs[name] * share for name, share in self._shares.items())
        return done / total if total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None at the start."""
        share = self.share
        if share < MINIMUM:
            return None
        return (time.monotonic() - self._start) * (1 - share) / share
