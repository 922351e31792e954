"""Laws of the groups that rename tokens and move positions, and of relabelling by them."""

import numpy as np
import pytest
from scipy import stats

from tests.training.block_list_cases import CASES, RECALL, UNIFORM, half_used, solve
from training.groups import (
    TokenClass,
    position_generators,
    random_moves,
    random_renamings,
    relabel,
    token_directions,
    token_generators,
)
from training.tasks import AssociativeRecall, KHop, RelationRetrieval
from training.tasks.base import IGNORE
from training.tasks.program import merge

CLASSES = (
    TokenClass(name="common", start=0, size=4, structure="pairs"),
    TokenClass(name="rare", start=4, size=3),
    TokenClass(name="word", start=7, size=2, structure="fixed"),
)


def closure(generators: np.ndarray) -> np.ndarray:
    """Every element of the group that permutations generate, (order, points)."""
    found = {tuple(range(generators.shape[1]))}
    new = list(found)
    while new:
        images = {tuple(g[list(element)].tolist()) for g in generators for element in new}
        new = list(images - found)
        found |= images
    return np.array(sorted(found))


def test_fixed_tokens_are_moved_by_nothing():
    for g in token_generators(CLASSES):
        np.testing.assert_array_equal(g[7:], [7, 8])
    rows = np.array([[8, 5, 7, 3], [7, 6, 8, 0]])
    np.testing.assert_array_equal(relabel(rows, CLASSES), [[8, 4, 7, 0], [7, 4, 8, 0]])
    assert list(token_directions(CLASSES)) == ["I_c", "I_r", "I_w", "C"]
    with pytest.raises(ValueError, match="structure of class 'x' is 'loose'; free"):
        TokenClass(name="x", start=0, size=2, structure="loose")  # type: ignore[arg-type]


def test_classes_of_one_letter_are_refused():
    """The second would take the first one's I_x, and an identity would be missing."""
    alike = (TokenClass(name="rare", start=0, size=2), TokenClass(name="red", start=2, size=2))
    with pytest.raises(ValueError, match="'rare' and 'red' would both be called 'I_r'"):
        token_directions(alike)
    unused = TokenClass(name="red", start=2, size=0)
    assert list(token_directions((alike[0], unused))) == ["I_r"]


def test_fixed_tokens_are_a_class_to_centre():
    symmetry = RelationRetrieval(n_blocks=2, n_keys=3, n_values=4).symmetry
    assert [part.tolist() for part in symmetry.token_classes] == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("generators", "drawn", "order"),
    [
        (
            token_generators(CLASSES),
            random_renamings(CLASSES, np.random.default_rng(0), 4800),
            2 * 2 * 2 * 6,
        ),
        (
            position_generators(3, 2),
            random_moves(3, 2, np.random.default_rng(0), 4800),
            2**3 * 6,
        ),
    ],
    ids=["tokens", "positions"],
)
def test_random_elements_are_uniform_over_the_group(generators, drawn, order):
    """S_2 wr S_2 x S_3 and Z_2 wr S_3, both of order 48."""
    group = closure(generators)
    assert len(group) == order
    _, which = merge(np.concatenate([group, drawn]))
    observed = np.bincount(which[order:], minlength=order)
    assert observed.sum() == len(drawn)
    assert len(observed) == order
    assert stats.chisquare(observed).pvalue > 1e-3


TINY = AssociativeRecall(n_blocks=1, n_common=4, n_rare=3, track_slots=2, f_r=0.4, f_v=0.3)
BIASED = half_used(TINY.program)


def test_relabelling_makes_a_biased_law_invariant():
    """Exactly: the law averaged over the group does not change under a generator, where the biased
    one does; and relabelled samples follow that average."""
    laid, probability = TINY.program.law()
    rows = np.column_stack([laid.tokens, laid.target])
    index = {tuple(row): i for i, row in enumerate(rows.tolist())}
    found, chance = BIASED.law()
    biased = np.zeros(len(rows))
    for row, p in zip(np.column_stack([found.tokens, found.target]).tolist(), chance, strict=True):
        biased[index[tuple(row)]] = p
    images = [
        np.array([index[tuple(row)] for row in g[rows].tolist()])
        for g in closure(TINY.symmetry.token_generators)
    ]
    average = np.mean([biased[image] for image in images], axis=0)
    moved = [
        np.array([index[tuple(row)] for row in g[rows].tolist()])
        for g in TINY.symmetry.token_generators
    ]
    assert max(np.abs(average[image] - average).max() for image in moved) < 1e-16
    assert max(np.abs(biased[image] - biased).max() for image in moved) > 0.01
    np.testing.assert_allclose(average, probability, rtol=1e-12)

    sample = BIASED.sample(np.random.default_rng(1), 20_000)
    for batch, symmetric in (
        (sample, False),
        (TINY.program.relabelled(sample, np.random.default_rng(2)), True),
    ):
        drawn = np.column_stack([batch.tokens, batch.targets[:, -1]])
        _, group = merge(np.concatenate([rows, drawn]))
        observed = np.bincount(group[len(rows) :], minlength=len(rows))[group[: len(rows)]]
        expected = len(drawn) * average / average.sum()
        assert (stats.chisquare(observed, expected).pvalue > 1e-3) == symmetric


def test_relabelling_spreads_placements_that_were_all_equal():
    sample = TINY.batch(0, 0, 4000)
    sample.positions[:] = sample.positions[0]
    moved = TINY.program.relabelled(sample, np.random.default_rng(0))
    places = TINY.program.placements()
    _, group = merge(np.concatenate([places, moved.positions]))
    observed = np.bincount(group[len(places) :])
    assert len(observed) == len(places)
    assert stats.chisquare(observed).pvalue > 1e-3


@pytest.mark.parametrize("task", CASES.values(), ids=CASES)
def test_relabelling_keeps_the_orbit_and_the_target_follows(task):
    batch = task.batch(0, 0, 200)
    moved = task.program.relabelled(batch, np.random.default_rng(3))
    assert (moved.tokens != batch.tokens).any()
    assert (moved.positions != batch.positions).any()
    np.testing.assert_array_equal(moved.kind, batch.kind)
    np.testing.assert_array_equal(moved.targets == IGNORE, batch.targets == IGNORE)
    rows = (np.column_stack([b.tokens, b.targets[:, -1]]) for b in (batch, moved))
    before, after = (relabel(r, task.program.classes) for r in rows)
    np.testing.assert_array_equal(before, after)
    for row, answer in zip(moved.tokens.tolist(), moved.targets[:, -1].tolist(), strict=True):
        assert solve(task, row) == answer


def test_relabelling_keeps_partners_together():
    batch = RECALL.evaluation(0, 300, kind="match")
    moved = RECALL.program.relabelled(batch, np.random.default_rng(0))
    np.testing.assert_array_equal(moved.targets[:, -1], moved.tokens[:, -1] ^ 1)


def test_relabelling_refuses_the_batch_of_another_task():
    batch = KHop(hops=1, n_tokens=9).batch(0, 0, 20)
    with pytest.raises(ValueError, match="tokens of the batch run from 0 to 8; this task has 0 to"):
        UNIFORM["2-gram"].program.relabelled(batch, np.random.default_rng(0))
