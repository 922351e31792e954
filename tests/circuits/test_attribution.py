"""Edge attribution: what it sums to, where it is exact, its gradient against finite differences."""

import dataclasses

import numpy as np
import pytest
import torch

from circuits.attribution import METHODS, score_edges
from circuits.edge_patching import EdgePatcher
from circuits.graph import LOGITS, graph
from tests.circuits.slow_forwards import CASES, TIME, made, slow_metric


@pytest.fixture(params=CASES)
def case(request):
    """Name and patcher. Positions are the same in both runs: roots hold all that differs."""
    family, params, pair = made(request.param)
    corrupt = dataclasses.replace(pair.corrupt, positions=pair.clean.positions)
    pair = dataclasses.replace(pair, corrupt=corrupt)
    whole = graph(family, params, TIME, pair.final)
    return request.param, EdgePatcher(family, params, whole, pair)


def out_of(patcher, names):
    return np.array([edge.source in names for edge in patcher.graph.edges])


def orders(errors):
    """How fast errors fall with each doubling of the steps: 2 for a rule of second order."""
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def test_exact_effects_are_the_fall_of_the_metric(case):
    _, patcher = case
    scores = score_edges(patcher, "exact")
    one = np.eye(len(patcher.graph.edges), dtype=bool)
    falls = (patcher.clean_metric - patcher.metric(one)).numpy()
    np.testing.assert_allclose(scores.effects, falls, atol=1e-14)
    assert (scores.steps, scores.method) == (0, "exact")
    assert scores.gap == pytest.approx(patcher.gap)


def test_the_gradient_agrees_with_finite_differences(case):
    """Of the forward written out by hand, along what each edge carries."""
    name, patcher = case
    found = score_edges(patcher, "attribution").effects
    h = 1e-4
    for i, edge in enumerate(patcher.graph.edges):
        up, down = (
            slow_metric(name, patcher.params, patcher.pair, {str(edge)}, share)[0]
            for share in (-h, h)
        )
        slope = ((up - down) / (2 * h)).numpy()
        np.testing.assert_allclose(found[i], slope, rtol=1e-5, atol=1e-6, err_msg=str(edge))


def test_ig_inputs_sums_to_the_gap_over_what_roots_write(case):
    """To second order in the step, being a midpoint rule."""
    _, patcher = case
    roots = out_of(patcher, {node.name for node in patcher.graph.roots})
    gap = (patcher.clean_metric - patcher.corrupt_metric).numpy()
    errors = [
        np.abs(score_edges(patcher, "ig inputs", steps).effects[roots].sum(0) - gap).max()
        for steps in (32, 64)
    ]
    assert errors[-1] < 0.005 * np.abs(gap).max()
    assert (orders(errors) > 1.8).all(), (errors, orders(errors))


def test_ig_activations_sums_to_patching_each_node(case):
    _, patcher = case
    every = patcher.graph.nodes
    masks = np.array([out_of(patcher, {node.name}) for node in every])
    patched = (patcher.clean_metric - patcher.metric(masks)).numpy()
    errors = []
    for steps in (16, 32):
        effects = score_edges(patcher, "ig activations", steps).effects
        sums = np.array([effects[mask].sum(0) for mask in masks])
        errors.append(np.abs(sums - patched).max(1))
    assert errors[-1].max() < 0.005 * np.abs(patched).max()
    curved = errors[-1] > 1e-10
    if not curved.any():  # Dense-SSM is linear in every node
        return
    found = orders([each[curved] for each in errors])
    assert np.median(found) == pytest.approx(2, abs=0.02)
    assert (found > 1.5).all()  # not all are smooth enough for the limit: Mamba's norm of mixer 0


def test_where_the_way_to_the_logits_is_linear_every_method_is_exact():
    """Into the logits of a model without norm: what is written there is read as it is."""
    for name in ("attention_only", "transformer, rotary, bare", "dense_ssm", "lstm"):
        family, params, pair = made(name)
        patcher = EdgePatcher(family, params, graph(family, params, TIME, pair.final), pair)
        last = np.array(
            [
                patcher.graph.reader[edge.reader].feeds == LOGITS
                and patcher.graph.reader[edge.reader].name.startswith(LOGITS)
                for edge in patcher.graph.edges
            ]
        )
        exact = score_edges(patcher, "exact").effects[last]
        for method in ("attribution", "ig inputs"):
            np.testing.assert_allclose(
                score_edges(patcher, method, 3).effects[last], exact, rtol=1e-9, atol=1e-12
            )


def test_edges_of_what_does_not_differ_are_0(case):
    """Positions, and in recurrent families all that comes before the first corrupted token."""
    name, patcher = case
    pair = patcher.pair
    tokens = np.concatenate([pair.clean.tokens[:, :2], pair.corrupt.tokens[:, 2:]], axis=1)
    later = dataclasses.replace(pair, corrupt=dataclasses.replace(pair.corrupt, tokens=tokens))
    patcher = EdgePatcher(patcher.family, patcher.params, patcher.graph, later)
    still = [n for n, x in patcher.clean.items() if torch.equal(x, patcher.corrupt[n])]
    without = "transformer, rotary, bare"  # its nodes hold all places, and none is of positions
    assert bool(still) == (name != without)
    for method in METHODS:
        effects = score_edges(patcher, method, 2).effects[out_of(patcher, still)]
        np.testing.assert_allclose(effects, 0, atol=1e-13)


def test_effects_are_means_over_the_corruptions_of_a_sequence():
    family, params, pair = made("transformer")
    whole = graph(family, params, TIME, pair.final)
    single = score_edges(EdgePatcher(family, params, whole, pair), "attribution").effects
    half = dataclasses.replace(pair, sequences=len(pair.clean) // 2)
    found = score_edges(EdgePatcher(family, params, whole, half), "attribution").effects
    assert found.shape == (len(whole.edges), 3)
    np.testing.assert_allclose(found, (single[:, :3] + single[:, 3:]) / 2, atol=1e-13)


def test_the_table_is_by_size_with_its_interval():
    family, params, pair = made("transformer")
    patcher = EdgePatcher(family, params, graph(family, params, TIME, pair.final), pair)
    scores = score_edges(patcher, "ig inputs", 2)
    table = scores.table
    assert (table.effect.abs().diff().dropna() <= 0).all()
    first = scores.effects[patcher.graph.mask([f"{table.source[0]} -> {table.reader[0]}"])][0]
    half = 1.96 * first.std(ddof=1) / np.sqrt(len(first))
    assert table.loc[0, "low"] == pytest.approx(first.mean() - half)
    alone = dataclasses.replace(scores, effects=scores.effects[:, :1])
    assert alone.table[["low", "high"]].isna().all(axis=None)
    assert str(scores) != ""


def test_wrong_input_is_refused(case):
    _, patcher = case
    with pytest.raises(ValueError, match="allowed: exact, attribution, ig inputs"):
        score_edges(patcher, "guess")
    with pytest.raises(ValueError, match="steps is 0; allowed: 1 or more"):
        score_edges(patcher, "ig inputs", 0)
