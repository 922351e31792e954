"""Cosines of single-step gradients, on models where they are known."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from circuits import gradient_cosines
from training.families.base import no_tap
from training.tasks.modular_addition import ModularAddition

SHARED = 0.6
"""At zero logits every step pushes the two special tokens down alike: squared norm 0.057 against
0.008 of sampling noise with 100 sequences, so the cosine is about 0.88, of a spread near 0.05."""


@dataclass(frozen=True)
class ByPosition:
    """Logits are a table of the absolute position: only steps at one position can meet."""

    frozen = ()

    def forward(self, params, tokens, positions, tap=no_tap):
        return params["table"][positions]


def run(layout, loss=1.0, name="a"):
    task = ModularAddition(modulus=5, lengths=(3, 4), format="cot", layout=layout)
    table = torch.zeros(task.n_positions, task.vocabulary, dtype=torch.float64)

    class Run(SimpleNamespace):
        def __getitem__(self, step):
            return SimpleNamespace(params=lambda: {"table": table.clone()}, time=float(step))

    metrics = pd.DataFrame({"step": [0, 10], "validation_loss": [loss, loss]})
    return Run(run_id=name, task=task, family=ByPosition(), steps=(0, 10), metrics=metrics)


def test_only_steps_at_one_position_meet_in_a_model_of_positions():
    found = gradient_cosines(run("usual"), samples=100)
    table = found.table.set_index("group")["cosine"]
    assert np.abs(table["same step"]).max() < 1e-12
    assert np.abs(table["neither"]).max() < 1e-12
    assert table["same position"].min() > SHARED


def test_the_aligned_layout_has_no_different_steps_at_one_position():
    found = gradient_cosines(run("aligned"), samples=100)
    assert set(found.means) == {"same step", "neither"}
    assert found.means["same step"] > SHARED
    assert len(found.table) == 3 * 4


def test_nothing_is_used_once_the_loss_is_low():
    found = gradient_cosines(run("usual", loss=0.01), samples=20)
    assert found.runs == {}
    assert found.means == {}


def test_several_runs_are_averaged_and_those_without_training_left_out():
    runs = [run("usual"), run("usual", name="b"), run("usual", loss=0.01, name="c")]
    found = gradient_cosines(runs, samples=50)
    alone = gradient_cosines(runs[0], samples=50)
    assert found.runs == {"a": (0,), "b": (0,)}
    assert found.means == pytest.approx(alone.means, abs=1e-12)


def test_runs_of_different_tasks_are_refused():
    with pytest.raises(ValueError, match="one task"):
        gradient_cosines([run("usual"), run("aligned")])


def test_a_run_without_validation_is_refused():
    bare = run("usual")
    bare.metrics["validation_loss"] = np.nan
    with pytest.raises(ValueError, match="eval_every"):
        gradient_cosines(bare)


def test_sequences_that_start_anywhere_have_no_absolute_position_to_compare_at():
    with pytest.raises(ValueError, match="random_offset"):
        gradient_cosines(run("random_offset"), samples=20)
