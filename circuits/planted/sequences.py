"""Sequences for planted models: a start, blocks of key and value, a query; runs of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuits.pair import Pair
from training.tasks.base import IGNORE, Batch

CORRUPTIONS = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """START k1 v1 .. kn vn q, q one of the keys; the answer is the value beside it.

    Tokens: keys 0 .. keys - 1, then values, then START. Keys of a sequence differ, and so do its
    values. Corruptions: another key of the sequence is asked; the asked key changes places with
    another; the answer changes places with another value.
    """

    keys: int
    values: int
    blocks: int

    def __post_init__(self) -> None:
        if not 2 <= self.blocks <= min(self.keys, self.values):
            raise ValueError(
                f"blocks is {self.blocks}; allowed: 2 to {min(self.keys, self.values)}, since the "
                "keys of a sequence differ, and so do its values"
            )

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values + 1

    @property
    def time(self) -> int:
        return 2 * self.blocks + 2

    def pair(self, count: int, rng: np.random.Generator) -> Pair:
        """`count` clean sequences, each with every corruption."""
        n = self.blocks
        keys = np.stack([rng.permutation(self.keys)[:n] for _ in range(count)])
        values = self.keys + np.stack([rng.permutation(self.values)[:n] for _ in range(count)])
        asked = rng.integers(0, n, count)
        other = (asked + rng.integers(1, n, count)) % n
        rows = np.arange(count)
        clean = self._batch(keys, values, keys[rows, asked])
        corrupt = []
        for kind in CORRUPTIONS:
            k, v, q = keys.copy(), values.copy(), keys[rows, asked]
            if kind == "query":
                q = keys[rows, other]
            else:
                some = k if kind == "key" else v
                some[rows, asked], some[rows, other] = some[rows, other], some[rows, asked].copy()
            corrupt.append(self._batch(k, v, q))
        return pair_of([clean] * len(CORRUPTIONS), corrupt, count)

    def _batch(self, keys: np.ndarray, values: np.ndarray, query: np.ndarray) -> Batch:
        blocks = np.stack([keys, values], axis=2).reshape(len(keys), -1)
        start = np.full((len(keys), 1), self.vocabulary - 1)
        answer = (values * (keys == query[:, None])).sum(1)
        return answered(np.concatenate([start, blocks, query[:, None]], axis=1), answer)


def answered(tokens: np.ndarray, answer: np.ndarray) -> Batch:
    """Sequences (batch, time) answered at the last token."""
    targets = np.full(tokens.shape, IGNORE)
    targets[:, -1] = answer
    positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape).copy()
    kind = np.zeros(len(tokens), dtype=int)
    return Batch(tokens=tokens, positions=positions, targets=targets, kind=kind)


def pair_of(clean: list[Batch], corrupt: list[Batch], sequences: int) -> Pair:
    """One pair of what is given in turn, each a batch of `sequences`."""
    both = [
        Batch(
            **{
                name: np.concatenate([getattr(batch, name) for batch in batches])
                for name in ("tokens", "positions", "targets", "kind")
            }
        )
        for batches in (clean, corrupt)
    ]
    final = both[0].tokens.shape[1] - 1
    return Pair(clean=both[0], corrupt=both[1], sequences=sequences, final=final)


def unrelated(pair: Pair, answers: np.ndarray, rng: np.random.Generator) -> Pair:
    """The same sequences with answers that have nothing to do with them, drawn from `answers`.

    A sequence keeps its two answers in all its corruptions, so that sequences stay independent.
    """
    n, times = pair.sequences, len(pair.clean) // pair.sequences
    drawn = np.stack([rng.permutation(answers)[:2] for _ in range(n)])
    right, wrong = np.tile(drawn, (times, 1)).T
    return Pair(
        clean=answered(pair.clean.tokens, right),
        corrupt=answered(pair.corrupt.tokens, wrong),
        sequences=n,
        final=pair.final,
    )
