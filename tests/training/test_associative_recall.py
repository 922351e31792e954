"""Associative recall as theory section 1 states it."""

import zlib

import numpy as np
import pytest

from training.tasks.associative_recall import KINDS, AssociativeRecall
from training.tasks.base import IGNORE, Task

SIZES = {"n_blocks": 4, "n_common": 8, "n_rare": 8, "track_slots": 4, "f_r": 0.4, "f_v": 0.4}
RECALL = AssociativeRecall(**SIZES)


def test_is_a_task_with_its_sizes():
    assert isinstance(RECALL, Task)
    assert (RECALL.vocabulary, RECALL.n_positions, RECALL.kinds) == (16, 20, KINDS)
    batch = RECALL.batch(seed=0, k=0, size=64)
    assert batch.tokens.shape == batch.positions.shape == batch.targets.shape == (64, 9)
    assert (batch.targets[:, :-1] == IGNORE).all()
    assert (batch.targets[:, -1] >= 0).all()


def test_a_batch_is_a_function_of_seed_and_index():
    first, again = RECALL.batch(1, 5, 32), RECALL.batch(1, 5, 32)
    for name in ("tokens", "positions", "targets", "kind"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    others = [RECALL.batch(1, 6, 32), RECALL.batch(2, 5, 32), RECALL.evaluation(1, 32)]
    assert all((first.tokens != other.tokens).any() for other in others)
    with pytest.raises(ValueError, match="train_size is 100"):
        RECALL.batch(0, 0, 8, train_size=100)


def test_batches_are_those_of_every_earlier_version():
    """Stored runs are resumed and evaluated on the same sequences, to the bit."""
    batches = (
        RECALL.batch(0, 0, 64),
        RECALL.evaluation(0, 64),
        RECALL.evaluation(0, 64, "mismatch"),
    )
    arrays = [np.column_stack([b.tokens, b.positions, b.targets, b.kind]) for b in batches]
    found = [zlib.crc32(array.astype("<i4").tobytes()) for array in arrays]
    assert found == [3930240218, 4083379176, 557788061]


@pytest.mark.parametrize("burstiness", [0, 1, 3])
def test_the_query_pair_is_in_exactly_b_blocks(burstiness):
    batch = AssociativeRecall(**SIZES, burstiness=burstiness).batch(0, 0, 400)
    blocks = batch.tokens[:, :-1].reshape(400, 4, 2)
    holds = blocks[:, :, 0] == batch.tokens[:, -1:]
    assert (holds.sum(1) == burstiness).all()
    labels = np.where(holds, blocks[:, :, 1], batch.targets[:, -1:])
    assert (labels == batch.targets[:, -1:]).all()
    if burstiness == 1:
        assert (np.bincount(holds.argmax(1)) > 60).all()


def test_blocks_lie_on_distinct_tracks_in_neighbouring_slots():
    batch = RECALL.batch(0, 0, 500)
    track, slot = np.divmod(batch.positions, 4)
    starts = track[:, ::2]
    assert all(len(set(row)) == 5 for row in starts.tolist())
    np.testing.assert_array_equal(track[:, 1::2], starts[:, :-1])
    np.testing.assert_array_equal(slot[:, 1::2], (slot[:, :-1:2] + 1) % 4)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_of_one_kind(kind):
    batch = RECALL.evaluation(0, 300, kind=kind)
    query, answer = batch.tokens[:, -1], batch.targets[:, -1]
    assert (batch.kind == KINDS.index(kind)).all()
    assert ((query >= 8) == (kind == "rare")).all()
    if kind != "rare":
        assert ((answer == (query ^ 1)) == (kind in ("match", "iwl"))).all()
    held = (batch.tokens[:, :-1:2] == query[:, None]).sum(1)
    assert (held == (0 if kind == "iwl" else 1)).all()
    rare_keys = (batch.tokens[:, :-1:2] >= 8)[batch.tokens[:, :-1:2] != query[:, None]].mean()
    assert abs(rare_keys - 0.4) < 0.1


def test_kinds_have_their_probabilities():
    share = np.bincount(RECALL.evaluation(0, 20_000).kind, minlength=4) / 20_000
    np.testing.assert_allclose(share, [0.4, 0.36, 0.24, 0.0], atol=0.015)


def test_symmetry_leaves_its_named_directions_alone():
    symmetry = RECALL.symmetry
    assert list(symmetry.token_directions) == ["I_c", "I_r", "C"]
    assert list(symmetry.position_directions) == ["I_p", "M", "M^2", "M^T"]
    sides = (
        (symmetry.token_generators, symmetry.token_directions),
        (symmetry.position_generators, symmetry.position_directions),
    )
    for generators, directions in sides:
        for g in generators:
            assert sorted(g) == list(range(len(g)))
            for matrix in directions.values():
                np.testing.assert_array_equal(matrix[np.ix_(g, g)], matrix)
    shift = symmetry.position_directions["M"]
    assert shift[5, 4] == 1.0
    assert shift[4, 7] == 1.0
    np.testing.assert_array_equal(symmetry.position_directions["M^T"], shift.T)
    assert [list(part[:2]) for part in symmetry.token_classes] == [[0, 1], [8, 9]]
    assert len(symmetry.tracks) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rare": 0}, "f_r is 0.4 with n_rare = 0"),
        ({"n_rare": 1}, "n_rare >= 2"),
        ({"f_r": 0.0, "n_rare": 0, "distractor_f_r": 0.1}, "distractor_f_r is 0.1"),
        ({"n_common": 7}, "n_common is 7; even"),
        ({"n_common": 2}, "n_common >= 4"),
        ({"n_common": 0}, "n_common >= 2"),
        ({"burstiness": 5}, "burstiness is 5; at most n_blocks = 4"),
        ({"track_slots": 1}, "track_slots is 1"),
        ({"f_v": 1.5}, "f_v is 1.5; a probability"),
        ({"f_r": float("nan")}, "f_r is nan"),
        ({"n_blocks": 0}, "n_blocks is 0"),
        ({"n_blocks": 2.5}, "n_blocks is 2.5; a whole number"),
    ],
)
def test_impossible_tasks_are_refused_by_field(change, message):
    with pytest.raises(ValueError, match=message):
        AssociativeRecall(**{**SIZES, **change})


def test_a_task_without_rare_or_without_common_tokens_is_possible():
    common = AssociativeRecall(**{**SIZES, "n_rare": 0, "f_r": 0.0})
    assert (common.batch(0, 0, 50).tokens < 8).all()
    rare = AssociativeRecall(**{**SIZES, "n_common": 0, "f_r": 1.0})
    assert rare.batch(0, 0, 50).tokens.max() == 7
    assert abs(rare.program.orbits().weights().sum() - 1) < 1e-12
