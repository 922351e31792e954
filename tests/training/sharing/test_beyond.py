"""Accuracy beyond the training lengths: 1 for a solver of any length, 0 at chance, None without."""

import numpy as np
import pytest
import torch

from training import FAMILIES, RunConfig, accuracy_beyond, train
from training.checkpoint import write_checkpoint
from training.run import CHECKPOINTS
from training.tasks import AssociativeRecall, ModularAddition


def config(task, family, **changes):
    return RunConfig(
        **{
            "study": "beyond",
            "task": task,
            "family": family,
            "steps": 1,
            "checkpoints": {"doubling": False, "every": None},
        }
        | changes
    )


def addition(format="acot", **changes):
    fields = {"modulus": 3, "lengths": (3, 4), "format": format, "validation_size": 20}
    return ModularAddition(**(fields | changes))


def planted(tmp_path, format, wrong=0):
    """A Dense-SSM whose state is the one-hot sum, so that it is right at every length; `wrong`
    turns each answer by so much."""
    task = addition(format)
    run = train(config(task, FAMILIES["dense_ssm"](width=3)), root=tmp_path)
    transition = np.zeros((task.vocabulary, 3, 3), dtype=np.float32)
    for token in range(task.vocabulary):
        shift = token if token < 3 else 0
        transition[token] = np.roll(np.eye(3), shift, axis=0)
    head = np.zeros((3, task.vocabulary), dtype=np.float32)
    head[np.arange(3), (np.arange(3) + wrong) % 3] = 9.0
    weights = {
        "transition.A": transition,
        "state.h_0": np.eye(3, dtype=np.float32)[0],
        "unembed.W_U": head,
        "unembed.b_U": np.zeros(task.vocabulary, dtype=np.float32),
    }
    meta = {key: run.last.meta[key] for key in ("run_id", "time", "tokens_seen", "engine")}
    write_checkpoint(
        run.path / CHECKPOINTS, step=9, weights=weights, optimizer=run.last.optimizer, meta=meta
    )
    return run


@pytest.mark.parametrize("format", ["acot", "outcome"])
def test_a_solver_of_every_length_scores_one(tmp_path, format):
    run = planted(tmp_path, format)
    assert accuracy_beyond(run) == 1.0
    assert accuracy_beyond(run, factor=3, samples=40, seed=1) == 1.0


def test_always_wrong_is_below_chance(tmp_path):
    assert accuracy_beyond(planted(tmp_path, "acot", wrong=1)) == pytest.approx(-1 / 2)


def test_an_untrained_model_is_near_chance(tmp_path):
    run = train(config(addition(), FAMILIES["dense_ssm"](width=8), steps=1), root=tmp_path)
    assert abs(accuracy_beyond(run)) < 0.4, "one fixed guesser, not as many as sequences"


@pytest.mark.parametrize("name", ["lstm", "mamba", "dense_ssm"])
@pytest.mark.parametrize("format", ["outcome", "cot", "acot"])
def test_recurrent_families_take_longer_sequences(tmp_path, name, format):
    run = train(config(addition(format), FAMILIES[name](width=8)), root=tmp_path)
    value = accuracy_beyond(run, samples=50)
    assert -0.5 <= value <= 1
    assert value == accuracy_beyond(run, samples=50), "a function of the run and the seed"


@pytest.mark.parametrize(
    ("positions", "layout", "applies"),
    [
        ("learned", "usual", False),
        ("none", "usual", True),
        ("rotary", "right_aligned", True),
        ("sinusoidal", "random_offset", True),
        ("sinusoidal", "aligned", True),
    ],
)
def test_a_table_of_positions_does_not_apply(tmp_path, positions, layout, applies):
    family = FAMILIES["transformer"](layers=1, heads=2, width=8, positions=positions)
    run = train(config(addition("cot", layout=layout), family), root=tmp_path)
    assert (accuracy_beyond(run, samples=50) is not None) == applies


def test_a_task_without_lengths_does_not_apply(tmp_path):
    recall = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)
    run = train(config(recall, FAMILIES["dense_ssm"](width=4)), root=tmp_path)
    assert accuracy_beyond(run) is None


@pytest.mark.parametrize("change", [{"factor": 1}, {"samples": 0}])
def test_impossible_questions_are_named(tmp_path, change):
    run = train(config(addition(), FAMILIES["dense_ssm"](width=4)), root=tmp_path)
    with pytest.raises(ValueError, match="factor, samples: got"):
        accuracy_beyond(run, **change)


def test_threads_are_left_alone(tmp_path):
    before = torch.get_num_threads()
    accuracy_beyond(train(config(addition(), FAMILIES["lstm"](width=4)), root=tmp_path))
    assert torch.get_num_threads() == before
