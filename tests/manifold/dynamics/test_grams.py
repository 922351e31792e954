"""Read-out classes: a few rows and their multiplicities stand for the whole vocabulary."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manifold.coordinates.invariant import frame_projector, invariant_basis
from manifold.dynamics.field import reduced_field
from manifold.dynamics.grams import GramModel
from training.families.attention_only import AttentionOnly
from training.tasks import AssociativeRecall, ConditionalRetrieval, InContextNgram

RECALL = AssociativeRecall(
    n_blocks=2, n_common=16, n_rare=11, track_slots=4, f_r=0.3, f_v=0.2, distractor_f_v=0.4
)
"""Of its 27 tokens the sequences hold at most five common and five rare ones."""
TASKS = {
    "recall": RECALL,
    "2-gram": InContextNgram(n_blocks=2, n_tokens=9),
    "conditional": ConditionalRetrieval(n_blocks=3, n_contexts=3, n_keys=5, n_values=6),
}


def full_logits(basis, c, task, tokens, positions):
    """Over every token of the vocabulary, from written-out matrices; differentiable in c."""
    params = dict(AttentionOnly(layers=basis.layers, scale=0.0).initialise(task, 0, torch.float64))
    stacks = {False: torch.tensor(basis.elements), True: torch.tensor(basis.readouts)}
    for layer, block in enumerate(basis.blocks):
        size, paths = stacks[False].shape[-1], len(basis.paths(block))
        last = block == "Wbar"
        rows = basis.vocabulary if last else size * paths
        matrix = torch.zeros(rows, size * paths, dtype=torch.float64)
        for i, d in enumerate(basis.directions):
            if d.block == block:
                step = torch.zeros(1 if last else paths, paths, dtype=torch.float64)
                step[d.query, d.key] = 1.0
                matrix = matrix + c[i] * torch.kron(step, stacks[last][d.element])
        params["unembed.W" if last else f"blocks.{layer}.attn.W"] = matrix if last else matrix[None]
    if basis.family == "transformer":
        params["embed.token"] = torch.eye(task.vocabulary, dtype=torch.float64)
        params["embed.position"] = torch.eye(task.n_positions, dtype=torch.float64)
    model = AttentionOnly(layers=basis.layers, scale=0.0)
    return model.forward_last(params, torch.tensor(tokens), torch.tensor(positions))[:, 0]


def reference(field, c):
    """(logits, target, weight) of every orbit in the full model."""
    people = field.population.sequences
    places = np.broadcast_to(people.positions, people.tokens.shape)
    logits = full_logits(field.basis, c, field.task, people.tokens.astype(int), places.copy())
    return logits, torch.tensor(people.target.astype(int)), torch.tensor(field.weights)


def a_point(dim, seed=0, size=0.5):
    return size * np.random.default_rng(seed).normal(size=dim)


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
@pytest.mark.parametrize("name", TASKS)
def test_loss_gradient_and_hessian_are_those_over_all_tokens(name, family):
    task = TASKS[name]
    basis = invariant_basis(task, family=family)
    few = basis.names[:: max(1, basis.dim // 24)]  # some of every matrix: the Hessian is dear
    field = reduced_field(task, coordinates=basis.select(few))
    c = a_point(field.dim)

    def loss(point):
        logits, target, weight = reference(field, point)
        return cross_entropy(logits, target, reduction="none") @ weight

    point = torch.tensor(c, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(point), point)
    curvature = torch.autograd.functional.hessian(loss, torch.tensor(c)).numpy()
    assert abs(field.loss(c) - loss(torch.tensor(c)).item()) < 1e-13
    np.testing.assert_allclose(field.gradient(c), slope.numpy(), atol=1e-13)
    raised = -field.basis.raise_index(curvature).T
    np.testing.assert_allclose(field.jacobian(c), raised, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 3])
def test_every_sequence_has_its_loss_at_other_depths(layers):
    field = reduced_field(RECALL, layers=layers, samples=40)
    c = a_point(field.dim, size=0.3)
    logits, target, _ = reference(field, torch.tensor(c))
    model = field_model(field)
    full = cross_entropy(logits, target, reduction="none").numpy()
    np.testing.assert_allclose(model.losses(c), full, atol=1e-13, rtol=0)


def field_model(field):
    frame = frame_projector(field.task, field.basis.family)
    return GramModel(field.basis, frame, field.population.sequences)


@pytest.mark.parametrize("point", ["zero", "answers in weights", "copies rare", "anywhere"])
def test_ties_count_every_token_that_shares_the_largest_logit(point):
    """Unseen tokens tie as often as there are of them."""
    field = reduced_field(RECALL)
    c = {
        "zero": lambda: np.zeros(field.dim),
        "answers in weights": lambda: only(field, "out:C I", 2.0),
        "copies rare": lambda: only(field, "out:I_r V2", -1.0),
        "anywhere": lambda: a_point(field.dim),
    }[point]()
    logits, target, _ = reference(field, torch.tensor(c))
    best = logits >= logits.max(1, keepdim=True).values - 1e-12
    full = best[torch.arange(len(best)), target].double() / best.sum(1)
    np.testing.assert_array_equal(field_model(field).correct(c), full.numpy())
    if point == "zero":
        np.testing.assert_allclose(full, 1 / 27)


def only(field, name, value):
    c = np.zeros(field.dim)
    c[field.names.index(name)] = value
    return c


def test_cost_does_not_grow_with_the_vocabulary():
    """Rows kept: the seen tokens and few more, whatever the vocabulary."""
    small, large = (
        field_model(reduced_field(replace(RECALL, n_common=n, n_rare=n))) for n in (16, 64)
    )
    assert small.count == large.count
    assert small.rows == large.rows < 18


def test_tokens_that_a_basis_tells_apart_are_not_one_class():
    """A direction of one's own may break the symmetry between unseen tokens."""
    basis = invariant_basis(RECALL)
    broken = basis.readouts.copy()
    broken[:, 13] *= 1.5
    field = reduced_field(RECALL, coordinates=replace(basis, readouts=broken))
    c = a_point(field.dim)
    logits, target, weight = reference(field, torch.tensor(c))
    full = cross_entropy(logits, target, reduction="none") @ weight
    assert abs(field.loss(c) - full.item()) < 1e-13


def test_a_basis_without_a_read_out_has_a_flat_loss():
    basis = invariant_basis(RECALL)
    field = reduced_field(RECALL, coordinates=basis.select(basis.names[:6]))
    c = a_point(field.dim)
    assert abs(field.loss(c) - np.log(27)) < 1e-13
    np.testing.assert_array_equal(field.gradient(c), 0.0)
    np.testing.assert_array_equal(field.hessian(c), 0.0)
