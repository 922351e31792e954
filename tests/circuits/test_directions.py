"""Principal directions of a node: together they are the node."""

import numpy as np
import pytest
import torch

from circuits.directions import patch_directions
from circuits.discover import prepare
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.pair import pairs
from circuits.patching import node_masks
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.transformer import Transformer
from training.tasks import ModularAddition

SUM = ModularAddition(modulus=4, lengths=(3,), format="acot")
CASES = {
    "state 1": LSTM(width=5),
    "i 1": LSTM(width=5),
    "state 0.1": Mamba(width=3, layers=2, state=2),
    "head 0.1": Transformer(layers=2, heads=2, width=8, init_std=0.5),
}


@pytest.mark.parametrize("node", CASES)
def test_all_directions_together_are_the_node(node):
    family = CASES[node]
    params = family.initialise(SUM, 0, torch.float64)
    pair = pairs(SUM, 12, 0)
    here = graph(family, params, 3, 2)
    patcher = EdgePatcher(family, params, here, pair)
    table = patch_directions(patcher, node, 100)
    which = [one.name for one in here.nodes].index(node)
    expected = patcher.clean_metric - patcher.metric(node_masks(here)[[which]])[0]
    assert table["together"].iloc[-1] == pytest.approx(float(expected.mean()), abs=1e-9)
    assert table["together"].iloc[0] == table["effect"].iloc[0]
    assert table["variance"].sum() == pytest.approx(1.0)
    assert (np.diff(table["variance"]) <= 1e-12).all()


@pytest.mark.parametrize("node", ["state 3"])
def test_differences_of_one_hot_answers_span_three_directions(planted_run, node):
    patcher = prepare(planted_run(shared=True), length=4, samples=128)
    table = patch_directions(patcher, node, 5)
    assert table["together"].iloc[2] == pytest.approx(patcher.gap)
    assert np.abs(table["effect"].iloc[3:]).max() < 1e-9
    assert (table["effect"].iloc[:3] > 0).all()


def test_bad_input_is_refused(planted_run):
    patcher = prepare(planted_run(shared=True), length=4, samples=16)
    with pytest.raises(ValueError, match="no node 'head 0'; there are state 3"):
        patch_directions(patcher, "head 0")
    with pytest.raises(ValueError, match="count is 0"):
        patch_directions(patcher, "state 3", 0)
