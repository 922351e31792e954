"""Laws of pools and orders: everything once, nothing held out, prefixes; listed, drawn, huge."""

import time

import numpy as np
import pytest

from training.tasks import sequence_order, sequence_pool
from training.tasks.base import generator
from training.tasks.sequence_order import (
    DISTRIBUTIONS,
    Mixture,
    fresh_rows,
    mixture_counts,
    training_order,
    validation_order,
)
from training.tasks.sequence_pool import SequencePool


def pool(symbols, length, validation_size=50, split_seed=0):
    return SequencePool(
        symbols=symbols, length=length, validation_size=validation_size, split_seed=split_seed
    )


def row_set(rows):
    return {row.tobytes() for row in np.ascontiguousarray(rows)}


@pytest.fixture(params=["listed", "drawn"])
def regime(request, monkeypatch):
    """Both regimes on spaces small enough to be written out; drawn ones end up listed."""
    if request.param == "drawn":
        monkeypatch.setattr(sequence_pool, "ENUMERABLE", 1)
        monkeypatch.setattr(sequence_pool, "_SMALLEST", 16)
    caches = (sequence_pool._validation, sequence_order.validation_order)
    for cache in caches:
        cache.cache_clear()
    sequence_order._orders.clear()
    yield request.param
    for cache in caches:
        cache.cache_clear()
    sequence_order._orders.clear()


@pytest.mark.parametrize(("symbols", "length"), [(2, 3), (5, 4), (3, 6), (24, 2)])
def test_every_sequence_is_held_out_or_comes_once(regime, symbols, length):
    space = pool(symbols, length)
    held_out = space.validation()
    rows = space.training(7, 1).take(10**6)
    assert space.listed == (regime == "listed")
    assert len(held_out) == space.held_out == min(50, symbols**length // 5)
    assert len(rows) == len(row_set(rows)) == space.size
    assert not row_set(rows) & row_set(held_out)
    assert len(row_set(rows) | row_set(held_out)) == symbols**length
    assert rows.min() >= 0
    assert rows.max() < symbols


def test_the_order_is_uniform(regime):
    """Each of the 7 training sequences of {0, 1}^3 is as likely at any place: 1/7."""
    space = pool(2, 3)
    counts = np.zeros((7, 8))
    for seed in range(700):
        rows = space.training(seed, 1).take(7)
        counts[np.arange(7), space.keys(rows).astype(int)] += 1
    counts = counts[:, counts.sum(0) > 0]
    assert counts.shape == (7, 7)
    # 700 draws over 7: standard deviation 9.3; the largest of 49 deviations stays below 4 of them
    assert np.abs(counts - 100).max() < 37


HUGE = [(5, 28), (2, 63), (2, 64), (100, 30), (720, 20), (2, 200)]


@pytest.mark.parametrize(("symbols", "length"), HUGE)
def test_spaces_beyond_int64(symbols, length):
    space = pool(symbols, length, validation_size=2000)
    assert space.size == symbols**length - 2000
    rows, held_out = space.training(3, 1).take(30_000), space.validation()
    assert rows.dtype.itemsize == (1 if symbols <= 128 else 2)
    assert len(row_set(rows)) == 30_000
    assert len(row_set(held_out)) == 2000
    assert not row_set(rows) & row_set(held_out)
    for column in rows.T[:: length - 1]:  # the first and the last symbol
        counts = np.bincount(column, minlength=symbols)
        expected = 30_000 / symbols
        chi_square = ((counts - expected) ** 2 / expected).sum()
        # mean symbols - 1, standard deviation sqrt(2 (symbols - 1))
        assert abs(chi_square - (symbols - 1)) < 5 * np.sqrt(2 * (symbols - 1))


@pytest.mark.parametrize(("symbols", "length"), [(5, 4), (5, 27), (2, 63), (5, 28), (720, 8)])
def test_keys_tell_sequences_apart(symbols, length):
    space = pool(symbols, length)
    rows = np.unique(generator(0, 0).integers(0, symbols, (2000, length)), axis=0)
    keys = space.keys(rows)
    assert len(np.unique(keys)) == len(rows)
    if symbols**length <= 2**63:
        numbers = [sum(int(x) * symbols**t for t, x in enumerate(row)) for row in rows]
        assert keys.tolist() == numbers


@pytest.mark.parametrize(("symbols", "length"), [(5, 5), (3, 14), (100, 30)])
def test_taking_in_parts_changes_nothing(symbols, length):
    space = pool(symbols, length)
    at_once = space.training(1, 2).take(2900)
    parts = space.training(1, 2)
    again = np.concatenate([parts.take(n) for n in (0, 1, 700, 2000, 199)])
    np.testing.assert_array_equal(at_once, again)
    assert row_set(space.training(2, 2).take(500)) != row_set(at_once[:500])


@pytest.mark.parametrize("symbols", [2, 100])
def test_orders_of_different_lengths_and_seeds_are_unrelated(symbols):
    long, next_one = pool(symbols, 30).training(0, 1).take(9), pool(symbols, 31).training(0, 1)
    assert (long != next_one.take(9)[:, :30]).any(axis=1).all()
    assert (long != pool(symbols, 30).training(1, 1).take(9)).any(axis=1).all()


def test_validation_depends_on_the_split_seed_alone():
    assert row_set(pool(5, 30).validation()) == row_set(pool(5, 30).validation())
    assert row_set(pool(5, 30).validation()) != row_set(pool(5, 30, split_seed=1).validation())
    # a smaller one is part of a larger one
    fewer = pool(5, 30, validation_size=20)
    assert row_set(fewer.validation()) < row_set(pool(5, 30).validation())


@pytest.mark.parametrize("symbols", [3, 100])
def test_independent_draws_are_never_held_out(symbols):
    space = pool(symbols, 4)
    rows = space.draw(generator(0, 9), 3000)
    assert not row_set(rows) & row_set(space.validation())
    if symbols == 3:
        assert len(row_set(rows)) == space.size


def test_symbols_choose_the_dtype():
    sizes = [pool(symbols, 2).dtype.itemsize for symbols in (2, 128, 129, 2**15, 2**15 + 1)]
    assert sizes == [1, 1, 2, 2, 4]


MIXED = [
    ((100, 500, 2925), (3, 4, 5)),
    ((2925, 100, 500), (5, 3, 4)),
    ((20, 100, 5**40), (2, 3, 40)),
    ((7,), (3,)),
]


def slow_mixture(sizes, lengths, distribution, key, count):
    """One row at a time, from the same random numbers."""
    left, block, chance, kinds = list(sizes), 0, [], []
    while len(kinds) < min(count, sum(sizes)):
        alive = [pool for pool, size in enumerate(left) if size]
        if distribution == "short_to_long":
            kind = min(alive, key=lambda pool: lengths[pool])
        else:
            if not chance:
                chance = generator(*key, block).random(sequence_order._AT_ONCE).tolist()
                block += 1
            kind = alive[int(chance.pop(0) * len(alive))]
        left[kind] -= 1
        kinds.append(kind)
    return kinds


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("sizes", "lengths"), MIXED)
def test_mixture_against_one_row_at_a_time(monkeypatch, sizes, lengths, distribution):
    monkeypatch.setattr(sequence_order, "_AT_ONCE", 128)
    key = (5, 1)
    mixture = Mixture(sizes, lengths, distribution, key)
    parts = [mixture.take(n) for n in (0, 3, 300, 4000)]
    found = np.concatenate(parts).tolist()
    assert found == slow_mixture(sizes, lengths, distribution, key, 4303)
    assert len(found) == min(4303, sum(sizes))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("lengths", [(3, 4), (4, 3, 30), (30,)])
def test_a_smaller_training_set_is_a_prefix_and_its_mixture_is_counted(lengths, distribution):
    pools = tuple(pool(4, n, split_seed=11) for n in lengths)
    largest, _ = training_order(pools, distribution, 2).first(250)
    sequence_order._orders.clear()
    for size in (1, 40, 250):
        inputs, kind = training_order(pools, distribution, 2).first(size)
        np.testing.assert_array_equal(inputs, largest[:size])
        counts = np.bincount(kind, minlength=len(pools)).tolist()
        assert mixture_counts(pools, distribution, 2, size) == counts
        for row, index in zip(inputs, kind, strict=True):
            assert not row[lengths[index] :].any()


def test_a_length_has_the_same_rows_alone_and_among_others():
    pools = tuple(pool(5, n) for n in (4, 30))
    inputs, kind = training_order(pools, "uniform", 0).first(600)
    alone, _ = training_order(pools[1:], "uniform", 0).first(600)
    mine = inputs[kind == 1]
    np.testing.assert_array_equal(mine, alone[: len(mine)])


def test_validation_is_mixed_uniformly_and_whole():
    pools = tuple(pool(5, n) for n in (3, 30))
    inputs, kind = validation_order(pools, 4).first(75)
    assert np.bincount(kind).tolist() == [25, 50]
    assert row_set(inputs[kind == 1]) == row_set(pools[1].validation())
    assert 3 < kind[:20].sum() < 17  # uniform from the start: 10, standard deviation 2.2
    other, _ = validation_order(pools, 5).first(75)
    assert row_set(inputs) == row_set(other)
    assert (inputs != other).any()


def test_fresh_rows_have_uniform_lengths_and_are_not_held_out():
    pools = tuple(pool(2, n) for n in (3, 30))
    inputs, kind = fresh_rows(pools, generator(1, 1), 2000)
    assert abs((kind == 0).mean() - 0.5) < 0.05
    assert not row_set(inputs[kind == 0, :3]) & row_set(pools[0].validation())


def test_old_orders_make_room(monkeypatch):
    monkeypatch.setattr(sequence_order, "_CACHED_BYTES", 20_000)
    sequence_order._orders.clear()
    pools = (pool(5, 30),)
    first = training_order(pools, "uniform", 0)
    first.first(500)
    for seed in range(1, 4):
        training_order(pools, "uniform", seed).first(500)
        assert len(sequence_order._orders) <= 2
    again = training_order(pools, "uniform", 0)
    assert again is not first
    np.testing.assert_array_equal(again.first(500)[0], first.first(500)[0])


@pytest.mark.slow
def test_a_million_rows_of_length_20_take_seconds_and_20_bytes_each():
    pools = (pool(5, 20, validation_size=2000),)
    sequence_order._orders.clear()
    start = time.perf_counter()
    inputs, _ = training_order(pools, "uniform", 0).first(10**6)
    assert time.perf_counter() - start < 20  # about 1 second
    assert inputs.nbytes == 20 * 10**6
    assert len(np.unique(pools[0].keys(inputs))) == 10**6
    # keys and what was drawn beyond: at most twice the rows again
    assert training_order(pools, "uniform", 0).nbytes < 100 * 10**6
