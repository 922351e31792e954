"""One input changed: the answer is another, by the rule of the task and within its law."""

from dataclasses import replace

import numpy as np
import pytest

from tests.training.block_list_cases import CASES, RECALL, solve
from training.tasks import (
    AssociativeRecall,
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    PermutationInversion,
    RelationRetrieval,
)
from training.tasks.base import Batch
from training.tasks.corruption import NONE, agreed, exchanged, replaced

LARGER = {
    "recall": AssociativeRecall(
        n_blocks=5, n_common=6, n_rare=6, track_slots=4, f_r=0.4, f_v=0.3, burstiness=1
    ),
    "recall, 2 copies": AssociativeRecall(
        n_blocks=5, n_common=4, n_rare=4, track_slots=4, f_r=0.4, f_v=0.3, burstiness=2
    ),
    "4-gram": InContextNgram(n_blocks=4, n_tokens=12, n=4),
    "2-gram": InContextNgram(n_blocks=4, n_tokens=9),
    "3-hop": KHop(hops=3, n_tokens=13, chains=3),
    "indirect object": IndirectObject(n_blocks=3, n_names=9, function_words=True),
    "conditional": ConditionalRetrieval(n_blocks=8, n_contexts=3, n_keys=3, n_values=9),
    "relation": RelationRetrieval(n_blocks=4, n_keys=6, n_values=7),
    "inversion": PermutationInversion(n_tokens=6),
}
ALL = CASES | {f"larger {name}": task for name, task in LARGER.items()}
parts = pytest.mark.parametrize(
    ("task", "part"),
    [(task, part) for task in ALL.values() for part in task.corruptions],
    ids=[f"{name}: {part}" for name, task in ALL.items() for part in task.corruptions],
)
cases = pytest.mark.parametrize("task", CASES.values(), ids=CASES)
ONE_TOKEN = ("query", "query context", "relation", "value")


def changed(clean: Batch, corrupt: Batch) -> np.ndarray:
    return (clean.tokens != corrupt.tokens).sum(1)


def other(clean: Batch, corrupt: Batch) -> np.ndarray:
    """Rows that could be corrupted."""
    return np.flatnonzero(clean.targets[:, -1] != corrupt.targets[:, -1])


def expected_changes(task, part) -> int:
    """Tokens that a corruption changes, at most."""
    words = task.n - 1 if isinstance(task, InContextNgram) else 1
    copies = getattr(task, "burstiness", 1)
    if part == "value" and not isinstance(task, PermutationInversion):
        return copies
    return words if part in ONE_TOKEN and part != "value" else words * (copies + 1)


@parts
def test_the_answer_is_another_and_the_rule_s_own(task, part):
    clean = task.evaluation(0, 200)
    corrupt = task.corrupt(clean, 3, part)
    rows = other(clean, corrupt)
    assert len(rows) >= 2, "hardly any sequence could be corrupted"
    for row in rows[:50]:
        assert corrupt.targets[row, -1] == solve(task, corrupt.tokens[row].tolist())
    np.testing.assert_array_equal(corrupt.positions, clean.positions)
    assert corrupt.tokens.shape == clean.tokens.shape
    count = changed(clean, corrupt)
    assert count[rows].min() >= 1
    assert count[rows].max() <= expected_changes(task, part)
    if not isinstance(task, InContextNgram) or task.n == 2:
        assert (count[rows] == expected_changes(task, part)).all()
    same = np.setdiff1d(np.arange(len(clean)), rows)
    assert (count[same] == 0).all(), "what cannot be corrupted comes back unchanged"


@parts
def test_another_seed_another_change_and_the_same_seed_the_same(task, part):
    clean = task.evaluation(1, 200)
    first, again, seed = (task.corrupt(clean, s, part).tokens for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    if part != "relation" and not (isinstance(task, IndirectObject) and task.n_blocks == 1):
        choices = task.edits(clean.tokens, part)
        read = task.answer(choices.reshape(-1, choices.shape[2]))
        fits = (read.token.reshape(choices.shape[:2]) != clean.targets[:, -1:]) & (
            read.lawful.reshape(choices.shape[:2])
        )
        if (fits.sum(1) > 1).any():
            assert (first != seed).any()


@cases
def test_rule_and_law_agree_on_every_sequence(task):
    """Of the law, and of its neighbours with another token of the class in one place."""
    laid, probability = task.program.law()
    known = {tuple(row) for row in np.column_stack([laid.tokens, laid.target])[probability > 0]}
    read = task.answer(laid.tokens)
    np.testing.assert_array_equal(read.token, laid.target)
    assert read.lawful.all()
    rng = np.random.default_rng(0)
    classes = np.zeros(task.vocabulary, dtype=int)
    for index, tokens in enumerate(task.symmetry.token_classes):
        classes[tokens] = index
    near = np.repeat(laid.tokens[rng.integers(0, len(laid.tokens), 400)], 6, axis=0)
    rows, at = np.arange(len(near)), rng.integers(0, near.shape[1], len(near))
    new = rng.integers(0, task.vocabulary, len(near))
    fits = (classes[new] == classes[near[rows, at]]) | isinstance(task, AssociativeRecall)
    if isinstance(task, IndirectObject):  # its words stand where they stand
        fits &= new < task.n_names
    near[rows[fits], at[fits]] = new[fits]
    read = task.answer(near)
    member = [
        (*row, answer) in known for row, answer in zip(near.tolist(), read.token, strict=True)
    ]
    np.testing.assert_array_equal(read.lawful, member)
    assert 0 < np.mean(member) < 1
    kinds = task.kind_of(laid.tokens, laid.target)
    np.testing.assert_array_equal(kinds, laid.kind)


@parts
def test_a_change_stays_within_the_law_where_it_can(task, part):
    clean = task.evaluation(2, 60)
    corrupt = task.corrupt(clean, 0, part)
    choices = task.edits(clean.tokens, part)
    read = task.answer(choices.reshape(-1, choices.shape[2]))
    token, lawful = (x.reshape(choices.shape[:2]) for x in (read.token, read.lawful))
    another = (token != clean.targets[:, -1:]) & (token != NONE)
    can, could = (lawful & another).any(1), another.any(1)
    np.testing.assert_array_equal(task.answer(corrupt.tokens).lawful[can], True)
    np.testing.assert_array_equal(np.flatnonzero(could), other(clean, corrupt))


def test_changes_are_uniform_among_the_possible_ones():
    """A query of a permutation may become any of the five others."""
    task = LARGER["inversion"]
    clean = task.evaluation(0, 1)[np.zeros(4000, dtype=int)]
    query = task.corrupt(clean, 0, "query").tokens[:, -1]
    count = np.bincount(query, minlength=6)
    assert count[clean.tokens[0, -1]] == 0
    assert np.sort(count)[1:].min() > 700


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_many_sequences_are_corrupted_as_few_are(part, monkeypatch):
    """Sequences are looked at in portions; the result does not depend on their size."""
    clean = RECALL.evaluation(0, 100)
    whole = RECALL.corrupt(clean, 0, part)
    monkeypatch.setattr("training.tasks.corruption._AT_ONCE", 200)
    np.testing.assert_array_equal(RECALL.corrupt(clean, 0, part).tokens, whole.tokens)


def test_in_weights_queries_become_others_whose_pair_is_not_there():
    task = RECALL.given("iwl")
    clean = task.evaluation(0, 100)
    corrupt = task.corrupt(clean, 0)
    rows = other(clean, corrupt)
    assert len(rows) > 20
    np.testing.assert_array_equal(corrupt.targets[rows, -1], corrupt.tokens[rows, -1] ^ 1)
    assert (corrupt.tokens[rows, :-1:2] != corrupt.tokens[rows, -1:]).all()
    assert (corrupt.kind[rows] == task.kinds.index("iwl")).all()


def test_what_cannot_be_said_of_a_label_is_not_said():
    """With f_v = 0 a common query's label is its partner, so it cannot become another."""
    task = replace(RECALL, f_r=0.0, f_v=0.0, distractor_f_r=0.0, distractor_f_v=0.0)
    clean = task.evaluation(0, 50)
    np.testing.assert_array_equal(task.corrupt(clean, 0, "value").tokens, clean.tokens)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="part is 'label'; one of query, key, value"):
        RECALL.corrupt(RECALL.evaluation(0, 2), 0, "label")


def test_the_pieces():
    assert agreed(np.array([[1, 1, 0]]) > 0, np.array([[4, 4, 5]])).tolist() == [4]
    assert agreed(np.array([[1, 0, 1]]) > 0, np.array([[4, 4, 5]])).tolist() == [NONE]
    assert agreed(np.zeros((1, 3), bool), np.array([[4, 4, 5]])).tolist() == [NONE]
    tokens = np.array([[0, 1, 2]])
    assert replaced(tokens, np.array([[0, 2, -1]]), np.array([7, 8])).tolist() == [
        [[7, 1, 7], [8, 1, 8]]
    ]
    blocks = np.array([[[0, 1], [2, 3], [0, 5]]])
    match = blocks[:, :, 0] == 0
    assert exchanged(blocks, match, [0])[0, 1].tolist() == [[2, 1], [0, 3], [2, 5]]
