"""Full training against the field: what the numbers of the study mean, and that they can fail."""

import numpy as np
import pytest
import torch

from analyses.dynamics.full import align, projected_start, r_squared, relative_errors
from analyses.dynamics.full_cases import CASES, CLOSE, CLOSER, WHY, quick
from manifold import invariant_basis, project, reduced_field
from training import train_many

TIMES = np.linspace(0.0, 10.0, 51)


def sigmoid(times, middle):
    """A saddle left at `middle`, (time, 2)."""
    one = 1 / (1 + np.exp(-3 * (times - middle)))
    return np.column_stack([one, -2 * one])


def test_r_squared_is_1_for_itself_and_0_for_the_mean():
    path = sigmoid(TIMES, 5.0)
    assert r_squared(path, path) == 1.0
    assert r_squared(path, np.broadcast_to(path.mean(0), path.shape)) == pytest.approx(0.0)


def test_r_squared_counts_all_coordinates_together():
    path = sigmoid(TIMES, 5.0)
    off = path + np.array([0.0, 0.3])
    spread = ((path - path.mean(0)) ** 2).sum()
    assert r_squared(path, off) == pytest.approx(1 - 51 * 0.09 / spread)


def test_errors_are_relative_and_0_at_a_start_from_zero():
    path = np.array([[0.0, 0.0], [3.0, 4.0]])
    off = np.array([[0.0, 0.0], [0.0, 0.5]])
    assert relative_errors(path, path + off).tolist() == [0.0, 0.1]


@pytest.mark.parametrize("late", [-0.6, 0.0, 0.4])
def test_a_late_escape_is_a_shift_in_time_and_nothing_else(late):
    dense = np.linspace(0.0, 11.0, 1001)
    shift, r2 = align(TIMES, sigmoid(TIMES, 5.0 + late), dense, sigmoid(dense, 5.0))
    assert shift == pytest.approx(-late, abs=0.05)
    assert r2 > 0.9999


def test_another_path_stays_another_after_any_shift():
    dense = np.linspace(0.0, 11.0, 1001)
    _, r2 = align(TIMES, sigmoid(TIMES, 5.0) * [1.0, 0.5], dense, sigmoid(dense, 5.0))
    assert r2 < 0.95


def test_a_projected_start_is_that_of_the_run():
    (case,) = (c for c in quick(CASES) if c.name == "1-hop")
    config = case.config((0.01, 1)).replace(dtype="float64", steps=10, eval_every=10, eval_size=10)
    task = config.task
    basis = invariant_basis(task, layers=2)
    start = projected_start(task, basis, 0.01, 1)
    weights = config.family.initialise(task, 1, torch.float64)
    matrices = {
        "W1": weights["blocks.0.attn.W"].numpy(),
        "W2": weights["blocks.1.attn.W"].numpy(),
        "Wbar": weights["unembed.W"].numpy(),
    }
    # the gauge is orthogonal to the span, so it does not matter here
    np.testing.assert_allclose(start, basis.coordinates(matrices), atol=1e-14)


def test_cases_ask_what_the_issue_asks():
    least = {case.name: case.target for case in CASES}
    for name in ("1-hop", "2-gram", "recall, n = 3", "recall, n = 4", "indirect object"):
        assert least[name] == CLOSER
    for name in ("2-hop", "3-gram", "permutation inversion", "conditional retrieval"):
        assert least[name] == CLOSE
    assert {case.layers for case in CASES if case.name.startswith("2-hop")} == {2, 3}
    assert any(case.heads == 2 and case.starts[0][0] > 0 for case in CASES)
    rates = {case.lr for case in CASES if case.name.startswith("conditional retrieval")}
    assert min(rates) == 0.2
    assert max(rates) > 29.2  # the limit along the path, looked at every 4 units of time
    assert len({case.steps * case.lr for case in WHY}) == 1


def test_steps_that_checkpoints_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="multiple of 100"):
        CASES[0].__class__(name="x", task=CASES[0].task, steps=150)


def test_training_follows_the_field_by_the_sum_of_learning_rates(tmp_path):
    (case,) = (c for c in quick(CASES) if c.name == "1-hop")
    (run,) = train_many([case.config((0.0, 0)).replace(eval_size=50)], root=tmp_path)
    coords = project(run).isel(run=0)
    times, trained = coords["time"].to_numpy(), coords["c"].to_numpy()
    field = reduced_field(run.task, layers=2)
    assert r_squared(trained, field.integrate(trained[0], times)) > 0.999
    assert r_squared(trained, field.integrate(trained[0], 1.2 * times)) < 0.95
