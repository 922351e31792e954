"""Laws of the probabilistic program: one definition, and everything that follows from it agrees."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from training.groups import TokenClass, relabel, token_generators
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.program import merge

TINY = AssociativeRecall(
    n_blocks=2,
    n_common=4,
    n_rare=3,
    track_slots=2,
    f_r=0.3,
    f_v=0.2,
    distractor_f_r=0.6,
    distractor_f_v=0.45,
)


def label_law(key: int, task: AssociativeRecall, f_v: float) -> dict[int, float]:
    """The rule of theory section 1, token by token."""
    if key >= task.n_common:
        others = [v for v in range(task.n_common, task.vocabulary) if v != key]
        return {v: 1 / len(others) for v in others}
    mate = key + 1 if key % 2 == 0 else key - 1
    others = [v for v in range(task.n_common) if v not in (key, mate)]
    return {mate: 1 - f_v, **{v: f_v / len(others) for v in others}}


def distractor_law(query: int, task: AssociativeRecall) -> dict[int, float]:
    """Draw a class, then a token; the whole draw is repeated while it equals the query."""
    f_r = task.distractor_f_r
    assert f_r is not None
    once = {u: (1 - f_r) / task.n_common for u in range(task.n_common)}
    once |= {u: f_r / task.n_rare for u in range(task.n_common, task.vocabulary)}
    return {u: p / (1 - once[query]) for u, p in once.items() if u != query}


def slow_law(task: AssociativeRecall) -> dict[tuple[int, ...], float]:
    """Probability of each (sequence, answer) for two blocks and one copy, by nested sums."""
    law: dict[tuple[int, ...], float] = {}
    for q in range(task.vocabulary):
        rare = q >= task.n_common
        p_q = task.f_r / task.n_rare if rare else (1 - task.f_r) / task.n_common
        for (y, p_y), (u, p_u) in product(
            label_law(q, task, task.f_v).items(), distractor_law(q, task).items()
        ):
            for v, p_v in label_law(u, task, task.distractor_f_v or 0.0).items():
                for row in ((q, y, u, v, q, y), (u, v, q, y, q, y)):
                    law[row] = law.get(row, 0.0) + p_q * p_y * p_u * p_v / 2
    return law


def test_exact_law_is_the_law_written_out():
    laid, probability = TINY.program.law()
    expected = slow_law(TINY)
    rows = np.column_stack([laid.tokens, laid.target])
    assert len(rows) == len(expected)
    found = np.array([expected[tuple(row)] for row in rows.tolist()])
    np.testing.assert_allclose(probability, found, rtol=1e-13)


def test_orbit_weights_add_up_the_law_over_each_orbit():
    laid, probability = TINY.program.law()
    orbits = TINY.program.orbits()
    rows = relabel(np.column_stack([laid.tokens, laid.target]), TINY.program.classes)
    canonical = np.column_stack([orbits.tokens, orbits.target])
    _, group = merge(np.concatenate([canonical, rows]))
    assert len(np.unique(group)) == len(orbits)
    summed = np.bincount(group[len(orbits) :], weights=probability)
    np.testing.assert_allclose(orbits.weights(), summed[group[: len(orbits)]], rtol=1e-12)


def test_orbits_are_the_group_orbits():
    """Connected components of the law's sequences under the generators, by brute force."""
    laid, _ = TINY.program.law()
    rows = np.column_stack([laid.tokens, laid.target])
    index = {tuple(row): i for i, row in enumerate(rows.tolist())}
    component = np.arange(len(rows))
    images = [
        np.array([index[tuple(row)] for row in g[rows].tolist()])
        for g in TINY.symmetry.token_generators
    ]
    while True:
        lower = np.minimum.reduce([component, *(component[image] for image in images)])
        if (lower == component).all():
            break
        component = lower
    assert len(np.unique(component)) == len(TINY.program.orbits())


@pytest.mark.parametrize(
    ("n", "common", "rare", "count"), [(3, 6, 5, 1836), (4, 8, 8, 111_132)], ids=["small", "large"]
)
def test_orbit_counts(n, common, rare, count):
    """1,836 and about 111,000 (theory, section 1, table)."""
    task = AssociativeRecall(
        n_blocks=n, n_common=common, n_rare=rare, track_slots=4, f_r=0.3, f_v=0.3
    )
    orbits = task.program.orbits()
    assert len(orbits) == count
    assert abs(orbits.weights().sum() - 1.0) < 1e-12


@pytest.mark.parametrize("burstiness", [0, 1, 2])
def test_invariance_is_exact_for_every_generator_and_placement(burstiness):
    task = AssociativeRecall(
        n_blocks=2,
        n_common=4,
        n_rare=3,
        track_slots=3,
        f_r=0.3,
        f_v=0.2,
        distractor_f_r=0.6,
        burstiness=burstiness,
    )
    assert task.program.invariance() < 1e-17


def test_invariance_sees_a_broken_symmetry():
    """A generator that exchanges a common and a rare token is no symmetry of the law."""
    laid, probability = TINY.program.law()
    swap = np.arange(TINY.vocabulary)
    swap[[0, 5]] = [5, 0]
    rows = np.column_stack([laid.tokens, laid.target])
    law = dict(zip(map(tuple, rows.tolist()), probability, strict=True))
    gap = max(
        abs(law.get(tuple(row), 0.0) - p)
        for row, p in zip(swap[rows].tolist(), probability, strict=True)
    )
    assert gap > 1e-4


def test_sampler_follows_the_law():
    """Chi-square over all sequences of the tiny instance and over all placements."""
    count = 40_000
    batch = TINY.program.sample(np.random.default_rng(3), count)
    laid, probability = TINY.program.law()
    rows = np.column_stack([laid.tokens, laid.target])
    drawn = np.column_stack([batch.tokens, batch.targets[:, -1]])
    _, group = merge(np.concatenate([rows, drawn]))
    observed = np.bincount(group[len(rows) :], minlength=len(rows))[group[: len(rows)]]
    assert observed.sum() == count
    assert stats.chisquare(observed, count * probability / probability.sum()).pvalue > 1e-3
    places = TINY.program.placements()
    _, group = merge(np.concatenate([places, batch.positions]))
    observed = np.bincount(group[len(places) :], minlength=len(places))
    assert observed.sum() == count
    assert stats.chisquare(observed).pvalue > 1e-3


def test_orbit_expectation_agrees_with_monte_carlo():
    task = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)
    orbits = task.program.orbits()
    repeats = (orbits.tokens[:, :-1] == orbits.target[:, None]).sum(1)
    exact = orbits.weights() @ repeats
    sample = task.program.sample(np.random.default_rng(0), 50_000)
    seen = (sample.tokens[:, :-1] == sample.targets[:, -1:]).sum(1)
    assert abs(seen.mean() - exact) < 5 * seen.std() / np.sqrt(len(seen))


def test_weights_follow_named_parameters_and_are_differentiable():
    orbits = TINY.program.orbits()
    shifted = AssociativeRecall(
        n_blocks=2,
        n_common=4,
        n_rare=3,
        track_slots=2,
        f_r=0.7,
        f_v=0.1,
        distractor_f_r=0.2,
        distractor_f_v=0.9,
    )
    there = {"f_r": 0.7, "f_v": 0.1, "distractor_f_r": 0.2, "distractor_f_v": 0.9}
    np.testing.assert_allclose(
        orbits.weights(**there), shifted.program.orbits().weights(), atol=1e-16
    )
    for name, value in there.items():
        parameter = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        probe = torch.linspace(0, 1, len(orbits), dtype=torch.float64)
        (slope,) = torch.autograd.grad(orbits.weights(**{name: parameter}) @ probe, parameter)
        up, down = (orbits.weights(**{name: value + s * 1e-6}) for s in (1, -1))
        assert abs(slope.item() - (up - down) @ probe.numpy() / 2e-6) < 1e-8
    at_zero = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    orbits.weights(f_r=at_zero, f_v=at_zero)[0].backward()
    assert at_zero.grad is not None
    assert torch.isfinite(at_zero.grad)
    with pytest.raises(ValueError, match="unknown parameters"):
        orbits.weights(f_w=0.1)


def test_relabel_is_constant_on_orbits_and_idempotent():
    classes = (
        TokenClass(name="common", start=0, size=6, structure="pairs"),
        TokenClass(name="rare", start=6, size=4),
    )
    rows = np.random.default_rng(0).integers(10, size=(200, 7))
    canonical = relabel(rows, classes)
    np.testing.assert_array_equal(relabel(canonical, classes), canonical)
    for g in token_generators(classes):
        np.testing.assert_array_equal(relabel(g[rows], classes), canonical)
    np.testing.assert_array_equal(
        relabel(np.array([[5, 9, 4, 0, 9, 7]]), classes), [[0, 6, 1, 2, 6, 7]]
    )


def test_merge_groups_rows_also_when_the_key_would_overflow():
    rows = np.random.default_rng(1).integers(2, size=(500, 3)).repeat(30, axis=1) * 60
    first, group = merge(rows)
    assert len(first) == 8
    np.testing.assert_array_equal(rows[first][group], rows)
