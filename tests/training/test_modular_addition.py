"""Modular addition beside plain sums; what every group shares is in test_state_tracking."""

import numpy as np
import pytest

from training.naming import describe, resolve
from training.tasks.base import IGNORE
from training.tasks.modular_addition import LARGEST, ModularAddition


@pytest.mark.parametrize("modulus", [2, 5, 12, 100])
@pytest.mark.parametrize("lengths", [(3, 4, 5), (4, 30)])
def test_states_are_sums_modulo_m(modulus, lengths):
    task = ModularAddition(modulus=modulus, lengths=lengths, format="acot")
    batch = task.order(seed=1, train_size=20)
    for tokens, targets, kind in zip(batch.tokens, batch.targets, batch.kind, strict=True):
        n = task.lengths[kind]
        assert targets[:n].tolist() == (np.cumsum(tokens[:n]) % modulus).tolist()
        assert (targets[n:] == IGNORE).all()


def test_pools_of_theory():
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot", validation_size=200)
    assert [task.pool(n) for n in (3, 4, 5)] == [100, 500, 2925]
    paper = ModularAddition(modulus=5, lengths=(3, 4, 5, 20), format="cot")
    assert [paper.held_out(n) for n in paper.lengths] == [25, 125, 625, 2000]
    assert paper.pool(20) == 5**20 - 2000


@pytest.mark.parametrize(("modulus", "units"), [(2, ()), (5, (2, 3, 4)), (12, (5, 7, 11))])
def test_symmetry_is_multiplication_by_units(modulus, units):
    task = ModularAddition(modulus=modulus, lengths=(4,), format="cot")
    rows = [[u * x % modulus for x in range(modulus)] for u in units]
    assert task.automorphisms.tolist() == rows
    assert task.symmetry.token_generators.shape == (len(units), modulus + 2)


def test_a_configuration_reads_back():
    task = ModularAddition(
        modulus=7, lengths=(4, 5), format="cot", layout="right_aligned", distribution="uniform"
    )
    plain = describe("task", task)
    assert plain["name"] == "modular_addition"
    assert resolve("task", plain) == task
    assert task.label == "Z_7"


@pytest.mark.parametrize("modulus", [-1, 0, 1, LARGEST + 1])
def test_impossible_moduli_are_named(modulus):
    with pytest.raises(ValueError, match=f"modulus: got {modulus}, allowed 2 to {LARGEST}"):
        ModularAddition(modulus=modulus, lengths=(3,), format="cot")
