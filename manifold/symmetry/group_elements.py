"""Random elements of a permutation group that is given by generators."""

from __future__ import annotations

import numpy as np

BURN_IN = 200
BETWEEN = 4


def random_elements(generators: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` nearly uniform elements, (count, d): point j goes to element[j].

    Product replacement with an accumulator (Celler et al. 1995; Leedham-Green's "rattle"): slots
    that together generate the group are multiplied by each other at random. generators (g, d), at
    least one.
    """
    slots = [generators[i % len(generators)].copy() for i in range(max(10, len(generators) + 1))]
    held, found = np.arange(generators.shape[1]), []
    steps = BURN_IN + BETWEEN * count
    one = rng.integers(len(slots), size=steps)
    other = (one + rng.integers(1, len(slots), size=steps)) % len(slots)
    inverse, left = rng.random((2, steps)) < 0.5
    for step in range(steps):
        factor = slots[other[step]]
        factor = np.argsort(factor) if inverse[step] else factor
        mine = slots[one[step]]
        slots[one[step]] = factor[mine] if left[step] else mine[factor]
        held = slots[one[step]][held]
        if step >= BURN_IN and (step - BURN_IN) % BETWEEN == BETWEEN - 1:
            found.append(held)
    return np.array(found)
