"""Modular addition: the running sum of numbers in Z_m, the simplest state-tracking task.

theory sections 7 and 8 (arXiv 2602.18333): every sequence of numbers exists once, some are held
out for validation, and a training set of size N is the first N of a random order of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from training.tasks.base import IGNORE, Batch, Symmetry, generator

FORMATS = ("outcome", "cot", "acot")
LAYOUTS = ("usual", "aligned")
ENUMERABLE = 2**20
"""Most sequences of one length (m^n) that are listed to be drawn without replacement."""

_SPLIT, _ORDER, _BATCH, _EVALUATION, _CORRUPT, _CHOOSE = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularAddition:
    """Sums s_k = x_1 + .. + x_k mod m of n numbers, n drawn from `lengths`.

    Tokens: the numbers 0..m-1, "=" is m, padding is m+1, in every format.

    format, what is shown and what is predicted at each token:
      outcome  x_1 .. x_n =                  s_n at "=";
      cot      x_1 .. x_n = s_1 .. s_(n-1)   s_1 at "=", s_k at the token s_(k-1);
      acot     x_1 .. x_n                    s_k at x_k.
    layout, L the longest length of the cell:
      usual    inputs at 0..n-1, "=" at n, the chain after it;
      aligned  inputs at 0..n-1, padding up to L-1, "=" at L whatever n, the chain after it.
               (acot has neither "=" nor chain, so it has the usual layout alone.)
    A position's id is its place in the sequence. Padding is a token that may be attended to and is
    never scored; after the last token it fills sequences up to `time` and a causal model cannot
    see it.

    longest: L, where it is not max(lengths); gives a task of one length the layout and the model
    shape of a cell with several.
    validation_size: sequences held out per length, at most 20% of the m^n that exist.
    split_seed: which ones; the same validation set for every data seed and training size.

    Errors: ValueError for impossible values, and for m^n above `ENUMERABLE`.
    """

    modulus: int
    lengths: tuple[int, ...]
    format: str
    layout: str = "usual"
    validation_size: int = 200
    longest: int | None = None
    split_seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(self.lengths))
        problems = list(_problems(self))
        if problems:
            raise ValueError("ModularAddition: " + "; ".join(problems))

    @property
    def n_answers(self) -> int:
        return self.modulus

    @property
    def vocabulary(self) -> int:
        """Numbers, "=" and padding: m + 2."""
        return self.modulus + 2

    @property
    def reach(self) -> int:
        """L: the longest length of the cell, which fixes the aligned layout and the positions."""
        return self.longest or max(self.lengths)

    @property
    def n_positions(self) -> int:
        return self._span(self.reach)

    @property
    def time(self) -> int:
        """Tokens per sequence, after padding."""
        return max(self._span(n) for n in self.lengths)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The lengths, as strings."""
        return tuple(str(n) for n in self.lengths)

    @property
    def symmetry(self) -> Symmetry:
        """Automorphisms x -> u x of Z_m, u prime to m: the answer becomes u y at every length.

        "=" and padding are fixed, positions have no symmetry. Centring is within all tokens and
        within all positions, since an orbit of one token would vanish.
        Directions: I, the identity of the numbers; N, x -> -x; I_= and I_pad.
        """
        m, v = self.modulus, self.vocabulary
        special = np.arange(m, v)
        units = [u for u in range(2, m) if gcd(u, m) == 1]
        rows = [np.concatenate([np.arange(m) * u % m, special]) for u in units]
        numbers, eye = np.arange(m), np.eye(v)
        negation = np.zeros((v, v))
        negation[-numbers % m, numbers] = 1.0
        return Symmetry(
            token_generators=np.array(rows, dtype=np.int64).reshape(len(rows), v),
            position_generators=np.zeros((0, self.n_positions), dtype=np.int64),
            token_classes=(np.arange(v),),
            tracks=(np.arange(self.n_positions),),
            token_directions={
                "I": np.diag((np.arange(v) < m).astype(np.float64)),
                "N": negation,
                "I_=": np.diag(eye[m]),
                "I_pad": np.diag(eye[m + 1]),
            },
        )

    def pool(self, length: int | None = None) -> int:
        """Training sequences that exist at `length`, or at all lengths together."""
        if length is None:
            return sum(self.pool(n) for n in self.lengths)
        self._index(length)
        return self.modulus**length - self.held_out(length)

    def held_out(self, length: int) -> int:
        """Validation sequences at `length`."""
        return min(self.validation_size, self.modulus**length // 5)

    def batch(self, seed: int, k: int, size: int, train_size: int | None = None) -> Batch:
        """`size` rows drawn with replacement from the first `train_size` rows of the pool.

        The order of the pool depends on the data seed alone. With several lengths each row's
        length is uniform among the lengths that are not yet used up, so that a smaller training
        set is a prefix of a larger one (`order`).
        """
        order = _order(self, seed)
        if train_size is not None and not 1 <= train_size <= len(order):
            raise ValueError(
                f"train_size: got {train_size}, allowed 1 to {len(order)}, the training sequences "
                f"that exist at lengths {self.lengths} of Z_{self.modulus}"
            )
        limit = len(order) if train_size is None else train_size
        return self._rows(order[generator(seed, _BATCH, k).integers(0, limit, size)])

    def order(self, seed: int, train_size: int | None = None) -> Batch:
        """The training set itself: the first `train_size` rows (None: all) of the pool, once."""
        return self._rows(_order(self, seed)[:train_size])

    def evaluation(self, seed: int, size: int) -> Batch:
        """The validation set in an order that depends on `seed`, cut after `size` rows.

        Lengths are mixed as in the training pool. With `size` at least the number held out it is
        the same set for every seed.
        """
        return self._rows(_evaluation_order(self, seed)[:size])

    def sequences(self, length: int, count: int, seed: int, split: str = "validation") -> Batch:
        """At most `count` different sequences of one length, chosen by `seed`.

        split: "validation", or "training" (the whole pool, whatever a model was trained on).
        """
        if split not in ("validation", "training"):
            raise ValueError(f"split: got {split!r}, allowed 'validation' or 'training'")
        table = _table(self)
        rows = (table.validation if split == "validation" else table.training)[self._index(length)]
        return self._rows(generator(seed, _CHOOSE, length).permutation(rows)[:count])

    def corrupt(self, batch: Batch, seed: int) -> Batch:
        """Each sequence with one input changed: same length, another answer, its own chain.

        The changed place is uniform among the n inputs and the new number among the m - 1 others,
        so that every partial sum from there on changes.
        """
        draw = generator(seed, _CORRUPT)
        tokens, targets = batch.tokens.copy(), batch.targets.copy()
        for index, n in enumerate(self.lengths):
            rows = np.flatnonzero(batch.kind == index)
            inputs = batch.tokens[rows, :n]
            place = draw.integers(0, n, len(rows))
            inputs[np.arange(len(rows)), place] += draw.integers(1, self.modulus, len(rows))
            tokens[rows], targets[rows] = self._encode(inputs % self.modulus)
        return Batch(tokens=tokens, positions=batch.positions, targets=targets, kind=batch.kind)

    def final(self, batch: Batch) -> np.ndarray:
        """(batch,): where the last sum s_n is predicted."""
        return np.array([self._steps(n)[-1] for n in self.lengths])[batch.kind]

    def step(self, batch: Batch) -> np.ndarray:
        """(batch, time): k where s_k is predicted (outcome: the one place counts as n), else 0."""
        labels = np.zeros((len(self.lengths), self.time), dtype=np.int64)
        for row, n in zip(labels, self.lengths, strict=True):
            row[self._steps(n)] = n if self.format == "outcome" else np.arange(1, n + 1)
        return labels[batch.kind]

    def _index(self, length: int) -> int:
        if length not in self.lengths:
            raise ValueError(f"length: got {length}, allowed {self.lengths}")
        return self.lengths.index(length)

    def _equals(self, n: int) -> int:
        """Place of "="."""
        return n if self.layout == "usual" else self.reach

    def _span(self, n: int) -> int:
        """Tokens of a sequence of n numbers, without the padding after it."""
        return {"acot": n, "outcome": self._equals(n) + 1, "cot": self._equals(n) + n}[self.format]

    def _steps(self, n: int) -> np.ndarray:
        """Supervised places of a sequence of n numbers, in the order of their sums."""
        first = {"acot": 0, "outcome": self._equals(n), "cot": self._equals(n)}[self.format]
        return first + np.arange(1 if self.format == "outcome" else n)

    def _encode(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and targets (rows, time) of inputs (rows, n)."""
        rows, n = inputs.shape
        sums = inputs.cumsum(axis=1) % self.modulus
        tokens = np.full((rows, self.time), self.modulus + 1, dtype=np.int64)
        targets = np.full((rows, self.time), IGNORE, dtype=np.int64)
        tokens[:, :n] = inputs
        if self.format != "acot":
            tokens[:, self._equals(n)] = self.modulus
        if self.format == "cot":
            tokens[:, self._steps(n)[1:]] = sums[:, :-1]
        targets[:, self._steps(n)] = sums[:, -1:] if self.format == "outcome" else sums
        return tokens, targets

    def _rows(self, index: np.ndarray) -> Batch:
        table = _table(self)
        tokens = table.tokens[index].astype(np.int64)
        positions = np.empty_like(tokens)
        positions[:] = np.arange(tokens.shape[1])
        return Batch(
            tokens=tokens,
            positions=positions,
            targets=table.targets[index].astype(np.int64),
            kind=table.kind[index].astype(np.int64),
        )


class _Table(NamedTuple):
    """Every sequence of every length, encoded once; training and validation index its rows."""

    tokens: np.ndarray
    targets: np.ndarray
    kind: np.ndarray
    training: tuple[np.ndarray, ...]
    validation: tuple[np.ndarray, ...]


@lru_cache(maxsize=8)
def _table(task: ModularAddition) -> _Table:
    tokens, targets, kind, training, validation = [], [], [], [], []
    start = 0
    for index, n in enumerate(task.lengths):
        count = task.modulus**n
        digits = np.arange(count)[:, None] // task.modulus ** np.arange(n) % task.modulus
        encoded = task._encode(digits)
        tokens.append(encoded[0].astype(np.int32))
        targets.append(encoded[1].astype(np.int32))
        kind.append(np.full(count, index, dtype=np.int32))
        rows = start + generator(task.split_seed, _SPLIT, n).permutation(count)
        validation.append(rows[: task.held_out(n)])
        training.append(rows[task.held_out(n) :])
        start += count
    return _Table(
        tokens=np.concatenate(tokens),
        targets=np.concatenate(targets),
        kind=np.concatenate(kind),
        training=tuple(training),
        validation=tuple(validation),
    )


@lru_cache(maxsize=64)
def _order(task: ModularAddition, seed: int) -> np.ndarray:
    return _mix(_table(task).training, generator(seed, _ORDER))


@lru_cache(maxsize=64)
def _evaluation_order(task: ModularAddition, seed: int) -> np.ndarray:
    return _mix(_table(task).validation, generator(seed, _EVALUATION))


def _mix(pools: Sequence[np.ndarray], draw: np.random.Generator) -> np.ndarray:
    """All rows in one order: each is uniform among the pools that still have rows."""
    waiting = [draw.permutation(rows) for rows in pools]
    mixed = []
    alive = [p for p, rows in enumerate(waiting) if len(rows)]
    while alive:
        most = max(len(waiting[p]) for p in alive)
        choice = draw.choice(alive, size=len(alive) * most)
        ends = [np.flatnonzero(choice == p)[len(waiting[p]) - 1 :][:1] for p in alive]
        cut = min((int(end[0]) for end in ends if len(end)), default=len(choice) - 1) + 1
        part = np.empty(cut, dtype=np.int64)
        for p in alive:
            places = np.flatnonzero(choice[:cut] == p)
            part[places], waiting[p] = np.split(waiting[p], [len(places)])
        mixed.append(part)
        alive = [p for p in alive if len(waiting[p])]
    return np.concatenate(mixed)


def _problems(task: ModularAddition):
    """Everything wrong with the fields, each with what is allowed."""
    if task.format not in FORMATS:
        yield f"format: got {task.format!r}, allowed {', '.join(FORMATS)}"
    if task.layout not in LAYOUTS:
        yield f"layout: got {task.layout!r}, allowed {', '.join(LAYOUTS)}"
    if task.format == "acot" and task.layout == "aligned":
        yield "layout: acot has no '=' and no chain to align, so only 'usual' is allowed"
    if task.validation_size < 1:
        yield f"validation_size: got {task.validation_size}, allowed 1 or more"
    if task.split_seed < 0:
        yield f"split_seed: got {task.split_seed}, allowed 0 or more"
    if task.modulus < 2:
        yield f"modulus: got {task.modulus}, allowed 2 or more"
        return
    if not task.lengths or len(set(task.lengths)) < len(task.lengths) or min(task.lengths) < 2:
        yield f"lengths: got {task.lengths}, allowed one or more different lengths, each at least 2"
        return
    if task.longest is not None and task.longest < max(task.lengths):
        yield f"longest: got {task.longest}, allowed {max(task.lengths)} (max of lengths) or more"
    for n in task.lengths:
        if task.modulus**n > ENUMERABLE:
            yield (
                f"lengths: {task.modulus}^{n} sequences of length {n} are too many to list "
                f"without replacement; at most {ENUMERABLE} (shorten it or lower modulus)"
            )
        elif task.modulus**n < 5:
            yield (
                f"lengths: only {task.modulus}^{n} sequences of length {n} exist, and 20% of them "
                "leaves none for validation; at least 5 are needed"
            )
