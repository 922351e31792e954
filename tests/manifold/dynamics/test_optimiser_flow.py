"""Adam on orbitals is full-batch Adam on the matrices; momentum is a faster clock."""

import numpy as np
import pytest
import torch

from manifold.coordinates.invariant import four_coordinates
from manifold.dynamics.field import reduced_field
from manifold.dynamics.optimiser_flow import follow_optimiser, orbital_sizes
from manifold.symmetry.exact_law import exact_law
from manifold.symmetry.full_loss import loss_gradient
from training.config import Optimiser
from training.tasks import AssociativeRecall, InContextNgram

RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.2)
NGRAM = InContextNgram(n_blocks=2, n_tokens=3, track_slots=3)


def full_batch(field, c, count, optimiser):
    """torch.optim on every entry of the matrices, over the exact law of the task.

    After each step matrices and moments go back to the nearest point of the manifold.
    """
    matrices = {
        name: torch.tensor(m, requires_grad=True) for name, m in field.basis.matrices(c).items()
    }
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimiser.name]
    rule = make(
        matrices.values(),
        lr=optimiser.lr,
        betas=optimiser.betas,
        weight_decay=optimiser.weight_decay,
    )
    law = list(exact_law(field.task).parts())
    states = []
    for _ in range(count):
        here = {name: m.detach().numpy() for name, m in matrices.items()}
        for batch, weights in law:
            part = loss_gradient(field.basis, here, batch, weights)
            for name, slope in part.items():
                old = matrices[name].grad
                new = torch.tensor(slope)
                matrices[name].grad = new if old is None else old + new
        rule.step()
        rule.zero_grad()
        states.append({name: m.detach().numpy().copy() for name, m in matrices.items()})
        moments = [
            {name: rule.state[m][slot] for name, m in matrices.items()}
            for slot in ("exp_avg", "exp_avg_sq")
        ]
        for side in ({name: m.detach() for name, m in matrices.items()}, *moments):
            there = field.basis.coordinates({name: m.numpy() for name, m in side.items()})
            for name, m in field.basis.matrices(there).items():
                side[name].copy_(torch.from_numpy(m))
    return states


@pytest.mark.parametrize(
    "optimiser",
    [
        Optimiser(name="adam", lr=0.001),
        Optimiser(name="adam", lr=0.001, weight_decay=0.1, betas=(0.8, 0.99)),
        Optimiser(name="adamw", lr=0.001, weight_decay=0.1),
    ],
)
def test_adam_on_orbitals_is_adam_on_the_matrices(optimiser):
    """On every entry, over every sequence at every placement: nothing of the symmetry is used.

    Step by step from the manifold: an entry whose gradient vanishes by symmetry gets rounding over
    Adam's epsilon of 1e-8, and what leaves the manifold so grows by lr / 1e-8 times the curvature
    in each step after (1e-6 in six steps without the return).
    """
    field = reduced_field(NGRAM, family="transformer")
    c = 0.3 * np.random.default_rng(0).standard_normal(field.dim)
    reduced = follow_optimiser(field, c, range(1, 7), optimiser)
    slow = full_batch(field, c, 6, optimiser)
    alive = np.abs(field.gradient(c)) > 1e-12
    assert alive.sum() > field.dim / 2
    live = field.basis.matrices(alive.astype(float))
    for step, (state, full) in enumerate(zip(reduced, slow, strict=True), start=1):
        for name, matrix in field.basis.matrices(state).items():
            gap = np.abs(matrix - full[name])
            assert gap[live[name] == 1].max() < step * 1e-10
            assert gap.max() < step * optimiser.lr * 1e-6
    assert np.abs(reduced[-1] - c)[alive].max() > 5e-3


def test_a_wrong_orbital_size_would_be_seen():
    """Control: Adam forgets the scale of a gradient up to its epsilon and its coupled decay."""
    field = reduced_field(NGRAM, family="transformer")
    optimiser = Optimiser(name="adam", lr=0.01, weight_decay=0.1)
    c = 0.3 * np.random.default_rng(0).standard_normal(field.dim)
    reduced = follow_optimiser(field, c, [3], optimiser)[0]
    unscaled = c.copy()
    mean, square = np.zeros(field.dim), np.zeros(field.dim)
    for step in (1, 2, 3):
        slope = field.gradient(unscaled) + 0.1 * unscaled
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        root = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        unscaled = unscaled - 0.01 * mean / (1 - 0.9**step) / root
    assert np.abs(unscaled - reduced).max() > 1e-4


def test_orbital_sizes_count_entries():
    field = reduced_field(RECALL, family="transformer", layers=1)
    sizes = orbital_sizes(field.basis)
    one = np.eye(field.dim)
    counted = [sum((m != 0).sum() for m in field.basis.matrices(c).values()) for c in one]
    np.testing.assert_array_equal(sizes, counted)


def test_centred_and_overlapping_coordinates_are_refused_for_adam():
    adam, c = Optimiser(name="adam", lr=0.01), np.zeros(42)
    with pytest.raises(ValueError, match=r"frame of attention_only centres .* use sgd"):
        follow_optimiser(reduced_field(RECALL), c, [1], adam)
    with pytest.raises(ValueError, match="not exact on the coordinates"):
        orbital_sizes(four_coordinates(RECALL))


def test_momentum_is_a_faster_clock():
    """Steps of SGD with momentum tend to the flow, with an error of the order of lr."""
    field = reduced_field(RECALL, coordinates="four")
    start, errors = np.array([0.3, 0.4, 0.3, 0.2]), []
    for lr, count in ((0.1, 100), (0.05, 200)):
        optimiser = Optimiser(name="sgd", lr=lr, momentum=0.8, weight_decay=0.01)
        c, velocity = start, np.zeros(4)
        for _ in range(count):
            slope = -field.flow(c, 0.01)
            velocity = 0.8 * velocity + slope
            c = c - lr * velocity
        flow = follow_optimiser(field, start, [0, count], optimiser)
        np.testing.assert_allclose(flow[0], start, rtol=1e-15)
        errors.append(np.abs(flow[1] - c).max())
    assert errors[0] < 0.05
    assert 1.7 < errors[0] / errors[1] < 2.3


def test_bad_steps_are_refused():
    field = reduced_field(RECALL, coordinates="four")
    sgd = Optimiser(name="sgd", lr=0.1)
    for steps in ([2, 1], [], [-1], [0.5]):
        with pytest.raises(ValueError, match="steps got"):
            follow_optimiser(field, np.zeros(4), steps, sgd)
