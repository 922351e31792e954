"""Training and validation sets of several lengths: in what order their sequences come.

The law of N* (theory, section 7): a training set of N sequences is the first N rows of an order
that depends on the data seed alone, so a smaller one is a prefix of a larger one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from training.tasks.base import generator
from training.tasks.sequence_pool import Front, SequencePool

DISTRIBUTIONS = ("uniform", "short_to_long")

_AT_ONCE = 2**14
_COUNTED_AT_ONCE = 2**20
_CACHED_BYTES = 2**30
_ORDER, _MIXTURE, _VALIDATION = 24, 25, 26
"""Second word of the seeds of this file."""


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
            count = min(self._sizes[shortest], _AT_ONCE)
            self._sizes[shortest] -= count
            return np.full(count, shortest, dtype=np.uint16)
        chance = generator(*self.key, self._block).random(_AT_ONCE)
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
        part = mixture.take(min(count - sum(counts), _COUNTED_AT_ONCE))
        counts = (np.bincount(part, minlength=len(pools)) + counts).tolist()
    return counts


def fresh_rows(
    pools: tuple[SequencePool, ...], draw: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Independent training sequences, as in `Order.first`; each from a pool chosen uniformly."""
    kind = draw.integers(0, len(pools), size)
    inputs = np.zeros((size, max(pool.length for pool in pools)), dtype=pools[0].dtype)
    for index, pool in enumerate(pools):
        mine = np.flatnonzero(kind == index)
        inputs[mine, : pool.length] = pool.draw(draw, len(mine))
    return inputs, kind


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


class _Given(Front):
    """The rows of an array."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__(len(rows), rows)

    def _more(self) -> np.ndarray:
        raise RuntimeError("more rows were taken than there are")  # `left` forbids it
