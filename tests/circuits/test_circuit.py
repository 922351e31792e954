"""A found circuit is the planted one, is worth what it says, and is none where none can be."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import circuits.circuit
import circuits.faithfulness
from circuits.attribution import METHODS
from circuits.circuit import ENOUGH, find_circuit
from circuits.edge_patching import EdgePatcher
from circuits.faithfulness import faithfulness
from circuits.pair import MINIMUM_GAP
from circuits.planted import CONSTRUCTIONS, CONTROLS


def patcher_of(model):
    return EdgePatcher(model.family, model.params, model.graph, model.pair)


@pytest.fixture(autouse=True)
def _few_random_sets(monkeypatch):
    for module in (circuits.circuit, circuits.faithfulness):
        monkeypatch.setattr(module, "RANDOM", 3)


@pytest.fixture(scope="module")
def both():
    """A small model with two circuits that each say half of the answer."""
    return CONSTRUCTIONS["both"](0)


@pytest.fixture(scope="module")
def patcher(both):
    return patcher_of(both)


@pytest.mark.slow
@pytest.mark.parametrize("method", [m for m in METHODS if m != "attribution"])
def test_the_circuit_found_is_the_planted_one(both, patcher, method):
    circuit = find_circuit(patcher, method)
    assert set(circuit.edges) == set(both.truth)
    value, low, high = circuit.faithfulness
    assert low <= value <= high
    assert value >= ENOUGH
    assert circuit.completeness >= ENOUGH
    assert circuit.random[0] < 0.1
    assert circuit.minimality.fall.min() > 0.1
    assert f"circuit of {len(both.truth)} of" in str(circuit)
    assert all(edge in circuit._repr_html_() for edge in map(_html, circuit.edges))


def _html(edge):
    return edge.replace(">", "&gt;")


@pytest.mark.slow
def test_what_it_says_of_itself_can_be_measured_again(patcher):
    circuit = find_circuit(patcher, "ig inputs")
    _, patcher = patcher.halves()
    again = faithfulness(patcher, np.stack([circuit.mask, ~circuit.mask])).value
    assert circuit.faithfulness[0] == pytest.approx(again[0])
    assert circuit.completeness == pytest.approx(1 - again[1])
    first = circuit.minimality.iloc[0]
    without = circuit.mask & ~patcher.graph.mask([first.edge])
    assert first.fall == pytest.approx(again[0] - faithfulness(patcher, without[None]).value[0])
    assert (patcher.graph.connected(circuit.mask) == circuit.mask).all()


@pytest.mark.slow
def test_a_share_asks_for_as_many_edges_as_it_takes(patcher):
    """Half of the answer is one of the two circuits, half as many edges."""
    sizes = [find_circuit(patcher, share=s).mask.sum() for s in (0.4, 0.95)]
    assert sizes[0] < sizes[1] == 10


def test_random_sets_are_told_by_their_mean_and_their_95th_percentile(patcher, monkeypatch):
    """21 sets of five edges that carry 0, 1, .., 20: mean 10, and one in twenty above 19."""
    monkeypatch.setattr(circuits.circuit, "RANDOM", 21)

    def carried(asked, masks, seed):
        assert asked is patcher
        assert (masks.sum(1) == 5).all()
        assert len(np.unique(masks, axis=0)) > 1
        return SimpleNamespace(value=np.arange(float(len(masks))))

    monkeypatch.setattr(circuits.circuit, "faithfulness", carried)
    assert circuits.circuit._random(patcher, 5, 0) == (10.0, pytest.approx(19.0))


def test_a_model_that_cannot_tell_has_no_circuit():
    for name in ("cut", "deaf"):
        patcher = patcher_of(CONTROLS[name](0))
        circuit = find_circuit(patcher, "attribution")
        assert not circuit.defined
        assert not circuit.mask.any()
        assert circuit.curve is None
        assert np.isnan([*circuit.faithfulness, *circuit.random, circuit.completeness]).all()
        assert circuit.scores.effects.shape == (len(patcher.graph.edges), 16)
        assert "no circuit" in str(circuit)
        assert f"{MINIMUM_GAP} are needed" in circuit.note


def test_a_gap_the_wrong_way_round_is_none(both):
    """A model that prefers the corrupted answer has learnt something else."""
    pair = both.pair
    swapped = dataclasses.replace(pair, clean=pair.corrupt, corrupt=pair.clean)
    patcher = patcher_of(dataclasses.replace(both, pair=swapped))
    patcher.clean_metric, patcher.corrupt_metric = patcher.corrupt_metric, patcher.clean_metric
    assert not find_circuit(patcher, "attribution").defined


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_wrong_input_is_refused(patcher, share):
    with pytest.raises(ValueError, match=f"share is {share}; allowed: above 0, up to 1"):
        find_circuit(patcher, share=share)
