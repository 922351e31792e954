"""Planted coordinates are read back, from a rotated stream too, and the model runs on them."""

import numpy as np
import pytest
import torch

from manifold.coordinates.effective import effective_matrices, remove_gauge
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.lift import lift
from manifold.coordinates.plant import plant
from manifold.coordinates.rebuild import rebuild
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=3, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.3)


@pytest.mark.parametrize("rotation", [None, 0])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_planted_coordinates_are_recovered(layers, heads, rotation):
    """To 1e-8 as the coordinates themselves, and, their gauge removed, as `project` reads them."""
    basis = invariant_basis(TASK, "transformer", layers=layers, heads=heads)
    c = np.random.default_rng(1).standard_normal(basis.dim)
    family, params = plant(basis, c, rotation)
    found = lift(params, family, TASK)
    np.testing.assert_allclose(basis.coordinates(found.factored), c, rtol=0, atol=1e-8)
    for share in basis.off_manifold(effective_matrices(params, family, TASK)).values():
        assert share < 1e-24
    free = basis.coordinates(remove_gauge(basis, basis.matrices(c)))
    read = basis.coordinates(remove_gauge(basis, found.factored))
    np.testing.assert_allclose(read, free, rtol=0, atol=1e-8)
    assert np.abs(free - c).max() > 0.1


def test_the_rotation_moves_every_parameter_and_no_logit():
    basis = invariant_basis(TASK, "transformer")
    c = np.random.default_rng(1).standard_normal(basis.dim)
    (family, plain), (_, turned) = plant(basis, c), plant(basis, c, rotation=3)
    batch = TASK.evaluation(0, 20)
    tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    for name in plain:
        assert (plain[name] - turned[name]).abs().max() > 0.01
    logits = [family.forward(params, tokens, positions) for params in (plain, turned)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-9)


def test_a_planted_circuit_answers():
    circuit = {"1:M": 20.0, "2:I_c I->V1": 20.0, "2:I_r I->V1": 20.0, "out:I_c V2": 20.0}
    circuit |= {"out:I_r V2": 20.0, "out:I_c I": -5.0, "out:I_r I": -5.0}
    basis = invariant_basis(TASK, "transformer").select(list(circuit))
    family, params = plant(basis, np.array(list(circuit.values())), rotation=0)
    batch = TASK.evaluation(0, 300)
    tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    logits = family.forward(params, tokens, positions)[:, -1].numpy()
    right = logits.argmax(-1) == batch.targets[:, -1]
    assert right.mean() > 0.95
    expected = rebuild(TASK, basis, np.array(list(circuit.values())), batch=batch)
    assert expected.accuracy["rare"] == right[batch.kind == 0].mean()


def test_another_frame_is_refused():
    with pytest.raises(
        ValueError, match="transformer frame is needed, got one in 'attention_only'"
    ):
        plant(invariant_basis(TASK), np.zeros(42))


def test_noise_is_not_read_as_a_plant():
    family = Transformer(layers=2, heads=1, width=24, mlp=False, layer_norm=False)
    basis = invariant_basis(TASK, "transformer")
    params = family.initialise(TASK, 0, torch.float64)
    assert basis.captured(lift(params, family, TASK).factored)["all"] < 0.5
