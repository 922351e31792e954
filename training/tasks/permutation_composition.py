"""Permutation composition: the running product of permutations in S_k, which do not commute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import factorial

import numpy as np

from training.tasks.state_tracking import StateTracking

LARGEST = 6
"""Largest degree: each of the k! permutations is a token of its own, 720 at k = 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationComposition(StateTracking):
    """s_k = x_k o .. o x_1, the first input applied first; otherwise as in `StateTracking`.

    degree: of S_degree, 2 to 6. Tokens: its permutations in lexicographic order of their images
    (`permutations`), so 0 is the identity. Symmetry: conjugations x -> g x g^-1.
    """

    degree: int

    @property
    def n_elements(self) -> int:
        return factorial(self.degree)

    @property
    def label(self) -> str:
        return f"S_{self.degree}"

    @property
    def permutations(self) -> np.ndarray:
        """(k!, k): images of 0..k-1 under each token."""
        return _tables(self.degree)[0]

    @property
    def automorphisms(self) -> np.ndarray:
        """Conjugation by a transposition of neighbours and by the cycle, which generate S_k."""
        if self.degree == 2:
            return np.zeros((0, 2), dtype=np.int64)
        every = np.arange(self.n_elements)
        swap = (1, 0, *range(2, self.degree))
        cycle = (*range(1, self.degree), 0)
        by = np.array([self.permutations.tolist().index(list(g)) for g in (swap, cycle)])
        return np.stack([self.compose(self.compose(g, every), self.inverse(g)) for g in by])

    @property
    def central(self) -> tuple[int, ...]:
        """Only S_2 commutes with anything but the identity."""
        return (1,) if self.degree == 2 else ()

    def compose(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        return _tables(self.degree)[1][later, earlier]

    def inverse(self, element: np.ndarray) -> np.ndarray:
        return _tables(self.degree)[1].argmin(axis=1)[element]

    def _group_problems(self) -> Iterator[str]:
        if not 2 <= self.degree <= LARGEST:
            yield (
                f"degree: got {self.degree}, allowed 2 to {LARGEST} (each of the degree! "
                "permutations is a token of its own)"
            )


@lru_cache(maxsize=LARGEST)
def _tables(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Permutations (k!, k) in lexicographic order, and their products [later, earlier]."""
    images = np.array(list(permutations(range(degree))))
    place = degree ** np.arange(degree)[::-1]
    products = images[:, images]
    number = np.searchsorted(images @ place, products @ place)
    return images, number
