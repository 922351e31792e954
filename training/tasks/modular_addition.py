"""Modular addition: the running sum of numbers in Z_m, the simplest state-tracking task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from training.tasks.state_tracking import StateTracking

LARGEST = 2**15
"""Largest modulus, so that tokens stay small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularAddition(StateTracking):
    """s_k = x_1 + .. + x_k mod m; formats, layouts and lengths as in `StateTracking`.

    modulus: m, 2 or more. Symmetry: x -> u x, u prime to m; at one length also x -> x + c.
    """

    modulus: int

    @property
    def n_elements(self) -> int:
        return self.modulus

    @property
    def label(self) -> str:
        return f"Z_{self.modulus}"

    @property
    def automorphisms(self) -> np.ndarray:
        m = self.modulus
        units = np.array([u for u in range(2, m) if gcd(u, m) == 1], dtype=np.int64)
        return units[:, None] * np.arange(m) % m

    @property
    def central(self) -> tuple[int, ...]:
        return (1,)

    def compose(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        return (later + earlier) % self.modulus

    def inverse(self, element: np.ndarray) -> np.ndarray:
        return -element % self.modulus

    def _group_problems(self) -> Iterator[str]:
        if not 2 <= self.modulus <= LARGEST:
            yield f"modulus: got {self.modulus}, allowed 2 to {LARGEST}"
