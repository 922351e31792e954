"""Laws of every task of the block-list class; each follows from one definition, the program."""

import numpy as np
import pytest
from scipy import stats

from tests.training.block_list_cases import CASES, RECALL, UNIFORM, every, half_used, solve
from training import RunConfig, train
from training.groups import relabel
from training.naming import describe, resolve
from training.tasks import (
    TASKS,
    BlockList,
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    PermutationInversion,
    RelationRetrieval,
    Task,
)
from training.tasks.base import IGNORE, Batch
from training.tasks.program import merge

cases = pytest.mark.parametrize("task", CASES.values(), ids=CASES)
uniform = pytest.mark.parametrize("task", UNIFORM.values(), ids=UNIFORM)


def rows_of(batch: Batch) -> np.ndarray:
    return np.column_stack([batch.tokens, batch.targets[:, -1]])


@cases
def test_it_is_a_task(task):
    assert isinstance(task, Task)
    batch = task.batch(0, 0, 30)
    time = sum(task.program.blocks)
    assert batch.tokens.shape == batch.positions.shape == batch.targets.shape == (30, time)
    assert batch.tokens.max() < task.vocabulary
    assert batch.positions.max() < task.n_positions
    assert (batch.targets[:, :-1] == IGNORE).all()
    assert sum(len(cls) for cls in task.symmetry.token_classes) == task.vocabulary
    assert batch.kind.max() < len(task.kinds)


@cases
def test_the_law_is_invariant_under_every_generator(task):
    """Largest |p(g x) - p(x)| below 1e-15 (theory, section 1: exactly 0)."""
    assert task.program.invariance() < 1e-15


@cases
def test_a_broken_sampler_is_detected(task):
    """Sequences that a generator exchanges differ by as much as a sequence has at all."""
    broken = half_used(task.program)
    _, probability = broken.law()
    assert broken.invariance() > 0.2 * probability.max()


@uniform
def test_the_law_is_the_definition_written_out(task):
    laid, probability = task.program.law()
    rows = np.column_stack([laid.tokens, laid.target]).tolist()
    expected = set(every(task))
    assert len(rows) == len(expected)
    assert set(map(tuple, rows)) == expected
    np.testing.assert_allclose(probability, 1 / len(expected), rtol=1e-12)


@cases
def test_the_sampler_follows_the_law(task):
    """Chi-square over all sequences of the law, and nothing outside it."""
    laid, probability = task.program.law()
    count = max(5 * len(probability), 5000)
    drawn = rows_of(task.program.sample(np.random.default_rng(5), count))
    rows = np.column_stack([laid.tokens, laid.target])
    _, group = merge(np.concatenate([rows, drawn]))
    observed = np.bincount(group[len(rows) :], minlength=len(rows))[group[: len(rows)]]
    assert observed.sum() == count
    assert stats.chisquare(observed, count * probability / probability.sum()).pvalue > 1e-3


@cases
def test_orbits_sum_to_one_and_expand_to_the_law(task):
    orbits, (laid, probability) = task.program.orbits(), task.program.law()
    assert abs(orbits.weights().sum() - 1) < 1e-14
    rows = relabel(np.column_stack([laid.tokens, laid.target]), task.program.classes)
    _, group = merge(np.concatenate([np.column_stack([orbits.tokens, orbits.target]), rows]))
    assert group.max() + 1 == len(orbits)
    within = group[len(orbits) :]
    summed = np.bincount(within, weights=probability)[group[: len(orbits)]]
    np.testing.assert_allclose(orbits.weights(), summed, rtol=1e-12)
    mean = summed / np.bincount(within)[group[: len(orbits)]]
    of_orbit = np.empty(len(orbits))
    of_orbit[group[: len(orbits)]] = mean
    np.testing.assert_allclose(probability, of_orbit[within], rtol=1e-12)


@pytest.mark.parametrize(
    ("task", "count"),
    [
        (InContextNgram(n_blocks=4, n_tokens=8), 3508),
        (InContextNgram(n_blocks=3, n_tokens=8, n=3), 4002),
        (KHop(hops=2, n_tokens=6), 24),
        (KHop(hops=3, n_tokens=8), 720),
        *((IndirectObject(n_blocks=n, n_names=2 * n + 1), 2 * n) for n in (1, 2, 3)),
        *((IndirectObject(n_blocks=n, n_names=6, function_words=True), 2 * n) for n in (1, 2, 3)),
        (ConditionalRetrieval(n_blocks=3, n_contexts=3, n_keys=3, n_values=3), 12),
        (ConditionalRetrieval(n_blocks=4, n_contexts=3, n_keys=3, n_values=3), 480),
        (RelationRetrieval(n_blocks=2, n_keys=2, n_values=4), 28),
        (RelationRetrieval(n_blocks=3, n_keys=3, n_values=6), 522),
        (PermutationInversion(n_tokens=4), 96),
        (PermutationInversion(n_tokens=5), 600),
    ],
)
def test_orbit_counts(task, count):
    """Theory, section 1, table; permutation inversion at n = 4 has 36 there, see below."""
    assert len(task.program.orbits()) == count


@pytest.mark.parametrize(("n", "derangements"), [(4, 36), (5, 220)])
def test_permutations_without_fixed_points(n, derangements):
    """The theory's 36 at n = 4 counts these alone, its 600 at n = 5 all permutations, n! n."""
    orbits = PermutationInversion(n_tokens=n).program.orbits()
    blocks = orbits.tokens[:, :-1].reshape(len(orbits), n, 2)
    assert (blocks[:, :, 0] != blocks[:, :, 1]).all(1).sum() == derangements


@cases
def test_answers_are_right(task):
    batch = task.evaluation(0, 200)
    for row, answer in zip(batch.tokens.tolist(), batch.targets[:, -1].tolist(), strict=True):
        assert solve(task, row) == answer


def test_three_hops_are_right():
    task = KHop(hops=3, n_tokens=10)
    batch = task.batch(0, 0, 200)
    for row, answer in zip(batch.tokens.tolist(), batch.targets[:, -1].tolist(), strict=True):
        assert solve(task, row) == answer


@cases
def test_batches_are_functions_of_seed_and_index(task):
    first, again = task.batch(1, 5, 60), task.batch(1, 5, 60)
    for name in ("tokens", "positions", "targets", "kind"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    others = (task.batch(1, 6, 60), task.batch(2, 5, 60), task.evaluation(1, 60))
    assert all((first.tokens != other.tokens).any() for other in others)
    with pytest.raises(ValueError, match="train_size is 9"):
        task.batch(0, 0, 8, train_size=9)
    with pytest.raises(ValueError, match="kind is 'none'; one of rare"):
        task.evaluation(0, 8, kind="none")
    rare = task.evaluation(0, 20, kind="rare")
    assert (rare.kind == task.kinds.index("rare")).all()


@cases
def test_blocks_lie_on_distinct_tracks_in_following_slots(task):
    slots = task.program.track_slots
    track, slot = np.divmod(task.batch(0, 0, 300).positions, slots)
    block = np.repeat(np.arange(len(task.program.blocks)), task.program.blocks)
    for a, b in zip(range(len(block)), range(1, len(block)), strict=False):
        same = block[a] == block[b]
        assert ((track[:, a] == track[:, b]) == same).all()
        if same:
            np.testing.assert_array_equal(slot[:, b], (slot[:, a] + 1) % slots)
    starts = track[:, np.searchsorted(block, np.arange(block.max() + 1))]
    assert all(len(set(row)) == len(row) for row in starts.tolist())


@cases
def test_spans_point_at_what_they_name(task):
    batch = task.batch(0, 0, 300)
    spans = task.spans(batch)
    row = np.arange(len(batch))
    copies = getattr(task, "burstiness", 1)
    assert spans["match"].shape == spans["answer"].shape == (300, copies)
    for copy in range(copies):
        match, answer = spans["match"][:, copy], spans["answer"][:, copy]
        np.testing.assert_array_equal(batch.tokens[row, match], batch.tokens[row, spans["query"]])
        np.testing.assert_array_equal(batch.tokens[row, answer], batch.targets[:, -1])
        if not isinstance(task, KHop):
            starts = np.cumsum([0, *task.program.blocks])[:-1]
            block = np.searchsorted(starts, np.column_stack([match, answer]), side="right")
            assert (block[:, 0] == block[:, 1]).all()
    if isinstance(task, KHop):
        np.testing.assert_array_equal(spans["hops"][:, 0], spans["match"][:, 0])
        found = batch.tokens[row[:, None], spans["hops"] + 1]
        np.testing.assert_array_equal(
            found[:, :-1], batch.tokens[row[:, None], spans["hops"]][:, 1:]
        )


def test_spans_without_a_match_are_filled():
    spans = RECALL.spans(RECALL.evaluation(0, 10, kind="iwl"))
    assert (spans["match"] == -1).all()
    assert (spans["answer"] == -1).all()
    assert spans["match"].shape == (10, 1)


def test_spans_refuse_the_batch_of_another_task():
    with pytest.raises(ValueError, match=r"the batch has 8 tokens .* blocks of 2 and 1 at the end"):
        RECALL.spans(UNIFORM["3-gram"].batch(0, 0, 5))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("in_context_ngram", {"n_blocks": 2, "n_tokens": 2, "n": 3}, "n_tokens is 2; .* least 3"),
        ("in_context_ngram", {"n_blocks": 2, "n_tokens": 4, "n": 1}, "n is 1"),
        ("in_context_ngram", {"n_blocks": 2, "n_tokens": 4, "burstiness": 3}, "burstiness is 3"),
        ("in_context_ngram", {"n_blocks": 2, "n_tokens": 4, "burstiness": 0}, "burstiness is 0"),
        (
            "in_context_ngram",
            {"n_blocks": 2, "n_tokens": 4, "n": 3, "track_slots": 2},
            "track_slots is 2; .* at least 3 .a block of 3 tokens",
        ),
        ("k_hop", {"hops": 2, "n_tokens": 8, "chains": 1}, "chains is 1; .* a shortcut"),
        ("k_hop", {"hops": 2, "n_tokens": 5}, "n_tokens is 5; .* at least 6"),
        ("k_hop", {"hops": 0, "n_tokens": 5}, "hops is 0"),
        ("k_hop", {"hops": 1, "n_tokens": 4, "track_slots": 1}, "track_slots is 1"),
        ("indirect_object", {"n_blocks": 2, "n_names": 3}, "n_names is 3; .* at least 4"),
        ("indirect_object", {"n_blocks": 1, "n_names": 3, "function_words": 1}, "true or false"),
        (
            "indirect_object",
            {"n_blocks": 1, "n_names": 3, "function_words": True, "track_slots": 2},
            "track_slots is 2",
        ),
        (
            "conditional_retrieval",
            {"n_blocks": 5, "n_contexts": 2, "n_keys": 2, "n_values": 2},
            "n_blocks is 5; at most n_contexts n_keys = 4",
        ),
        (
            "conditional_retrieval",
            {"n_blocks": 2, "n_contexts": 2, "n_keys": 2, "n_values": 2},
            "n_blocks is 2; .* at least 3",
        ),
        (
            "conditional_retrieval",
            {"n_blocks": 3, "n_contexts": 2, "n_keys": 2, "n_values": 1},
            "n_values is 1",
        ),
        ("relation_retrieval", {"n_blocks": 3, "n_keys": 2, "n_values": 2}, "n_keys is 2"),
        ("relation_retrieval", {"n_blocks": 1, "n_keys": 2, "n_values": 1}, "n_values is 1"),
        ("permutation_inversion", {"n_tokens": 1}, "n_tokens is 1"),
        ("permutation_inversion", {"n_tokens": True}, "n_tokens is True"),
    ],
)
def test_impossible_tasks_are_refused_by_field(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        TASKS[name](**parameters)


@cases
def test_a_configuration_names_it_and_reads_it_back(task):
    text = describe("task", task)
    assert TASKS[text["name"]] is type(task)
    assert resolve("task", text) == task


def test_every_block_list_task_of_the_table_has_a_case():
    listed = {kind for kind in TASKS.values() if issubclass(kind, BlockList)}
    assert {type(task) for task in CASES.values()} == listed
    assert len(listed) == 7


@pytest.mark.slow
@cases
def test_a_short_run_of_attention_only(task, tmp_path):
    config = RunConfig(
        task=describe("task", task),
        family={"name": "attention_only", "layers": 2},
        optimiser={"name": "adam", "lr": 1e-2},
        steps=60,
        eval_every=60,
        eval_size=200,
        checkpoints={"doubling": False, "every": None},
    )
    run = train(config, tmp_path)
    losses = run.metrics["validation_loss"]
    assert run.metrics["step"].tolist() == [0, 60]
    assert np.isfinite(losses).all()
    assert losses.iloc[-1] != losses.iloc[0]
