"""Do data keep the symmetry that a task declares, and where does a breach push the gradient?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.effective import Matrices
from manifold.coordinates.invariant import invariant_basis
from manifold.groups.generators import generators, orbits
from manifold.symmetry.confinement import random_point
from manifold.symmetry.full_loss import flat, loss_gradient, unflat
from manifold.symmetry.group_elements import random_elements
from manifold.symmetry.symmetry_tables import (
    direction_table,
    generator_table,
    matrix_table,
    point_table,
    rank,
    squares,
    without_noise,
)
from training.tasks.base import IGNORE, Batch, Task, generator

Sampler = Callable[[int, int], Batch]
"""(k, size) -> Batch, batch k of that size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SymmetryCheck:
    """What `symmetry_check` found. Shares are of the squared gradient of all matrices.

    share: off the manifold, of the data as they are. floor: the same, on average, of data of this
    size that do have the symmetry. p_value: of the larger of the two tests. excess, low, high:
    the share that is left without sampling noise, and its 95% interval.
    broken: p_value <= alpha. matrices, generators, directions, points: tables, largest first.
    """

    broken: bool
    share: float
    floor: float
    p_value: float
    excess: float
    low: float
    high: float
    alpha: float
    samples: int
    finite: bool
    matrices: pd.DataFrame
    generators: pd.DataFrame
    directions: pd.DataFrame
    points: pd.DataFrame

    @property
    def verdict(self) -> str:
        return "broken" if self.broken else "consistent with symmetric"

    def __str__(self) -> str:
        text = (
            f"{self.verdict}: off-manifold share {self.share:.2g} of {self.samples:,} sequences, "
            f"{self.floor:.2g} for symmetric data of that size (p = {self.p_value:.2g}; excess "
            f"{self.excess:.2g}, {self.low:.2g} to {self.high:.2g})"
        )
        if self.broken:
            first = self.generators.iloc[0]
            text += f"; most broken generator: {first['generator']}"
        if self.finite:
            text += f"; trained on again and again, this set alone leaves {self.share:.2g}"
        return text


def symmetry_check(
    data: Batch | Task | Sampler,
    task: Task,
    *,
    samples: int = 8_000,
    layers: int = 2,
    heads: int = 1,
    alpha: float = 0.01,
    copies: int = 399,
    parts: int = 32,
    seed: int = 0,
) -> SymmetryCheck:
    """How far `data` break the symmetry that `task` declares, and what that feeds.

    data: a finite set (Batch), a task of its own, or a sampler (k, size) -> Batch. They are cut
    into independent `parts`; each gives a gradient of attention_only at one random point of the
    exact manifold, and counts of each token and position at each place of the sequence. If the
    law is invariant, moving each part by a random element of the group changes nothing, and at a
    point of the manifold the gradient of moved data is the moved gradient. So `copies` such moved
    data sets say what to expect, and the rank of the data among them is an exact test of each of
    two statistics: the off-manifold share, and the largest standardised frequency statistic of a
    generator. p_value is twice the smaller of the two; a symmetric sampler is called broken with
    probability at most `alpha`.

    A finite set is judged as a sample of its source. That it is finite breaks symmetry too: `share`
    is what training on it again and again sees.

    Tables: matrices (share, floor); generators (kind, cycles, frequency over its mean in the moved
    data, p); directions (block, paths, rows -> columns, share without noise); points (each token
    and position: frequency relative to its orbit, share in its rows and columns).

    ValueError for a task without symmetry, sizes that disagree, and bad settings.
    """
    moves = generators(task)
    _check_settings(moves, task, alpha, copies, parts)
    if samples < parts:
        raise ValueError(f"symmetry check: samples is {samples}; at least one for each part")
    basis = invariant_basis(task, layers=layers, heads=heads)
    batches, weights = _parts(data, samples, parts, seed)
    point = random_point(basis, seed=seed)
    rests, near, grams = _gradients(basis, point, batches)
    counts = np.array([_counts(task, b) for b in batches])
    rng = generator(seed, *b"symmetry_check")
    elements = random_elements(moves, copies * len(batches), rng)
    elements = elements.reshape(copies, len(batches), -1)
    mean = weights @ rests
    whole = mean + flat(basis, basis.matrices(weights @ near))
    total = float(np.sum(whole**2))
    off = [_moved_rest(basis, rests, weights, chosen) for chosen in elements]
    inside = total - float(np.sum(mean**2))
    here, there = squares(basis, mean), np.array(off)
    clean = without_noise(rests, weights)
    tests = _frequencies(moves, counts, elements)
    p_gradient = rank(here.sum(), there.sum(1))
    p_value = min(1.0, 2 * min(p_gradient, _family(tests)))
    excess, low, high = _excess(*grams, weights)
    floors = there.sum(1) / (inside + there.sum(1))
    return SymmetryCheck(
        broken=p_value <= alpha,
        share=here.sum() / total,
        floor=float(floors.mean()),
        p_value=p_value,
        excess=excess,
        low=low,
        high=high,
        alpha=alpha,
        samples=sum(len(batch) for batch in batches),
        finite=isinstance(data, Batch),
        matrices=matrix_table(basis, whole, here, there),
        generators=generator_table(task, moves, tests),
        directions=direction_table(basis, moves, clean, total),
        points=point_table(basis, moves, clean, total, counts),
    )


def _check_settings(moves: np.ndarray, task: Task, alpha: float, copies: int, parts: int) -> None:
    if not len(moves):
        raise ValueError(
            f"symmetry check: {type(task).__name__} declares no symmetry (no generators of tokens "
            f"or positions), so nothing can be broken; give its generators in `symmetry`"
        )
    if not 0 < alpha < 1 or 2 / (copies + 1) > alpha:
        raise ValueError(
            f"symmetry check: alpha is {alpha} with {copies} copies; the smallest p is "
            f"2 / (copies + 1), so at least {int(np.ceil(2 / max(alpha, 1e-9))) - 1} are needed"
        )
    if parts < 8:
        raise ValueError(f"symmetry check: parts is {parts}; at least 8 independent parts")


def _parts(
    data: Batch | Task | Sampler, samples: int, parts: int, seed: int
) -> tuple[list[Batch], np.ndarray]:
    """Independent parts of the data, and the share of the sequences in each."""
    if isinstance(data, Batch):
        if len(data) < 8:
            raise ValueError(f"symmetry check: {len(data)} sequences; at least 8 are needed")
        order = generator(seed, *b"symmetry_parts").permutation(len(data))
        batches = [data[rows] for rows in np.array_split(order, min(parts, len(data)))]
    else:
        size = max(1, samples // parts)
        source: Any = data
        draw = (lambda k: source.batch(seed, k, size)) if hasattr(data, "batch") else None
        batches = [draw(k) if draw else source(k, size) for k in range(parts)]
    times = sorted({batch.tokens.shape[1] for batch in batches})
    if len(times) > 1:
        raise ValueError(
            f"symmetry check: parts have sequences of {' and '.join(map(str, times))} tokens; a "
            f"sampler gives one length, filled up with padding"
        )
    sizes = np.array([(batch.targets != IGNORE).sum() for batch in batches])
    if not sizes.all():
        raise ValueError("symmetry check: sequences without a supervised token; mark the answer")
    return batches, sizes / sizes.sum()


def _gradients(
    basis: Basis, point: Matrices, batches: list[Batch]
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Off-manifold gradients (parts, size), the coordinates of the rest (parts, dim), and the inner
    products (parts, parts) of whole gradients and of what is off. Only one whole one is held."""
    size = sum(int(np.prod(basis.shape(block))) for block in basis.blocks)
    rests, inner = np.empty((len(batches), size)), np.empty((len(batches), basis.dim))
    for k, batch in enumerate(batches):
        gradient = loss_gradient(basis, point, batch)
        inner[k] = basis.inner(gradient)
        rests[k] = flat(basis, gradient)
        rests[k] -= flat(basis, basis.matrices(basis.raise_index(inner[k])))
    near = basis.raise_index(inner)
    off = rests @ rests.T
    return rests, near, (off + near @ inner.T, off)


def _counts(task: Task, batch: Batch) -> np.ndarray:
    """(d, T + 1): how often each token and position stands at each place; answers last."""
    n, places, time = task.vocabulary, task.n_positions, batch.tokens.shape[1]
    table = np.zeros((n + places, time + 1))
    for t in range(time):
        table[:n, t] = np.bincount(batch.tokens[:, t], minlength=n)
        table[n:, t] = np.bincount(batch.positions[:, t], minlength=places)
    table[:n, time] = np.bincount(batch.targets[batch.targets != IGNORE], minlength=n)
    return table


def _moved_rest(
    basis: Basis, rests: np.ndarray, weights: np.ndarray, elements: np.ndarray
) -> np.ndarray:
    """Squared off-manifold gradient by block, of parts that are each moved by their element."""
    total = {block: np.zeros(basis.shape(block)) for block in basis.blocks}
    for rest, weight, element in zip(rests, weights, elements, strict=True):
        back = np.argsort(element)
        for block, matrix in unflat(basis, rest).items():
            wide = _wide(basis, block, back)
            rows = back[: basis.vocabulary] if block == READOUT else wide
            total[block] += weight * matrix[..., rows[:, None], wide]
    return np.array([np.sum(total[block] ** 2) for block in basis.blocks])


def _wide(basis: Basis, block: str, element: np.ndarray) -> np.ndarray:
    """The element on every path of a block."""
    paths = np.arange(len(basis.paths(block)))[:, None] * len(element)
    return (paths + element).ravel()


def _frequencies(moves: np.ndarray, counts: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """(1 + copies, g): of the data, then of each moved copy, how unequal the counts are along the
    cycles of each generator: sum (n - mean)^2 / mean."""
    back = np.argsort(elements, axis=-1)
    tables = [counts.sum(0)]
    for chosen in back:
        tables.append(np.take_along_axis(counts, chosen[:, :, None], axis=1).sum(0))
    everywhere, found = np.array(tables), []
    for move in moves:
        cycle = orbits(move[None])
        sizes = np.bincount(cycle)
        member = np.arange(sizes.size)[:, None] == cycle
        mean = (member / sizes[:, None]) @ everywhere
        gap = (everywhere - mean[:, cycle]) ** 2 / np.maximum(mean[:, cycle], 1e-300)
        found.append(gap.sum((1, 2)))
    return np.array(found).T


def _family(tests: np.ndarray) -> float:
    """p of the largest standardised statistic; data and copies are standardised together."""
    spread = tests.std(0)
    scaled = (tests - tests.mean(0)) / np.where(spread > 0, spread, 1.0)
    largest = scaled.max(1)
    return rank(largest[0], largest[1:])


def _excess(whole: np.ndarray, rest: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """Off-manifold share without noise, and its interval by leaving out one part at a time.

    whole, rest: (parts, parts), inner products of the parts' gradients and of what is off.
    """
    count, keep = len(weights), ~np.eye(len(weights), dtype=bool)

    def share(rows: np.ndarray) -> float:
        w = np.where(rows, weights, 0.0) / weights[rows].sum()
        own = np.sum(w**2 * np.diagonal(rest))
        return float((w @ rest @ w - own) / (1.0 - np.sum(w**2)) / (w @ whole @ w))

    value = share(np.ones(count, dtype=bool))
    others = np.array([share(rows) for rows in keep])
    error = np.sqrt((count - 1) / count * np.sum((others - others.mean()) ** 2))
    reach = float(student.ppf(0.975, count - 1) * error)
    return value, value - reach, value + reach
