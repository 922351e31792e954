"""Planted states of rest: what is planted is what trains, and the verdict can go either way."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from analyses.claim import CONFIRMED, CONTRADICTED
from analyses.dynamics.hysteresis import (
    DECAY,
    QUICK,
    SETTINGS,
    claims,
    distance,
)
from analyses.dynamics.hysteresis_text import text
from analyses.dynamics.start import StartAt
from manifold import effective_matrices, equilibrium, invariant_basis, project, reduced_field
from training import RunConfig, open_run, train, train_many

(SMALL,) = QUICK.values()


def planted(c, steps):
    """The run from c, its first and last step kept."""
    config = SMALL.config(c, SMALL.both, 0)
    rarely = {"every": steps}
    return config.replace(steps=steps, eval_every=steps, eval_size=20, checkpoints=rarely)


@pytest.fixture(scope="module")
def task():
    return SMALL.config(np.zeros(0), SMALL.both, 0).task


@pytest.fixture(scope="module")
def basis(task):
    return invariant_basis(task, layers=2)


def test_matrices_start_at_the_coordinates_given(task, basis):
    c = np.random.default_rng(0).normal(size=basis.dim)
    family = StartAt(coordinates=tuple(c.tolist()), scale=0.0)
    matrices = effective_matrices(family.initialise(task, 0, torch.float64), family, task)
    np.testing.assert_allclose(basis.coordinates(matrices), c, atol=1e-12)
    assert basis.off_manifold(matrices)["all"] < 1e-28


def test_noise_is_that_of_attention_only_and_of_the_seed(task, basis):
    family = StartAt(coordinates=(0.0,) * basis.dim, scale=0.01)
    one, other = (family.initialise(task, seed, torch.float64) for seed in (0, 1))
    assert float(one["unembed.W"].std()) == pytest.approx(0.01, rel=0.1)
    assert not torch.equal(one["unembed.W"], other["unembed.W"])
    assert torch.equal(one["embed.token"], other["embed.token"])


def test_coordinates_that_cannot_be_a_start_are_refused(task):
    with pytest.raises(ValueError, match="3 coordinates, but this task and shape have 42"):
        StartAt(coordinates=(1.0, 2.0, 3.0)).initialise(task, 0, torch.float64)
    with pytest.raises(ValueError, match="must be finite"):
        StartAt(coordinates=(1.0, float("nan")))


def test_a_planted_run_is_read_back_from_its_folder(tmp_path, basis):
    c = np.random.default_rng(1).normal(size=basis.dim)
    config = planted(c, steps=1)
    run = open_run(train(config, root=tmp_path).path)
    assert isinstance(run.config, RunConfig)
    assert run.family == config.family
    at_start = project(run, basis)["c"].to_numpy()[0, 0]
    assert distance(basis, at_start, c) < 0.05  # noise of 0.01, in float32


def test_distance_is_that_of_the_matrices(basis):
    rng = np.random.default_rng(2)
    c, goal = rng.normal(size=(2, basis.dim))
    far, size = (basis.matrices(x) for x in (c - goal, goal))
    norms = [sum((m**2).sum() for m in part.values()) for part in (far, size)]
    assert distance(basis, c, goal) == pytest.approx(np.sqrt(norms[0] / norms[1]))
    assert distance(basis, goal, goal) == 0.0


def test_paths_to_different_statistics_are_refused():
    with pytest.raises(ValueError, match=r"paths that end at 0.3 and 0.4"):
        replace(SMALL, context=(0.9, 0.4))


def test_both_states_are_tried_on_the_same_data_and_the_fall_below_them():
    for setting in SETTINGS.values():
        tasks = [setting.config(np.zeros(k), setting.both, 0).task for k in (1, 2)]
        assert tasks[0] == tasks[1]
        assert setting.low < setting.both
        config = setting.config(np.zeros(1), setting.both, 1)
        assert config.optimiser.weight_decay == DECAY
        assert (config.seeds.init, config.seeds.data) == (1, 1)


def made(weights, context, fall):
    """Facts with these accuracies on mismatch at the end, one per seed."""
    ends = {"weights": (0.2, weights), "context": (0.2, context), "fall": (0.02, fall)}
    rest = {"state": [1.0], "f_v": 0.2, "residual": 1e-17, "leading": -1e-3, "limit": 40.0,
            "mismatch": 0.0, "iwl": 1.0, "largest": {"1:M": 2.0}, "from_weights": 0.0}  # fmt: skip
    run = {"iwl": [1.0, 1.0], "distance": [0.1, 0.0], "off_manifold": 1e-4, "times": [0.0, 1.0]}
    return {
        "made": {
            "field": "a field",
            "decay": 1e-3,
            "noise": 0.01,
            "rate": 1.0,
            "steps": 1,
            "rest": {name: rest for name in ("weights", "context", "fallen")},
            "arms": {
                arm: {
                    "f_v": f_v,
                    "runs": [{**run, "mismatch": [end, end]} for end in found],
                    "foreseen": {"times": [0.0, 1.0], "mismatch": [0.0, 0.0], "iwl": [1.0, 1.0]},
                }
                for arm, (f_v, found) in ends.items()
            },
        }
    }


def test_hysteresis_is_claimed_where_each_start_stays_and_only_there():
    (claim,) = claims(made([0.0, 0.1, 0.0], [0.9, 1.0, 0.95], [0.05, 0.1, 0.0]))
    assert claim.verdict == CONFIRMED
    for spoilt in ([[0.9] * 3, [0.9] * 3, [0.0] * 3], [[0.0] * 3, [0.9] * 3, [0.8] * 3]):
        (claim,) = claims(made(*spoilt))
        assert claim.verdict == CONTRADICTED


def test_the_section_says_which_start_did_not_stay():
    stays = text(made([0.0] * 3, [0.9] * 3, [0.0] * 3))
    assert "each stays on its side" in stays
    moves = text(made([0.0] * 3, [0.9, 0.4, 0.9], [0.0] * 3))
    assert "not every checkpoint of every seed stays on its side of 1/2 (in-context start)" in moves


@pytest.mark.slow
def test_full_matrices_stay_at_a_state_of_rest_and_leave_what_is_none(task, tmp_path):
    field = reduced_field(task, samples=None)
    rest = equilibrium(field, np.zeros(field.dim), DECAY)
    elsewhere = 0.7 * rest
    configs = [planted(c, 300) for c in (rest, elsewhere)]
    ends = [
        project(run, field.basis)["c"].to_numpy()[0, -1]
        for run in train_many(configs, root=tmp_path)
    ]
    stayed, moved = (
        distance(field.basis, end, start)
        for end, start in zip(ends, (rest, elsewhere), strict=True)
    )
    assert stayed < 0.05
    assert moved > 0.1
    foreseen = field.integrate(elsewhere, [600.0], DECAY)[-1]
    assert distance(field.basis, ends[1], foreseen) < 0.05
