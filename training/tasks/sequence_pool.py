"""Which sequences exist, which are held out, and the others in a random order.

Each comes once, none is in the validation set, and the first N of an order do not depend on how
many are asked for later: it is made block by block from a counter-based generator. Where
symbols^length is at most `ENUMERABLE` all sequences are listed and shuffled; where it is more,
sequences are drawn, and those that came before or are held out are rejected by a 64-bit key of the
whole sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from training.tasks.base import generator

ENUMERABLE = 2**20
"""Most sequences of one length that are listed from the start."""

_EXACT = 2**63
"""Up to so many sequences the key of a sequence is its number, so no two share one."""

_SMALLEST, _LARGEST = 2**12, 2**20
"""Rows that are drawn at once: as many as came before, between these."""

_SPLIT, _KEYS = 16, 17
"""Second word of the seeds of this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePool:
    """The symbols^length sequences of one length over 0..symbols-1, some of them held out.

    validation_size: how many are held out, at most 20%; split_seed: which ones.
    Counts are Python integers and may exceed 2^63. Rows are arrays (count, length) of the smallest
    signed dtype that holds every symbol.
    """

    symbols: int
    length: int
    validation_size: int
    split_seed: int

    @property
    def exists(self) -> int:
        return self.symbols**self.length

    @property
    def held_out(self) -> int:
        return min(self.validation_size, self.exists // 5)

    @property
    def size(self) -> int:
        """Sequences for training."""
        return self.exists - self.held_out

    @property
    def listed(self) -> bool:
        return self.exists <= ENUMERABLE

    @property
    def dtype(self) -> np.dtype:
        kinds = (np.int8, np.int16, np.int32)
        return np.dtype(next(kind for kind in kinds if self.symbols <= np.iinfo(kind).max + 1))

    def validation(self) -> np.ndarray:
        """(held_out, length), the same whatever is trained on."""
        return _validation(self)[0]

    def training(self, *key: int) -> Front:
        """Every training sequence once, in a random order that is a function of `key`."""
        return _Each(self, _validation(self)[1], key)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, length) training sequences, independent and uniform."""
        barred = _validation(self)[1]
        rows = rng.integers(0, self.symbols, (count, self.length), dtype=self.dtype)
        while len(again := np.flatnonzero(_among(self.keys(rows), barred))):
            rows[again] = rng.integers(0, self.symbols, (len(again), self.length), dtype=self.dtype)
        return rows

    def keys(self, rows: np.ndarray) -> np.ndarray:
        """(count,) uint64: equal rows have equal keys.

        Different rows have different keys where at most 2^63 exist, and else the same one with
        probability 2^-64; who shares the key of another is rejected, which does no harm.
        """
        total = np.zeros(len(rows), dtype=np.uint64)
        for table, column in zip(_key_table(self.symbols, self.length), rows.T, strict=True):
            total += table[column]
        return total


class Front(ABC):
    """Rows that are made block by block and taken from the front, until `left` is 0."""

    def __init__(self, left: int, none: np.ndarray) -> None:
        self.left = left
        self._made = none

    def take(self, count: int) -> np.ndarray:
        """The next `count` rows, or those that are left."""
        parts, missing = [self._made[:0]], min(count, self.left)
        while missing:
            block = self._made if len(self._made) else self._more()
            parts.append(block[:missing])
            self._made = block[missing:]
            missing -= len(parts[-1])
            self.left -= len(parts[-1])
        return np.concatenate(parts)

    @property
    def nbytes(self) -> int:
        return self._made.nbytes

    @abstractmethod
    def _more(self) -> np.ndarray:
        """The next block; may be empty. Not called when nothing is left."""


class _Each(Front):
    """Every sequence of a space that is not barred, once.

    Drawn with rejection until half of the space has come, so that a draw is as likely new as not;
    then the rest is listed and shuffled.
    """

    def __init__(self, pool: SequencePool, barred: np.ndarray, key: Sequence[int]) -> None:
        super().__init__(pool.exists - len(barred), np.zeros((0, pool.length), pool.dtype))
        self.pool, self.key = pool, tuple(key)
        self._seen = barred
        self._block = 0

    @property
    def nbytes(self) -> int:
        return self._made.nbytes + self._seen.nbytes

    def _more(self) -> np.ndarray:
        pool = self.pool
        rng = generator(*self.key, pool.length, self._block)
        self._block += 1
        if pool.listed or 2 * len(self._seen) >= pool.exists:
            absent = np.ones(pool.exists, dtype=bool)
            absent[self._seen] = False
            return _digits(rng.permutation(np.flatnonzero(absent)), pool)
        count = min(max(len(self._seen), _SMALLEST), _LARGEST)
        rows = rng.integers(0, pool.symbols, (count, pool.length), dtype=pool.dtype)
        keys, first = np.unique(pool.keys(rows), return_index=True)
        new = ~_among(keys, self._seen)
        keys, first = keys[new], first[new]
        self._seen = np.insert(self._seen, np.searchsorted(self._seen, keys), keys)
        return rows[np.sort(first)]


@lru_cache(maxsize=256)
def _validation(pool: SequencePool) -> tuple[np.ndarray, np.ndarray]:
    """Held-out rows, and their sorted keys."""
    everything = _Each(pool, np.zeros(0, dtype=np.uint64), (pool.split_seed, _SPLIT))
    rows = everything.take(pool.held_out).copy()
    return rows, np.sort(pool.keys(rows))


@lru_cache(maxsize=256)
def _key_table(symbols: int, length: int) -> np.ndarray:
    """(length, symbols) uint64; a key is the sum over places, modulo 2^64."""
    if symbols**length <= _EXACT:
        place = np.array([symbols**t for t in range(length)], dtype=np.uint64)
        return place[:, None] * np.arange(symbols, dtype=np.uint64)
    rng = generator(0, _KEYS, symbols, length)
    return rng.integers(0, 2**64, (length, symbols), dtype=np.uint64)


def _digits(numbers: np.ndarray, pool: SequencePool) -> np.ndarray:
    """(count, length): the sequences whose keys are `numbers`."""
    rows = np.empty((len(numbers), pool.length), dtype=pool.dtype)
    for t in range(pool.length):
        numbers, rows[:, t] = np.divmod(numbers, pool.symbols)
    return rows


def _among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(count,) bool: which keys are among the sorted ones."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
