"""Graphs: what is in them, and which edges lie on a path, against brute force."""

import itertools

import numpy as np
import pytest

from circuits.graph import LOGITS, Edge, Graph, graph
from tests.circuits.slow_forwards import CASES, TIME, made
from training.families.transformer import Transformer


@pytest.fixture(params=CASES)
def whole(request) -> Graph:
    family, params, pair = made(request.param)
    return graph(family, params, TIME, pair.final)


def on_a_path(whole: Graph, mask: np.ndarray) -> np.ndarray:
    """By walking every path from every root within the mask, edge by edge."""
    edges = [edge for edge, on in zip(whole.edges, mask, strict=True) if on]
    kept = set()

    def walk(node, trail):
        for edge in edges:
            if edge.source == node:
                feeds = whole.reader[edge.reader].feeds
                if feeds == LOGITS:
                    kept.update([*trail, edge])
                else:
                    walk(feeds, [*trail, edge])

    for root in whole.roots:
        walk(root.name, [])
    return np.array([edge in kept for edge in whole.edges])


def test_connected_edges_are_those_on_a_path_from_a_root_to_the_logits(whole):
    rng = np.random.default_rng(0)
    some = False
    for share in (0.1, 0.2, 0.3, 0.5):
        for _ in range(5):
            mask = rng.random(len(whole.edges)) < share
            expected = on_a_path(whole, mask)
            np.testing.assert_array_equal(whole.connected(mask), expected)
            some |= bool((mask & ~expected).any())
    assert some


def test_connected_keeps_a_connected_set_and_is_the_same_twice(whole):
    everything = np.ones(len(whole.edges), dtype=bool)
    assert whole.connected(everything).sum() >= 0.5 * len(everything)
    mask = np.random.default_rng(1).random(len(everything)) < 0.5
    once = whole.connected(mask)
    assert not (once & ~mask).any()
    np.testing.assert_array_equal(whole.connected(once), once)
    assert not whole.connected(np.zeros_like(mask)).any()


def test_columns_and_index_name_the_same_edges(whole):
    for reader in whole.readers:
        part = whole.edges[whole.columns[reader.name]]
        assert part == tuple(Edge(source=s, reader=reader.name) for s in reader.sources)
    assert [whole.index[edge] for edge in whole.edges] == list(range(len(whole.edges)))


def test_roots_read_nothing_and_everything_else_can_matter(whole):
    fed = {reader.feeds for reader in whole.readers}
    assert {root.name for root in whole.roots} == {n.name for n in whole.nodes} - fed
    written = {edge.source for edge in whole.edges}
    assert written == {node.name for node in whole.nodes}


def test_masks_by_name(whole):
    chosen = [whole.edges[0], str(whole.edges[-1])]
    assert list(np.flatnonzero(whole.mask(chosen))) == [0, len(whole.edges) - 1]
    touched = whole.nodes_of(whole.mask(chosen))
    assert whole.edges[0].source in touched
    assert LOGITS not in touched
    with pytest.raises(ValueError, match="no edge 'sun -> moon'; there are"):
        whole.mask(["sun -> moon"])


def test_a_transformer_has_as_many_edges_as_counted_by_hand():
    """Layer l of L with H heads and an MLP is read by 3 H heads' sides from 2 + l (H + 1) writers,
    by the MLP from H more, and the logits read all."""
    for layers, heads in itertools.product((1, 2, 3), (1, 2)):
        family = Transformer(layers=layers, heads=heads, width=4 * heads)
        found = graph(family, {}, TIME, TIME - 1)
        before = [2 + layer * (heads + 1) for layer in range(layers)]
        count = sum(3 * heads * n + n + heads for n in before) + before[-1] + heads + 1
        assert len(found.edges) == count
        assert str(found) == f"graph of {before[-1] + heads + 1} nodes and {count} edges"


def test_an_answer_in_the_middle_leaves_later_steps_out():
    for name in ("lstm", "dense_ssm"):
        family, params, _ = made(name)
        found = graph(family, params, TIME, 1)
        steps = {int(node.name.split()[-1]) for node in found.nodes}
        assert steps == {0, 1}
        assert [r.name for r in found.readers if r.feeds == LOGITS] == ["logits 1"]


def test_wrong_input_is_refused():
    family, params, _ = made("lstm")
    for final in (-1, TIME):
        with pytest.raises(ValueError, match=f"final is {final}; allowed: 0 to {TIME - 1}"):
            graph(family, params, TIME, final)

    class Bare:
        pass

    with pytest.raises(ValueError, match="Bare has no `wiring`"):
        graph(Bare(), {}, TIME, 0)  # type: ignore[arg-type]
