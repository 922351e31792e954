"""Rebuilt models: chance at zero, a circuit written by hand, a lifted transformer's own loss."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from manifold.coordinates.effective import effective_matrices
from manifold.coordinates.invariant import four_coordinates, invariant_basis, paper_basis
from manifold.coordinates.rebuild import evaluate, rebuild
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)


def test_zero_coordinates_are_chance():
    basis = invariant_basis(TASK)
    found = rebuild(TASK, basis, np.zeros(basis.dim), size=50)
    assert found.loss == pytest.approx(np.log(11), abs=1e-14)
    assert found.size == 50


def test_the_induction_circuit_answers_from_context_and_c_from_the_weights():
    """Every kind but iwl; delta alone: match and iwl (theory, section 5).

    A token at time 0 can attend to itself alone, so that [q, y] as the first block matches at q
    too; the negative output of the query itself breaks that tie.
    """
    circuit = {"1:M": 20.0, "2:I_t I->V1": 20.0, "out:I_t V2": 20.0, "out:I_t I": -5.0}
    context = paper_basis(TASK).select(list(circuit))
    weights = four_coordinates(TASK).select(["out:C I"])
    found = rebuild(TASK, context, np.array(list(circuit.values())), size=400)
    assert min(found.accuracy.values()) > 0.95
    assert set(found.accuracy) == {"rare", "match", "mismatch"}
    found = rebuild(TASK, weights, np.array([20.0]), size=400)
    assert found.accuracy["match"] == 1.0
    assert found.accuracy["mismatch"] == 0.0
    iwl = TASK.evaluation(0, 100, kind="iwl")
    assert rebuild(TASK, weights, np.array([20.0]), batch=iwl).accuracy == {"iwl": 1.0}
    absent = rebuild(TASK, context, np.array(list(circuit.values())), batch=iwl)
    assert absent.accuracy["iwl"] < 0.5


def test_lifted_transformer_keeps_its_loss():
    family = Transformer(layers=2, heads=2, width=8, mlp=False, layer_norm=False, init_std=0.6)
    params = family.initialise(TASK, 0, torch.float64)
    batch = TASK.evaluation(1, 1500)
    tokens, positions, targets = map(
        torch.from_numpy, (batch.tokens, batch.positions, batch.targets)
    )
    logits = family.forward(params, tokens, positions)[:, -1]
    expected = functional.cross_entropy(logits, targets[:, -1])
    basis = invariant_basis(TASK, "transformer", heads=2)
    found = evaluate(TASK, basis, effective_matrices(params, family, TASK), batch=batch)
    assert found.loss == pytest.approx(expected.item(), abs=1e-12)
    right = (logits.argmax(-1) == targets[:, -1]).numpy()
    assert found.accuracy["rare"] == right[batch.kind == 0].mean()


def test_what_is_no_model_of_the_task_is_refused():
    basis = invariant_basis(TASK)
    c = np.zeros(basis.dim)
    c[3] = np.nan
    with pytest.raises(ValueError, match=r"1 of 42 coordinates are NaN or infinite \(1:I_p\)"):
        rebuild(TASK, basis, c)
    matrices = basis.matrices(np.ones(basis.dim))
    with pytest.raises(ValueError, match="NaN or infinite: 1 of 1 of W2;"):
        evaluate(TASK, basis, matrices | {"W2": matrices["W2"] * np.nan}, size=10)
    larger = AssociativeRecall(n_blocks=3, n_common=6, n_rare=6, track_slots=4, f_r=0.3, f_v=0.3)
    with pytest.raises(ValueError, match="vocabulary 11, the task 12"):
        rebuild(larger, basis, np.zeros(basis.dim))


def test_representatives_with_read_only_positions_are_run():
    batch = TASK.program.orbits().batch()
    assert not batch.positions.flags.writeable
    basis = invariant_basis(TASK)
    assert rebuild(TASK, basis, np.zeros(basis.dim), batch=batch).loss == pytest.approx(np.log(11))
