"""Which sequences exist, which are held out, and in what order the others come.

The law of N* (theory, section 7): a training set of N sequences is the first N rows of an order
that depends on the data seed alone, no sequence comes twice and none is in the validation set.
Orders are made block by block from a counter-based generator, as far as they are asked for, so the
first N rows do not depend on how many are asked for later. Where symbols^length is at most
`ENUMERABLE` all sequences are listed and shuffled; where it is more, sequences are drawn and those
that came before, or are held out, are rejected, by a 64-bit key of the whole sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from training.tasks.base import generator

ENUMERABLE = 2**20
"""Most sequences of one length that are listed from the start."""

DISTRIBUTIONS = ("uniform", "short_to_long")

_EXACT = 2**63
"""Up to so many sequences the key of a sequence is its number, so no two share one."""

_SMALLEST, _LARGEST = 2**12, 2**20
"""Rows that are drawn at once: as many as came before, between these."""

_KINDS_AT_ONCE = 2**14
_CACHED_BYTES = 2**30
_SPLIT, _ORDER, _MIXTURE, _VALIDATION, _KEYS = range(16, 21)
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
        keys = pool.keys(rows)
        first = np.sort(np.unique(keys, return_index=True)[1])
        new = first[~_among(keys[first], self._seen)]
        self._seen = np.sort(np.concatenate([self._seen, keys[new]]), kind="stable")
        return rows[new]


class _Given(Front):
    """The rows of an array."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__(len(rows), rows)

    def _more(self) -> np.ndarray:
        raise RuntimeError("more rows were taken than there are")  # `left` forbids it


class Mixture(Front):
    """(count,) uint16: from which of several pools each row of an order comes.

    uniform: each row uniform among the pools that are not yet used up. short_to_long: each pool
    used up before the next, in the order of `lengths`.
    """

    def __init__(
        self, sizes: Sequence[int], lengths: Sequence[int], distribution: str, key: Sequence[int]
    ) -> None:
        super().__init__(sum(sizes), np.zeros(0, dtype=np.uint16))
        self._sizes, self.key = list(sizes), tuple(key)
        self._turn = np.argsort(lengths).tolist() if distribution == "short_to_long" else None
        self._block = 0

    def _more(self) -> np.ndarray:
        if self._turn is not None:
            shortest = next(pool for pool in self._turn if self._sizes[pool])
            count = min(self._sizes[shortest], _KINDS_AT_ONCE)
            self._sizes[shortest] -= count
            return np.full(count, shortest, dtype=np.uint16)
        chance = generator(*self.key, self._block).random(_KINDS_AT_ONCE)
        self._block += 1
        parts = []
        while len(chance) and any(self._sizes):
            parts.append(self._until_one_is_used_up(chance))
            chance = chance[len(parts[-1]) :]
        return np.concatenate(parts)

    def _until_one_is_used_up(self, chance: np.ndarray) -> np.ndarray:
        alive = np.array([pool for pool, size in enumerate(self._sizes) if size], dtype=np.uint16)
        part = alive[(chance * len(alive)).astype(np.int64)]
        for pool in alive:
            places = np.flatnonzero(part == pool)
            if len(places) >= self._sizes[pool]:
                part = part[: places[self._sizes[pool] - 1] + 1]
        for pool, count in enumerate(np.bincount(part, minlength=len(self._sizes)).tolist()):
            self._sizes[pool] -= count
        return part


class Order:
    """The rows of several pools in one order, made as far as they are asked for, and kept.

    Inputs (rows, longest length): a shorter sequence stands first, with zeros after it.
    """

    def __init__(self, sources: Sequence[Front], lengths: Sequence[int], mixture: Mixture) -> None:
        self._sources, self._lengths, self._mixture = tuple(sources), tuple(lengths), mixture
        dtype = np.result_type(*(source.take(0) for source in sources))
        self._inputs = np.zeros((0, max(lengths)), dtype=dtype)
        self._kind = np.zeros(0, dtype=np.uint16)

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (count, longest length) and kinds (count,), the pool of each row."""
        if count > len(self._kind):
            kind = self._mixture.take(count - len(self._kind))
            inputs = np.zeros((len(kind), self._inputs.shape[1]), dtype=self._inputs.dtype)
            for pool, (source, n) in enumerate(zip(self._sources, self._lengths, strict=True)):
                mine = np.flatnonzero(kind == pool)
                inputs[mine, :n] = source.take(len(mine))
            self._inputs = np.concatenate([self._inputs, inputs])
            self._kind = np.concatenate([self._kind, kind])
        return self._inputs[:count], self._kind[:count]

    @property
    def nbytes(self) -> int:
        held = sum(source.nbytes for source in self._sources)
        return held + self._inputs.nbytes + self._kind.nbytes


_orders: OrderedDict[tuple, Order] = OrderedDict()


def training_order(pools: tuple[SequencePool, ...], distribution: str, seed: int) -> Order:
    """All training sequences of the pools; a pool's own rows come as they do when it is alone."""
    key = (pools, distribution, seed)
    if key not in _orders:
        while len(_orders) > 1 and sum(o.nbytes for o in _orders.values()) > _CACHED_BYTES:
            _orders.popitem(last=False)
        _orders[key] = Order(
            [pool.training(seed, _ORDER) for pool in pools],
            [pool.length for pool in pools],
            _mixture(pools, distribution, seed),
        )
    _orders.move_to_end(key)
    return _orders[key]


def mixture_counts(
    pools: tuple[SequencePool, ...], distribution: str, seed: int, count: int
) -> list[int]:
    """How many of the first `count` rows of `training_order` come from each pool."""
    counts = [0] * len(pools)
    if distribution == "short_to_long" or len(pools) == 1:
        for pool in np.argsort([pool.length for pool in pools]).tolist():
            counts[pool] = min(pools[pool].size, count - sum(counts))
        return counts
    mixture = _mixture(pools, distribution, seed)
    while sum(counts) < count and mixture.left:
        part = mixture.take(min(count - sum(counts), _LARGEST))
        counts = (np.bincount(part, minlength=len(pools)) + counts).tolist()
    return counts


@lru_cache(maxsize=64)
def validation_order(pools: tuple[SequencePool, ...], seed: int) -> Order:
    """All held-out sequences; lengths mixed uniformly, whatever the training distribution is."""
    rng = generator(seed, _VALIDATION)
    sources = [_Given(rng.permutation(pool.validation())) for pool in pools]
    lengths = [pool.length for pool in pools]
    sizes = [pool.held_out for pool in pools]
    return Order(sources, lengths, Mixture(sizes, lengths, "uniform", (seed, _VALIDATION, 1)))


def _mixture(pools: tuple[SequencePool, ...], distribution: str, seed: int) -> Mixture:
    lengths = [pool.length for pool in pools]
    return Mixture([pool.size for pool in pools], lengths, distribution, (seed, _MIXTURE))


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
