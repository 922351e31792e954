"""Laws of state tracking, over groups, formats, layouts and sizes of the space."""

import time
from dataclasses import replace

import numpy as np
import pytest

from training.tasks import TASKS, StateTracking
from training.tasks.base import IGNORE, LengthTask
from training.tasks.layouts import ABSENT, LAYOUTS
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition

FORMS = [
    (form, layout)
    for form in ("outcome", "cot", "acot")
    for layout in LAYOUTS
    if (form, layout.removesuffix("_masked")) != ("acot", "aligned")
]
SMALL = {"validation_size": 200}
CASES = [
    *(ModularAddition(modulus=5, lengths=(3,), format=f, layout=p, **SMALL) for f, p in FORMS),
    *(ModularAddition(modulus=5, lengths=(3, 4, 5), format=f, layout=p, **SMALL) for f, p in FORMS),
    *(PermutationComposition(degree=3, lengths=(4, 2), format=f, layout=p) for f, p in FORMS),
]
LARGE = [
    ModularAddition(modulus=5, lengths=(3, 30), format="cot"),
    ModularAddition(modulus=2, lengths=(64, 70), format="acot", layout="right_aligned"),
    PermutationComposition(degree=5, lengths=(2, 20), format="outcome", layout="random_offset"),
]


def label(task):
    return f"{task.label}-{len(task.lengths)}-{task.format}-{task.layout}"


every_case = pytest.mark.parametrize("task", CASES, ids=label)
every_size = pytest.mark.parametrize("task", CASES + LARGE, ids=label)


def everything(task):
    """(training rows, validation rows)."""
    return task.order(seed=0), task.evaluation(seed=0, size=10**6)


def row_set(batch):
    return {tuple(row) for row in np.column_stack([batch.tokens, batch.kind])}


def running(task, x):
    """s_1 .. s_n, one product at a time."""
    states = [x[0]]
    for later in x[1:]:
        states.append(int(task.compose(np.array(later), np.array(states[-1]))))
    return states


def written(task, x):
    """(tokens, targets) of one sequence as theory section 8 words it, without a table."""
    equals, pad, longest = task.n_elements, task.n_elements + 1, task.reach
    n, s = len(x), running(task, x)
    before = [pad] * (longest - n) if task.layout.startswith("right_aligned") else []
    gap = [pad] * (longest - n) if task.layout.startswith("aligned") else []
    quiet = [IGNORE] * (len(before) + n + len(gap))
    if task.format == "acot":
        return [*before, *x], [*quiet[n:], *s]
    if task.format == "outcome":
        return [*before, *x, *gap, equals], [*quiet, s[-1]]
    return [*before, *x, *gap, equals, *s[:-1]], [*quiet, *s]


@every_size
def test_sequences_are_as_theory_words_them(task):
    batch = task.batch(seed=1, k=3, size=24, train_size=100)
    start = task.reach if task.layout.startswith("right_aligned") else 0
    for tokens, targets, kind in zip(batch.tokens, batch.targets, batch.kind, strict=True):
        n = task.lengths[kind]
        first = start - n if start else 0
        x = tokens[first : first + n].tolist()
        assert max(x) < task.n_elements
        shown, asked = written(task, x)
        tail = task.time - len(shown)
        assert tokens.tolist() == shown + [task.n_elements + 1] * tail
        assert targets.tolist() == asked + [IGNORE] * tail


@every_case
def test_every_sequence_exists_once_in_training_or_validation(task):
    training, validation = everything(task)
    assert len(row_set(training)) == len(training) == task.pool()
    assert not row_set(training) & row_set(validation)
    assert len(training) + len(validation) == sum(task.n_elements**n for n in task.lengths)
    for index, n in enumerate(task.lengths):
        most = min(task.validation_size, task.n_elements**n // 5)
        assert (validation.kind == index).sum() == task.held_out(n) == most
        assert (training.kind == index).sum() == task.pool(n)


@every_size
def test_a_smaller_training_set_is_a_prefix_of_a_larger_one(task):
    largest = task.order(4, 60)
    for size in (1, 37):
        np.testing.assert_array_equal(task.order(4, size).tokens, largest.tokens[:size])
    assert len(row_set(largest)) == 60
    assert row_set(largest) != row_set(task.order(5, 60))
    counts = np.bincount(largest.kind, minlength=len(task.lengths)).tolist()
    assert list(task.mixture(4, 60).values()) == counts


@every_size
def test_a_batch_is_a_function_of_its_arguments_and_stays_in_the_prefix(task):
    prefix = row_set(task.order(seed=4, train_size=50))
    seen = set()
    for k in range(40):
        batch = task.batch(seed=4, k=k, size=16, train_size=50)
        again = task.batch(seed=4, k=k, size=16, train_size=50)
        np.testing.assert_array_equal(batch.tokens, again.tokens)
        seen |= row_set(batch)
    assert seen == prefix


@every_size
def test_validation_is_the_same_set_for_every_seed_size_and_distribution(task):
    first = task.evaluation(seed=0, size=10**5)
    assert len(first) == sum(task.held_out(n) for n in task.lengths)
    other = replace(task, distribution="short_to_long", lengths=task.lengths[::-1])
    assert {r[:-1] for r in row_set(other.evaluation(seed=1, size=10**5))} == {
        r[:-1] for r in row_set(first)
    }
    assert not row_set(task.order(2, 100)) & row_set(first)
    part = task.evaluation(seed=0, size=90)
    np.testing.assert_array_equal(part.tokens, first.tokens[:90])


@every_size
def test_corruption_changes_one_input_and_every_state_after_it(task):
    batch = task.batch(seed=0, k=0, size=64, train_size=100)
    bad = task.corrupt(batch, seed=5)
    rows, final, step = np.arange(len(batch)), task.final(batch), task.step(batch)
    assert (batch.targets[rows, final] != bad.targets[rows, final]).all()
    np.testing.assert_array_equal(batch.positions, bad.positions)
    np.testing.assert_array_equal(batch.kind, bad.kind)
    for row in range(len(batch)):
        n = task.lengths[batch.kind[row]]
        first = task.reach - n if task.layout.startswith("right_aligned") else 0
        x, y = batch.tokens[row, first : first + n], bad.tokens[row, first : first + n]
        (place,) = np.flatnonzero(x != y)
        shown, asked = written(task, y.tolist())
        assert bad.tokens[row, : len(shown)].tolist() == shown
        assert bad.targets[row, : len(asked)].tolist() == asked
        supervised = step[row] > 0
        changed = (batch.targets[row] != bad.targets[row])[supervised]
        np.testing.assert_array_equal(changed, step[row][supervised] > place)
    np.testing.assert_array_equal(bad.tokens, task.corrupt(batch, seed=5).tokens)


@every_size
def test_steps_number_the_supervised_positions(task):
    batch = task.batch(seed=0, k=0, size=64, train_size=100)
    step = task.step(batch)
    np.testing.assert_array_equal(step > 0, batch.targets != IGNORE)
    lengths = np.array(task.lengths)[batch.kind]
    np.testing.assert_array_equal(step[np.arange(64), task.final(batch)], lengths)
    if task.format == "outcome":
        assert ((step > 0).sum(axis=1) == 1).all()
    else:
        np.testing.assert_array_equal(step.sum(axis=1), lengths * (lengths + 1) // 2)


@every_case
def test_symmetry_maps_sequences_to_sequences_with_their_answers(task):
    symmetry = task.symmetry
    training, validation = everything(task)
    table = {
        tuple(t): tuple(y)
        for b in (training, validation)
        for t, y in zip(b.tokens, b.targets, strict=True)
    }
    for g in symmetry.token_generators:
        assert sorted(g) == list(range(task.vocabulary))
        targets = np.where(training.targets == IGNORE, IGNORE, g[training.targets])
        moved = zip(g[training.tokens], targets, strict=True)
        assert all(table[tuple(t)] == tuple(y) for t, y in moved)
        permutation = np.eye(task.vocabulary)[g]
        for direction in symmetry.token_directions.values():
            np.testing.assert_array_equal(permutation.T @ direction @ permutation, direction)
    elements = np.arange(task.n_elements)
    assert (task.compose(elements, task.inverse(elements)) == 0).all()
    assert (task.compose(elements, np.zeros_like(elements)) == elements).all()


@every_size
def test_positions_are_places_or_start_at_the_sequence_s_own_offset(task):
    batch = task.order(seed=0, train_size=100)
    if task.layout.endswith("_masked"):
        plain = replace(task, layout=task.layout.removesuffix("_masked")).order(0, 100)
        absent = batch.tokens == task.vocabulary - 1
        np.testing.assert_array_equal(batch.tokens, plain.tokens)
        np.testing.assert_array_equal(batch.positions, np.where(absent, ABSENT, plain.positions))
        return
    offset = batch.positions[:, 0]
    assert (np.diff(batch.positions, axis=1) == 1).all()
    assert batch.positions.max() < task.n_positions
    if task.layout != "random_offset":
        assert not offset.any()
        return
    # of the sequence, not of the batch, the format or the other lengths
    mine = offset[batch.kind == len(task.lengths) - 1]
    alone = replace(task, format="cot", lengths=task.lengths[-1:], longest=task.reach)
    np.testing.assert_array_equal(mine, alone.order(0, len(mine)).positions[:, 0])


def test_offsets_are_uniform_and_independent_of_the_inputs():
    task = ModularAddition(modulus=4, lengths=(4, 5, 6), format="cot", layout="random_offset")
    assert task.n_positions == 12 + 6
    batch = task.order(seed=0)
    offset = batch.positions[:, 0]
    for index, n in enumerate(task.lengths):
        for place in range(n):
            counts = np.zeros((4, 7))
            mine = batch.kind == index
            np.add.at(counts, (batch.tokens[mine, place], offset[mine]), 1)
            expected = counts.sum() / 28
            # chi square with 27 degrees of freedom, 15 tables: mean 27, standard deviation 7.3
            assert ((counts - expected) ** 2 / expected).sum() < 27 + 4 * 7.3


def test_one_input_moves_the_offset_by_an_amount_that_depends_on_the_others():
    task = ModularAddition(modulus=4, lengths=(6,), format="cot", layout="random_offset")
    batch = task.order(seed=0)
    offset = {tuple(t[:6]): p[0] for t, p in zip(batch.tokens, batch.positions, strict=True)}
    moves = [
        (offset[(1, *x[1:])] - own) % 7
        for x, own in offset.items()
        if x[0] == 0 and (1, *x[1:]) in offset
    ]
    assert len(moves) > 500
    shares = np.bincount(moves, minlength=7) / len(moves)
    np.testing.assert_allclose(shares, 1 / 7, atol=0.07)  # standard error below 0.016


def test_one_length_of_a_cell_keeps_the_layout_and_the_shape_of_the_cell():
    for layout in LAYOUTS:
        cell = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot", layout=layout)
        alone = replace(cell, lengths=(3,), longest=5)
        assert alone.n_positions == cell.n_positions == (15 if layout == "random_offset" else 10)
        assert alone.vocabulary == cell.vocabulary
        rows, own = cell.sequences(3, 25, seed=0), alone.sequences(3, 25, seed=0)
        np.testing.assert_array_equal(rows.tokens[:, : alone.time], own.tokens)
        np.testing.assert_array_equal(rows.positions[:, : alone.time], own.positions)
        # and what it is trained on is a prefix of what the cell sees of that length
        joint, single = cell.order(3, 90), alone.order(3, 90)
        mine = joint[joint.kind == 0]
        np.testing.assert_array_equal(mine.tokens[:, : alone.time], single.tokens[: len(mine)])


def test_mixture_is_uniform_until_a_length_is_used_up():
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="acot", **SMALL)
    counts = np.zeros((2, 3))
    for seed in range(40):
        kind = task.order(seed).kind
        last = np.flatnonzero(kind == 0)[-1] + 1
        counts[0] += np.bincount(kind[:200], minlength=3)
        counts[1] += np.bincount(kind[last : last + 200], minlength=3)
    shares = counts / counts.sum(axis=1, keepdims=True)
    # 8,000 draws: standard error 0.0056
    np.testing.assert_allclose(shares, [[1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]], atol=0.025)


def test_short_to_long_uses_up_each_length_before_the_next():
    task = ModularAddition(
        modulus=5, lengths=(4, 3, 30), format="acot", distribution="short_to_long"
    )
    kind = task.order(0, 800).kind
    assert kind.tolist() == [1] * 100 + [0] * 500 + [2] * 200
    assert task.mixture(0, 700) == {"4": 500, "3": 100, "30": 100}
    assert task.mixture(0, 50) == {"4": 0, "3": 50, "30": 0}
    with pytest.raises(ValueError, match="short_to_long would never leave a length"):
        task.batch(0, 0, 4)


@pytest.mark.parametrize("task", LARGE, ids=label)
def test_a_pool_too_large_to_list_gives_fresh_sequences_without_end(task):
    assert task.endless
    held_out = row_set(task.evaluation(0, 10**5))
    batches = [task.batch(0, k, 256) for k in range(8)]
    longest = task.lengths.index(max(task.lengths))
    long = [row for batch in batches for row in row_set(batch) if row[-1] == longest]
    assert len(long) == len(set(long)) == sum((b.kind == longest).sum() for b in batches)
    assert not {row for batch in batches for row in row_set(batch)} & held_out
    np.testing.assert_array_equal(batches[3].tokens, task.batch(0, 3, 256).tokens)
    assert abs(np.mean([(b.kind == longest).mean() for b in batches]) - 0.5) < 0.05
    assert task.pool() == sum(task.n_elements**n - task.held_out(n) for n in task.lengths)
    with pytest.raises(ValueError, match="too many to list; give a number"):
        task.order(0)


@every_size
def test_chosen_sequences_are_of_one_length_and_different(task):
    length = task.lengths[0]
    held_out = task.sequences(length, 20, seed=1)
    training = task.sequences(length, 30, seed=1, split="training")
    assert {task.lengths[k] for k in [*held_out.kind, *training.kind]} == {length}
    assert len(row_set(held_out)) == len(held_out) == min(20, task.held_out(length))
    assert len(row_set(training)) == len(training) == min(30, task.pool(length))
    everything_held_out = row_set(task.evaluation(0, 10**5))
    assert row_set(held_out) <= everything_held_out
    assert not row_set(training) & everything_held_out


@every_case
def test_tasks_say_what_circuits_ask_for(task):
    assert isinstance(task, StateTracking)
    assert isinstance(task, LengthTask)
    assert type(task) in TASKS.values()
    assert task.n_answers == task.n_elements == task.vocabulary - 2


def test_a_batch_costs_microseconds():
    for task in (ModularAddition(modulus=5, lengths=(3, 4, 5), format="outcome", **SMALL), *LARGE):
        task.batch(seed=0, k=0, size=64, train_size=1000)
        best = np.inf
        for k in range(100):
            start = time.perf_counter()
            task.batch(seed=0, k=k, size=64, train_size=1000)
            best = min(best, time.perf_counter() - start)
        assert best < 2e-3  # 70 to 300 microseconds; the bound guards against making the order anew


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"lengths": ()}, "lengths"),
        ({"lengths": (3, 3)}, "lengths"),
        ({"lengths": (1, 3)}, "each at least 2"),
        ({"lengths": (1,)}, "each at least 2"),
        ({"modulus": 2, "lengths": (2,)}, "20% of them"),
        ({"distribution": "long"}, "allowed uniform, short_to_long"),
        ({"format": "poem"}, "allowed outcome, cot, acot"),
        ({"layout": "left"}, "allowed usual, aligned, right_aligned, random_offset"),
        ({"format": "acot", "layout": "aligned"}, "acot has no '='"),
        ({"format": "acot", "layout": "aligned_masked"}, "acot has no '='"),
        ({"longest": 2}, "longest: got 2"),
        ({"validation_size": 0}, "validation_size: got 0"),
        ({"split_seed": -1}, "split_seed: got -1"),
    ],
)
def test_impossible_values_are_named(change, word):
    fields = {"modulus": 5, "lengths": (3, 4), "format": "cot", "layout": "usual"} | change
    with pytest.raises(ValueError, match=word):
        ModularAddition(**fields)


def test_all_mistakes_come_in_one_line():
    with pytest.raises(ValueError, match=r"modulus: got 1.*lengths: got .1,") as caught:
        ModularAddition(modulus=1, lengths=(1,), format="cot")
    assert "\n" not in str(caught.value)


def test_more_training_rows_than_exist_are_refused():
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot", **SMALL)
    for ask in (
        lambda: task.batch(seed=0, k=0, size=4, train_size=3526),
        lambda: task.order(0, 3526),
        lambda: task.mixture(0, 0),
    ):
        with pytest.raises(ValueError, match="allowed 1 to 3525"):
            ask()
    with pytest.raises(ValueError, match="length: got 7"):
        task.sequences(7, 3, seed=0)
    with pytest.raises(ValueError, match="split: got 'test'"):
        task.sequences(3, 3, seed=0, split="test")
