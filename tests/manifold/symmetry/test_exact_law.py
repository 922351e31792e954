"""The exact law counts what the sampler draws."""

import numpy as np
import pytest

from manifold.symmetry.exact_law import exact_law
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.modular_addition import ModularAddition

TINY = AssociativeRecall(n_blocks=1, n_common=4, n_rare=2, track_slots=3, f_r=0.3, f_v=0.4)


def test_parts_cover_every_outcome_once_and_weigh_1():
    law = exact_law(TINY)
    rows, weights = [], []
    for batch, weight in law.parts(size=50):
        assert len(batch) <= 50
        rows.append(np.hstack([batch.tokens, batch.positions, batch.targets[:, -1:]]))
        weights.append(weight)
    rows, weights = np.concatenate(rows), np.concatenate(weights)
    assert len(law) == len(rows) == len(np.unique(rows, axis=0)) == 14 * 18
    assert abs(weights.sum() - 1) < 1e-14


def test_probabilities_are_the_samplers_frequencies():
    law, size = exact_law(TINY), 200_000
    batch = TINY.batch(0, 0, size)
    base = TINY.vocabulary ** np.arange(4)
    drawn = np.hstack([batch.tokens, batch.targets[:, -1:]]) @ base
    listed = np.column_stack([law.tokens, law.target]) @ base
    assert np.isin(drawn, listed).all()
    found = np.array([(drawn == key).mean() for key in listed])
    error = np.sqrt(law.probability * (1 - law.probability) / size)
    assert (np.abs(found - law.probability) < 5 * error).all()


def test_what_cannot_be_enumerated_is_refused_with_its_size():
    large = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)
    with pytest.raises(ValueError, match=r"over 325 kinds of sequences times 6,144 placements"):
        exact_law(large)
    with pytest.raises(ValueError, match=r"has 14 sequences times 18 placements and at most 200"):
        exact_law(TINY, limit=200)
    with pytest.raises(ValueError, match="ModularAddition has no program"):
        exact_law(ModularAddition(modulus=5, lengths=(3,), format="cot", layout="usual"))
