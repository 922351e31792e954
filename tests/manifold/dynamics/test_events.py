"""Events of planted trajectories and of the exact flow of recall."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from manifold.dynamics.change_point import change_point
from manifold.dynamics.event import KINDS, Event
from manifold.dynamics.events import _scores, events
from manifold.dynamics.field import reduced_field
from manifold.dynamics.field_events import RunOnField
from manifold.dynamics.score_events import overfitting, transience
from manifold.dynamics.suppression import contenders
from training.tasks.associative_recall import AssociativeRecall

RECALL = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.2, f_v=0.2)
STEPS = np.append(0.0, np.unique(np.geomspace(1, 3000, 45).round()))


def dataset(steps, states, names, **scores):
    data = xr.Dataset(
        {"c": (("run", "step", "coordinate"), np.asarray(states, dtype=float)[None])},
        coords={"run": ["one"], "step": steps, "coordinate": list(names)},
    )
    if scores:
        data["accuracy"] = (("run", "step", "kind"), np.column_stack(list(scores.values()))[None])
        data = data.assign_coords(kind=list(scores))
    return data


@pytest.fixture(scope="module")
def flow():
    """The exact flow from a small start: weights answer first, then context."""
    field = reduced_field(RECALL, coordinates="four")
    return field, field.integrate(np.array([0.05, 0.05, 0.05, 0.0]), STEPS)


def test_in_weights_first_then_the_circuit_and_the_swap(flow):
    field, states = flow
    found = events(dataset(STEPS, states, field.names), task=RECALL, field=field)
    onset = {event.what: event for event in found.of("onset")}
    assert onset["delta"].high < onset["alpha"].low
    swap = found.of("swap")
    assert [event.what for event in swap] == ["alpha beta gamma over delta"]
    pair = contenders(dict(zip(field.names, states.T, strict=True)))
    assert pair is not None
    delta, product = pair
    row = np.searchsorted(STEPS, swap[0].high)
    assert product[row] > delta[row]
    assert product[row - 1] < delta[row - 1]
    (slowed,) = found.of("suppression")
    assert slowed.high <= swap[0].high
    assert "= 0.360" in slowed.evidence
    assert set(found.table["kind"]) <= set(KINDS)
    for event in found.events:
        assert event.low <= event.step <= event.high


def test_without_decay_nothing_is_a_bifurcation_and_without_a_field_nothing_is_known(flow):
    field, states = flow
    data = dataset(STEPS, states, field.names)
    called = {event.bifurcation for event in events(data, field=field).of("onset")}
    assert called == {"crossover"}
    assert {event.bifurcation for event in events(data).of("onset")} == {"unknown"}


def test_a_bifurcation_needs_a_fold_of_the_branch_beside_it(flow):
    """A made-up branch: its fold at the run's own f_v, where the trajectory passes."""
    field, states = flow
    row = len(STEPS) // 2
    sign = Event(
        kind="eigenvalue",
        what="1 -> 0 growing",
        evidence="",
        step=STEPS[row],
        low=STEPS[row],
        high=STEPS[row],
    )

    def called(signs=(sign,), **changes):
        fold = SimpleNamespace(value=0.2, state=states[row], transversality=1.0, quadratic=1.0)
        vars(fold).update(changes)
        branch: Any = SimpleNamespace(parameter="f_v", folds=(fold,))
        return RunOnField(STEPS, states, field, 1e-3, branch).judged(sign, signs).bifurcation

    assert called() == "bifurcation"
    assert called(signs=()) != "bifurcation"
    assert called(value=0.4) != "bifurcation"
    assert called(quadratic=0.0) != "bifurcation"
    assert called(state=states[row] + 5.0) != "bifurcation"


def test_transience_is_a_fall_that_stays():
    rng, u = np.random.default_rng(0), np.linspace(0, 1, len(STEPS))
    rise = 1 / (1 + np.exp(-(u - 0.4) / 0.02))
    fall = rise - 0.6 / (1 + np.exp(-(u - 0.8) / 0.02))
    states = np.column_stack([rise + 0.01 * rng.normal(size=len(u))])
    for score, expected in ((fall, 1), (rise, 0)):
        noisy = np.clip(score + 0.01 * rng.normal(size=len(u)), 0, 1)
        data = dataset(STEPS, states, ["x"], rare=noisy, mismatch=noisy, iwl=1 - noisy)
        found = events(data)
        assert len(found.of("transience")) == expected
        assert {"ICL", "IWL", "x"} <= {event.what for event in found.of("onset")}
    assert events(data).of("saturation")


@pytest.mark.parametrize("weights", ["rise", "stay", "none"])
def test_overfitting_is_memory_in_the_place_of_context(weights):
    rng, u = np.random.default_rng(2), np.linspace(0, 1, len(STEPS))
    rise = 1 / (1 + np.exp(-(u - 0.3) / 0.02))
    later = 1 / (1 + np.exp(-(u - 0.8) / 0.02))
    noise = 0.01 * rng.normal(size=(len(u), 3))
    scores = {
        "mismatch": rise - 0.7 * later + noise[:, 0],
        "iwl": {"rise": 0.3 + 0.6 * later, "stay": 0.9 + 0 * u, "none": 0 * u}[weights]
        + noise[:, 1],
    }
    found = events(dataset(STEPS, rise[:, None] + noise[:, 2:], ["x"], **scores))
    assert len(found.of("transience")) == 1
    assert len(found.of("overfitting")) == (weights == "rise")
    if weights == "rise":
        (warning,) = found.of("overfitting")
        assert 0.75 < u[np.searchsorted(STEPS, warning.step)] < 0.9
        assert "mismatch falls from 1.0" in warning.evidence


def test_a_fall_within_the_scatter_is_none(monkeypatch):
    """A fall of 0.2, found to be a change: an event where neighbours differ by 0.02, so that 4
    scatters are 0.12, and none where they differ by 0.08 and 4 scatters are 0.47."""
    found = SimpleNamespace(found=True)
    monkeypatch.setattr("manifold.dynamics.score_events.change_point", lambda *_: found)
    steps, later = np.arange(20.0), np.arange(20) >= 10
    sign = np.where(np.arange(20) % 2, 0.5, -0.5)

    def score(fall, apart):
        return 0.5 - fall * later + apart * sign

    for apart, expected in ((0.02, 1), (0.08, 0)):
        assert len(transience(steps, {"ICL": score(0.2, apart)}, 0.05, [])) == expected
        scores = {"mismatch": score(0.3, 0.02), "IWL": score(-0.2, apart)}
        assert len(overfitting(steps, scores, 0.05, [])) == expected


def test_the_level_is_shared_by_everything_that_is_looked_for(monkeypatch):
    """Four coordinates, two scores, swap, transience, overfitting: a ninth of the level each."""
    asked = []
    for name in ("events", "swap", "score_events"):

        def recorded(steps, values, level, name=name):
            asked.append((name, level))
            return change_point(steps, values, level)

        monkeypatch.setattr(f"manifold.dynamics.{name}.change_point", recorded)
    rng, u = np.random.default_rng(5), np.linspace(0, 1, len(STEPS))
    later = 1 / (1 + np.exp(-(u - 0.5) / 0.02))
    states = later[:, None] * [3, 2, 2, 1] + 0.01 * rng.normal(size=(len(u), 4))
    up, down = 0.1 + 0.8 * later, 0.9 - 0.8 * later
    data = dataset(
        STEPS, states, ["alpha", "beta", "gamma", "delta"], rare=down, mismatch=down, iwl=up
    )
    events(data, task=RECALL, level=0.09)
    levels = {name: [level for who, level in asked if who == name] for name, _ in asked}
    assert levels["events"] == pytest.approx([0.01] * 6)
    assert levels["swap"] == pytest.approx([0.01])
    assert levels["score_events"] == pytest.approx([0.005] * len(levels["score_events"]))
    assert 2 <= len(levels["score_events"]) <= 4


def test_the_field_answers_only_for_kinds_that_were_not_measured(flow):
    """The network's answers from context fall, those of its own flow do not; iwl is the field's."""
    field, states = flow
    u = np.linspace(0, 1, len(STEPS))
    fall = 0.9 - 0.8 / (1 + np.exp(-(u - 0.6) / 0.02))
    fall = fall + 0.01 * np.random.default_rng(6).normal(size=len(u))
    data = dataset(STEPS, states, field.names, rare=fall, mismatch=fall)
    scores, lacking = _scores(data.isel(run=0), field, states)
    np.testing.assert_array_equal(scores["ICL"], fall)
    np.testing.assert_array_equal(scores["mismatch"], fall)
    last = field.kinds(states[-1])["accuracy"]
    assert abs(last["mismatch"] - fall[-1]) > 0.3
    assert scores["IWL"][-1] == pytest.approx(last["iwl"])
    assert not lacking


def test_the_rebuilt_model_is_judged_where_the_network_was_not():
    u = np.linspace(0, 1, len(STEPS))
    rise = 1 / (1 + np.exp(-(u - 0.4) / 0.02)) + 0.01 * np.random.default_rng(3).normal(size=len(u))
    data = dataset(STEPS, rise[:, None], ["x"], rare=rise, mismatch=rise, iwl=1 - rise)
    rebuilt = data.rename(accuracy="rebuilt_accuracy")
    pd.testing.assert_frame_equal(events(rebuilt).table, events(data).table)
    assert {"ICL", "IWL"} <= {event.what for event in events(rebuilt).of("onset")}


def test_noise_around_a_level_is_no_swap():
    """Both contenders wander around one level and cross; then one planted rise, crossed once."""
    rng, names, n = np.random.default_rng(4), ["alpha", "beta", "gamma", "delta"], len(STEPS)
    found = 0
    for _ in range(20):
        states = np.column_stack([np.ones((n, 2)), 1 + 0.1 * rng.normal(size=(n, 2))])
        found += len(events(dataset(STEPS, states, names)).of("swap"))
    assert found <= 2
    states[:, 2] += 2.0 / (1 + np.exp(-(np.linspace(0, 1, n) - 0.6) / 0.02)) - 0.5
    (swap,) = events(dataset(STEPS, states, names)).of("swap")
    assert swap.what == "alpha beta gamma over delta"
    assert STEPS[int(0.5 * n)] < swap.low < swap.high < STEPS[int(0.7 * n)]


def test_noise_has_no_events():
    rng = np.random.default_rng(1)
    kinds = [
        event.kind
        for _ in range(10)
        for event in events(
            dataset(STEPS, rng.normal(size=(len(STEPS), 3)), ["a", "b", "c"])
        ).events
    ]
    assert len(kinds) <= 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_checkpoints_say_so(count, flow):
    field, states = flow
    data = dataset(STEPS[:count], states[:count], field.names)
    for given in (None, field):
        found = events(data, field=given)
        assert not [event for event in found.events if event.kind in ("onset", "transience")]
        assert found.unanswered


def test_a_run_that_never_moves():
    still = dataset(STEPS, np.zeros((len(STEPS), 2)), ["x", "y"])
    found = events(still)
    assert not found.events
    assert "no coordinate ever moves" in " ".join(found.unanswered)
    assert list(found.table.columns)[:3] == ["kind", "what", "step"]


def test_bad_input(flow):
    field, states = flow
    data = dataset(STEPS, states, field.names)
    with pytest.raises(ValueError, match="got 2 runs"):
        events(xr.concat([data, data.assign_coords(run=["two"])], "run"))
    with pytest.raises(ValueError, match="has no c"):
        events(data.drop_vars("c"))
    with pytest.raises(ValueError, match="steps must increase"):
        events(data.isel(step=slice(None, None, -1)))
    with pytest.raises(ValueError, match="the field 4"):
        events(dataset(STEPS, states[:, :2], ["x", "y"]), field=field)
    broken = states.copy()
    broken[5, 1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        events(dataset(STEPS, broken, field.names))
    with pytest.raises(ValueError, match="one of onset"):
        events(data).of("kink")
