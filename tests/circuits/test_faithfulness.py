"""Faithfulness, its areas and its intervals, on numbers that can be worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from circuits import faithfulness as module
from circuits.edge_patching import EdgePatcher
from circuits.faithfulness import SHARES, areas, curve, faithfulness, ranked, top
from circuits.graph import graph
from circuits.pair import MINIMUM_GAP
from tests.circuits.slow_forwards import TIME, made


class Additive:
    """Stands for an EdgePatcher whose edges each hold a share of the gap, sequence by sequence."""

    def __init__(self, shares, gap=2.0, sequences=12, spread=0.0):
        rng = np.random.default_rng(0)
        self.shares = torch.tensor(shares, dtype=torch.float64)
        gaps = torch.from_numpy(gap + spread * rng.standard_normal(sequences))
        self.clean_metric, self.corrupt_metric = 1 + gaps, torch.ones(sequences).double()
        self.pair = SimpleNamespace(by_sequence=lambda values: values.numpy())
        self.graph = SimpleNamespace(edges=tuple(shares))
        self.gap = float(gaps.mean())

    def metric(self, masks):
        lost = torch.from_numpy(np.asarray(masks)).double() @ self.shares
        return self.clean_metric - lost[:, None] * (self.clean_metric - self.corrupt_metric)


def test_faithfulness_is_the_share_of_the_gap_that_is_kept():
    patcher = Additive([0.5, 0.3, 0.2])
    kept = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 1]], dtype=bool)
    found = faithfulness(patcher, kept)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.value, [1, 0, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.low, found.value, atol=1e-12)


def test_means_come_before_the_ratio():
    """Gaps 1 and 9, kept 1 and 0: 1/10, not 1/2."""
    patcher = Additive([1.0], sequences=2)
    patcher.clean_metric = torch.tensor([2.0, 10.0]).double()
    patcher.metric = lambda masks: torch.tensor([[2.0, 1.0]]).double()
    found = faithfulness(patcher, np.ones((1, 1), dtype=bool))  # type: ignore[arg-type]
    assert found.value[0] == pytest.approx(0.1)


def test_the_interval_covers_what_other_sequences_would_give():
    """200 draws of 24 sequences: 95% of the intervals hold the true 0.5, within chance."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(200):
        patcher = Additive([0.5], sequences=24)
        kept = torch.from_numpy(2 * 0.5 + 0.8 * rng.standard_normal((1, 24)))
        patcher.metric = lambda masks, found=1 + kept: found
        found = faithfulness(patcher, np.zeros((1, 1), dtype=bool))  # type: ignore[arg-type]
        hits += found.low[0] <= 0.5 <= found.high[0]
    assert 0.87 <= hits / 200 <= 0.99


def test_the_gap_is_drawn_anew_with_what_is_kept_of_it():
    """Half of every gap, however gaps vary, is half of every draw's: an interval of no width."""
    patcher = Additive([0.5], sequences=12, spread=1.0)
    assert float(patcher.clean_metric.std()) > 0.5
    found = faithfulness(patcher, np.zeros((1, 1), dtype=bool))  # type: ignore[arg-type]
    for side in (found.value, found.low, found.high):
        np.testing.assert_allclose(side, 0.5, rtol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.9 * MINIMUM_GAP, -2.0])
def test_without_a_gap_there_is_no_share_of_it(gap):
    patcher = Additive([0.5, 0.5], gap=gap)
    found = faithfulness(patcher, np.eye(2, dtype=bool))  # type: ignore[arg-type]
    for side in (found.value, found.low, found.high):
        assert np.isnan(side).all()


def test_areas_of_a_small_curve_by_hand(monkeypatch):
    """f = 0, 1.5, 1 at shares 0, 0.5, 1: CPR 0.375 + 0.625, CMD of 1, 0.5, 0: 0.375 + 0.125."""
    monkeypatch.setattr(module, "SHARES", (0.0, 0.5, 1.0))
    assert areas(np.array([0.0, 1.5, 1.0])) == pytest.approx((1.0, 0.5))


def test_areas_of_the_best_and_the_worst_ranking():
    width = SHARES[-1] - SHARES[0]
    assert areas(np.ones(len(SHARES))) == pytest.approx((width, 0))
    assert areas(np.zeros(len(SHARES))) == pytest.approx((0, width))


def test_rankings():
    values = np.array([0.1, -3.0, 2.0, 0.0])
    assert list(ranked(values, "absolute")) == [1, 2, 0, 3]
    assert list(ranked(values, "signed")) == [2, 0, 3, 1]
    with pytest.raises(ValueError, match="allowed: absolute, signed"):
        ranked(values, "by name")
    masks = top(ranked(values, "absolute"), np.array([0, 1, 3]))
    assert masks.astype(int).tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0]]


def test_a_curve_of_the_right_ranking_lies_above_random_ones():
    shares = np.zeros(1000)
    shares[[3, 500]] = 0.5
    found = curve(Additive(shares), shares)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.table.faithfulness, [0.5] + [1] * 9)
    assert list(found.table.edges) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert found.cpr > 0.99
    assert found.cmd < 0.01
    assert found.random_cpr < 0.7
    assert (found.table.random <= found.table.random_high + 1e-12).all()
    assert found.ranking == "absolute"


def test_a_wrong_ranking_is_seen():
    shares = np.zeros(1000)
    shares[[3, 500]] = 0.5
    found = curve(Additive(shares), 1 - shares)  # type: ignore[arg-type]
    assert found.cpr < 0.3


def test_the_whole_graph_of_a_model_is_faithful_and_none_of_it_is_not(monkeypatch):
    monkeypatch.setattr(module, "MINIMUM_GAP", -np.inf)  # random weights: any gap will do
    family, params, pair = made("transformer")
    patcher = EdgePatcher(family, params, graph(family, params, TIME, pair.final), pair)
    masks = np.array([[True], [False]]).repeat(len(patcher.graph.edges), 1)
    np.testing.assert_allclose(faithfulness(patcher, masks).value, [1, 0], atol=1e-9)
