"""The sequences a reduced field averages over: every orbit exactly, or a stated sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manifold.dynamics.grams import Sequences
from training.groups import relabel
from training.tasks.program import Orbits, merge

FEW = 20_000
"""Up to so many orbits "auto" is exact."""
SAMPLE = 6_000
"""Sequences of each query kind together that "auto" draws where there are more."""
QUERY = ("f_r", "f_v")
"""What a field can be moved along, where a task has them: the query's statistics. Distractors
stay."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Sequences up to renaming, at one placement, with weights that depend on the query's f_r, f_v
    where the task has them.

    kind (S,): index into the task's kinds. share (S,): probability within its kind, when sampled.
    orbits: the exact weights; None when sampled. drawn: sequences sampled; 0 when exact.
    """

    task: Any
    sequences: Sequences
    kind: np.ndarray
    share: np.ndarray
    orbits: Orbits | None
    drawn: int

    @property
    def exact(self) -> bool:
        return self.orbits is not None

    def weights(self, **query: float) -> np.ndarray:
        """Weight of each sequence, (S,), at these f_r and f_v; they sum to 1."""
        if self.orbits is not None:
            return self.orbits.weights(**query)
        if not query:
            return self.share
        chance = self.task.kind_probabilities(**query)
        each = np.array([chance.get(kind, 0.0) for kind in self.task.kinds])
        return each[self.kind] * self.share

    def slope(self, parameter: str, **query: float) -> np.ndarray:
        """d weights / d parameter, (S,): exact, since weights are linear in f_r and in f_v."""
        return self.weights(**{**query, parameter: 1.0}) - self.weights(**{**query, parameter: 0.0})

    def resampled(self, rng: np.random.Generator) -> Population:
        """A bootstrap draw of the sample, each kind as often as before; itself when exact."""
        if self.exact:
            return self
        share = np.zeros_like(self.share)
        for kind in np.unique(self.kind):
            rows = np.flatnonzero(self.kind == kind)
            count = self.drawn // len(np.unique(self.kind))
            chance = self.share[rows] / self.share[rows].sum()
            share[rows] = rng.multinomial(count, chance) / count
        return replace(self, share=share)


def movable(task: Any) -> tuple[str, ...]:
    """The data statistics along which the task's population can be moved: f_r and f_v, or none."""
    return tuple(name for name in QUERY if name in task.program.parameters)


def population(task: Any, samples: str | int | None, seed: int) -> Population:
    """All orbits when samples is None, or "auto" and they are at most FEW; else a sample.

    Of a task with a program. An int, or SAMPLE under "auto": so many sequences, the same number of
    each query kind, so that the field stays a smooth function of the query's f_r and f_v. Equal
    ones are merged.
    """
    if samples == "auto" or samples is None:
        orbits = task.program.few_orbits(FEW if samples == "auto" else None)
        if orbits is not None:
            return _exact(task, orbits)
        samples = SAMPLE
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(
            f"samples is {samples!r}; 'auto', None for every orbit, or a number of sequences"
        )
    return _sample(task, samples, seed)


def _exact(task: Any, orbits: Orbits) -> Population:
    return Population(
        task=task,
        sequences=Sequences(tokens=orbits.tokens, target=orbits.target, positions=orbits.positions),
        kind=orbits.kind,
        share=np.zeros(len(orbits)),
        orbits=orbits,
        drawn=0,
    )


def _sample(task: Any, samples: int, seed: int) -> Population:
    kinds = _drawn_kinds(task)
    each = -(-samples // len(kinds))
    batches = [task.evaluation(seed, each, kind=kind) for kind in kinds]
    rows = np.concatenate([np.column_stack([b.tokens, b.targets[:, -1]]) for b in batches])
    kind = np.repeat([b.kind[0] for b in batches], each)
    rows = relabel(rows, task.program.classes)
    first, group = merge(np.column_stack([rows, kind]))
    return Population(
        task=task,
        sequences=Sequences(
            tokens=rows[first, :-1],
            target=rows[first, -1],
            positions=task.program.one_placement(),
        ),
        kind=kind[first],
        share=np.bincount(group) / each,
        orbits=None,
        drawn=each * len(kinds),
    )


def _drawn_kinds(task: Any) -> list[str]:
    """The kinds that the task draws itself; without statistics of the query there is one."""
    if not movable(task):
        return [task.kinds[0]]
    kinds = ["rare"] * (task.n_rare > 1) + ["match"] * (task.n_common > 1)
    return kinds + ["mismatch"] * (task.n_common > 3)
