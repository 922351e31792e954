"""What a fit knows of its own error: the noise of the checkpoints, and the field's sample."""

import numpy as np
import pytest

from manifold.dynamics.field import reduced_field
from manifold.dynamics.mixture_regression import GROUPS, bootstrap, regression, solve
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


def drawn_weights(scatter, seeds):
    """Two kinds and decay along three axes, one interval: F_1 = e_1, F_2 = e_2, -c = -e_3, moved by
    (0.5, 0.3, -0.2); part g of kind k's sample has the field (1 + scatter[k, g]) e_k. Draws of
    theta, (draws, 3); the checkpoints have no error."""
    apart = np.zeros((2, GROUPS, 3))
    apart[0, :, 0], apart[1, :, 1] = scatter
    rows = np.vstack([np.diag([1.0, 1.0, -1.0]), [0.5, 0.3, -0.2], apart.reshape(-1, 3)])
    part = (rows @ rows.T)[None]
    draws = [bootstrap([part], 3, np.random.default_rng(seed)) for seed in range(seeds)]
    return np.concatenate(draws)


@pytest.mark.parametrize("kind", [0, 1])
def test_each_kind_s_sampling_error_is_its_own_and_of_the_right_size(kind):
    """theta_k = y_k / (1 + mean of the drawn parts), so its relative spread is the standard error
    of a mean of 8 parts, s / sqrt(8) with s over n - 1: 7% more than the bootstrap's own. 4,000
    draws tell it to 1.1%."""
    scatter = np.zeros((2, GROUPS))
    scatter[kind] = 1e-3 * np.random.default_rng(0).normal(size=GROUPS)
    theta = drawn_weights(scatter, 10)
    truth = [0.5, 0.3, 0.2]
    np.testing.assert_allclose(theta.mean(0), truth, rtol=1e-3)
    spread = theta.std(0) / truth
    expected = np.zeros(3)
    expected[kind] = scatter[kind].std(ddof=1) / GROUPS**0.5
    np.testing.assert_allclose(spread, expected, rtol=0.035, atol=1e-7)


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
