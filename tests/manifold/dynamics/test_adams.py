"""Adams's method follows a flow that is not stiff, in few evaluations, and says where it ends."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from manifold.dynamics.adams import adams
from manifold.dynamics.field import reduced_field
from training.tasks import AssociativeRecall

RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.2)


def turning(state):
    """A slowly damped turn: exp(-t / 10) (cos t, sin t)."""
    x, y = state
    return np.array([-0.1 * x - y, x - 0.1 * y])


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_follows_a_known_flow_to_its_tolerance(rtol):
    times = np.array([0.0, 0.0, 1.0, 1.0, 2.5, 10.0])
    found = adams(turning, np.array([1.0, 0.0]), times, rtol)
    exact = np.exp(-times / 10) * np.array([np.cos(times), np.sin(times)])
    np.testing.assert_allclose(found, exact.T, atol=30 * rtol)
    np.testing.assert_array_equal(found[:2], [[1.0, 0.0]] * 2)


def test_fewer_evaluations_than_runge_kutta_to_a_smaller_error():
    field = reduced_field(RECALL)
    start, count = np.zeros(field.dim), 0

    def velocity(c):
        nonlocal count
        count += 1
        return field.flow(c)

    def runge_kutta(rtol):
        found = solve_ivp(
            lambda _, c: velocity(c), (0, 200), start, rtol=rtol, atol=rtol / 100, t_eval=[200]
        )
        return found.y[:, -1]

    truth = runge_kutta(1e-8)
    errors, counts = [], []
    for method in (
        lambda: adams(velocity, start, np.array([200.0]), 1e-4)[-1],
        lambda: runge_kutta(1e-4),
    ):
        count = 0
        errors.append(np.linalg.norm(method() - truth))
        counts.append(count)
    assert errors[0] < max(errors[1], 1e-3)
    assert counts[0] < 0.8 * counts[1]


@pytest.mark.parametrize(
    ("velocity", "message"),
    [
        (lambda state: 1e3 * state**2, r"followed to time 0\.0009"),
        (lambda state: state * np.nan, "followed to time 0|no longer finite before time 2"),
    ],
)
def test_a_flow_that_cannot_be_followed_says_how_far(velocity, message):
    with np.errstate(all="ignore"), pytest.raises(RuntimeError, match=message):
        adams(velocity, np.ones(2), np.array([2.0]), 1e-6)
