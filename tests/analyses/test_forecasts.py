"""Scores of forecasts: known intervals, planted outcomes; SGD is the flow but for its noise."""

import numpy as np
import pytest
import torch

from analyses.dynamics.confined import confined_sgd
from analyses.dynamics.forecasts import judge, left_out
from analyses.dynamics.rival_runs import NearManifold
from analyses.dynamics.share import median, wilson
from manifold import RIVALRIES, invariant_basis, reduced_field
from training.tasks import KHop

NAMES = ("A", "B")
TASK = KHop(hops=1, n_tokens=8, chains=3)
RIVALRY = RIVALRIES["1-hop"]


def row(
    trained,
    predicted,
    grade,
    start,
    onset: float | None = 1.0,
    predicted_onset: float | None = 1.0,
):
    return {
        "trained": trained,
        "predicted": predicted,
        "grade": grade,
        "start": start,
        "onset": onset,
        "predicted_onset": predicted_onset,
    }


def planted(count=24):
    """The sign of the product of nothing but the first coordinate decides; sizes say nothing."""
    rng = np.random.default_rng(0)
    starts = rng.choice([-1.0, 1.0], (count, 2)) * rng.uniform(0.5, 1.5, (count, 2))
    won = ["A" if x > 0 else "B" for x in starts[:, 0]]
    return starts, won


def test_wilson_against_its_published_example():
    """Newcombe 1998, table I: 81 of 263 is .2553 to .3662, 0 of 20 is 0 to .1611."""
    one = wilson(81, 263)
    np.testing.assert_allclose([one["low"], one["high"]], [0.2553, 0.3662], atol=5e-5)
    none = wilson(0, 20)
    np.testing.assert_allclose([none["low"], none["high"]], [0, 0.1611], atol=5e-5)
    with pytest.raises(ValueError, match="wilson: 3 of 2"):
        wilson(3, 2)


def test_a_median_lies_in_its_interval():
    found = median(np.arange(101.0))
    assert found["low"] < found["value"] == 50.0 < found["high"]


def test_signs_are_found_by_regression_and_sizes_are_not():
    starts, won = planted()
    rows = [row(w, w, 0.9 if w == "A" else -0.9, list(s)) for w, s in zip(won, starts, strict=True)]
    found = judge(rows, NAMES)
    assert found["field"]["share"] == found["verdict"]["share"] == 1.0
    assert found["auroc"] == 1.0
    assert found["brier"] == pytest.approx(0.05**2)
    assert found["logistic"]["share"] > 0.9
    assert found["magnitudes"]["share"] < 0.8
    assert [b["said"] for b in found["bins"]] == pytest.approx([0.05, 0.95])
    assert [b["share"] for b in found["bins"]] == [0.0, 1.0]


def test_a_run_is_never_used_to_predict_itself():
    """One outlier's own label, flipped, does not change what is said of it."""
    starts, won = planted(14)
    label = np.array(won) == "A"
    flipped = label.copy()
    flipped[0] = not flipped[0]
    assert left_out(starts, label)[0] == left_out(starts, flipped)[0]


def test_wrong_and_absent_verdicts():
    rows = [row("A", "neither", 0.0, [1.0]), row("A", "B", -1.0, [2.0])]
    rows += [row("neither", "neither", 0.0, [3.0], None, None)]
    found = judge(rows, NAMES)
    assert found["wins"] == {"A": 2, "B": 0}
    assert (found["neither"], found["predicted_neither"]) == (1, 1)
    assert found["field"]["hits"] == 0
    assert found["verdict"]["hits"] == 1
    assert found["logistic"] is None
    assert found["onset"] is None
    assert "field" not in judge(rows[2:], NAMES)


def test_onsets_are_compared_by_ratio_and_order():
    times = [100.0, 200.0, 400.0, 300.0]
    rows = [row("A", "A", 1.0, [1.0], 1.1 * t, t) for t in times]
    onset = judge(rows, NAMES)["onset"]
    assert onset["ratio"]["value"] == pytest.approx(1.1)
    assert onset["rank"]["value"] == pytest.approx(1.0)


def test_confined_sgd_is_the_flow_but_for_its_noise():
    """Half the rate, half the gap: what is left is of first order in it."""
    field = reduced_field(TASK, coordinates=RIVALRY.basis(TASK))
    starts = 0.5 * np.random.default_rng(0).standard_normal((3, field.dim))
    gaps = []
    for lr in (1.0, 0.25):
        steps = int(60 / lr)
        times, losses, ends = confined_sgd(field, starts, steps=steps, lr=lr, batch=10**6)
        exact = np.stack([field.integrate(c, [60.0], rtol=1e-8)[-1] for c in starts])
        gaps.append(np.abs(ends - exact).max())
        assert times[-1] == 60.0
        assert losses.shape == (len(times), 3)
        assert abs(losses[0, 0] - field.loss(starts[0])) < 1e-12
        assert abs(losses[-1, 1] - field.loss(ends[1])) < 1e-12
    assert gaps[1] < 0.4 * gaps[0] < 0.05
    again = confined_sgd(field, starts, steps=5, batch=8)[2]
    np.testing.assert_array_equal(again, confined_sgd(field, starts, steps=5, batch=8)[2])
    with pytest.raises(ValueError, match="exact over orbits"):
        confined_sgd(reduced_field(TASK, samples=50), np.zeros((1, 24)), steps=1)


def test_a_start_near_the_manifold_has_its_coordinates_and_the_noise():
    basis = invariant_basis(TASK)
    on = NearManifold(spread=1.0, scale=0.0).initialise(TASK, 3, torch.float64)
    off = NearManifold(spread=0.0, scale=0.1).initialise(TASK, 3, torch.float64)
    both = NearManifold(spread=1.0, scale=0.1).initialise(TASK, 3, torch.float64)
    named = {"W1": "blocks.0.attn.W", "W2": "blocks.1.attn.W", "Wbar": "unembed.W"}
    matrices = {block: on[name].numpy() for block, name in named.items()}
    assert basis.off_manifold(matrices)["all"] < 1e-28
    assert 0.5 < np.std(basis.coordinates(matrices)) < 1.5
    for name in named.values():
        torch.testing.assert_close(both[name], on[name] + off[name], rtol=0, atol=1e-14)
        assert off[name].std().item() == pytest.approx(0.1, rel=0.2)
