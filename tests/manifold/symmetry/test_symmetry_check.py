"""Data that break the declared symmetry are found out; data that keep it are left alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2

from manifold.coordinates.invariant import invariant_basis
from manifold.symmetry.confinement import loss_gradient, random_point
from manifold.symmetry.group_elements import random_elements
from manifold.symmetry.symmetry_check import symmetry_check
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)
POOL = TASK.batch(9, 0, 256)


def fair(k, size):
    return TASK.batch(0, k, size)


def zipf(k, size):
    """The query is drawn with weight 1 / rank within its class."""
    batch = TASK.batch(0, k, 6 * size)
    weight = 1.0 / (1 + batch.tokens[:, -1] % 4)
    return batch[np.random.default_rng(k).choice(len(batch), size, p=weight / weight.sum())]


def half_used(k, size):
    """Half of the values never are an answer."""
    batch = TASK.batch(0, k, 6 * size)
    return batch[np.flatnonzero(batch.targets[:, -1] % 2 == 0)[:size]]


def sorted_keys(k, size):
    """Blocks in the order of their keys, for convenience."""
    batch = TASK.batch(0, k, size)
    blocks = batch.tokens[:, :-1].reshape(size, -1, 2)
    order = blocks[:, :, 0].argsort(1)
    blocks = np.take_along_axis(blocks, order[:, :, None], 1).reshape(size, -1)
    return replace(batch, tokens=np.column_stack([blocks, batch.tokens[:, -1]]))


def fixed(k, size):
    """256 sequences, again and again."""
    return POOL[np.random.default_rng(k).integers(256, size=size)]


BROKEN = {"zipf": zipf, "half used": half_used, "sorted keys": sorted_keys, "256 fixed": fixed}


def relabelled(sampler):
    def draw(k, size):
        return TASK.program.relabelled(sampler(k, size), np.random.default_rng(1000 + k))

    return draw


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("zipf", 0.05, 0.4),
        ("half used", 0.1, 0.8),
        ("sorted keys", 6e-4, 0.02),
        ("256 fixed", 0.1, 0.3),
    ],
)
def test_broken_symmetry_is_found_and_measured(name, low, high):
    """Theory, section 1: shares of 0.0006 to 0.8, and 0.19 for 256 fixed sequences."""
    found = symmetry_check(BROKEN[name], TASK, copies=199)
    assert found.broken
    assert found.verdict == "broken"
    assert low < found.excess < high
    assert found.low < found.excess < found.high
    assert found.share > found.floor


@pytest.mark.parametrize(
    "name", ["zipf", *(pytest.param(n, marks=pytest.mark.slow) for n in list(BROKEN)[1:])]
)
def test_relabelling_restores_it(name):
    found = symmetry_check(relabelled(BROKEN[name]), TASK, copies=199)
    assert not found.broken
    assert found.share < 2 * found.floor < 0.02
    assert found.low < 0.005


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated():
    """A symmetric sampler is called broken with probability at most alpha: 60 data sets."""
    alpha, sets = 0.1, 60
    alarms = 0
    for s in range(sets):
        found = symmetry_check(
            lambda k, size, s=s: TASK.batch(s, k, size),
            TASK,
            samples=320,
            alpha=alpha,
            copies=39,
            parts=8,
            layers=1,
            seed=s,
        )
        alarms += found.broken
    assert alarms <= binom.ppf(0.999, sets, alpha)


@pytest.mark.slow
def test_p_is_valid_although_two_tests_are_made():
    """Each of two tests rejects at p <= alpha / 2: over 400 symmetric sets no level is exceeded,
    as it would be without the factor 2."""
    tiny = AssociativeRecall(n_blocks=1, n_common=0, n_rare=3, track_slots=2, f_r=1.0, f_v=0.0)
    p = np.array(
        [
            symmetry_check(
                lambda k, size, s=s: tiny.batch(s, k, size),
                tiny,
                samples=160,
                alpha=0.1,
                copies=39,
                parts=8,
                layers=1,
                seed=s,
            ).p_value
            for s in range(400)
        ]
    )
    for level in (0.1, 0.2, 0.3, 0.5):
        assert (p <= level).sum() <= binom.ppf(0.999, len(p), level)
    assert (p <= 0.5).mean() > 0.2


@pytest.mark.slow
def test_excess_is_the_share_of_the_law_itself():
    """256 sequences drawn with replacement: their own gradient is the law's, exactly."""
    basis = invariant_basis(TASK)
    truth = basis.off_manifold(loss_gradient(basis, random_point(basis), POOL))["all"]
    found = [
        symmetry_check(
            lambda k, size, s=s: fixed(1000 * s + k, size), TASK, samples=3200, copies=199
        )
        for s in range(1, 6)
    ]
    assert sum(f.low < truth < f.high for f in found) >= 4
    assert np.mean([f.excess for f in found]) == pytest.approx(truth, rel=0.1)


def test_it_says_which_generator_and_which_token():
    """Values of the first rare token only, and its swap with the second stands out."""

    def no_token_5(k, size):
        batch = TASK.batch(0, k, 6 * size)
        return batch[
            np.flatnonzero((batch.tokens != 5).all(1) & (batch.targets[:, -1] != 5))[:size]
        ]

    found = symmetry_check(no_token_5, TASK, samples=4000)
    assert found.broken
    first = found.generators.iloc[0]
    assert first["generator"].startswith("tokens (4 5")
    assert first["kind"] == "token"
    points = found.points.set_index("point")
    assert points["frequency"]["token 5"] == 0.0
    positions = found.generators[found.generators["kind"] == "position"]
    assert (positions["p"] > 0.01).all()
    assert "tokens 4-6" in found.directions.iloc[0]["between"]


def test_only_positions_can_be_broken_too():
    def still(k, size):
        batch = TASK.batch(0, k, size)
        return replace(batch, positions=np.broadcast_to(TASK.program.one_placement(), (size, 5)))

    found = symmetry_check(still, TASK, samples=2000)
    assert found.broken
    assert found.generators.iloc[0]["kind"] == "position"
    assert not found.matrices.empty
    tokens = found.generators[found.generators["kind"] == "token"]
    assert (tokens["p"] > 0.01).all()


def test_a_finite_set_is_a_sample_of_its_source_and_its_own_share_is_told():
    found = symmetry_check(POOL, TASK)
    assert not found.broken
    assert found.finite
    assert 0.1 < found.share < 0.3
    assert "this set alone leaves 0.2" in str(found)
    assert found.samples == 256
    skewed = symmetry_check(zipf(0, 2000), TASK)
    assert skewed.broken
    assert "most broken generator: tokens" in str(skewed)


def test_the_task_is_a_sampler_and_seeds_decide():
    one, same = (symmetry_check(TASK, TASK, samples=640, copies=199) for _ in range(2))
    assert (one.share, one.p_value) == (same.share, same.p_value)
    assert not one.broken


def test_random_elements_are_uniform():
    """S_4 and a product with Z_3, 72 elements: chi-squared of 7,200 draws."""
    generators = np.array([[1, 0, 2, 3, 4, 5, 6], [1, 2, 3, 0, 4, 5, 6], [0, 1, 2, 3, 5, 6, 4]])
    drawn = random_elements(generators, 7200, np.random.default_rng(0))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 72
    assert np.sum((counts - 100) ** 2) / 100 < chi2.ppf(0.9999, 71)


class NoSymmetry:
    """Recall, declared with the trivial group."""

    vocabulary, n_positions, kinds = TASK.vocabulary, TASK.n_positions, TASK.kinds

    @property
    def symmetry(self):
        none = np.zeros((0, self.vocabulary), int), np.zeros((0, self.n_positions), int)
        return replace(
            TASK.symmetry,
            token_generators=none[0],
            position_generators=none[1],
            token_directions={},
            position_directions={},
        )

    batch, evaluation = TASK.batch, TASK.evaluation


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match="NoSymmetry declares no symmetry"):
        symmetry_check(TASK, NoSymmetry())
    larger = AssociativeRecall(n_blocks=2, n_common=8, n_rare=2, track_slots=4, f_r=0.4, f_v=0.4)
    with pytest.raises(ValueError, match="tokens run from 0 to 9; the basis has 0 to 6"):
        symmetry_check(larger, TASK)
    with pytest.raises(ValueError, match="at least 199 are needed"):
        symmetry_check(TASK, TASK, copies=100)
    with pytest.raises(ValueError, match="parts is 4"):
        symmetry_check(TASK, TASK, parts=4)
    with pytest.raises(ValueError, match="3 sequences; at least 8"):
        symmetry_check(POOL[:3], TASK)

    def longer_and_longer(k, size):
        batch, first = fair(k, size), max(0, 3 - k)
        return replace(
            batch,
            tokens=batch.tokens[:, first:],
            positions=batch.positions[:, first:],
            targets=batch.targets[:, first:],
        )

    with pytest.raises(ValueError, match="sequences of 2 and 3 and 4 and 5 tokens"):
        symmetry_check(longer_and_longer, TASK, samples=320)
