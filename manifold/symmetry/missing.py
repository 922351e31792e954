"""Why a basis is not closed: the commutant's directions that carry the gradient out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from manifold.coordinates.basis import READOUT, Basis, Direction
from manifold.coordinates.effective import Matrices
from manifold.coordinates.invariant import invariant_basis
from manifold.symmetry.confinement import law_gradient, random_point
from manifold.symmetry.exact_law import exact_law
from manifold.symmetry.full_loss import loss_gradient
from training.tasks.base import Task

PARTS = 10
"""Independent parts of a sample, from which the error of each component is taken."""
ROUNDING = 1e-26  # share of the squared gradient that is taken for 0
SMALL = 1e-9  # relative length below which a direction already lies in the span


def missing_directions(
    task: Task,
    basis: Basis,
    exact: Basis | None = None,
    *,
    samples: int | None = None,
    scale: float = 0.5,
    seed: int = 0,
) -> pd.DataFrame:
    """Directions of the exact commutant outside `basis` along which its gradient leaves its span.

    At the random point of `gradient_confinement`, on each path block: the exact directions' parts
    orthogonal to the basis, parallel ones as one ("I_c/I_r" beside I_t), in the order in which
    they take most of the gradient that is left (orthogonal matching pursuit), so that shares add
    up.

    samples: None, the exact law (small tasks); a number, so many sequences, a multiple of 10.
    exact: `invariant_basis` of the basis' family, layers and heads, unless given.

    Returns rows, largest first: name ("2:M^T V1->V1"), element, block, share of the squared
    gradient of all matrices, part of what leaves the basis for the commutant, z: the component
    over its standard error; infinite for the exact law. A component at rounding, as of M^T in
    layer 1, counts as 0. Empty where nothing is missing.
    """
    if exact is None:
        exact = invariant_basis(task, basis.family, basis.layers, basis.heads)
    _check_frames(basis, exact)
    point = random_point(basis, scale=scale, seed=seed)
    gradients = _gradients(task, basis, point, samples, seed)
    mean = {block: np.mean([g[block] for g in gradients], axis=0) for block in basis.blocks}
    total = sum(float(np.sum(g**2)) for g in mean.values())
    rows, inside = [], _by_paths(basis)
    for key, directions in _by_paths(exact).items():
        candidates = _candidates(basis, inside.get(key, []), exact, directions)
        parts = np.stack([_path_block(exact, g, key).ravel() for g in gradients])
        for elements, components in _pursuit(candidates, parts):
            element, size = "/".join(elements), float(components.mean()) ** 2
            alive = size > ROUNDING * total
            rows.append(
                {
                    "name": directions[0].name.replace(_element(exact, directions[0]), element, 1),
                    "element": element,
                    "block": key[0],
                    "share": size / total if alive else 0.0,
                    "z": _z(components) if alive else 0.0,
                }
            )
    table = pd.DataFrame(rows, columns=["name", "element", "block", "share", "part", "z"])
    table["part"] = table["share"] / (table["share"].sum() or 1.0)
    return table.sort_values("share", ascending=False, ignore_index=True, kind="stable")


def _check_frames(basis: Basis, exact: Basis) -> None:
    names = ("family", "layers", "heads", "vocabulary", "n_positions")
    unlike = [n for n in names if getattr(basis, n) != getattr(exact, n)]
    if unlike:
        sizes = ", ".join(f"{n} {getattr(basis, n)!r} and {getattr(exact, n)!r}" for n in unlike)
        raise ValueError(f"missing directions: basis and exact commutant differ in {sizes}")


def _gradients(
    task: Task, basis: Basis, point: Matrices, samples: int | None, seed: int
) -> list[Matrices]:
    if samples is None:
        return [law_gradient(exact_law(task), basis, point)]
    if isinstance(samples, bool) or samples < PARTS or samples % PARTS:
        raise ValueError(
            f"samples is {samples!r}; a multiple of {PARTS}, or None for the exact law of a small "
            f"task"
        )
    size = samples // PARTS
    return [loss_gradient(basis, point, task.batch(seed, k, size)) for k in range(PARTS)]


def _by_paths(basis: Basis) -> dict[tuple[str, int, int, int], list[Direction]]:
    found = defaultdict(list)
    for direction in basis.directions:
        found[direction.block, direction.head, direction.query, direction.key].append(direction)
    return dict(found)


def _element(basis: Basis, direction: Direction) -> str:
    names = basis.readout_names if direction.block == READOUT else basis.element_names
    return names[direction.element]


def _stack(basis: Basis, directions: list[Direction]) -> np.ndarray:
    """The directions' matrices on their path block, each as a row."""
    matrices = [basis.readouts if d.block == READOUT else basis.elements for d in directions]
    return np.array([m[d.element].ravel() for m, d in zip(matrices, directions, strict=True)])


def _path_block(basis: Basis, matrices: Mapping[str, np.ndarray], key: tuple) -> np.ndarray:
    block, head, query, path = key
    width = basis.vocabulary + basis.n_positions
    columns = slice(path * width, (path + 1) * width)
    if block == READOUT:
        return matrices[block][:, columns]
    return matrices[block][head, query * width : (query + 1) * width, columns]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Candidate:
    elements: tuple[str, ...]
    vector: np.ndarray  # of unit length


def _candidates(
    basis: Basis, inside: list[Direction], exact: Basis, directions: list[Direction]
) -> list[_Candidate]:
    """What of each exact direction lies outside the basis; parallel ones under one name."""
    vectors = _stack(exact, directions)
    lengths = np.linalg.norm(vectors, axis=1)
    if inside:
        values, spans = np.linalg.svd(_stack(basis, inside), full_matrices=False)[1:]
        spans = spans[values > SMALL * values[0]]
        vectors = vectors - (vectors @ spans.T) @ spans
    found: list[_Candidate] = []
    for direction, vector, length in zip(directions, vectors, lengths, strict=True):
        size = float(np.linalg.norm(vector))
        if size <= SMALL * length:
            continue
        name, unit = _element(exact, direction), vector / size
        alike = [i for i, c in enumerate(found) if abs(c.vector @ unit) > 1 - SMALL]
        if alike:
            old = found[alike[0]]
            found[alike[0]] = _Candidate(elements=(*old.elements, name), vector=old.vector)
        else:
            found.append(_Candidate(elements=(name,), vector=unit))
    return found


def _pursuit(
    candidates: list[_Candidate], parts: np.ndarray
) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """(names, components of each part) of orthogonal steps, the largest mean component first."""
    chosen, left = [], list(candidates)
    vectors = [c.vector for c in left]
    while left:
        sizes = [abs(parts.mean(0) @ v) for v in vectors]
        best = int(np.argmax(sizes))
        unit = vectors.pop(best)
        chosen.append((left.pop(best).elements, parts @ unit))
        rests = [v - unit * (unit @ v) for v in vectors]
        lengths = [float(np.linalg.norm(v)) for v in rests]
        kept = [i for i, length in enumerate(lengths) if length > SMALL]
        left = [left[i] for i in kept]
        vectors = [rests[i] / lengths[i] for i in kept]
    return chosen


def _z(components: np.ndarray) -> float:
    if len(components) == 1:
        return float("inf")
    error = components.std(ddof=1) / np.sqrt(len(components))
    return float(abs(components.mean()) / error) if error else 0.0
