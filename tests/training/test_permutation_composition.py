"""Permutation composition beside permutations written out; see also test_state_tracking."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest

from training.naming import describe, resolve
from training.tasks.base import IGNORE
from training.tasks.permutation_composition import PermutationComposition

DEGREES = [2, 3, 4, 5, 6]


def task_of(degree, **fields):
    return PermutationComposition(**{"degree": degree, "lengths": (3,), "format": "acot"} | fields)


@pytest.mark.parametrize("degree", DEGREES)
def test_tokens_are_permutations_in_lexicographic_order(degree):
    task = task_of(degree)
    rows = [tuple(row) for row in task.permutations.tolist()]
    assert rows == sorted(permutations(range(degree)))
    assert task.n_elements == len(rows) == factorial(degree)
    assert rows[0] == tuple(range(degree))


@pytest.mark.parametrize("degree", DEGREES)
def test_products_apply_the_earlier_factor_first(degree):
    task = task_of(degree)
    rows = [tuple(row) for row in task.permutations.tolist()]
    number = {row: i for i, row in enumerate(rows)}
    rng = np.random.default_rng(0)
    later, earlier = rng.integers(0, task.n_elements, (2, 300))
    found = task.compose(later, earlier).tolist()
    assert found == [
        number[tuple(rows[a][rows[b][i]] for i in range(degree))]
        for a, b in zip(later, earlier, strict=True)
    ]
    third = rng.integers(0, task.n_elements, 300)
    left = task.compose(task.compose(third, later), earlier)
    np.testing.assert_array_equal(left, task.compose(third, task.compose(later, earlier)))


def test_the_answer_is_pi_n_after_all_others():
    """Each object is moved by the inputs one after the other, by hand."""
    task = task_of(4, lengths=(5,), format="outcome")
    batch = task.batch(seed=0, k=0, size=40)
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        moved = list(range(4))
        for token in tokens[:5]:
            moved = [task.permutations[token][place] for place in moved]
        assert task.permutations[targets[5]].tolist() == moved
        assert (targets[:5] == IGNORE).all()
    wrong = np.zeros(40, dtype=np.int64)
    for k in range(5):  # the other order gives other answers
        wrong = task.compose(wrong, batch.tokens[:, k])
    assert (wrong != batch.targets[:, 5]).mean() > 0.5


@pytest.mark.parametrize("degree", [3, 4, 5, 6])
def test_symmetry_is_all_conjugations(degree):
    task = task_of(degree)
    generators = task.automorphisms
    elements = np.arange(task.n_elements)
    for g in generators:
        np.testing.assert_array_equal(g[task.compose(elements, 1)], task.compose(g, g[1]))
    reached, frontier = {tuple(elements)}, [elements]
    while frontier and degree < 6:
        frontier = [g[h] for h in frontier for g in generators if tuple(g[h]) not in reached]
        frontier = [np.array(h) for h in {tuple(h) for h in frontier}]
        reached |= {tuple(h) for h in frontier}
    if degree < 6:  # inner automorphisms of S_k with trivial centre: k! of them
        assert len(reached) == factorial(degree)
    assert len(task_of(2).automorphisms) == 0


def test_a_configuration_reads_back():
    task = task_of(5, lengths=(4, 20), layout="random_offset", distribution="short_to_long")
    plain = describe("task", task)
    assert plain["name"] == "permutation_composition"
    assert resolve("task", plain) == task
    assert task.label == "S_5"


def test_s_5_at_length_30_exists_120_to_the_30_times():
    task = task_of(5, lengths=(30,))
    assert task.pool() == 120**30 - 2000
    batch = task.order(0, 500)
    assert len({tuple(row) for row in batch.tokens}) == 500


@pytest.mark.parametrize("degree", [0, 1, 7])
def test_impossible_degrees_are_named(degree):
    with pytest.raises(ValueError, match=f"degree: got {degree}, allowed 2 to 6"):
        task_of(degree)


def test_two_permutations_of_length_two_leave_no_validation():
    with pytest.raises(ValueError, match="only 2\\^2 sequences of length 2 exist, and 20%"):
        task_of(2, lengths=(2,))
