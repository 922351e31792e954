"""From run folders to coordinates: what is on the manifold is read back, and chance is chance."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from manifold.coordinates.chance import captured_by_chance, expected_by_chance
from manifold.coordinates.effective import effective_matrices, gauge_projectors, remove_gauge
from manifold.coordinates.function_space import function_agreement
from manifold.coordinates.invariant import four_coordinates, invariant_basis
from manifold.coordinates.lift import lift
from manifold.coordinates.projection import project
from manifold.coordinates.rebuild import rebuild
from training import RunConfig, train

RECALL = {
    "name": "associative_recall",
    "n_blocks": 2,
    "n_common": 4,
    "n_rare": 3,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
}
TRANSFORMER = {"layers": 2, "heads": 2, "width": 8, "mlp": False, "layer_norm": False}


def config(family, seed=0, **changes):
    fields = {
        "task": RECALL,
        "family": family,
        "optimiser": {"name": "sgd", "lr": 0.5},
        "steps": 8,
        "batch_size": 400,
        "seeds": {"init": seed, "data": seed, "eval": 0},
        "eval_every": 8,
        "eval_size": 50,
        "dtype": "float64",
    }
    return RunConfig(**(fields | changes))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    zero = {"name": "attention_only", "scale": 0.0}
    small = {"name": "attention_only", "scale": 0.1}
    return [
        train(config(zero), root=root),
        train(config(small, seed=1, steps=16, eval_every=16), root=root),
    ]


def test_dimensions_time_and_missing_steps(runs):
    data = project(runs)
    assert data["c"].dims == ("run", "step", "coordinate")
    assert data.sizes == {"run": 2, "step": 6, "coordinate": 42, "matrix": 3}
    assert data["step"].values.tolist() == [0, 1, 2, 4, 8, 16]
    np.testing.assert_allclose(data["time"].isel(run=1), [0, 0.5, 1, 2, 4, 8])
    assert np.isnan(data["c"].sel(step=16).isel(run=0)).all()
    assert np.isfinite(data["c"].isel(run=1)).all()
    assert data["run"].values.tolist() == [run.run_id for run in runs]
    assert data["init_seed"].values.tolist() == [0, 1]
    for name in data.variables:
        assert name in data.coords or {"long_name", "units"} <= set(data[name].attrs)
    row = data["c"].isel(run=0).sel(coordinate="2:M^T V1->I")
    assert (row.block, row["query"], row["key"], row.element) == ("W2", "V1", "I", "M^T")


def test_values_are_those_of_the_matrices(runs):
    data, run = project(runs), runs[1]
    basis = invariant_basis(run.task)
    matrices = effective_matrices(run[16])
    expected = basis.coordinates(matrices)
    found = data.isel(run=1).sel(step=16)
    np.testing.assert_allclose(found["c"], expected, atol=1e-13)
    assert (found["captured"] < 0.9).any()
    nearest = basis.matrices(expected)
    free = remove_gauge(basis, matrices)
    rest = sum(((free[b] - nearest[b]) ** 2).sum() for b in basis.blocks)
    total = sum((free[b] ** 2).sum() for b in basis.blocks)
    assert float(found["off_manifold"]) == pytest.approx(rest / total, rel=1e-9)


def test_zero_weights_are_the_origin_and_training_from_them_stays_near(runs):
    data = project(runs[0])
    assert not data["c"].sel(step=0).any()
    assert float(data["off_manifold"].isel(run=0).sel(step=0)) == 0.0
    last = data.isel(run=0).sel(step=8)
    assert abs(last["c"]).max() > 0.1
    assert float(last["off_manifold"]) < 0.1


def test_another_basis_may_be_given(runs):
    data = project(runs, four_coordinates(runs[0].task))
    assert data["coordinate"].values.tolist() == ["1:M", "2:I_t I->V1", "out:I_t V2", "out:C I"]


def test_transformers_are_lifted(tmp_path):
    run = train(config({"name": "transformer", **TRANSFORMER}), root=tmp_path)
    data = project(run)
    assert data.sizes["coordinate"] == 16 * 2 + 16 * 9 * 2 + 9 * 9
    assert data.attrs == {"frame": "transformer", "layers": 2, "heads": 2}
    assert ((data["captured"] > 0) & (data["captured"] < 1)).all()


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_the_function_of_the_coordinates_is_that_of_the_rebuilt_model(runs, tmp_path, family):
    """Each variable against the public function of one checkpoint that says what it is."""
    run = runs[1]
    if family == "transformer":
        whole = {"name": "transformer", **TRANSFORMER, "layer_norm": True, "mlp": True}
        run = train(config(whole, steps=4), root=tmp_path)
    seen = []
    data = project(run, rebuilt=True, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(run.steps), len(run.steps))
    task, last = run.task, data.isel(run=0, step=-1)
    heads = run.family.heads
    basis = invariant_basis(task, family, heads=heads)
    batch = task.evaluation(0, 512)
    found = rebuild(task, basis, last["c"].to_numpy(), batch=batch)
    assert float(last["rebuilt_loss"]) == pytest.approx(found.loss, abs=1e-10)
    for kind, share in found.accuracy.items():
        assert float(last["rebuilt_accuracy"].sel(kind=kind)) == pytest.approx(share)
    assert np.isnan(last["rebuilt_accuracy"].sel(kind="iwl"))
    params = run.last.params(torch.float64)
    logits = run.family.forward(
        params, torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    )[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.targets[:, -1]))
    assert float(last["loss"]) == pytest.approx(loss.item(), abs=1e-10)
    matrices = effective_matrices(run.last)
    apart = function_agreement(basis, matrices, basis.matrices(last["c"].to_numpy()), batch)
    for block in basis.blocks:
        error = float(last["function_error"].sel(matrix=block))
        assert error == pytest.approx(float(apart.error[block]), abs=1e-9)
        assert 0 < error < 2
    assert np.isnan(last["attention_distance"].sel(matrix="Wbar"))
    distance = float(last["attention_distance"].sel(matrix="W1"))
    assert distance == pytest.approx(float(apart.distance["W1"]), abs=1e-10)
    if family == "transformer":
        assert float(last["logit_error"]) == pytest.approx(float(lift(run.last).logit_error))
        assert float(last["logit_error"]) > 1e-3
    for name in data.variables:
        assert name in data.coords or {"long_name", "units"} <= set(data[name].attrs)


def test_function_agreement_is_zero_for_gauge_and_grows_with_noise(runs):
    """What cannot change an output changes no score, no attention and no logit here."""
    task = runs[0].task
    basis, batch = invariant_basis(task, "transformer"), task.evaluation(3, 60)
    rng = np.random.default_rng(0)
    matrices = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    same = function_agreement(basis, matrices, remove_gauge(basis, matrices), batch)
    assert max(same.error.values()) < 1e-12
    assert max(same.distance.values()) < 1e-12
    noise = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    near, far = (
        function_agreement(
            basis, matrices, {b: matrices[b] + scale * noise[b] for b in basis.blocks}, batch
        )
        for scale in (0.01, 0.5)
    )
    for block in basis.blocks:
        assert near.error[block] == pytest.approx(0.02 * far.error[block], rel=1e-9)
        assert 0.003 < near.error[block] < 0.03
    nothing = {block: np.zeros_like(matrix) for block, matrix in matrices.items()}
    assert function_agreement(basis, matrices, nothing, batch).error["W2"] == pytest.approx(1.0)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_last_layer_counts_for_supervised_queries_alone(runs, layers):
    """Its other queries are read by nobody; those of lower layers reach the answer as keys."""
    task = runs[0].task
    basis, batch = invariant_basis(task, "transformer", layers=layers), task.evaluation(3, 1)
    rng = np.random.default_rng(0)
    matrices = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    query = basis.vocabulary + batch.positions[0, 2]
    assert (batch.targets[0, :-1] < 0).all()
    assert (batch.positions[0] == batch.positions[0, 2]).sum() == 1
    other = matrices | {"W1": matrices["W1"].copy()}
    other["W1"][:, query] += rng.standard_normal(basis.shape("W1")[-1])
    found = function_agreement(basis, matrices, other, batch)
    assert (found.error["W1"] > 0.1) == (layers > 1)
    assert (found.distance["W1"] > 0.01) == (layers > 1)


def test_a_basis_of_other_sizes_is_refused_and_one_of_few_blocks_says_what_it_leaves(tmp_path):
    run = train(config({"name": "transformer", **TRANSFORMER}, steps=1), root=tmp_path)
    full = invariant_basis(run.task, "transformer", heads=2)
    with pytest.raises(ValueError, match="heads 1, the run 2"):
        project(run, invariant_basis(run.task, "transformer"))
    few = project(run, full.select(["1.0:M", "out:I_c I"]))
    assert (few["left_out"].sel(matrix=["W2", "Wbar"]) > 0.01).all()
    low, whole = project(run, order=1), project(run)
    assert not whole["left_out"].any()
    assert (low["left_out"].sel(matrix="W2") > 0.01).all()
    assert not low["left_out"].sel(matrix="W1").round(12).any()
    same = whole["c"].sel(coordinate=low["coordinate"].to_numpy())
    np.testing.assert_allclose(low["c"], same, rtol=0, atol=1e-10)


def test_a_given_basis_must_be_of_the_runs_kinds_and_symmetry(runs, tmp_path):
    """Two classes of tokens renamed as one, or runs whose kinds do not match: no common frame."""
    one_class = {**RECALL, "n_common": 0, "n_rare": 7, "f_r": 1.0, "f_v": 0.0}
    one_head = {"name": "transformer", **TRANSFORMER, "heads": 1}
    lifted = train(config(one_head, steps=1), root=tmp_path)
    other = train(config(one_head, steps=1, task=one_class), root=tmp_path)
    basis = invariant_basis(lifted.task, "transformer")
    with pytest.raises(ValueError, match="'I_c' of the basis does not commute"):
        project(other, basis)
    own = invariant_basis(other.task, "transformer")
    assert project(lifted, own)["c"].notnull().all()  # fewer matrices, but all of them invariant
    with pytest.raises(ValueError, match="other classes or tracks"):
        project(runs[0], invariant_basis(other.task))
    relabelled = SimpleNamespace(
        vocabulary=lifted.task.vocabulary,
        n_positions=lifted.task.n_positions,
        symmetry=lifted.task.symmetry,
        evaluation=lifted.task.evaluation,
        kinds=lifted.task.kinds[::-1],
    )
    turned = SimpleNamespace(run_id="turned", family=lifted.family, steps=(), task=relabelled)
    with pytest.raises(ValueError, match=r"run turned has kinds .*; project them apart"):
        project([lifted, turned], basis)  # type: ignore[list-item]


def test_hidden_tokens_are_refused(tmp_path):
    layout = {"name": "modular_addition", "modulus": 5, "lengths": [2, 3], "format": "outcome"}
    masked = {**layout, "layout": "aligned_masked"}
    run = train(config({"name": "transformer", **TRANSFORMER}, steps=1, task=masked), root=tmp_path)
    with pytest.raises(ValueError, match="tokens are hidden"):
        project(run)


def test_runs_without_a_common_basis_and_families_without_a_lift_are_refused(runs, tmp_path):
    one = train(config({"name": "attention_only", "layers": 1}), root=tmp_path)
    with pytest.raises(ValueError, match="do not share a basis"):
        project([runs[0], one])
    turned = {"name": "transformer", **TRANSFORMER, "positions": "rotary"}
    with pytest.raises(ValueError, match="'rotary' has none"):
        project(train(config(turned), root=tmp_path))
    with pytest.raises(ValueError, match="no run"):
        project([])


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_chance_of_random_matrices_is_dimension_over_dimension(family, runs):
    """E captured = rank of the manifold's free part / dimension of what is not gauge."""
    basis = invariant_basis(runs[0].task, family)
    rng = np.random.default_rng(0)
    noise = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    chance = captured_by_chance(basis, noise, draws=300, seed=1)
    exact = expected_by_chance(basis)
    for block in basis.blocks:
        left, right = gauge_projectors(basis, block)
        stack = []
        for name, unit in zip(basis.names, np.eye(basis.dim), strict=True):
            if basis[name][0].block == block:
                stack.append((left @ basis.matrices(unit)[block] @ right).ravel())
        expected = np.linalg.matrix_rank(stack) / (np.trace(left) * np.trace(right))
        assert chance[block]["mean"] == pytest.approx(expected, rel=0.1)
        assert exact[block] == pytest.approx(expected, rel=1e-12)
        assert chance[block]["low"] < expected < chance[block]["high"]
        free = basis.captured(remove_gauge(basis, noise))[block]
        assert 0.2 * expected < free < 3 * expected


def test_chance_depends_on_the_spectrum_alone(runs):
    """W and its transpose have one spectrum and one chance level; a rank-one W another draw."""
    basis = invariant_basis(runs[0].task)
    rng = np.random.default_rng(0)
    full = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    turned = full | {block: full[block].transpose(0, 2, 1) for block in ("W1", "W2")}
    thin = full | {"W1": full["W1"][:, :, :1] * full["W1"][:, :1, :]}
    levels = [captured_by_chance(basis, m, draws=20, seed=2) for m in (full, turned, thin)]
    for block in ("W1", "W2", "Wbar"):
        assert levels[0][block] == pytest.approx(levels[1][block], abs=1e-12)
    assert levels[0]["W1"]["mean"] != pytest.approx(levels[2]["W1"]["mean"], rel=1e-6)
    assert levels[0] != captured_by_chance(basis, full, draws=20, seed=3)
    with pytest.raises(ValueError, match=r"captured by chance: .* 1 of 1 of W2;"):
        captured_by_chance(basis, full | {"W2": full["W2"] * np.nan})
