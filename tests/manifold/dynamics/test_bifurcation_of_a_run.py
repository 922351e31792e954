"""The label "bifurcation" on a real branch: a run just past the fold, and one far from it."""

import numpy as np
import pytest
import xarray as xr

from manifold.dynamics.continuation import continue_branch
from manifold.dynamics.events import events
from manifold.dynamics.field import reduced_field
from training.tasks.associative_recall import AssociativeRecall

STEPS = np.linspace(0, 24_000, 97)
DECAY = 1e-3


def recall(f_v):
    task = AssociativeRecall(
        n_blocks=3,
        n_common=6,
        n_rare=5,
        track_slots=4,
        f_r=0.0,
        f_v=f_v,
        distractor_f_r=0.3,
        distractor_f_v=0.3,
    )
    return reduced_field(task, coordinates="four", samples=None)


def events_of_a_run(f_v, branch):
    """The flow from zero in the run's own task, as `project` would give it."""
    field = recall(f_v)
    states = field.integrate(np.zeros(4), STEPS, DECAY)
    data = xr.Dataset(
        {"c": (("step", "coordinate"), states)},
        coords={"step": STEPS, "coordinate": list(field.names)},
    )
    found = events(data, task=field.task, field=field, weight_decay=DECAY, branch=branch)
    return [one for one in found.events if one.bifurcation == "bifurcation"], found


@pytest.fixture(scope="module")
def branch():
    return continue_branch(
        recall(0.05), np.zeros(4), span=(0.03, 0.15), weight_decay=DECAY, step=0.3
    )


@pytest.mark.slow
def test_training_past_the_fold_is_called_a_bifurcation_and_elsewhere_not(branch):
    """Theory, section 5: the in-weights state dies at f_v = 0.0919. At 0.098 the flow from zero
    lingers beside where it was, then leaves for context; at 0.3 there is nothing to linger at."""
    beside, found = events_of_a_run(0.098, branch)
    assert beside, found.table
    for one in beside:
        assert "beside the fold at f_v = 0.09195" in one.evidence
    assert {one.kind for one in beside} & {"onset", "swap", "eigenvalue"}
    assert events_of_a_run(0.3, branch)[0] == []
