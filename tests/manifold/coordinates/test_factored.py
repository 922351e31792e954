"""What thin factors say is what the matrices written out say, gauge, shares and norms included."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from manifold.coordinates.effective import effective_matrices, gauge_projectors, remove_gauge
from manifold.coordinates.elements import contract, element
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.lift import lift
from training.families.attention_only import AttentionOnly
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.3)
SIZES = [(1, 1), (2, 1), (2, 2), (3, 1), (2, 3), (3, 2)]


def model(layers, heads, seed=0, **changes):
    fields = {"width": 12, "mlp": False, "layer_norm": False, "init_std": 0.6} | changes
    family = Transformer(layers=layers, heads=heads, **fields)
    draw = torch.Generator().manual_seed(seed)
    params = {
        name: value + 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
        for name, value in family.initialise(TASK, seed, torch.float64).items()
    }
    return family, params


def written_out(params, family):
    """Theory, section 3, path by path; no norm, no MLP, no bias."""
    weights = {name: value.numpy() for name, value in params.items()}
    rows = [np.concatenate([weights["embed.W_E"], weights["pos_embed.W_pos"]])]
    found = {}
    for layer in range(family.layers):
        q, k, v, o = (weights[f"blocks.{layer}.attn.W_{side}"] for side in "QKVO")
        every = np.concatenate(rows)
        scores = (every @ q) @ (every @ k).transpose(0, 2, 1)
        found[f"W{layer + 1}"] = scores / np.sqrt(q.shape[-1])
        rows += [row @ v[h] @ o[h] for h in range(family.heads) for row in list(rows)]
    found["Wbar"] = (np.concatenate(rows) @ weights["unembed.W_U"]).T
    return found


@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_factors_multiply_out_to_the_effective_matrices(layers, heads):
    family, params = model(layers, heads)
    expected = written_out(params, family)
    found = lift(params, family, TASK).factored.matrices()
    for block, matrix in expected.items():
        np.testing.assert_allclose(found[block], matrix, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changes", [{}, {"layer_norm": True, "mlp": True}], ids=["bare", "whole"])
@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_gauge_norms_inner_products_and_shares_are_those_of_the_matrices(layers, heads, changes):
    family, params = model(layers, heads, **changes)
    basis = invariant_basis(TASK, "transformer", layers=layers, heads=heads)
    raw = lift(params, family, TASK).factored
    dense = raw.matrices()
    free = remove_gauge(basis, raw)
    free_dense = remove_gauge(basis, dense)
    for factors, matrices in ((raw, dense), (free, free_dense)):
        written, norms, inner = factors.matrices(), factors.norms(), basis.inner(matrices)
        scale = max(np.abs(inner).max(), 1.0)
        for block in basis.blocks:
            largest = np.abs(matrices[block]).max()
            np.testing.assert_allclose(written[block], matrices[block], atol=1e-12 * largest)
            assert norms[block] == pytest.approx(np.sum(matrices[block] ** 2), rel=1e-12)
        np.testing.assert_allclose(basis.inner(factors), inner, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(
            basis.coordinates(factors), basis.coordinates(matrices), rtol=0, atol=1e-12 * scale
        )
        shares, expected = basis.off_manifold(factors), basis.off_manifold(matrices)
        assert shares == pytest.approx(expected, abs=1e-10)
        assert basis.captured(factors) == pytest.approx(basis.captured(matrices), abs=1e-10)
        assert all(share < 1e-12 for share in basis.left_out(factors).values())


def test_gauge_without_factors_would_be_seen():
    """The projectors change these matrices by far more than the tolerance above."""
    family, params = model(2, 2)
    basis = invariant_basis(TASK, "transformer", heads=2)
    dense = written_out(params, family)
    for block in basis.blocks:
        left, right = gauge_projectors(basis, block)
        change = np.linalg.norm(left @ dense[block] @ right - dense[block])
        assert change > 0.1 * np.linalg.norm(dense[block])


@pytest.mark.parametrize("changes", [{}, {"layer_norm": True, "mlp": True}], ids=["bare", "whole"])
def test_a_leading_axis_of_checkpoints_changes_nothing(changes):
    members = [model(2, 2, seed, **changes) for seed in range(3)]
    family = members[0][0]
    basis = invariant_basis(TASK, "transformer", heads=2)
    stacked = {name: torch.stack([p[name] for _, p in members]) for name in members[0][1]}
    together = lift(stacked, family, TASK)
    free = remove_gauge(basis, together.factored)
    assert together.logit_error.shape == (3,)
    assert basis.coordinates(free).shape == (3, basis.dim)
    for k, (_, params) in enumerate(members):
        alone = lift(params, family, TASK)
        one = remove_gauge(basis, alone.factored)
        np.testing.assert_allclose(together.logit_error[k], alone.logit_error, atol=1e-10)
        expected = basis.coordinates(one)
        np.testing.assert_allclose(basis.coordinates(free)[k], expected, rtol=1e-8, atol=1e-10)
        for name, share in basis.captured(one).items():
            assert basis.captured(free)[name][k] == pytest.approx(share, abs=1e-10)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_basis_of_low_order_reads_its_blocks_and_states_what_it_leaves_out(order):
    family, params = model(3, 2)
    full = invariant_basis(TASK, "transformer", layers=3, heads=2)
    low = invariant_basis(TASK, "transformer", layers=3, heads=2, order=order)
    passed = {
        n: low.paths(d.block)[d.query].count("V") + low.paths(d.block)[d.key].count("V")
        for n, (d, _) in ((name, full[name]) for name in full)
    }
    assert set(low) == {name for name in full if passed[name] <= order}
    factors = remove_gauge(full, lift(params, family, TASK).factored)
    values = dict(zip(full, full.coordinates(factors), strict=True))
    expected = [values[name] for name in low]
    np.testing.assert_allclose(low.coordinates(factors), expected, rtol=0, atol=1e-10)
    matrices, d = factors.matrices(), TASK.vocabulary + TASK.n_positions
    left_out = low.left_out(factors)
    for block in low.blocks:
        split = matrices[block]
        if block == "Wbar":
            norms = (split.reshape(-1, split.shape[-1] // d, d) ** 2).sum((0, 2))[None]
        else:
            split = split.reshape(len(split), split.shape[1] // d, d, -1, d)
            norms = (split**2).sum((0, 2, 4))
        there = np.zeros(norms.shape, bool)
        for direction in low.directions:
            if direction.block == block:
                there[direction.query, direction.key] = True
        assert left_out[block] == pytest.approx(norms[~there].sum() / norms.sum(), abs=1e-12)


def test_elements_by_their_structure_contract_as_the_matrices_do():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 3, 15, 4)), rng.standard_normal((2, 5, 15, 4))
    basis = invariant_basis(TASK, "transformer")
    stack = [*basis.elements[:, :15, :15], rng.standard_normal((15, 15)), np.zeros((15, 15))]
    found = contract([element(matrix) for matrix in stack], left, right)
    expected = np.einsum("npak,eab,nqbk->nepq", left, stack, right, optimize=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)
    wide = basis.elements[[name == "J_cr" for name in basis.element_names]][0]
    assert len(element(wide).rest.data) == 0 < np.count_nonzero(wide)


def test_what_does_not_fit_is_refused():
    family, params = model(2, 1)
    factors = lift(params, family, TASK).factored
    with pytest.raises(ValueError, match=r"factors of a transformer with blocks .* are needed"):
        invariant_basis(TASK, "transformer", layers=3).inner(factors)
    with pytest.raises(ValueError, match="attention_only frame"):
        invariant_basis(TASK).inner(factors)
    with pytest.raises(ValueError, match=r"order=0 has \d+, order=1 has \d+, order=2 has"):
        invariant_basis(TASK, "transformer", layers=4, heads=8)
    deep, params = model(5, 4, width=8)
    with pytest.raises(ValueError, match=r"W5 of shape .* would have \d+ entries, allowed here"):
        lift(params, deep, TASK).factored.matrices()


@pytest.mark.parametrize(("damage", "message"), [
    ("nan", r"embed.W_E \(7, 12\) has 1 entries that are not finite"),
    ("vocabulary", r"vocabulary 7, .*embed.W_E is \(9, 12\), \(7, 12\) is needed"),
    ("missing", "lacks blocks.1.attn.W_Q"),
])  # fmt: skip
@pytest.mark.parametrize("frame", ["transformer", "attention_only"])
def test_weights_that_are_not_the_models_are_refused(damage, message, frame):
    family, params = model(2, 1)
    if frame == "attention_only":
        family = AttentionOnly()
        params = family.initialise(TASK, 0, torch.float64)
        message = message.replace("embed.W_E", "unembed.W").replace("attn.W_Q", "attn.W")
        message = message.replace("12", r"\d+")
    name = "embed.W_E" if frame == "transformer" else "unembed.W"
    if damage == "nan":
        params[name][0, 0] = torch.nan
    elif damage == "vocabulary":
        params[name] = torch.zeros(9, params[name].shape[1])
    else:
        del params["blocks.1.attn.W_Q" if frame == "transformer" else "blocks.1.attn.W"]
    with pytest.raises(ValueError, match=message):
        effective_matrices(params, family, TASK)


def test_a_task_without_symmetry_is_refused():
    """Every matrix commutes with the identity: coordinates would be the entries themselves."""
    n = np.arange(3)
    for tokens in (np.zeros((0, 3), int), n[None]):
        symmetry = SimpleNamespace(
            token_generators=tokens,
            position_generators=np.zeros((0, 2), int),
            token_classes=(n,),
            tracks=(np.arange(2),),
            token_directions={},
            position_directions={},
        )
        task = SimpleNamespace(vocabulary=3, n_positions=2, symmetry=symmetry)
        with pytest.raises(ValueError, match=r"no symmetry .*token_generators \(\d, 3\)"):
            invariant_basis(task)
