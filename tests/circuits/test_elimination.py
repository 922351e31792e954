"""Elimination finds a planted circuit, and drops nothing where nothing may be dropped."""

from html import escape

import numpy as np
import pytest

from circuits.elimination import eliminate
from manifold.dynamics.field import ReducedField, reduced_field
from training.tasks.associative_recall import AssociativeRecall

RECALL = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.4, f_v=0.4)
INDUCTION = {"1:M": 8.0, "2:I_c I->V1": 10.0, "2:I_r I->V1": 10.0}
INDUCTION |= {"out:I_c V2": 9.0, "out:I_r V2": 9.0}
# A key at the very start hears only itself and would be copied: both layers need to look past it.
INDUCTION |= {"2:I_c I->I": -10.0, "2:I_r I->I": -10.0}


@pytest.fixture(scope="module")
def field() -> ReducedField:
    return reduced_field(RECALL)


def planted(field: ReducedField, noise: float) -> np.ndarray:
    c = noise * np.random.default_rng(0).normal(size=field.dim)
    for name, value in INDUCTION.items():
        c[field.names.index(name)] = value
    return c


def test_the_planted_induction_circuit_is_what_is_left(field):
    c = planted(field, noise=0.05)
    before = c.copy()
    found = eliminate(field, c, tau=0.05)
    assert set(found.names) == set(INDUCTION)
    assert found.essential == pytest.approx(INDUCTION)
    assert found.loss <= 0.05
    np.testing.assert_array_equal(c, before)
    shown = found._repr_html_()
    assert all(escape(name) in shown for name in INDUCTION)


def test_the_result_is_minimal_and_its_loss_is_its_own(field):
    found = eliminate(field, planted(field, noise=0.1), tau=0.05)
    alone = np.zeros(field.dim)
    for name, value in found.essential.items():
        alone[field.names.index(name)] = value
    assert field.loss(alone) == pytest.approx(found.loss, abs=1e-13)
    for name in found.names:
        without = alone.copy()
        without[field.names.index(name)] = 0.0
        assert field.loss(without) > 0.05
    assert found.path["left"].is_monotonic_decreasing
    assert found.path["left"].iloc[-1] == len(found.essential)
    assert found.path["loss"].iloc[-1] == found.loss
    assert (found.path["loss"] <= 0.05).all()


def test_the_search_is_greedy_after_the_cut(field):
    """Every dropped coordinate was the cheapest one at its turn, by a plain loop."""
    c = planted(field, noise=0.3)
    found = eliminate(field, c, tau=0.1)
    steps = found.path[found.path["how"] == "dropped"]
    state = c.copy()
    gone = set(steps["dropped"]) | set(found.names)
    for i, name in enumerate(field.names):
        state[i] = state[i] if name in gone else 0.0
    for step in steps.head(3).itertuples():
        losses = {}
        for i in np.flatnonzero(state):
            tried = state.copy()
            tried[i] = 0.0
            losses[field.names[i]] = field.loss(tried)
        assert min(losses, key=losses.__getitem__) == step.dropped
        assert losses[step.dropped] == pytest.approx(step.loss, abs=1e-13)
        state[field.names.index(step.dropped)] = 0.0


def test_refitting_needs_no_more_coordinates_and_keeps_the_budget(field):
    c = planted(field, noise=0.3)
    plain, fitted = eliminate(field, c, tau=0.1), eliminate(field, c, tau=0.1, refit=True)
    assert fitted.loss <= 0.1
    assert len(fitted.essential) <= len(plain.essential)
    assert "refit" in set(fitted.path["how"])


def test_an_untrained_model_is_returned_whole_with_a_note(field):
    c = 0.01 * np.random.default_rng(0).normal(size=field.dim)
    found = eliminate(field, c)
    assert len(found.essential) == field.dim
    assert "above tau" in found.note
    assert found.loss == pytest.approx(np.log(11), abs=0.1)


def test_a_budget_above_chance_needs_nothing(field):
    found = eliminate(field, 0.01 * np.ones(field.dim), tau=3.0)
    assert found.essential == {}
    assert "no coordinate is needed" in found.note


def test_a_budget_must_be_positive(field):
    with pytest.raises(ValueError, match="tau is 0"):
        eliminate(field, np.zeros(field.dim), tau=0)
