"""Do the weights of successive steps belong to one training? Jumps, and descent from the first.

Samples (steps, n) of the weights stand for all of them. The constants were set on 55 healthy runs
(transformers, dense state-space models, attention on associative recall; adam, adamw with decay up
to 1, sgd with momentum up to the edge of divergence; rates of 1e-9 to 30, batches of 1 to 512) and
385 thinnings of their steps, in which nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DETOUR = 1.75
"""A jump goes out and comes back: both ways longer than this times the way without it. Healthy
runs: at most 1.2, at learning rates that nearly diverge (a random walk has 0.71)."""
BESIDE = 1.2
"""And longer than this times the moves before and after: an oscillation is no jump."""
NEARER = 0.5
"""A step poses as the last if it is so much nearer to it than two later steps (one alone may be
what is wrong). Healthy runs come nearer all the time: the ratio was never below 0.96."""
LEAP = 5.0
"""The last step has no way back: it jumps if its move is this many times the longest before."""
SMALL = 256
"""Tensors with fewer sampled entries than this jump with the others only: a bias may rise and fall
between two steps. Descent is not judged by fewer than a quarter of it."""
DEVIATIONS = 5.0
"""Correlation with the first step, in standard deviations of that of unrelated starts."""
MEMORY = 0.3
"""Once a run has less correlation than this with its first step, nothing more is read off it: at
the highest learning rates healthy runs fall to 0.13 while their starts' threshold is 0.10."""
GAP = 1024
"""More steps than this between two kept ones may forget everything: they are not compared."""
REACH = 5.0
"""Nor are two between which Adam could move every entry by this many times the spread of the start
(the learning rate times the steps): at 0.1 and above, healthy runs forget their start so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Row of the sample, the tensor that shows it most (None: all weights together), and how far
    out, in lengths of the way without it."""

    row: int
    tensor: str | None
    times: float


def posing(samples: np.ndarray) -> list[int]:
    """Rows much nearer to the last one than a later row is: the final weights posing as early."""
    x = samples.astype(np.float64)
    away, size, found = np.linalg.norm(x - x[-1], axis=1), np.linalg.norm(x[-1]), []
    for row in range(len(x) - 3):
        later = np.sort(away[row + 1 : -1])[-2]
        if away[row] < NEARER * min(later, size) and later > 1e-3 * size:
            found.append(row)
    return found


def jumps(samples: np.ndarray, steps: Sequence[int], tensors: Mapping[str, slice]) -> list[Jump]:
    """Rows that lie out of line with both neighbours while these lie in line with each other, and
    a last row that lies off the path to it."""
    groups: dict[str | None, slice] = {None: slice(None)}
    groups |= {name: part for name, part in tensors.items() if part.stop - part.start >= SMALL}
    found: dict[int, Jump] = {}
    for name, part in groups.items():
        x = samples[:, part].astype(np.float64)
        strays = _stray(x) if name is None else ()
        for row, times in [*_detours(x), *_leap(x, steps), *strays]:
            if row not in found or times > found[row].times:
                found[row] = Jump(row=row, tensor=name, times=times)
    return [found[row] for row in sorted(found)]


def _detours(x: np.ndarray) -> Iterator[tuple[int, float]]:
    move = np.linalg.norm(np.diff(x, axis=0), axis=1)
    for i in range(1, len(x) - 1):
        out = min(move[i - 1], move[i])
        without = np.linalg.norm(x[i + 1] - x[i - 1])
        beside = max([*move[max(0, i - 2) : i - 1], *move[i + 1 : i + 2]], default=0.0)
        if out > max(DETOUR * without, BESIDE * beside, 1e-3 * np.linalg.norm(x[i])):
            yield i, float(out / max(without, 1e-30))


def _leap(x: np.ndarray, steps: Sequence[int]) -> Iterator[tuple[int, float]]:
    if len(x) < 4:
        return
    move, gap = np.linalg.norm(np.diff(x, axis=0), axis=1), np.diff(steps)
    longer = gap[-1] / gap[:-1].max()
    if longer > 2:
        return  # an onset may grow without bound in it
    ordinary = move[:-1].max() * max(1.0, longer)
    if move[-1] > LEAP * ordinary and move[-1] > 1e-3 * np.linalg.norm(x[-1]):
        yield len(x) - 1, float(move[-1] / max(ordinary, 1e-30))


def _stray(x: np.ndarray) -> Iterator[tuple[int, float]]:
    """The last row, where the two before it have gone away from it (one may itself be wrong)."""
    away = np.linalg.norm(x - x[-1], axis=1)
    if len(x) < 4:
        return
    least, far = away[:-3].min(), away[-3:-1].min()
    if far * NEARER > least and far > 1e-3 * np.linalg.norm(x[-1]):
        longest = np.linalg.norm(np.diff(x[:-1], axis=0), axis=1).max()
        yield len(x) - 1, float(away[-2] / max(longest, 1e-30))


class Descent:
    """Correlation with the first step, beside that of unrelated starts.

    first: (n,) the first kept step. unrelated: (k, n) starts that have nothing to do with it but
    their law: other seeds of the same family, or the first with each tensor's entries shuffled.
    centre: (n,) what all starts share, taken off everything before it is correlated; drawn apart
    from `unrelated`, so that what is left of its own chance is in all correlations alike.
    rate: how far one step may move an entry, Adam's learning rate; 0 where it is not known.
    Tensors whose start is not drawn (zeros, ones) say nothing and are left out.
    """

    def __init__(
        self,
        first: np.ndarray,
        unrelated: np.ndarray,
        centre: np.ndarray,
        tensors: Mapping[str, slice],
        rate: float = 0.0,
    ) -> None:
        self._centre, self._rate = centre, rate
        self._first = first - centre
        spread = {name: _norm(self._first[part]) for name, part in tensors.items()}
        size = {name: _norm(first[part]) for name, part in tensors.items()}
        self._drawn = [part for name, part in tensors.items() if spread[name] > 1e-5 * size[name]]
        self._unrelated = unrelated - centre

    @property
    def applicable(self) -> bool:
        """False for a start that nothing was drawn for, such as zeros."""
        return sum(part.stop - part.start for part in self._drawn) >= SMALL // 4

    def correlation(self, a: np.ndarray, b: np.ndarray) -> float:
        """Mean over tensors, by size, of the cosine between two centred samples."""
        sizes = [part.stop - part.start for part in self._drawn]
        cosines = [_cosine(a[part], b[part]) for part in self._drawn]
        return float(np.average(cosines, weights=sizes))

    def orphans(self, samples: np.ndarray, steps: Sequence[int]) -> Iterator[tuple[int, float]]:
        """Rows that descend neither from the first nor from the row before, and their correlation
        with the first; only where a descendant's would have shown. Of a chain, its first row."""
        memory = 1.0
        for row in range(1, len(samples)):
            here, before = samples[row] - self._centre, samples[row - 1] - self._centre
            threshold = self._threshold(here)
            found = self.correlation(here, self._first)
            parted = max(found, self.correlation(here, before)) < threshold
            gap = steps[row] - steps[row - 1]
            if memory > MEMORY and parted and self._judges(here, threshold, gap):
                yield row, found
            memory = found

    def judges(self, samples: np.ndarray, steps: Sequence[int]) -> bool:
        """Whether an impostor would show right after the first step."""
        if not self.applicable or len(samples) < 2:
            return False
        here = samples[1] - self._centre
        return self._judges(here, self._threshold(here), steps[1] - steps[0])

    def _threshold(self, here: np.ndarray) -> float:
        null = [self.correlation(here, start) for start in self._unrelated]
        return float(np.mean(null)) + DEVIATIONS * max(float(np.std(null)), 0.004)

    def _judges(self, here: np.ndarray, threshold: float, gap: int) -> bool:
        size = sum(part.stop - part.start for part in self._drawn)
        spread = np.sqrt(sum(_norm(self._first[part]) ** 2 for part in self._drawn) / size)
        near = gap <= GAP and self._rate * gap <= REACH * spread
        return near and self._expected(here) > 2 * threshold

    def _expected(self, here: np.ndarray) -> float:
        """What is left of the first step in a descendant of this size that moved at random."""
        sizes = [part.stop - part.start for part in self._drawn]
        shares = [_norm(self._first[p]) / max(_norm(here[p]), 1e-30) for p in self._drawn]
        return float(np.average(np.minimum(shares, 1.0), weights=sizes))


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x))


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    size = _norm(a) * _norm(b)
    return float(a @ b) / size if size else 0.0
