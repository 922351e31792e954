"""Irreducible parts that two orthogonal actions share, from three generic elements of the algebra.

Theory, section 3 ("Computing the commutant"), without its null space. A generic symmetric element
X of the group algebra has, within one irreducible representation, eigenspaces of 1, 2 or 4
dimensions (real, complex or quaternionic type), each as many times over as there are copies.
Generic elements A and B carry them into each other, and within one of them act as a real, complex
or quaternionic number. By Schur's lemma an intertwiner commutes with these numbers on one
eigenspace, is free otherwise, and follows on the others: every element in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

WORDS = 32
"""Random products in a generic element, beside the generators or subproducts they start from."""
FEW = 8
"""Generators that are taken as they are."""
SAME = 1e-7
"""Absolute, where the coefficients of group elements sum to 1 in size: closer eigenvalues are
equal, weaker links absent. X, A or B may vanish on a part, so nothing is relative to them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One irreducible representation that both actions contain.

    right: (n_in, size, copies), vector r of the irreducible in its copy j is right[:, r, j].
    left: (n_out, size, copies_out * numbers), the same vector under the map that takes
    right[:, 0, j] to left[:, 0, i]. Both orthonormal along the first axis: right over (r, j), left
    over r, and over i.
    numbers: 1, 2 or 4, the type: real, complex or quaternionic.

    The maps sum_r left[:, r, i] right[:, r, j]^T commute, and span all from this part.
    """

    right: np.ndarray
    left: np.ndarray
    numbers: int

    @property
    def dim(self) -> int:
        return self.left.shape[2] * self.right.shape[2]

    @property
    def size(self) -> int:
        """Real dimension of the irreducible representation."""
        return self.right.shape[1]

    @property
    def copies(self) -> tuple[int, int]:
        """How often it occurs in the input and in the output."""
        return self.right.shape[2], self.left.shape[2] // self.numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """One action in the eigenvectors of its X: vectors (n, m), eigenspace k is vectors[:, cuts[k]].

    mixed: (4, m, m), A, B and their transposes, which are in the algebra too, between them.
    """

    vectors: np.ndarray
    cuts: Sequence[slice]
    mixed: np.ndarray

    def block(self, which: int, k: int, root: int) -> np.ndarray:
        return self.mixed[which, self.cuts[k], self.cuts[root]]


def irreducible_parts(
    actions: Sequence[np.ndarray], rng: np.random.Generator
) -> tuple[Part, ...] | None:
    """Parts that actions[0] and actions[-1], each (g, n, n), share; None if rng drew badly.

    Two parts whose eigenvalues coincide by chance come out as one, which does not commute: the
    caller must measure. As A, B and X commute with all that commutes with the group, there are
    never too few elements.
    """
    sides = _shared_eigenspaces(_generic_elements(actions, rng))
    drawn = [_part(sides, links) for links in _linked(sides[0])]
    found = [part for part in drawn if part is not None]
    if len(found) < len(drawn):
        return None
    return tuple(sorted(found, key=lambda part: (part.size, part.numbers, part.copies)))


def _generic_elements(actions: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """X, A, B (3, n, n) of each action: the same combinations of the same random words.

    A word is one earlier word times another, so lengths grow linearly and rounding stays at some
    hundred units; X holds its inverse too. The first are the generators or, of many, random
    subproducts (each a factor with probability 1/2, in random order), as a word should move much;
    since subproducts may miss a generator, all are added as they are.
    """
    given = len(actions[0])
    many = given > FEW
    orders = [rng.permutation(given)[rng.random(given) < 0.5] for _ in range(FEW)]
    starts = orders if many else [[g] for g in range(given)]
    picks = [rng.integers(0, len(starts) + t, 2) for t in range(WORDS if given else 0)]
    weights = rng.standard_normal((3, len(starts) + len(picks) + many * given))
    weights /= np.abs(weights).sum(1, keepdims=True) + np.finfo(float).tiny
    found = []
    for action in actions:
        n = action.shape[1]
        words = [reduce(np.matmul, action[start], np.eye(n)) for start in starts]
        for i, j in picks:
            words.append(words[i] @ words[j])
        words.extend(action[: many * given])
        mixed = np.tensordot(weights, np.reshape(words, (len(words), n, n)), 1)
        mixed[0] = (mixed[0] + mixed[0].T) / 2
        found.append(mixed)
    return found


def _shared_eigenspaces(elements: Sequence[np.ndarray]) -> list[_Side]:
    """Eigenspaces of both X, in the same order, of the eigenvalues that both have."""
    solved = [np.linalg.eigh(x) for x, _, _ in elements]
    values = np.concatenate([v for v, _ in solved])
    order = np.argsort(values)
    cluster = np.empty(len(values), int)
    cluster[order] = np.cumsum(np.diff(values[order], prepend=values[order][:1]) > SAME)
    bounds = np.cumsum([len(v) for v, _ in solved])[:-1]
    clusters = np.split(cluster, bounds)
    shared = sorted(set(clusters[0]).intersection(*clusters[1:]))
    sides = []
    for (_, vectors), own, (_, *mixed) in zip(solved, clusters, elements, strict=True):
        kept = np.isin(own, shared)
        vectors = vectors[:, kept]
        ends = np.searchsorted(own[kept], shared, "right")
        cuts = [slice(*ends) for ends in pairwise([0, *ends])]
        a, b = (vectors.T @ m @ vectors for m in mixed)
        sides.append(_Side(vectors=vectors, cuts=cuts, mixed=np.stack([a, b, a.T, b.T])))
    return sides


def _linked(side: _Side) -> list[list[tuple[int, int, int]]]:
    """Eigenspaces of each part as (k, from which it is reached, by which element), the root first.

    Along the tree of strongest links: where generators act locally, eigenspaces are local too, and
    most pairs are linked too weakly to tell from rounding.
    """
    starts = [cut.start for cut in side.cuts]
    if not starts:
        return []
    squares = np.add.reduceat(np.add.reduceat(side.mixed**2, starts, 1), starts, 2)
    strengths = np.sqrt(squares / np.diff([*starts, side.vectors.shape[1]]))
    by = strengths.argmax(0)
    strength = strengths.max(0)
    near = np.divide(1, strength, out=np.zeros_like(strength), where=strength > SAME)
    np.fill_diagonal(near, 0)
    tree = minimum_spanning_tree(near)
    found = []
    _, roots = np.unique(connected_components(tree, directed=False)[1], return_index=True)
    for root in roots:
        order, before = breadth_first_order(tree, root, directed=False)
        found.append([(root, root, 0), *((k, before[k], by[k, before[k]]) for k in order[1:])])
    return found


def _part(sides: Sequence[_Side], links: Sequence[tuple[int, int, int]]) -> Part | None:
    """The part on these eigenspaces; None where their dimensions contradict each other."""
    root = links[0][0]
    units = _units([[side.block(which, root, root) for which in (0, 1)] for side in sides])
    lines = _lines(units[0])
    frames = []
    for side, numbers in zip(sides, units, strict=True):
        across = {root: side.vectors[:, side.cuts[root]]}
        turns = {root: np.eye(across[root].shape[1])}
        for k, before, which in links[1:]:
            block = side.block(which, k, before)
            if block.shape[0] != block.shape[1]:
                return None
            turns[k] = _nearest_orthogonal(block) @ turns[before]
            across[k] = side.vectors[:, side.cuts[k]] @ turns[k]
        frames.append(np.stack([f @ unit for f in across.values() for unit in numbers], axis=1))
    return (
        None
        if lines is None
        else Part(right=frames[0] @ lines, left=frames[-1], numbers=len(units[0]))
    )


def _units(corners: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """1; 1, i; or 1, i, j, ij on one eigenspace of each action, from what A and B are there.

    Their skew parts are imaginary numbers: multiples of i, and of i and j.
    """
    found = [[np.eye(len(a))] for a, _ in corners]
    skew = [[(c - c.T) / 2 for c in pair] for pair in corners]
    if _scale(skew[0][0]) > SAME:
        for units, (a, b) in zip(found, skew, strict=True):
            units.append(_nearest_orthogonal(a))
            b -= units[1] * (np.vdot(units[1], b) / len(b))
        if _scale(skew[0][1]) > SAME:
            for units, (_, b) in zip(found, skew, strict=True):
                units.append(_nearest_orthogonal(b))
                units.append(units[1] @ units[2])
    return found


def _lines(units: Sequence[np.ndarray]) -> np.ndarray | None:
    """(m, m / len(units)): orthonormal with their images under the units; None if m is not such."""
    m = len(units[0])
    if m % len(units):
        return None
    if len(units) == 1:
        return np.eye(m)
    lines, spanned = [], np.empty((m, 0))
    for _ in range(m // len(units)):
        heights = 1 - (spanned**2).sum(1)
        line = np.eye(m)[np.argmax(heights)]
        for _ in range(2):
            line = line - spanned @ (spanned.T @ line)
        lines.append(line / np.linalg.norm(line))
        spanned = np.column_stack([spanned, *(unit @ lines[-1] for unit in units)])
    return np.column_stack(lines)


def _nearest_orthogonal(matrix: np.ndarray) -> np.ndarray:
    u, _, v = np.linalg.svd(matrix)
    return u @ v


def _scale(matrix: np.ndarray) -> float:
    """c for c times an orthogonal matrix."""
    return float(np.linalg.norm(matrix)) / np.sqrt(len(matrix))
