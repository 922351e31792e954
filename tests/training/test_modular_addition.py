"""Laws of modular addition: sums, disjoint splits, prefixes, layouts, symmetry."""

import time

import numpy as np
import pytest

from training.tasks.base import IGNORE
from training.tasks.modular_addition import ModularAddition

EQUALS, PAD = 5, 6
CASES = [
    ModularAddition(modulus=5, lengths=lengths, format=form, layout=layout, validation_size=200)
    for lengths in ((3,), (3, 4, 5))
    for form, layout in (
        ("outcome", "usual"),
        ("outcome", "aligned"),
        ("cot", "usual"),
        ("cot", "aligned"),
        ("acot", "usual"),
    )
]


def everything(task):
    """(training rows, validation rows)."""
    return task.order(seed=0), task.evaluation(seed=0, size=10**6)


def row_set(batch):
    return {tuple(row) for row in np.column_stack([batch.tokens, batch.kind])}


@pytest.mark.parametrize("task", CASES)
def test_targets_are_partial_sums_written_out_by_hand(task):
    batch = task.batch(seed=1, k=3, size=32)
    for tokens, targets, kind in zip(batch.tokens, batch.targets, batch.kind, strict=True):
        n = task.lengths[kind]
        x = tokens[:n].tolist()
        sums = [sum(x[: k + 1]) % 5 for k in range(n)]
        gap = [PAD] * (max(task.lengths) - n) if task.layout == "aligned" else []
        quiet = [IGNORE] * (n + len(gap))
        if task.format == "acot":
            shown, asked = x, sums
        elif task.format == "outcome":
            shown, asked = [*x, *gap, EQUALS], [*quiet, sums[-1]]
        else:
            shown, asked = [*x, *gap, EQUALS, *sums[:-1]], [*quiet, *sums]
        tail = task.time - len(shown)
        assert tokens.tolist() == shown + [PAD] * tail
        assert targets.tolist() == asked + [IGNORE] * tail


@pytest.mark.parametrize("task", CASES)
def test_every_sequence_exists_once_in_training_or_validation(task):
    training, validation = everything(task)
    assert len(row_set(training)) == len(training) == task.pool()
    assert not row_set(training) & row_set(validation)
    assert len(training) + len(validation) == sum(5**n for n in task.lengths)
    for index, n in enumerate(task.lengths):
        assert (validation.kind == index).sum() == min(200, 5**n // 5)


def test_pools_of_theory():
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot", validation_size=200)
    assert [task.pool(n) for n in (3, 4, 5)] == [100, 500, 2925]


def test_validation_does_not_depend_on_data_seed_or_training_does():
    task = CASES[-1]
    first, second = task.evaluation(seed=0, size=999), task.evaluation(seed=1, size=999)
    assert row_set(first) == row_set(second)
    assert row_set(task.order(0, 60)) != row_set(task.order(1, 60))
    assert row_set(task.order(0)) == row_set(task.order(1))


def test_a_batch_is_a_function_of_its_arguments_and_stays_in_the_prefix():
    task = CASES[-1]
    prefix = row_set(task.order(seed=4, train_size=50))
    seen = set()
    for k in range(40):
        batch = task.batch(seed=4, k=k, size=16, train_size=50)
        again = task.batch(seed=4, k=k, size=16, train_size=50)
        np.testing.assert_array_equal(batch.tokens, again.tokens)
        seen |= row_set(batch)
    assert seen == prefix
    assert row_set(task.order(4, 50)) < row_set(task.order(4, 51))


def test_mixture_is_uniform_until_a_length_is_used_up():
    task = CASES[-1]
    counts = np.zeros((2, 3))
    for seed in range(40):
        kind = task.order(seed).kind
        last = np.flatnonzero(kind == 0)[-1] + 1
        counts[0] += np.bincount(kind[:200], minlength=3)
        counts[1] += np.bincount(kind[last : last + 200], minlength=3)
    shares = counts / counts.sum(axis=1, keepdims=True)
    # 8,000 draws: standard error 0.0056
    np.testing.assert_allclose(shares, [[1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]], atol=0.025)


def test_one_length_of_a_cell_keeps_the_layout_of_the_cell():
    cell = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot", layout="aligned")
    alone = ModularAddition(modulus=5, lengths=(3,), format="cot", layout="aligned", longest=5)
    assert alone.n_positions == cell.n_positions == 10
    assert alone.vocabulary == cell.vocabulary
    batch = alone.batch(seed=0, k=0, size=8)
    assert (batch.tokens[:, 5] == EQUALS).all()
    assert (batch.tokens[:, 3:5] == PAD).all()
    rows = cell.sequences(3, 1000, seed=0)
    own = alone.sequences(3, 1000, seed=0)
    assert {tuple(r[:8]) for r in rows.tokens} == {tuple(r) for r in own.tokens}


@pytest.mark.parametrize("task", CASES)
def test_symmetry_maps_batches_to_right_batches(task):
    symmetry = task.symmetry
    training, _ = everything(task)
    everywhere = row_set(training) | row_set(everything(task)[1])
    for g in symmetry.token_generators:
        assert sorted(g) == list(range(task.vocabulary))
        tokens = g[training.tokens]
        targets = np.where(training.targets == IGNORE, IGNORE, g[training.targets])
        assert {tuple(r) for r in np.column_stack([tokens, training.kind])} <= everywhere
        rows = np.arange(len(training))
        answer = targets[rows, task.final(training)]
        sums = np.array(
            [t[: task.lengths[k]].sum() % 5 for t, k in zip(tokens, training.kind, strict=True)]
        )
        np.testing.assert_array_equal(answer, sums)
        permutation = np.eye(task.vocabulary)[g]
        for direction in symmetry.token_directions.values():
            np.testing.assert_array_equal(permutation.T @ direction @ permutation, direction)


@pytest.mark.parametrize("task", CASES)
def test_corruption_changes_one_input_and_the_answer_and_stays_consistent(task):
    batch = task.batch(seed=0, k=0, size=64)
    bad = task.corrupt(batch, seed=5)
    rows = np.arange(len(batch))
    for index, n in enumerate(task.lengths):
        mine = batch.kind == index
        differ = (batch.tokens[mine, :n] != bad.tokens[mine, :n]).sum(axis=1)
        assert (differ == 1).all()
    final = task.final(batch)
    assert (batch.targets[rows, final] != bad.targets[rows, final]).all()
    assert row_set(bad) <= row_set(everything(task)[0]) | row_set(everything(task)[1])
    table = {
        tuple(t): tuple(y)
        for b in everything(task)
        for t, y in zip(b.tokens, b.targets, strict=True)
    }
    assert all(table[tuple(t)] == tuple(y) for t, y in zip(bad.tokens, bad.targets, strict=True))
    np.testing.assert_array_equal(bad.tokens, task.corrupt(batch, seed=5).tokens)


@pytest.mark.parametrize("task", CASES)
def test_steps_number_the_supervised_positions(task):
    batch = task.batch(seed=0, k=0, size=64)
    step = task.step(batch)
    np.testing.assert_array_equal(step > 0, batch.targets != IGNORE)
    lengths = np.array(task.lengths)[batch.kind]
    np.testing.assert_array_equal(step[np.arange(64), task.final(batch)], lengths)
    if task.format == "outcome":
        assert ((step > 0).sum(axis=1) == 1).all()
    else:
        np.testing.assert_array_equal(step.sum(axis=1), lengths * (lengths + 1) // 2)


def test_a_batch_costs_microseconds():
    task = CASES[7]
    task.batch(seed=0, k=0, size=64)
    best = np.inf
    for k in range(200):
        start = time.perf_counter()
        task.batch(seed=0, k=k, size=64, train_size=1000)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3  # about 50 microseconds; the bound only guards against re-encoding


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"modulus": 1}, "modulus: got 1"),
        ({"lengths": ()}, "lengths"),
        ({"lengths": (3, 3)}, "lengths"),
        ({"lengths": (1, 3)}, "lengths"),
        ({"modulus": 2, "lengths": (2,)}, "20% of them"),
        ({"distribution": "long"}, "allowed uniform, short_to_long"),
        ({"format": "poem"}, "allowed outcome, cot, acot"),
        ({"layout": "left"}, "allowed usual, aligned"),
        ({"format": "acot", "layout": "aligned"}, "acot has no '='"),
        ({"longest": 2}, "longest: got 2"),
        ({"validation_size": 0}, "validation_size: got 0"),
    ],
)
def test_impossible_values_are_named(change, word):
    fields = {"modulus": 5, "lengths": (3, 4), "format": "cot", "layout": "usual"} | change
    with pytest.raises(ValueError, match=word):
        ModularAddition(**fields)


def test_more_training_rows_than_exist_are_refused():
    task = CASES[-1]
    with pytest.raises(ValueError, match="allowed 1 to 3525"):
        task.batch(seed=0, k=0, size=4, train_size=3526)
    with pytest.raises(ValueError, match="length: got 7"):
        task.sequences(7, 3, seed=0)
