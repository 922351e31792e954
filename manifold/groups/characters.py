"""How many intertwiners there must be, by averaging characters: a check on `commutant`.

dim = mean over the group of chi_in(g) chi_out(g), chi the trace: it needs every element, and
nothing of what `commutant` does. A finite group is enumerated; rotations are integrated over
their classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from manifold.groups.commutant import as_matrices, as_pair
from training.tasks.base import generator

LIMIT = 20_000
"""Elements that are enumerated unless told otherwise."""
WIDTH = 1e-5
"""Matrices whose random projections agree to this are one element."""
INTEGER = 1e-6
"""How far from an integer an average may lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterAverage:
    """dim: the number of intertwiners; None where it is not known, and `note` says why.

    average: what was averaged, before rounding. terms: over how many elements, or angles.
    """

    dim: int | None
    average: float
    terms: int
    note: str


def dimension_by_characters(
    generators: np.ndarray, generators_out: np.ndarray | None = None, *, limit: int = LIMIT
) -> CharacterAverage:
    """Mean of chi_in chi_out over the enumerated group; generators as `commutant` takes them.

    Elements are those of the joint action. Permutations are told apart exactly, matrices by random
    projections. For a group of more than `limit` elements dim is None, after the first so many.
    """
    total, terms = 0.0, 0
    for _, here, there in _elements(*as_pair(generators, generators_out), limit):
        total += float(_trace(here) * _trace(there))
        terms += 1
    if terms > limit:
        note = f"the group has more than {limit} elements: raise limit, or it is infinite"
        return CharacterAverage(dim=None, average=total / terms, terms=terms, note=note)
    return _rounded(total / terms, terms, f"mean over the {terms} elements of the group")


def dimension_over_rotations(
    character: Callable[[float], float],
    character_out: Callable[[float], float] | None = None,
    *,
    degree: int,
) -> CharacterAverage:
    """Intertwiners of two representations of SO(3), or of SU(2), by Weyl's integration formula.

    character: the trace at a rotation by an angle theta, for SU(2) along the path from the
    identity, of period 4 pi; sin((l + 1/2) theta) / sin(theta / 2) for spin l. degree: the largest
    l in either.

    dim = 1/(4 pi) int_0^(4 pi) (1 - cos theta) chi chi_out d theta. In theta / 2 the integrand is
    a trigonometric polynomial of degree at most 4 degree + 2, so more equally spaced angles than
    that make the sum exact.
    """
    terms = 4 * degree + 3
    angles = [4 * np.pi * (k + 0.5) / terms for k in range(terms)]
    out = character if character_out is None else character_out
    average = sum((1 - np.cos(t)) * character(t) * out(t) for t in angles) / terms
    return _rounded(float(average), terms, f"Weyl's integral over rotations at {terms} angles")


def check_homomorphism(
    generators: np.ndarray, generators_out: np.ndarray, *, limit: int = LIMIT
) -> int | None:
    """That the output's action follows from the input's: what fixes every input fixes every output.

    So it must be where the output is a function of the input. Returns how many elements the group
    has; None if there are more than `limit` and no contradiction among the first so many.

    ValueError with the shortest product of generators that is the identity on the input and moves
    the output: rows in another order, an element missing from one list, another length's action.
    """
    inner, outer = as_pair(generators, generators_out)
    one, one_out = next(_elements(inner, outer, limit))[1:]
    order = 0
    for word, here, there in _elements(inner, outer, limit):
        order += 1
        if np.allclose(here, one, atol=WIDTH) and not np.allclose(there, one_out, atol=WIDTH):
            named = " ".join(f"g[{r}]" for r in word())
            raise ValueError(
                f"check_homomorphism: the product {named} is the identity on the input, of size "
                f"{inner.shape[1]}, and moves the output, of size {outer.shape[1]}; row r of both "
                f"must be one element, and an output that is a function of the input cannot move"
            )
    return None if order > limit else order


def _rounded(average: float, terms: int, note: str) -> CharacterAverage:
    dim = round(average)
    if abs(average - dim) > INTEGER:
        note += f"; {average:.6g} is no integer, so these are not two actions of one group"
        return CharacterAverage(dim=None, average=average, terms=terms, note=note)
    return CharacterAverage(dim=dim, average=average, terms=terms, note=note)


def _elements(
    inner: np.ndarray, outer: np.ndarray, limit: int
) -> Iterator[tuple[Callable[[], list[int]], np.ndarray, np.ndarray]]:
    """Every element of the joint action once, shorter words first, until `limit` is passed.

    Yields (word, on the input, on the output); word() lists generators from the left.
    """
    exact = inner.ndim == outer.ndim == 2
    if not exact:
        inner, outer = as_matrices(inner), as_matrices(outer)
    keys_of = _permutation_keys if exact else _MatrixKeys(inner.shape[1], outer.shape[1])
    here, there = (np.arange(a.shape[1]) if exact else np.eye(a.shape[1]) for a in (inner, outer))
    parents = [(0, 0)]

    def word(element: int) -> list[int]:
        letters = []
        while element:
            element, letter = parents[element]
            letters.append(letter)
        return letters

    known, waiting = set(keys_of(here, there)), deque([(0, here, there)])
    while waiting:
        element, here, there = waiting.popleft()
        yield partial(word, element), here, there
        for r, (a, b) in enumerate(zip(inner, outer, strict=True)):
            if len(parents) > limit:
                break
            grown = (a[here], b[there]) if exact else (a @ here, b @ there)
            keys = keys_of(*grown)
            if known.isdisjoint(keys):
                waiting.append((len(parents), *grown))
                parents.append((element, r))
            known.update(keys)


def _trace(element: np.ndarray) -> float:
    return float(
        (element == np.arange(len(element))).sum() if element.ndim == 1 else element.trace()
    )


def _permutation_keys(here: np.ndarray, there: np.ndarray) -> tuple[bytes]:
    return (here.tobytes() + there.tobytes(),)


class _MatrixKeys:
    """Five random projections, rounded on two grids half a step apart: rounding seldom parts both.

    Two matrices of one element share a key; of two elements, only if all projections are close.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        rng = generator(n_in, n_out, *b"matrix keys")
        self.here = rng.standard_normal((5, n_in * n_in))
        self.there = rng.standard_normal((5, n_out * n_out))

    def __call__(self, here: np.ndarray, there: np.ndarray) -> tuple[bytes, bytes]:
        seen = (self.here @ here.ravel() + self.there @ there.ravel()) / WIDTH
        first, second = np.rint(seen).astype(int), np.floor(seen).astype(int)
        return b"a" + first.tobytes(), b"b" + second.tobytes()
