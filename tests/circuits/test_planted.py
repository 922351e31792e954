"""Planted circuits do what they are said to do, and discovery gets them back."""

import dataclasses

import numpy as np
import pytest
import torch

from circuits.attribution import EdgeScores, score_edges
from circuits.edge_patching import EdgePatcher
from circuits.pair import MINIMUM_GAP
from circuits.planted import (
    ALPHA,
    BASELINE,
    CONSTRUCTIONS,
    CONTROLS,
    LEVEL,
    control_models,
    found,
    planted_models,
    recover,
)
from circuits.planted.recall import GAIN
from circuits.planted.sequences import Recall
from circuits.planted.stream import Stream


def patcher_of(model, instead=None):
    return EdgePatcher(model.family, model.params, model.graph, model.pair, instead)


@pytest.fixture(scope="module", params=CONSTRUCTIONS)
def model(request):
    return CONSTRUCTIONS[request.param](3)


def test_a_planted_model_gives_the_answer(model):
    patcher = patcher_of(model)
    assert patcher.gap > GAIN
    for batch in (model.pair.clean, model.pair.corrupt):
        tokens, positions = map(torch.from_numpy, (batch.tokens, batch.positions))
        said = model.family.forward(model.params, tokens, positions)[:, -1]
        wrong = patcher.pair.metric(said[:, None].expand(-1, tokens.shape[1], -1))
        sign = 1 if batch is model.pair.clean else -1
        assert (sign * wrong > 0).double().mean() > 0.95


def test_the_truth_carries_the_answer_and_nothing_else_does(model):
    """Sufficient: patching all else changes little. Necessary: so is every edge of it."""
    patcher = patcher_of(model)
    truth, apart = model.masks(model.graph)
    assert truth.any()
    assert not (truth & apart).any()
    kept, without = patcher.metric(np.stack([~truth, truth])).mean(1)
    clean, corrupt = patcher.clean_metric.mean(), patcher.corrupt_metric.mean()
    assert abs(kept - clean) < 0.05 * (clean - corrupt)
    assert without - corrupt < 0.05 * (clean - corrupt)
    one = np.eye(len(truth), dtype=bool)
    falls = (clean - patcher.metric(one).mean(1)) / (clean - corrupt)
    assert falls[truth].min() > LEVEL
    assert falls[~truth].abs().max() < LEVEL / 2


@pytest.mark.parametrize("name", ["induction", "both", "clocked sum"])
def test_a_random_rotation_hides_every_part(name):
    """No unit stands for anything: no weight that reads or writes the stream is near 0 throughout
    a row, and a model is another one for another seed."""
    model = CONSTRUCTIONS[name](0)
    key = "transition.A" if name == "clocked sum" else "embed.W_E"
    weight = model.params[key]
    assert (weight.abs() > 1e-6).double().mean() > 0.99
    assert not torch.equal(weight, CONSTRUCTIONS[name](1).params[key][: len(weight)])
    again = CONSTRUCTIONS[name](0)
    assert all(torch.equal(x, again.params[key]) for key, x in model.params.items())


def test_decoys_write_and_yet_do_nothing():
    """The head that writes most is one, and a constant one is read by the logits."""
    seen = set()
    for seed in range(12):
        model = CONSTRUCTIONS["induction"](seed)
        patcher = patcher_of(model)
        for decoy in model.decoys:
            name, kind = decoy.split(": ")
            seen.add(kind)
            if name not in patcher.clean:
                continue
            size = patcher.clean[name].norm(dim=-1).mean()
            change = (patcher.clean[name] - patcher.corrupt[name]).norm(dim=-1).mean()
            assert size > 0.5
            assert (change < 0.1 * size) == (kind == "read, always the same")
            out = np.array([edge.source == name for edge in model.graph.edges])
            moved = patcher.clean_metric - patcher.metric(out[None])[0]
            assert abs(moved.mean()) < 0.02 * patcher.gap
    assert len(seen) == 3


def test_a_backup_acts_when_the_first_is_silent_and_only_then():
    model = CONSTRUCTIONS["backup"](0)
    plain, graph = patcher_of(model), model.graph
    main = next(e for e in model.truth if e.endswith("-> logits")).split(" -> ")[0]
    spare = next(e for e in model.apart if e.endswith("-> logits")).split(" -> ")[0]
    zeros = {name: torch.zeros_like(value) for name, value in plain.clean.items()}
    silent = patcher_of(model, zeros)
    masks = {
        who: np.array([edge.source in who for edge in graph.edges])
        for who in ((main,), (spare,), (main, spare))
    }
    falls = [
        float((silent.clean_metric - silent.metric(m[None])[0]).mean()) for m in masks.values()
    ]
    only, idle, all_out = (fall / GAIN for fall in falls)
    assert abs(only) < 0.15
    assert abs(idle) < 0.05
    assert all_out > 0.8
    one = graph.mask([f"{main} -> logits"])
    direct = float((silent.clean_metric - silent.metric(one[None])[0]).mean())
    assert direct > 0.8 * GAIN  # the edge alone: the spare head still hears that the first spoke


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_have_nothing_to_find(name):
    model = CONTROLS[name](1)
    assert model.truth == ()
    assert model.construction == name
    patcher = patcher_of(model)
    if name in ("cut", "deaf", "unheard"):
        assert abs(patcher.gap) < 0.1 * MINIMUM_GAP
    if name in ("random weights", "other answers"):
        assert patcher.clean_metric.std() > 1
    assert not found(score_edges(patcher, "exact")).any()


@pytest.mark.slow
def test_recovery_over_the_constructions():
    count = len(CONSTRUCTIONS)
    methods = ("exact", "attribution", "ig inputs")
    done = []
    models = [*planted_models(count, 7), *control_models(len(CONTROLS), 7)]
    recovery = recover(models, methods, watch=lambda m: done.append(m.construction))
    assert done == [*CONSTRUCTIONS, *CONTROLS]
    by = {row["method"]: row for row in recovery.methods()}
    assert list(by) == [*methods, BASELINE]
    for name in ("exact", "ig inputs"):
        assert by[name]["auroc"] >= 0.99
        assert by[name]["false_findings"] == 0
        assert (by[name]["models"], by[name]["controls"]) == (count, len(CONTROLS))
    assert by[BASELINE]["auroc"] < 0.95
    table = recovery.constructions()
    assert set(table.construction) == set(CONSTRUCTIONS)


def test_a_broken_method_is_seen(monkeypatch):
    """Effects dealt out at random rank at chance and find what is not there."""
    from circuits.planted import recovery as module

    def shuffled(patcher, method, steps):
        scores = score_edges(patcher, "ig inputs")
        order = np.random.default_rng(0).permutation(len(scores.effects))
        return dataclasses.replace(scores, effects=scores.effects[order])

    monkeypatch.setattr(module, "score_edges", shuffled)
    row = recover([CONSTRUCTIONS["induction"](0), CONSTRUCTIONS["pointer"](0)], ("exact",))
    assert row.methods()[0]["auroc"] < 0.8
    assert row.methods()[0]["wrong"] > 0


def test_the_level_and_the_chance_of_finding_anything():
    graph = CONSTRUCTIONS["induction"](0).graph
    rng = np.random.default_rng(0)
    effects = np.zeros((len(graph.edges), 16))
    effects[0], effects[1], effects[2] = 10 * LEVEL, 0.9 * 10 * LEVEL, -10 * LEVEL
    effects[3] = 10 * rng.standard_normal(16)
    effects += 1e-9 * rng.standard_normal(effects.shape)
    effects[[0, 2]] *= 1.01

    def scores(gap):
        return EdgeScores(graph=graph, method="exact", steps=0, gap=gap, effects=effects)

    assert list(np.flatnonzero(found(scores(10.0)))) == [0, 2]
    assert not found(scores(0.9 * MINIMUM_GAP)).any()
    drawn = rng.standard_normal((2000, *(20, 16)))
    some = dataclasses.replace(scores(MINIMUM_GAP), effects=np.concatenate(list(drawn)))
    assert found(some).mean() <= ALPHA  # of single edges; of models far less


def test_wrong_input_is_refused():
    model = CONSTRUCTIONS["clocked sum"](0)
    with pytest.raises(ValueError, match="allowed: exact, attribution"):
        recover([model], ("guess",))
    with pytest.raises(ValueError, match="no models"):
        recover([], ("exact",))
    with pytest.raises(ValueError, match="blocks is 5; allowed: 2 to 4"):
        Recall(keys=4, values=8, blocks=5)
    with pytest.raises(ValueError, match="width is 4; allowed"):
        Stream(1, 1, 4, {"token": 5})


def test_recall_corruptions_change_one_thing_and_the_answer():
    task = Recall(keys=5, values=6, blocks=3)
    pair = task.pair(8, np.random.default_rng(0))
    changed = (pair.clean.tokens != pair.corrupt.tokens).reshape(3, 8, task.time)
    assert (changed[0].sum(1) == 1).all()
    assert changed[0][:, -1].all()
    for kind, start in ((1, 1), (2, 2)):
        assert (changed[kind].sum(1) == 2).all()
        assert not changed[kind][:, [0, *range(3 - start, task.time, 2)]].any()
    assert (pair.answers(pair.clean) != pair.answers(pair.corrupt)).all()
