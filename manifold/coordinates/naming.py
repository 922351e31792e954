"""Names of the commutant's directions: those that the task gives, then systematic ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from manifold.groups.commutant import CommutantBasis
from training.tasks.base import Task


def embed(task: Task, token: np.ndarray | None, position: np.ndarray | None) -> np.ndarray:
    """(d, d) with these blocks on tokens and on positions, 0 elsewhere."""
    size = task.vocabulary + task.n_positions
    matrix = np.zeros((size, size))
    if token is not None:
        matrix[: task.vocabulary, : task.vocabulary] = token
    if position is not None:
        matrix[task.vocabulary :, task.vocabulary :] = position
    return matrix


def named_directions(task: Task) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The task's named directions on (d, d); the shift M and its inverse before other powers."""
    symmetry = task.symmetry
    token = {name: embed(task, b, None) for name, b in symmetry.token_directions.items()}
    position = {name: embed(task, None, b) for name, b in symmetry.position_directions.items()}
    first = [name for name in ("I_p", "M", "M^T") if name in position]
    return token, {name: position[name] for name in dict.fromkeys([*first, *position])}


def candidates(task: Task, orbitals: CommutantBasis) -> Iterator[tuple[str, np.ndarray]]:
    """Named directions first, then every orbital under its systematic name."""
    token, position = named_directions(task)
    named = {**token, **position}
    for name, matrix in named.items():
        if not np.allclose(orbitals.project(matrix), matrix, rtol=0, atol=1e-12):
            raise ValueError(f"symmetry: direction {name!r} does not commute with the generators")
    letters = _letters(task, orbitals, named)
    yield from named.items()
    for orbital in orbitals:
        yield _systematic(orbital, letters), orbital


def _letters(task: Task, orbitals: CommutantBasis, named: dict[str, np.ndarray]) -> list[str]:
    """A letter for each point: that of the I_x over its orbit, else t0, t1, .. or p0, p1, .."""
    orbit = np.diagonal(orbitals.labels)
    letters = [""] * len(orbit)
    for kind, first, last in (("t", 0, task.vocabulary), ("p", task.vocabulary, len(orbit))):
        found = list(dict.fromkeys(orbit[first:last]))
        for i, k in enumerate(found):
            letter = kind if len(found) == 1 else f"{kind}{i}"
            for name, matrix in named.items():
                if name.startswith("I_") and np.array_equal(matrix, np.diag(orbit == k)):
                    letter = name[2:]
            for point in np.flatnonzero(orbit == k):
                letters[point] = letter
    return letters


def _systematic(orbital: np.ndarray, letters: list[str]) -> str:
    row, column = np.argwhere(orbital)[0]
    if row == column:
        return f"I_{letters[row]}"
    between = "," if len(letters[row] + letters[column]) > 2 else ""
    return f"J_{letters[row]}{between}{letters[column]}"


def numbered(names: list[str]) -> tuple[str, ...]:
    """J_x, J_x to J_x.1, J_x.2."""
    total, seen, found = Counter(names), Counter(), []
    for name in names:
        seen[name] += 1
        found.append(f"{name}.{seen[name]}" if total[name] > 1 else name)
    return tuple(found)
