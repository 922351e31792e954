"""Who wins: planted winners are found, and the prediction is what small steps end in."""

import numpy as np
import pytest
import torch
import xarray as xr

from manifold.dynamics.basin import basin
from manifold.dynamics.field import reduced_field
from manifold.dynamics.rivalry import ONE_HOP
from manifold.dynamics.winner import NEITHER, judged, onset_time, predict_winner, who_won
from training.families.attention_only import AttentionOnly
from training.tasks import KHop

TASK = KHop(hops=1, n_tokens=8, chains=3)
FIELD = reduced_field(TASK, coordinates=ONE_HOP.basis(TASK))
WHOLE = reduced_field(TASK)
TOWARDS = {"A": (1.0, 1.0, 0.5, 0.0, 0.0, 0.0), "B": (0.0, 0.0, 0.5, 1.0, 1.0, 0.5)}


def planted(name, field=FIELD, size=12.0):
    (circuit,) = (c for c in ONE_HOP.circuits if c.name == name)
    return np.array([size * (x in circuit.coordinates) for x in field.names])


@pytest.mark.parametrize("field", [FIELD, WHOLE], ids=["six", "all"])
def test_planted_circuits_win_where_they_are_and_nobody_at_zero(field):
    states = np.stack([planted("A", field), planted("B", field), np.zeros(field.dim)])
    found = who_won(field, states, ONE_HOP)
    assert found["winner"].values.tolist() == ["A", "B", NEITHER]
    np.testing.assert_allclose(found["dominance"], [1, 1, 0], atol=1e-9)
    np.testing.assert_allclose(found["lead"].sel(circuit="A"), [1, -1, 0], atol=1e-9)
    worked, idle = found["without"].values[0], found["loss"].values[0]
    assert worked[0] > idle + 1
    assert worked[1] == idle


def test_a_negative_value_on_a_rivals_direction_is_not_the_rival():
    """Attention away from the same token helps induction: taking that out is not taking B out."""
    state = planted("A", size=5.0)
    state[FIELD.names.index("1:I_t")] = -3.0
    found = who_won(FIELD, state[None], ONE_HOP)
    assert found["without"].values[0, 1] == found["loss"].values[0]
    assert found["winner"].values[0] == "A"


def test_verdicts_follow_their_definition():
    guess, loss = 2.0, np.zeros(6)
    without = np.array([[1.0, 0.4], [1.0, 0.6], [0.45, 0.0], [0.0, 0.0], [0.3, 0.9], [3.0, 2.5]])
    found = judged(guess, loss, without, ONE_HOP)
    assert found["winner"].values.tolist() == ["A", NEITHER, NEITHER, NEITHER, "B", NEITHER]
    np.testing.assert_allclose(found["dominance"], [0.6 / 1.4, 0.25, 1, 0, 0.5, 0])
    np.testing.assert_allclose(found["lead"].sel(circuit="A"), [0.6 / 1.4, 0.25, 1, 0, -0.5, 0])


def test_onset_is_linear_between_times():
    times = np.array([0.0, 10.0, 20.0])
    assert onset_time(times, np.array([2.0, 1.5, 0.5]), 2.0) == pytest.approx(15.0)
    assert np.isnan(onset_time(times, np.array([2.0, 1.5, 1.2]), 2.0))
    assert onset_time(times, np.array([0.1, 0.1, 0.1]), 2.0) == 0.0


def test_the_prediction_from_a_start_that_leans_to_one_side():
    starts = np.stack([TOWARDS["A"], TOWARDS["B"]])
    found = predict_winner(FIELD, starts, ONE_HOP, horizon=1500.0)
    assert found["winner"].values.tolist() == ["A", "B"]
    assert (found["onset"].values > 0).all()
    assert (found["loss"].values < 0.4).all()
    before = predict_winner(FIELD, starts, ONE_HOP, horizon=float(found["onset"].min()) / 2)
    assert np.isnan(before["onset"].values).all()


def test_the_grade_is_the_lead_at_the_onset_or_at_the_horizon_where_there_is_none():
    start, horizon = np.array([[0.5, 0.5, 0.3, 0.3, 0.3, 0.2]]), 1500.0
    found = predict_winner(FIELD, start, ONE_HOP, horizon)
    times = np.linspace(0.0, horizon, 61)
    course = FIELD.integrate(start[0], times, rtol=1e-4)
    losses = np.array([FIELD.loss(c) for c in course])
    first = int(np.argmax(losses < FIELD.loss(np.zeros(FIELD.dim)) / 2))
    assert 0 < first < 50
    assert times[first - 1] <= found["onset"].values[0] <= times[first]
    at_onset = who_won(FIELD, course[[first]], ONE_HOP)["lead"]
    np.testing.assert_allclose(found["grade"], at_onset, atol=1e-9)
    assert np.abs(found["grade"] - found["lead"]).max() > 0.01, "the horizon says something else"
    before = predict_winner(FIELD, start, ONE_HOP, times[first] / 3)
    np.testing.assert_array_equal(before["grade"], before["lead"])


def test_the_prediction_decays_as_the_field_does():
    start, times = np.array([TOWARDS["A"]]), np.linspace(0.0, 200.0, 61)
    ends = {}
    for decay in (0.0, 0.01):
        found = predict_winner(FIELD, start, ONE_HOP, 200.0, decay)
        ends[decay] = found["end"].values[0]
        there = FIELD.integrate(start[0], times, decay)[-1]
        np.testing.assert_allclose(ends[decay], there, atol=1e-2)
        assert found.attrs["weight_decay"] == decay
    assert np.linalg.norm(ends[0.01]) < 0.9 * np.linalg.norm(ends[0.0])


def gradient_descent(c, steps, rate=0.5):
    """The full matrices on every orbit, in small steps: no reduced field, no integrator."""
    orbits = TASK.program.orbits()
    batch, weights = orbits.batch(), torch.tensor(orbits.weights())
    model = AttentionOnly(layers=2, scale=0.0)
    params = model.initialise(TASK, 0, torch.float64)
    start = FIELD.basis.matrices(c)
    names = {"blocks.0.attn.W": "W1", "blocks.1.attn.W": "W2", "unembed.W": "Wbar"}
    params |= {name: torch.tensor(start[block]) for name, block in names.items()}
    tokens, positions = torch.tensor(batch.tokens), torch.tensor(batch.positions)
    answers = torch.tensor(batch.targets[:, -1])
    for _ in range(steps):
        params |= {name: params[name].detach().requires_grad_() for name in names}
        logits = model.forward_last(params, tokens, positions)[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, answers, reduction="none") @ weights
        slopes = torch.autograd.grad(loss, [params[name] for name in names])
        velocity = FIELD.basis.coordinates(
            {names[n]: s.numpy() for n, s in zip(names, slopes, strict=True)}
        )
        moved = FIELD.basis.matrices(-rate * velocity)
        params |= {n: params[n].detach() + torch.tensor(moved[b]) for n, b in names.items()}
    return FIELD.basis.coordinates({names[n]: params[n].numpy() for n in names})


@pytest.mark.parametrize("name", TOWARDS)
def test_against_confined_descent_on_full_matrices(name):
    start = np.array(TOWARDS[name])
    end = gradient_descent(start, steps=400)
    found = predict_winner(FIELD, start[None], ONE_HOP, horizon=200.0)
    gap = np.linalg.norm(end - found["end"].values[0]) / np.linalg.norm(end - start)
    assert gap < 0.03  # first order in the step
    assert who_won(FIELD, end[None], ONE_HOP)["winner"].values[0] == found["winner"].values[0]


def test_a_boundary_is_as_near_as_its_tolerance_says(monkeypatch):
    """A planted boundary: A wins where the first axis is above a place. Over many places the error
    fills the tolerance, 1/128 of the spacing, and never passes it."""
    axes, apart = ("2:I_t I->V1", "2:M^T V1->I"), (1.2 / 3, 2.0 / 2)
    worst = 0.0
    for place in np.random.default_rng(0).uniform(0.01, 1.19, 25):

        def planted_winner(field, starts, rivalry, horizon, place=place):
            first = np.asarray(starts)[:, FIELD.names.index(axes[0])]
            nothing = ("start", np.zeros(len(first)))
            won = ("start", np.where(first > place, "A", "B"))
            return xr.Dataset({"winner": won, "dominance": nothing, "onset": nothing})

        monkeypatch.setattr("manifold.dynamics.basin.predict_winner", planted_winner)
        spans = ((0.0, 1.2), (0.0, 2.0))
        found = basin(FIELD, ONE_HOP, np.zeros(FIELD.dim), axes, spans, grid=(4, 3))
        np.testing.assert_allclose(found["tolerance"], np.array(apart) / 128)
        assert len(found["boundary"]) == 3
        error = np.abs(found["boundary"].values[:, 0] - place).max()
        assert error <= float(found["tolerance"][0])
        worst = max(worst, error / float(found["tolerance"][0]))
    assert worst > 0.8


@pytest.mark.slow
def test_basin_boundary_separates_the_winners():
    at = 0.1 * np.ones(FIELD.dim)
    axes = ("2:I_t I->V1", "2:M^T V1->I")
    spans = ((0.0, 1.2), (0.0, 1.2))
    found = basin(FIELD, ONE_HOP, at, axes, spans, grid=(2, 2), horizon=700.0)
    assert found["winner"].values[-1, 0] == "A"
    assert found["winner"].values[0, -1] == "B"
    assert found["winner"].dims == axes
    assert len(found["boundary"]) == 2
    where = [FIELD.names.index(name) for name in axes]
    for point in found["boundary"].values:
        winners = set()
        for i in range(2):  # each lies on a line of the grid: along it the winner changes
            for side in (-2, 2):
                start = at.copy()
                start[where] = point
                start[where[i]] += side * float(found["tolerance"][i])
                won = predict_winner(FIELD, start[None], ONE_HOP, 700.0)["winner"]
                winners.add(str(won.values[0]))
        assert len(winners) > 1


def test_a_basin_without_a_boundary_has_no_point():
    found = basin(
        FIELD, ONE_HOP, planted("A", size=3.0), ("1:I_t", "2:M^T V1->I"),
        ((0.0, 0.1), (0.0, 0.1)), grid=(2, 2), horizon=300.0,
    )  # fmt: skip
    assert set(found["winner"].values.ravel()) == {"A"}
    assert found["boundary"].shape == (0, 2)


def test_bad_input_is_refused():
    zero = np.zeros((1, 6))
    with pytest.raises(ValueError, match=r"array \(6,\); allowed: one row of 6"):
        who_won(FIELD, zero[0], ONE_HOP)
    with pytest.raises(ValueError, match="row 0 is not finite"):
        predict_winner(FIELD, zero * np.nan, ONE_HOP, 10.0)
    with pytest.raises(ValueError, match="horizon got 0"):
        predict_winner(FIELD, zero, ONE_HOP, 0.0)
    half = reduced_field(TASK, coordinates=FIELD.basis.select(FIELD.names[:3]))
    with pytest.raises(ValueError, match="the field has no coordinate"):
        predict_winner(half, zero[:, :3], ONE_HOP, 10.0)
    with pytest.raises(ValueError, match=r"axes got .*; spans got .*; grid got"):
        basin(FIELD, ONE_HOP, zero[0], ("1:M", "1:M"), ((1, 0), (0, 1)), grid=(1, 2))
