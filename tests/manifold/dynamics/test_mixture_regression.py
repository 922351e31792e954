"""What a fit knows of its own error: the noise of the checkpoints, and the field's sample."""

import numpy as np
import pytest

from manifold.dynamics.field import reduced_field
from manifold.dynamics.mixture_regression import bootstrap, regression, solve
from manifold.dynamics.trajectory import Trajectory
from training.tasks import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)
TRUTH = np.array([0.40, 0.36, 0.24])
TIMES = np.linspace(0.0, 120.0, 9)
NEVER = float("inf")


def weights(theta):
    return theta[..., :3] / theta[..., :3].sum(-1, keepdims=True)


@pytest.mark.slow
def test_intervals_of_a_sampled_field_hold_its_sampling_error():
    """Checkpoints without noise, fitted with small samples of the field: the error is theirs.

    24 weights of 8 samples, about 23 of which a 95% interval should hold; the checkpoints alone
    know nothing of that error, and their intervals hold few.
    """
    exact = reduced_field(TASK, coordinates="four")
    states = exact.integrate(np.array([0.3, 0.4, 0.2, 0.2]), TIMES)
    run = Trajectory(name="exact", times=TIMES, states=states)
    inside, taken = 0, 0
    for seed in range(8):
        sampled = reduced_field(TASK, coordinates="four", samples=300, seed=seed)
        part = regression(run, sampled, NEVER)
        for rows in (part, part[:, :5, :5]):
            draws = weights(bootstrap([rows], 4, np.random.default_rng(0)))
            low, high = np.percentile(draws, (2.5, 97.5), axis=0)
            hold = ((low <= TRUTH) & (high >= TRUTH)).sum()
            inside, taken = (inside + hold, taken) if rows is part else (inside, taken + hold)
    assert inside >= 20
    assert taken < 10


def test_regressions_of_runs_add_up():
    """A fit of two runs is the sum of their normal matrices: no run needs the other's."""
    field = reduced_field(TASK, coordinates="four")
    parts = []
    for start in ([0.3, 0.4, 0.2, 0.2], [0.1, 0.2, 0.4, 0.0]):
        states = field.integrate(np.array(start), TIMES, 0.01)
        part = regression(Trajectory(name="", times=TIMES, states=states), field, NEVER)
        assert part.shape == (len(TIMES) - 1, 5, 5)
        parts.append(part)
    theta = solve(np.concatenate(parts).sum(0))
    np.testing.assert_allclose(weights(theta), TRUTH, atol=5e-3)
    assert abs(theta[3] - 0.01) < 1e-3


def test_time_that_is_over_ends_it():
    field = reduced_field(TASK, coordinates="four")
    run = Trajectory(name="", times=TIMES, states=np.ones((9, 4)))
    assert regression(run, field, 0.0) is None
