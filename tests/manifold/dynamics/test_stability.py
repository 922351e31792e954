"""The stable rate: descent below it settles, descent above it does not; and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from manifold.dynamics.field import reduced_field
from manifold.dynamics.stability import curvatures, stable_rate
from manifold.symmetry.full_loss import curvature_product
from training.tasks import AssociativeRecall, ConditionalRetrieval

RECALL = AssociativeRecall(
    n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.2, distractor_f_v=0.4
)
DECAY = 0.05


def minimum(field, start):
    """A fixed point with decay: follow the flow, then Newton."""
    c = field.integrate(start, [600.0], weight_decay=DECAY)[-1]
    for _ in range(20):
        c = c - np.linalg.solve(field.jacobian(c, DECAY), field.flow(c, DECAY))
    assert np.linalg.norm(field.flow(c, DECAY)) < 1e-12
    return c


@pytest.mark.parametrize("coordinates", [pytest.param("all", marks=pytest.mark.slow), "four"])
def test_descent_settles_just_below_and_leaves_just_above(coordinates):
    field = reduced_field(RECALL, coordinates=coordinates)
    rng = np.random.default_rng(0)
    best = minimum(field, 0.5 * np.abs(rng.standard_normal(field.dim)))
    assert np.real(np.linalg.eigvals(field.jacobian(best, DECAY))).max() < 0
    bound, factors = stable_rate(field, best, DECAY), []
    for share in (0.97, 1.03):
        c, distances = best + 1e-6 * rng.standard_normal(field.dim), []
        for _ in range(100):
            c = c + share * bound * field.flow(c, DECAY)
            distances.append(np.linalg.norm(c - best))
        factors.append((distances[-1] / distances[-21]) ** (1 / 20))  # per step, at the end
    assert factors[0] < 0.99
    assert factors[1] == pytest.approx(1.06, abs=0.005)  # |1 - 1.03 * 2|


def test_lanczos_is_the_dense_answer():
    field = reduced_field(RECALL)
    rng = np.random.default_rng(1)
    states = 0.5 * rng.standard_normal((3, field.dim))
    v = rng.standard_normal(field.dim)
    dense = field.hessian(states[0])
    np.testing.assert_allclose(field.hessian_product(states[0], v), dense @ v, atol=1e-13)
    exact = [-np.real(np.linalg.eigvals(field.jacobian(c))).min() for c in states]
    found = curvatures(field, states)
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    assert stable_rate(field, states) == pytest.approx(2 / max(exact), rel=1e-5)
    assert stable_rate(field, states, 0.3) == pytest.approx(2 / (max(exact) + 0.3), rel=1e-5)


def test_it_is_the_curvature_of_the_full_loss_in_the_metric_of_the_matrices():
    """The steepest coordinate direction, written out: V^T H V / V^T V in the full model."""
    field = reduced_field(RECALL)
    c = 0.5 * np.random.default_rng(2).standard_normal(field.dim)
    raised = -field.jacobian(c)
    values, vectors = np.linalg.eig(raised)
    along = field.basis.matrices(np.real(vectors[:, np.real(values).argmax()]))
    orbits = RECALL.program.orbits()
    product = curvature_product(
        field.basis, field.basis.matrices(c), along, orbits.batch(), orbits.weights()
    )
    over = sum(float((product[block] * along[block]).sum()) for block in along)
    size = sum(float((along[block] ** 2).sum()) for block in along)
    assert float(curvatures(field, c)[0]) == pytest.approx(over / size, rel=1e-5)


def test_the_scale_of_the_directions_does_not_matter():
    field = reduced_field(RECALL, coordinates="four")
    basis = field.basis
    doubled = replace(basis, elements=2 * basis.elements, readouts=3 * basis.readouts)
    other = reduced_field(RECALL, coordinates=doubled)
    c = np.array([1.0, 0.5, 2.0, 1.0])
    there = c / np.array([2, 2, 3, 3])
    assert abs(field.loss(c) - other.loss(there)) < 1e-14
    np.testing.assert_allclose(curvatures(field, c), curvatures(other, there), rtol=1e-12)


def test_dependent_directions_change_nothing():
    """A direction told twice has no Gram inverse; the curvature is the same."""
    field = reduced_field(RECALL, coordinates="four")
    basis = field.basis
    last, count = basis.directions[-1], len(basis.readouts)
    twice = replace(
        basis,
        readouts=np.concatenate([basis.readouts, basis.readouts[[last.element]]]),
        readout_names=(*basis.readout_names, "copy"),
        directions=(*basis.directions, replace(last, name="copy", element=count)),
    )
    c = np.array([1.0, 0.5, 2.0, 1.0])
    split = np.append(c, 0.25) - np.array([0, 0, 0, 0.25, 0])
    other = reduced_field(RECALL, coordinates=twice)
    np.testing.assert_allclose(curvatures(other, split), curvatures(field, c), rtol=1e-10)


def test_a_flat_place_allows_any_rate():
    task = ConditionalRetrieval(n_blocks=3, n_contexts=2, n_keys=3, n_values=3)
    field = reduced_field(task, coordinates=reduced_field(task).basis.select(["1:M"]))
    assert stable_rate(field, [0.0]) == np.inf


@pytest.mark.parametrize(
    ("states", "decay", "message"),
    [
        (np.zeros((2, 3)), 0.0, r"shape \(2, 3\); allowed: \(states, 4\)"),
        (np.zeros((0, 4)), 0.0, r"shape \(0, 4\); .* at least one"),
        (np.array([[0.0] * 4, [np.nan] * 4]), 0.0, r"not finite at \[1\]"),
        (np.zeros(4), -0.1, "weight_decay is -0.1"),
        (np.zeros(4), np.nan, "weight_decay is nan"),
    ],
)
def test_bad_input_is_refused(states, decay, message):
    field = reduced_field(RECALL, coordinates="four")
    with pytest.raises(ValueError, match=message):
        stable_rate(field, states, decay)
