"""The stream is the network where nothing is approximated, and else states its error truthfully."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manifold.coordinates.effective import effective_matrices, frame_of
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.lift import SEQUENCES, lift, measured_on
from manifold.coordinates.rebuild import evaluate
from manifold.symmetry.confinement import random_point
from manifold.symmetry.symmetry_check import symmetry_check
from training.families.dense_ssm import DenseSSM
from training.families.transformer import EPSILON, Transformer
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.modular_addition import ModularAddition

TASK = AssociativeRecall(n_blocks=3, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.3)
BATCH = TASK.evaluation(7, 40)
TOKENS, POSITIONS = torch.from_numpy(BATCH.tokens), torch.from_numpy(BATCH.positions)


def model(noise=0.0, dtype=torch.float64, **changes):
    fields = {"layers": 2, "heads": 2, "width": 12, "mlp": False, "layer_norm": False}
    family = Transformer(**(fields | {"init_std": 0.6} | changes))
    draw = torch.Generator().manual_seed(0)
    params = family.initialise(TASK, 0, dtype)
    for name, value in params.items():
        params[name] = value + noise * torch.randn(value.shape, generator=draw, dtype=dtype)
    return family, params


def both(family, params):
    """The network's logits and its lift's, on a batch that the lift has not seen."""
    network = family.forward(params, TOKENS, POSITIONS).numpy()
    return network, lift(params, family, TASK).stream.logits(BATCH.tokens, BATCH.positions)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 2), (3, 1)])
def test_without_norm_and_mlp_the_logits_are_the_networks(layers, heads, positions):
    family, params = model(layers=layers, heads=heads, positions=positions)
    network, lifted = both(family, params)
    assert network.std() > 0.1
    np.testing.assert_allclose(lifted, network, rtol=0, atol=1e-10)
    found = lift(params, family, TASK)
    assert found.exact
    assert found.logit_error < 1e-13
    assert found.agreement == 1.0
    basis = invariant_basis(TASK, "transformer", layers=layers, heads=heads)
    torch_logits = torch.from_numpy(network[:, -1])
    loss = torch.nn.functional.cross_entropy(torch_logits, torch.from_numpy(BATCH.targets[:, -1]))
    paths = evaluate(TASK, basis, effective_matrices(params, family, TASK), batch=BATCH)
    assert paths.loss == pytest.approx(loss.item(), abs=1e-12)


def test_biases_are_exact():
    """An MLP that writes a constant is affine; every bias is random, and none is lost."""
    family, params = model(noise=0.5, mlp=True)
    for layer in range(family.layers):
        params[f"blocks.{layer}.mlp.W_out"] *= 0
    network, lifted = both(family, params)
    np.testing.assert_allclose(lifted, network, rtol=0, atol=1e-10)
    for name in ("attn.b_Q", "attn.b_V", "attn.b_O", "mlp.b_out"):
        without = {**params, f"blocks.0.{name}": 0 * params[f"blocks.0.{name}"]}
        assert np.abs(both(family, without)[0] - network).max() > 1e-3


def test_biases_reach_the_matrices_between_paths():
    """Centred positions and tokens see no constant but through these rows."""
    family, params = model(noise=0.5, mlp=True)
    for layer in range(family.layers):
        params[f"blocks.{layer}.mlp.W_out"] *= 0
    basis = invariant_basis(TASK, "transformer", layers=2, heads=2)
    network = family.forward(params, TOKENS, POSITIONS)[:, -1]
    loss = torch.nn.functional.cross_entropy(network, torch.from_numpy(BATCH.targets[:, -1]))
    found = evaluate(TASK, basis, effective_matrices(params, family, TASK), batch=BATCH)
    assert found.loss == pytest.approx(loss.item(), abs=1e-12)


def test_a_norm_whose_input_has_one_scale_is_exact():
    """Positions off, one layer: with tokens of equal variance only ln_final is approximated, and
    with the heads silent that too is exact."""
    family, params = model(layers=1, heads=1, layer_norm=True, positions="none", noise=0.3)
    rows = params["embed.W_E"]
    params["embed.W_E"] = (rows - rows.mean(-1, keepdim=True)) / rows.std(-1, keepdim=True) + 0.7
    params["blocks.0.attn.W_O"] *= 0
    params["blocks.0.attn.b_O"] *= 0
    network, lifted = both(family, params)
    np.testing.assert_allclose(lifted, network, rtol=0, atol=1e-10)
    assert lift(params, family, TASK).logit_error < 1e-10


def test_an_affine_mlp_is_exact():
    """With large biases gelu is the identity, and the least-squares map is the MLP."""
    family, params = model(mlp=True, layers=1)
    params["blocks.0.mlp.b_in"] += 60
    network, lifted = both(family, params)
    np.testing.assert_allclose(lifted, network, rtol=0, atol=1e-6 * np.abs(network).max())


@pytest.mark.parametrize("changes", [{"layer_norm": True}, {"layer_norm": True, "mlp": True}])
def test_the_stated_error_is_that_of_the_logits(changes):
    """Against the definition, on the sequences that judge: the last ones."""
    family, params = model(noise=0.2, **changes)
    found = lift(params, family, TASK)
    used = measured_on(family, TASK)
    batch = TASK.evaluation(0, used + SEQUENCES)[used:]
    tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    network = family.forward(params, tokens, positions)[:, -1].numpy()
    lifted = found.stream.logits(batch.tokens, batch.positions)[:, -1]
    agree = (network.argmax(-1) == lifted.argmax(-1)).mean()
    network, lifted = (x - x.mean(-1, keepdims=True) for x in (network, lifted))
    error = np.sqrt(((network - lifted) ** 2).mean() / (network**2).mean())
    assert not found.exact
    assert error > 0.05
    assert found.logit_error == pytest.approx(error, rel=1e-12)
    assert found.agreement == agree


def test_single_precision_weights_are_read_as_they_are():
    family, params = model(dtype=torch.float32)
    doubled = {name: value.double() for name, value in params.items()}
    one, two = lift(params, family, TASK), lift(doubled, family, TASK)
    np.testing.assert_array_equal(one.stream.rows, two.stream.rows)


def test_what_has_no_stream_is_refused():
    family, params = model(positions="rotary")
    for refused in (lambda: frame_of(family), lambda: lift(params, family, TASK)):
        with pytest.raises(ValueError, match=r"'rotary' has none.*allowed: learned, sinusoidal"):
            refused()
    with pytest.raises(ValueError, match="DenseSSM is no transformer"):
        lift({}, DenseSSM(width=4), TASK)
    with pytest.raises(ValueError, match="given with its task"):
        lift(params, model()[0])
    with pytest.raises(ValueError, match="no checkpoint"):
        lift([], model()[0], TASK)


def test_the_last_norms_scale_is_that_of_supervised_tokens():
    """Others are not read out, and their spread is another."""
    family, params = model(layer_norm=True, noise=0.3)
    batch = TASK.evaluation(0, measured_on(family, TASK) + SEQUENCES)[: measured_on(family, TASK)]
    seen = {}
    family.forward(
        params,
        torch.from_numpy(batch.tokens),
        torch.from_numpy(batch.positions),
        lambda name, x: seen.setdefault(name, x),
    )
    last = seen["blocks.1.hook_resid_post"]
    spread = (last.var(-1, correction=0) + EPSILON).rsqrt().numpy()
    read = (params["ln_final.w"][:, None] * params["unembed.W_U"]).numpy()
    found = lift(params, family, TASK).stream.read[:-1]
    expected = spread[:, -1].mean()
    assert abs(spread.mean() / expected - 1) > 0.01
    np.testing.assert_allclose(found, expected * (read - read.mean(0)), rtol=1e-12, atol=1e-13)


def test_weights_that_the_family_has_not_are_refused():
    """Left out silently, a lift without them would be called exact."""
    bare = model()[0]
    whole = model(layer_norm=True, mlp=True)[1]
    with pytest.raises(ValueError, match=r"has blocks\.0\.attn\.b_K, .*ln_final\.w.* has not"):
        lift(whole, bare, TASK)
    with pytest.raises(ValueError, match=r"has blocks\.1\.attn\.W_K"):
        lift(model()[1], model(layers=1)[0], TASK)


@pytest.mark.parametrize("layout", ["aligned_masked", "right_aligned_masked"])
def test_hidden_tokens_are_refused(layout):
    """Position -1 would read the last position's row, and attention would see the padding."""
    masked = ModularAddition(modulus=5, lengths=(2, 3), format="outcome", layout=layout)
    family = Transformer(layers=1, heads=1, width=8, mlp=False, layer_norm=False)
    weights = family.initialise(masked, 0, torch.float64)
    with pytest.raises(ValueError, match=rf"hidden \(position -1: padding .*{layout}"):
        lift(weights, family, masked)
    plain = replace(masked, layout="aligned")
    stream, batch = lift(weights, family, plain).stream, masked.evaluation(0, 20)
    with pytest.raises(ValueError, match="tokens are hidden"):
        stream.logits(batch.tokens, batch.positions)
    basis = invariant_basis(plain, layers=1)
    with pytest.raises(ValueError, match="tokens are hidden"):
        evaluate(masked, basis, random_point(basis), batch=batch)
    with pytest.raises(ValueError, match="tokens are hidden"):
        symmetry_check(masked, masked, samples=64, copies=199)
