"""A watched loop is the same loop; what the monitor keeps is what the checkpoints would have."""

from typing import Any

import numpy as np
import pytest
import torch

from manifold import events, fit_ode, invariant_basis, project, reduced_field, remove_gauge
from manifold.coordinates.effective import effective_matrices
from manifold.dynamics.control import Control
from manifold.dynamics.monitor import GROWTH, Monitor
from training import AttentionOnly, RunConfig, train
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=3, f_r=0.3, f_v=0.3)
SMALL = AttentionOnly(layers=2, heads=1, scale=0.1)


def loop(params, steps, lr=0.5, after=()):
    """Plain SGD in float64 on full matrices, by nobody's engine."""
    trained = {k: v.clone().requires_grad_(not k.startswith("embed")) for k, v in params.items()}
    for call in after:
        call(0, trained)
    for step in range(1, steps + 1):
        batch = TASK.batch(0, step, 32, None)
        logits = SMALL.forward_last(
            trained, torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
        )[:, 0]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.targets[:, -1]))
        moved = [value for value in trained.values() if value.requires_grad]
        for value, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
            value.data -= lr * gradient
        for call in after:
            call(step, trained)
    return {name: value.detach() for name, value in trained.items()}


@pytest.fixture(scope="module")
def start():
    return SMALL.initialise(TASK, 0, torch.float64)


def coordinates(params):
    basis = invariant_basis(TASK, "attention_only", 2, 1)
    return basis, basis.coordinates(remove_gauge(basis, effective_matrices(params, SMALL, TASK)))


def test_watching_changes_nothing(start):
    monitor = Monitor(TASK, SMALL, every=3, lr=0.5)
    before = torch.random.get_rng_state()
    watched, alone = loop(start, 30, after=[monitor]), loop(start, 30)
    assert all(torch.equal(watched[name], alone[name]) for name in alone)
    assert torch.equal(before, torch.random.get_rng_state())
    data = monitor.trajectory
    assert data["step"].values.tolist() == list(range(0, 31, 3))
    assert data["time"].values[0].tolist() == [0.5 * step for step in range(0, 31, 3)]
    basis, c = coordinates(alone)
    np.testing.assert_array_equal(data["c"].values[0, -1], c)
    assert data["coordinate"].values.tolist() == list(basis.names)
    assert events(data, task=TASK) is not None


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_a_kept_run_is_seen_as_project_sees_it(family, tmp_path):
    shape = {"scale": 0.1} if family == "attention_only" else {"width": 12, "heads": 1}
    config = RunConfig(
        task={"name": "associative_recall", **{k: getattr(TASK, k) for k in TASK_FIELDS}},
        family={"name": family, "layers": 2, **shape},
        optimiser={"name": "sgd", "lr": 0.1},
        steps=4,
        batch_size=8,
        eval_size=20,
        checkpoints={"every": 1},
    )
    run = train(config, root=tmp_path)
    monitor = Monitor(run.task, run.family, every=1, lr=0.1)
    for step in run.steps:
        weights = run[step].weights
        monitor(step, {name: torch.from_numpy(np.array(v)) for name, v in weights.items()})
    there, here = project(run, rebuilt=True), monitor.trajectory
    np.testing.assert_allclose(here["c"], there["c"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(here["time"], there["time"])
    assert here["kind"].values.tolist() == there["kind"].values.tolist()


TASK_FIELDS = ("n_blocks", "n_common", "n_rare", "track_slots", "f_r", "f_v")


def test_the_trajectory_is_what_fit_ode_takes(start):
    monitor = Monitor(TASK, SMALL, every=1, lr=0.5, sequences=0)
    loop(start, 12, after=[monitor])
    fit = fit_ode(monitor.trajectory, field=reduced_field(TASK), seconds=20.0)
    assert fit.names == tuple(monitor.trajectory["coordinate"].values)
    assert np.isfinite(fit.time_scale)


def planted(n, rng, change):
    """Parameters on the manifold whose out:C I is noise around 1, and leaves it at a third."""
    basis = invariant_basis(TASK, "attention_only", 2, 1)
    at = basis.names.index("out:C I")
    for i in range(n):
        c = np.zeros(basis.dim)
        c[at] = 1 + 0.02 * rng.normal() + (2.0 if change and i > n / 3 else 0.0)
        matrices = basis.matrices(c)
        named = {"W1": "blocks.0.attn.W", "W2": "blocks.1.attn.W", "Wbar": "unembed.W"}
        yield {named[block]: torch.from_numpy(value) for block, value in matrices.items()}


def test_a_planted_onset_is_told_once_and_soon():
    told = []
    monitor = Monitor(TASK, SMALL, every=10, tell=told.append, sequences=0)
    when = []
    for i, params in enumerate(planted(90, np.random.default_rng(0), change=True)):
        if monitor(10 * i, params):
            when.append(i)
    assert [(event.kind, event.what) for event in told] == [("onset", "out:C I")]
    assert monitor.raised == tuple(told)
    assert 290 <= told[0].low <= told[0].high <= 320
    assert 31 <= when[0] <= 31 * GROWTH**3


def test_nothing_is_told_where_nothing_changes():
    for seed in range(6):
        monitor = Monitor(TASK, SMALL, every=10, sequences=0)
        for i, params in enumerate(planted(60, np.random.default_rng(seed), change=False)):
            monitor(10 * i, params)
        assert monitor.raised == ()


def test_looks_share_the_level(monkeypatch):
    """The levels of all looks of a run, however long, stay below the level together."""
    shares = []

    def look(data, *, task, level):
        shares.append(level)
        return events(data.isel(step=[0]), task=task)

    monkeypatch.setattr("manifold.dynamics.monitor.events", look)
    monitor = Monitor(TASK, SMALL, every=1, sequences=0, level=0.1)
    for i, params in enumerate(planted(80, np.random.default_rng(0), change=False)):
        monitor(i, params)
    assert len(shares) == 6
    assert 0.08 < sum(shares) < 0.1


def test_looks_are_few_and_come_as_the_observations_grow_by_half(monkeypatch):
    counts = []

    def look(data, *, task, level):
        counts.append(data.sizes["step"])
        return events(data.isel(step=[0]), task=task)

    monkeypatch.setattr("manifold.dynamics.monitor.events", look)
    monitor = Monitor(TASK, SMALL, every=1, sequences=0)
    for i, params in enumerate(planted(200, np.random.default_rng(0), change=False)):
        monitor(i, params)
    assert len(counts) <= 1 + np.log(200 / counts[0]) / np.log(GROWTH)
    assert counts[-1] > 200 / GROWTH, "and go on to the end"


def test_a_time_that_is_given_is_the_time(start):
    """With a schedule, the sum of learning rates; the rate itself where none is given."""
    monitor = Monitor(TASK, SMALL, every=2, lr=0.5, sequences=0)
    for step, time in ((0, 0.0), (1, 0.9), (2, 1.7), (4, 2.25)):
        monitor(step, start, time=time)
    monitor(6, start)
    assert monitor.trajectory["time"].values[0].tolist() == [0.0, 1.7, 2.25, 3.0]


def test_a_stranger_s_module_by_its_own_names(start):
    """Transposed weights under other names, in float32; the frozen embeddings are not there."""

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, key in (("first", "blocks.0.attn.W"), ("second", "blocks.1.attn.W")):
                setattr(self, name, torch.nn.Parameter(start[key][0].float()))
            self.head = torch.nn.Parameter(start["unembed.W"].T.float())

    monitor = Monitor(
        TASK,
        SMALL,
        every=1,
        read=lambda m: {
            "blocks.0.attn.W": m.first[None],
            "blocks.1.attn.W": m.second[None],
            "unembed.W": m.head.T,
        },
    )
    monitor(1, Theirs())
    _, c = coordinates(start)
    np.testing.assert_allclose(monitor.trajectory["c"].values[0, 0], c, atol=1e-6)
    assert np.isfinite(monitor.trajectory["accuracy"].values).all()


def test_weights_that_are_not_finite_are_left_out_and_said(start):
    monitor = Monitor(TASK, SMALL, every=1, sequences=0)
    monitor(0, start)
    monitor(1, {**start, "unembed.W": start["unembed.W"] * np.nan})
    assert monitor.trajectory["step"].values.tolist() == [0]
    assert monitor.unanswered == ["step 1: weights are not finite"]


def test_bad_input(start):
    cases: list[tuple[Any, str]] = [
        ({"every": 0}, "every is 0"),
        ({"every": 1, "level": 2.0}, "level is 2.0"),
        ({"every": 1, "sequences": -1}, "sequences is -1"),
    ]
    for settings, message in cases:
        with pytest.raises(ValueError, match=message):
            Monitor(TASK, SMALL, **settings)
    with pytest.raises(ValueError, match="has none"):
        Monitor(TASK, Transformer(layers=1, heads=1, width=8, positions="rotary"), every=1)
    with pytest.raises(ValueError, match="the basis is"):
        Monitor(TASK, SMALL, every=1, basis=invariant_basis(TASK, "attention_only", 1, 1))
    monitor = Monitor(TASK, SMALL, every=2, sequences=0)
    assert monitor(1, None) == ()
    with pytest.raises(ValueError, match=r"unembed.W missing.*translated by read="):
        monitor(2, {name: start[name] for name in start if name != "unembed.W"})
    with pytest.raises(ValueError, match=r"\(2, 1, "):
        monitor(2, {name: torch.stack([value, value]) for name, value in start.items()})
    monitor(4, start)
    with pytest.raises(ValueError, match="step 4 comes after step 4"):
        monitor(4, start)


HELD = ["out:C I", "1:M", "2:C I->V1", "2:I_c V1->I"]


@pytest.mark.parametrize("names", [["out:C I"], HELD])
def test_a_hold_moves_its_coordinates_and_nothing_else(start, names):
    basis, c = coordinates(start)
    off = basis.off_manifold(effective_matrices(start, SMALL, TASK))
    held = {name: value.clone() for name, value in start.items()}
    control = Control(TASK, SMALL, names, value=0.7)
    control(held)
    _, after = coordinates(held)
    at = [basis.names.index(name) for name in names]
    np.testing.assert_allclose(after[at], 0.7, atol=1e-13)
    rest = [i for i in range(basis.dim) if i not in at]
    np.testing.assert_allclose(after[rest], c[rest], atol=1e-13)
    expected = {n: held[n] - start[n] for n in start}
    moved = np.zeros(basis.dim)
    moved[at] = 0.7 - c[at]
    blocks = basis.matrices(moved)
    for name, block in (
        ("unembed.W", "Wbar"),
        ("blocks.0.attn.W", "W1"),
        ("blocks.1.attn.W", "W2"),
    ):
        np.testing.assert_allclose(expected[name], blocks[block], atol=1e-13)
    assert control.coordinates(held) == pytest.approx(dict.fromkeys(names, 0.7))
    assert off["all"] > 0.5
    again = {name: value.clone() for name, value in held.items()}
    control(again)
    for name in again:
        torch.testing.assert_close(again[name], held[name], atol=1e-13, rtol=0)


def test_shrinking_multiplies(start):
    _, c = coordinates(start)
    held = {name: value.clone() for name, value in start.items()}
    Control(TASK, SMALL, ["out:C I"], shrink=0.25)(held)
    basis, after = coordinates(held)
    at = basis.names.index("out:C I")
    assert after[at] == pytest.approx(0.25 * c[at], rel=1e-12)


def test_held_training_keeps_delta_at_zero_and_lets_it_go(start):
    control = Control(TASK, SMALL, ["out:C I"])
    monitor = Monitor(TASK, SMALL, every=1, sequences=0)
    hold = lambda step, params: control(params) if step <= 10 else None  # noqa: E731
    loop(start, 25, after=[hold, monitor])
    delta = monitor.trajectory["c"].sel(run="live", coordinate="out:C I").values
    np.testing.assert_allclose(delta[:11], 0.0, atol=1e-13)
    assert (np.diff(delta[10:]) > 0).all()
    held = {n: v.float() for n, v in start.items()}
    control(held)
    assert abs(control.coordinates(held)["out:C I"]) < 1e-6


def test_what_cannot_be_held_is_refused(start):
    with pytest.raises(ValueError, match=r"Transformer cannot be held.*all paths share"):
        Control(TASK, Transformer(layers=1, heads=1, width=8), ["out:C I"])
    cases: list[tuple[Any, Any, str]] = [
        (["out:D I"], {}, "no coordinate 'out:D I'"),
        ([], {}, "a list of coordinates"),
        ("out:C I", {}, "a list of coordinates"),
        (["out:C I"], {"value": np.inf}, "value is inf"),
        (["out:C I"], {"shrink": 1.5}, "shrink 1.5"),
        (["out:C I"], {"shrink": 0.5, "value": 1.0}, "give one of them"),
    ]
    for names, settings, message in cases:
        with pytest.raises(ValueError, match=message):
            Control(TASK, SMALL, names, **settings)
    control = Control(TASK, SMALL, ["out:C I"])
    with pytest.raises(ValueError, match=r"unembed\.W is missing"):
        control({})
    with pytest.raises(ValueError, match="of shape"):
        control({"unembed.W": start["unembed.W"][None]})
