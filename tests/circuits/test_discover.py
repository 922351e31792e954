"""From a run to a circuit, a table and MIB's format; and plain answers to bad questions."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from circuits.circuit import find_circuit
from circuits.discover import METHODS, accuracy, discover, exact_seconds, prepare, search
from circuits.export import edge_table, mib_graph
from training import RunConfig, train

SUM = {"name": "modular_addition", "modulus": 3, "lengths": [2], "format": "acot"}
RECALL = {
    "name": "associative_recall",
    "n_blocks": 2,
    "n_common": 4,
    "n_rare": 4,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
}
SMALL = {"name": "transformer", "layers": 1, "heads": 2, "width": 16}


def trained(root, task, family, steps):
    config = RunConfig(
        study="circuits", task=task, family=family, steps=steps, batch_size=32,
        optimiser={"name": "adam", "lr": 0.01}, eval_size=9, eval_every=100,
    )  # fmt: skip
    return train(config, root=root)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Partners known by heart; the first checkpoint knows nothing."""
    return trained(tmp_path_factory.mktemp("run"), {**RECALL, "f_r": 0.0, "f_v": 0.0}, SMALL, 120)


@pytest.mark.parametrize(
    "method", [*METHODS[:-1], pytest.param(METHODS[-1], marks=pytest.mark.slow)]
)
def test_a_learned_answer_has_a_circuit_by_every_method(run, method):
    found = discover(run, method=method, samples=16)
    assert found.defined
    assert any(edge.startswith("embed ->") for edge in found.edges), "the query is the answer"
    assert 0 < len(found.edges) < len(found.graph.edges)
    assert found.faithfulness[0] > 0.8
    assert "the model answers 100% of the clean sequences" in found.note


def test_a_model_that_has_not_learned_has_none(run):
    found = discover(run, 0, samples=16)
    assert not found.defined
    assert found.edges == ()
    assert "has not learned to tell these sequences apart" in str(found)
    assert np.isfinite(found.scores.values).all(), "raw effects are there all the same"


@pytest.mark.parametrize("ablation", ["mean", "mean per position", "zero", "resample"])
def test_other_ablations_find_a_circuit_too(run, ablation):
    found = discover(run, samples=16, ablation=ablation)
    assert found.defined
    assert found.faithfulness[0] > 0.8


def test_every_family_can_be_asked(tmp_path):
    for name in ("lstm", "dense_ssm", "mamba"):
        run = trained(tmp_path, {**SUM, "lengths": [3]}, {"name": name, "width": 4}, 1)
        found = discover(run, samples=8)
        assert len(found.scores.table) == len(found.graph.edges)
    run = trained(tmp_path, RECALL, {"name": "attention_only", "layers": 2, "scale": 0.3}, 1)
    assert discover(run, samples=12, kind="rare", part="key").scores.effects.shape[1] == 12


def test_the_planted_state_is_the_circuit(planted_run):
    found = discover(planted_run(shared=True), length=5, samples=32, method="exact")
    assert found.edges == ("state 4 -> logits 4",)


def test_a_length_beyond_training_is_asked_where_the_model_can_take_it(run, tmp_path):
    task = {**SUM, "lengths": [3]}
    free = trained(tmp_path, task, {"name": "dense_ssm", "width": 4}, 1)
    assert "logits 4" in discover(free, length=5, samples=8).graph.reader
    bound = trained(tmp_path, task, SMALL, 1)
    with pytest.raises(ValueError, match=r"length is 5; this model cannot take it .* lengths 3$"):
        discover(bound, length=5, samples=8)
    with pytest.raises(ValueError, match="length"):
        discover(free, length=1, samples=8)
    with pytest.raises(ValueError, match="has no lengths; leave out length 3"):
        discover(run, length=3)


def test_what_is_not_there_is_refused(run):
    with pytest.raises(ValueError, match="has no checkpoint of step 77"):
        discover(run, 77)
    with pytest.raises(ValueError, match="method is 'guess'; allowed: exact, attribution"):
        discover(run, method="guess")
    with pytest.raises(ValueError, match="kind is 'odd'"):
        discover(run, kind="odd")
    with pytest.raises(ValueError, match="ablation is 'noise'"):
        discover(run, ablation="noise")


@pytest.mark.parametrize("method", ["exact", "ACDC"])
def test_a_graph_too_large_for_exact_patching_is_said_to_be(run, method):
    with pytest.raises(ValueError, match=r"about \d+ s on this machine; allowed: 0 s.*ig inputs"):
        discover(run, samples=16, method=method, patience=1e-6)
    assert discover(run, samples=16, method="attribution", patience=1e-6).defined


def test_the_time_of_exact_patching_is_foretold(run):
    patcher = prepare(run, samples=16)
    assert 1e-4 < exact_seconds(patcher) < 60


def test_a_diverged_checkpoint_is_said_to_be(run):
    patcher = prepare(run, samples=16)
    patcher.clean_metric = patcher.clean_metric * torch.nan
    found = search(patcher)
    assert not found.defined
    assert "has diverged" in found.note


def test_a_constant_metric_is_said_to_be(planted_run):
    found = discover(planted_run(shared=True, gain=0.0), length=4, samples=16)
    assert not found.defined
    assert "the metric is constant" in found.note


def test_accuracy_is_that_of_the_clean_answers(run):
    patcher = prepare(run, samples=16)
    assert accuracy(patcher) == 1.0
    assert accuracy(prepare(run, 0, samples=16)) < 1.0


def test_the_table_has_every_edge_in_order(run):
    found = discover(run, samples=16)
    table = edge_table(found)
    assert [f"{s} -> {r}" for s, r in zip(table["source"], table["reader"], strict=True)] == [
        str(edge) for edge in found.graph.edges
    ]
    np.testing.assert_allclose(table["effect"], found.scores.values)
    np.testing.assert_array_equal(table["kept"], found.mask)
    assert set(table["node"]) == {"head 0.0", "head 0.1", "MLP 0", "logits"}


def test_the_graph_of_the_benchmark(run):
    found = discover(run, samples=16)
    graph = json.loads(json.dumps(mib_graph(found, run)))
    assert graph["cfg"] == {"n_layers": 1, "n_heads": 2, "d_model": 16, "parallel_attn_mlp": False}
    assert set(graph["nodes"]) == {"input", "a0.h0", "a0.h1", "m0", "logits"}
    heads = [f"input->a0.h{h}<{side}>" for h in (0, 1) for side in "qkv"]
    sources = ("input", "a0.h0", "a0.h1")
    others = [*(f"{s}->m0" for s in sources), *(f"{s}->logits" for s in (*sources, "m0"))]
    assert set(graph["edges"]) == {*heads, *others}
    total = sum(edge["score"] for edge in graph["edges"].values())
    assert total == pytest.approx(found.scores.values.sum(), rel=1e-5)
    kept = {name for name, edge in graph["edges"].items() if edge["in_graph"]}
    assert ("input->m0" in kept) == bool(
        {"embed -> MLP 0", "positions -> MLP 0"} & set(found.edges)
    )
    assert ("m0->logits" in kept) == ("MLP 0 -> logits" in found.edges)


def test_what_the_benchmark_cannot_hold_is_refused(tmp_path):
    run = trained(tmp_path, {**SUM, "lengths": [3]}, {"name": "lstm", "width": 4}, 1)
    with pytest.raises(ValueError, match="LSTM has other nodes: use the table"):
        mib_graph(discover(run, samples=8), run)


def test_the_search_is_find_circuit(run):
    patcher = prepare(run, samples=16)
    one, other = search(patcher, "exact"), find_circuit(patcher, "exact")
    assert one.edges == other.edges
    assert replace(one, note=other.note).faithfulness == other.faithfulness
