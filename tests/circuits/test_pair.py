"""Pairs of any task: held out, of equal shape, and never with the same answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from circuits.pair import SELDOM, Pair, at_length, pairs
from tests.training.block_list_cases import CASES, RECALL, solve
from training.tasks import InContextNgram, KHop, ModularAddition, PermutationComposition

LENGTHS = {
    "sum": ModularAddition(modulus=3, lengths=(2, 4), format="cot"),
    "sum, padded": ModularAddition(
        modulus=3, lengths=(2, 4), format="outcome", layout="right_aligned"
    ),
    "S_3": PermutationComposition(degree=3, lengths=(3,), format="acot"),
}


@pytest.mark.parametrize("task", CASES.values(), ids=CASES)
def test_every_block_list_task_has_pairs(task):
    pair = pairs(task, 24, 0)
    assert pair.sequences == max(1, 24 // len(pair.parts))
    assert len(pair.clean) == pair.sequences * len(pair.parts)
    assert (pair.answers(pair.clean) != pair.answers(pair.corrupt)).all()
    assert pair.final == pair.clean.tokens.shape[1] - 1
    repeated = pair.clean.tokens.reshape(len(pair.parts), pair.sequences, -1)
    assert (repeated == repeated[0]).all(), "each sequence once with each part"
    for row in range(len(pair.corrupt)):
        assert solve(task, pair.corrupt.tokens[row].tolist()) == pair.answers(pair.corrupt)[row]


def test_a_part_alone_leaves_the_rest():
    pair = pairs(KHop(hops=2, n_tokens=8), 30, 0, part="query")
    changed = pair.clean.tokens != pair.corrupt.tokens
    assert pair.parts == ("query",)
    assert changed[:, -1].all()
    assert not changed[:, :-1].any()


def test_clean_sequences_are_of_the_kind_that_is_asked_for():
    """The corrupted ones need not be: a label that agreed with the weights does not any more."""
    pair = pairs(RECALL, 40, 0, kind="match")
    assert (pair.clean.kind == RECALL.kinds.index("match")).all()
    assert (pair.corrupt.kind == RECALL.kinds.index("mismatch")).any()
    assert pair.parts == ("query", "key", "value")
    never = replace(RECALL, f_v=0.0)
    assert pairs(never, 40, 0, kind="match").parts == ("query",), "no label could be another"
    with pytest.raises(ValueError, match="kind is 'odd'"):
        pairs(RECALL, 40, 0, kind="odd")


@pytest.mark.parametrize("task", LENGTHS.values(), ids=LENGTHS)
def test_tasks_with_lengths_give_pairs_of_one_length(task):
    longest = max(task.lengths)
    pair = pairs(task, 30, 0)
    held_out = {
        tuple(row) for row in task.sequences(longest, task.held_out(longest), 1).tokens.tolist()
    }
    assert {tuple(row) for row in pair.clean.tokens.tolist()} <= held_out
    assert pair.final == task.final(pair.clean)[0]
    inputs = task.inputs(pair.clean)[:, :longest]
    changed = np.take_along_axis(pair.clean.tokens != pair.corrupt.tokens, inputs, 1)
    assert (changed.sum(1) == 1).all(), "one input of each"


@pytest.mark.parametrize("task", LENGTHS.values(), ids=LENGTHS)
def test_a_shorter_length_is_laid_out_as_the_task_s_own(task):
    other = at_length(task, 2)
    assert other.n_positions == task.n_positions
    assert pairs(task, 8, 0, length=2).clean.tokens.shape[1] <= task.time


def test_a_length_that_the_layout_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="length is 7; the right_aligned layout ends at 4"):
        pairs(LENGTHS["sum, padded"], 8, 0, length=7)
    assert pairs(LENGTHS["sum"], 8, 0, length=6).clean.tokens.shape[1] == 12


def test_what_a_task_does_not_have_is_refused():
    with pytest.raises(ValueError, match="has no lengths; leave out length 3"):
        pairs(RECALL, 8, 0, length=3)
    with pytest.raises(ValueError, match="has no parts; leave out 'query'"):
        pairs(LENGTHS["sum"], 8, 0, part="query")
    with pytest.raises(ValueError, match="count is 0"):
        pairs(RECALL, 0, 0)
    with pytest.raises(ValueError, match="does not say how to corrupt"):
        pairs(object(), 8, 0)  # type: ignore[arg-type]
    alone = InContextNgram(n_blocks=1, n_tokens=3)  # no other key to ask for
    with pytest.raises(ValueError, match="hardly a sequence"):
        pairs(alone, 8, 0, part="query")
    assert pairs(alone, 8, 0).parts == ("value",)


def test_equal_sequences_and_equal_answers_are_refused():
    good = pairs(RECALL, 12, 0, part="query")
    same: Any = {"sequences": good.sequences, "final": good.final}
    with pytest.raises(ValueError, match="equal tokens in both"):
        Pair(clean=good.clean, corrupt=good.clean, **same)
    targets = good.clean.targets
    with pytest.raises(ValueError, match="same answer in both"):
        Pair(clean=good.clean, corrupt=replace(good.corrupt, targets=targets), **same)
    with pytest.raises(ValueError, match="no whole repetition of 5"):
        Pair(clean=good.clean, corrupt=good.corrupt, sequences=5, final=good.final)


def test_the_metric_is_the_difference_of_two_logits():
    pair = pairs(RECALL, 9, 0)
    logits = torch.randn(2, len(pair.clean), pair.final + 1, RECALL.vocabulary)
    found = pair.metric(logits)
    assert found.shape == (2, len(pair.clean))
    clean, corrupt = pair.answers(pair.clean)[4], pair.answers(pair.corrupt)[4]
    assert found[1, 4] == logits[1, 4, -1, clean] - logits[1, 4, -1, corrupt]


def test_seldom_possible_parts_are_left_out():
    """The query of a 4-gram is another block's key with one part in common by chance alone."""
    assert 0 < SELDOM < 0.1
    task = InContextNgram(n_blocks=2, n_tokens=8, n=4)
    assert "value" in pairs(task, 16, 0).parts


def repeated():
    """Three corruptions of each of four sequences, whose first row is the sequence itself."""
    pair = pairs(RECALL, 12, 0)
    assert (len(pair.parts), pair.sequences, len(pair.clean)) == (3, 4, 12)
    return pair


def test_values_are_averaged_over_the_corruptions_of_each_sequence():
    """The independent units: row r is of sequence r mod 4. (0 + 4 + 8) / 3 = 4, and so on."""
    values = torch.arange(12.0)
    np.testing.assert_array_equal(repeated().by_sequence(values), [4, 5, 6, 7])
    found = repeated().by_sequence(torch.stack([values, -values]))
    np.testing.assert_array_equal(found, [[4, 5, 6, 7], [-4, -5, -6, -7]])


def test_some_sequences_keep_all_their_corruptions():
    pair = repeated()
    part = pair.take(np.array([1, 3]))
    assert (part.sequences, part.parts, part.final) == (2, pair.parts, pair.final)
    for whole, few in ((pair.clean, part.clean), (pair.corrupt, part.corrupt)):
        np.testing.assert_array_equal(few.tokens, whole.tokens[[1, 3, 5, 7, 9, 11]])
        np.testing.assert_array_equal(few.targets, whole.targets[[1, 3, 5, 7, 9, 11]])
