"""Planted lengths: shared circuits read 1, separate ones the baseline, ignorance is undefined."""

import numpy as np
import pytest
import torch

from circuits import length_matrix, patch_nodes
from circuits.contrast import halves
from circuits.subspace import random_subspace

OFF = ~np.eye(3, dtype=bool)


@pytest.mark.parametrize("seed", range(3))
def test_a_shared_mechanism_is_worth_as_much_to_every_length(planted_run, seed):
    found = length_matrix(planted_run(shared=True, seed=seed), samples=128)
    assert found.defined.all()
    assert (found.matrix >= 0.88).all()
    assert found.sharing == pytest.approx(1.0, abs=0.05)
    assert (found.size <= 3).all(), "differences of one-hot answers of Z_4 span 3 directions"


@pytest.mark.parametrize("seed", range(3))
def test_separate_mechanisms_are_worth_nothing_to_each_other(planted_run, seed):
    found = length_matrix(planted_run(shared=False, seed=seed), samples=128)
    assert (np.diag(found.matrix) >= 0.88).all()
    assert np.abs(found.matrix[OFF]).max() < 1e-9, "blocks are orthogonal"
    assert found.sharing < 0.05
    assert (found.random_upper < 0.5).all()


def test_nothing_is_read_where_nothing_is_learnt(planted_run):
    found = length_matrix(planted_run(shared=True, gain=0.0), samples=64)
    assert not found.defined.any()
    assert np.isnan(found.matrix).all()
    assert found.sharing is None
    assert "undefined" in found.sentence()


def test_circuits_are_found_and_read_on_different_sequences(planted_run):
    run = planted_run(shared=True)
    fit, test = halves(run.family, run[0].params(), run.task, 4, 256, 0)
    seen = {tuple(row) for row in fit.pair.clean.tokens.tolist()}
    read = {tuple(row) for row in test.pair.clean.tokens.tolist()}
    assert not seen & read
    assert len(seen | read) == run.task.held_out(4) == fit.pair.sequences + test.pair.sequences
    assert (fit.pair.clean.targets[:, 3] != fit.pair.corrupt.targets[:, 3]).all()
    assert len(fit.pair.clean) % fit.pair.sequences == 0


def test_one_mechanism_shares_exactly(planted_run):
    found = length_matrix(planted_run(shared=True), faithfulness=0.999, samples=64)
    assert found.sharing == pytest.approx(1.0, abs=1e-9)
    low, high = found.sharing_interval
    assert low <= 1.0 <= high


def test_intervals_hold_the_value(planted_run):
    found = length_matrix(planted_run(shared=True), samples=128)
    assert (found.lower <= found.matrix + 1e-9).all()
    assert (found.matrix <= found.upper + 1e-9).all()


def test_random_subspaces_are_orthonormal_and_differ():
    generator = torch.Generator().manual_seed(0)
    a, b = (random_subspace(8, 3, generator, torch.float64) for _ in range(2))
    torch.testing.assert_close(a.mT @ a, torch.eye(3, dtype=torch.float64))
    assert not torch.allclose(a, b)


def test_patching_finds_the_one_state_that_matters(planted_run):
    table = patch_nodes(planted_run(shared=False), samples=64)
    for length, rows in table.groupby("length"):
        assert rows["node"].tolist() == [f"state {length - 1}"], "others are not read at the end"
        assert rows["effect"].item() == pytest.approx(1.0)
