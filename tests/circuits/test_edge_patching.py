"""Exact edge patching against forwards written out by hand, and its laws."""

import numpy as np
import pytest
import torch

from circuits import edge_patching
from circuits.ablation import ablation
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.pair import pairs
from tests.circuits.slow_forwards import CASES, TIME, made, slow_metric
from tests.training.block_list_cases import RECALL
from training.families.transformer import Transformer


@pytest.fixture(params=CASES)
def case(request):
    family, params, pair = made(request.param)
    whole = graph(family, params, TIME, pair.final)
    return request.param, EdgePatcher(family, params, whole, pair)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_the_reference_reads_the_same_edges_and_writes_the_same(case):
    name, patcher = case
    metric, written, edges = slow_metric(name, patcher.params, patcher.pair, ())
    close(patcher.clean_metric, metric)
    assert set(edges) >= {str(edge) for edge in patcher.graph.edges}
    unread = set(edges) - {str(edge) for edge in patcher.graph.edges}
    assert all(edge.startswith("o ") or "-> o " in edge for edge in unread), unread
    for node, value in patcher.clean.items():
        close(value, written[node])


def test_every_edge_alone_agrees_with_brute_force(case):
    name, patcher = case
    found = patcher.metric(np.eye(len(patcher.graph.edges), dtype=bool))
    for i, edge in enumerate(patcher.graph.edges):
        slow, _, _ = slow_metric(name, patcher.params, patcher.pair, {str(edge)})
        close(found[i], slow)
    moves = (found - patcher.clean_metric).abs().amax(1) > 1e-9
    assert moves.double().mean() > (0.5 if name == "mamba" else 0.9), name  # early steps are unread


def test_any_set_of_edges_agrees_with_brute_force(case):
    name, patcher = case
    masks = np.random.default_rng(0).random((6, len(patcher.graph.edges))) < 0.4
    found = patcher.metric(masks)
    for mask, metric in zip(masks, found, strict=True):
        edges = {str(edge) for edge, on in zip(patcher.graph.edges, mask, strict=True) if on}
        close(metric, slow_metric(name, patcher.params, patcher.pair, edges)[0])


def test_all_patched_is_the_corrupted_run_and_none_the_clean_one(case):
    _, patcher = case
    masks = np.array([[True], [False]]).repeat(len(patcher.graph.edges), 1)
    found = patcher.metric(masks)
    close(found[0], patcher.corrupt_metric)
    close(found[1], patcher.clean_metric)
    assert patcher.gap == pytest.approx(float((found[1] - found[0]).mean()), rel=1e-9)


def test_masks_side_by_side_do_not_disturb_each_other(case, monkeypatch):
    _, patcher = case
    masks = np.random.default_rng(1).random((5, len(patcher.graph.edges))) < 0.3
    together = patcher.metric(masks)
    monkeypatch.setattr(edge_patching, "ROWS", 1)
    close(patcher.metric(masks), together)


def test_what_is_put_instead_replaces_the_corrupted_run(case):
    """With the corrupted outputs of all nodes as `instead`, nothing changes."""
    _, patcher = case
    other = EdgePatcher(
        patcher.family, patcher.params, patcher.graph, patcher.pair, dict(patcher.corrupt)
    )
    masks = np.random.default_rng(2).random((3, len(patcher.graph.edges))) < 0.5
    close(other.metric(masks), patcher.metric(masks))


def test_masks_of_another_shape_are_refused(case):
    _, patcher = case
    count = len(patcher.graph.edges)
    for shape in ((count,), (2, count + 1)):
        with pytest.raises(ValueError, match=rf"allowed: \(masks, {count}\)"):
            patcher.metric(np.zeros(shape, dtype=bool))


@pytest.mark.parametrize("how", ["corrupted", "mean", "resample"])
def test_a_half_is_the_model_on_its_sequences_alone(how):
    """Ten sequences with three corruptions each; ablations stay those of all of them."""
    pair = pairs(RECALL, 30, 0)
    assert (pair.sequences, len(pair.parts)) == (10, 3)
    family = Transformer(layers=1, heads=2, width=8, init_std=0.7)
    params = family.initialise(RECALL, 0, torch.float64)
    whole = graph(family, params, pair.clean.tokens.shape[1], pair.final)
    parts = family, params, whole, pair
    patcher = EdgePatcher(*parts, ablation(*parts, how))
    masks = np.random.default_rng(0).random((3, len(whole.edges))) < 0.3
    for first, half in enumerate(patcher.halves()):
        rows = np.arange(30)[first::2]
        assert half.pair.sequences == 5
        np.testing.assert_array_equal(half.pair.clean.tokens, pair.clean.tokens[rows])
        close(half.metric(masks), patcher.metric(masks)[:, rows])
        close(half.corrupt_metric, patcher.corrupt_metric[rows])
        close(half.metric(masks[:1] & False)[0], half.clean_metric)
        if how == "corrupted":
            close(half.metric(masks), EdgePatcher(family, params, whole, half.pair).metric(masks))


def test_few_sequences_are_not_halved():
    name = next(iter(CASES))
    family, params, pair = made(name)
    pair = pair.take(np.arange(min(pair.sequences, 9)))
    patcher = EdgePatcher(family, params, graph(family, params, TIME, pair.final), pair)
    assert patcher.halves() == (patcher, patcher)
