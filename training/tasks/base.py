"""What every task is: sequences drawn as a function of (seed, k), and a symmetry given as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

IGNORE = -1
"""Target of a position that is not supervised."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Sequences with what supervises and describes them.

    tokens, positions, targets: integer arrays (batch, time). `positions` index the model's
    position table (a slot on a track, or a place in a layout). `targets` hold the token that must
    be predicted *at* that position, or IGNORE.
    kind: (batch,), index into `task.kinds`: the query kind or the length of each sequence.
    """

    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray
    kind: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: np.ndarray | slice) -> Batch:
        return Batch(
            tokens=self.tokens[rows],
            positions=self.positions[rows],
            targets=self.targets[rows],
            kind=self.kind[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Symmetry:
    """The group that leaves a task's law invariant, as generators, and its named directions.

    token_generators: (g, vocabulary); row r sends token v to token_generators[r, v].
    position_generators: (g', n_positions), the same for positions. The group is the direct product.
    token_classes, tracks: the parts within which the theory's model centres its embeddings
    (theory, section 2): arrays of token ids, arrays of position ids. Each is an orbit of the group,
    but for a class of fixed tokens, which are centred together and moved by nothing.
    token_directions, position_directions: known commutant elements by name, un-centred, each
    (vocabulary, vocabulary) or (n_positions, n_positions), float64; I_c, I_r, C; I_p, M, M^T.
    """

    token_generators: np.ndarray
    position_generators: np.ndarray
    token_classes: tuple[np.ndarray, ...]
    tracks: tuple[np.ndarray, ...] = ()
    token_directions: Mapping[str, np.ndarray] = field(default_factory=dict)
    position_directions: Mapping[str, np.ndarray] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """A frozen value; its fields are its parameters, so `dataclasses.asdict` describes it."""

    @property
    def vocabulary(self) -> int: ...
    @property
    def n_positions(self) -> int: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...
    @property
    def symmetry(self) -> Symmetry: ...

    def batch(self, seed: int, k: int, size: int, train_size: int | None = None) -> Batch:
        """Training batch k of data seed `seed`; a function of its arguments alone.

        train_size: only the first so many sequences of the training pool are drawn from; None:
        all of them, or without end for a task that has no finite pool.
        """
        ...

    def evaluation(self, seed: int, size: int) -> Batch:
        """Held-out sequences: at most `size`, the same for every training size."""
        ...


@runtime_checkable
class LengthTask(Task, Protocol):
    """A task whose sequences come in lengths, so that circuits can be read by length.

    lengths: those it draws. n_answers: how many final answers there are (chance is 1 / n_answers).
    """

    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def n_answers(self) -> int: ...

    def sequences(self, length: int, count: int, seed: int) -> Batch:
        """At most `count` held-out sequences of one length."""
        ...

    def corrupt(self, batch: Batch, seed: int) -> Batch:
        """The same sequences with one input changed, so that the final answer changes."""
        ...

    def final(self, batch: Batch) -> np.ndarray:
        """(batch,) index of the token at which the final answer is predicted."""
        ...

    def step(self, batch: Batch) -> np.ndarray:
        """(batch, time) which step is predicted there, from 1; 0 where nothing is supervised."""
        ...


def generator(*key: int) -> np.random.Generator:
    """A counter-based generator that is a function of its integers alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([int(k) for k in key])))
