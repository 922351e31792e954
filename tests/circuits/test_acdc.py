"""ACDC against the loop it is, and learned masks, on models whose circuit is known."""

import numpy as np
import pytest
import torch

from circuits import acdc as module
from circuits import circuit
from circuits.acdc import acdc, loss_of
from circuits.circuit import _random, find_circuit
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.learned_mask import _gated, learned_mask
from circuits.pair import pairs
from tests.circuits.toy import BACKUP, TRUE, toy_patcher
from training.families.lstm import LSTM
from training.families.transformer import Transformer
from training.tasks import ModularAddition

SUM = ModularAddition(modulus=3, lengths=(3,), format="acot")
METHODS = {
    "ACDC, KL": lambda x: acdc(x, 0.01),
    "ACDC, logits": lambda x: acdc(x, 0.1, measure="logit difference"),
    "learned mask, KL": lambda x: learned_mask(x, 0.05, steps=120, rate=0.2),
    "learned mask, logits": lambda x: learned_mask(
        x, 0.5, measure="logit difference", steps=120, rate=0.2
    ),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
FAMILIES = {
    "transformer": Transformer(layers=2, heads=2, width=8, init_std=0.7),
    "lstm": LSTM(width=6),
}


def patcher_of(name):
    family = FAMILIES[name]
    params = {n: 3 * x for n, x in family.initialise(SUM, 0, torch.float64).items()}
    pair = pairs(SUM, 12, 0)
    return EdgePatcher(family, params, graph(family, params, 3, 2), pair)


@methods
def test_the_planted_circuit_is_found_and_nothing_else(method):
    found = method(toy_patcher())
    assert set(found.edges) == set(TRUE)
    assert found.faithfulness[0] == pytest.approx(1.0)


@pytest.mark.parametrize("method", METHODS)
def test_one_of_two_backups_is_enough(method):
    """ACDC keeps one; gates that may be shut by chance can find a second one worth its price."""
    edges = set(METHODS[method](toy_patcher(backup=True, how="zero")).edges)
    ways = [set(TRUE), {TRUE[0], *BACKUP}]
    assert edges <= ways[0] | ways[1]
    assert edges in ways if method.startswith("ACDC") else any(way <= edges for way in ways)


@methods
def test_nothing_is_found_where_nothing_is_learnt(method):
    found = method(toy_patcher(gain=0.0))
    assert not found.defined
    assert found.edges == ()


FINDERS = {**METHODS, "exact": lambda x: find_circuit(x, "exact")}


@pytest.mark.parametrize("method", FINDERS.values(), ids=FINDERS)
def test_a_circuit_is_judged_on_sequences_it_was_not_chosen_on(method, monkeypatch):
    """Every second answer is 8 before and -8 after; the others, said to be 16 and -8 but never more
    than 8 when patched: a share of 1 of the first, and of 2/3 of those that judge."""
    monkeypatch.setattr(circuit, "RANDOM", 200)  # of 84 sets of three: some carry the answer
    patcher = toy_patcher(20)
    patcher.clean_metric = patcher.clean_metric.clone()
    patcher.clean_metric[1::2] *= 2
    found = method(patcher)
    assert set(found.edges) == set(TRUE)
    assert found.scores.gap == pytest.approx(16)
    assert found.faithfulness == pytest.approx((2 / 3,) * 3)
    np.testing.assert_allclose(found.minimality.fall, 2 / 3)
    assert found.completeness == pytest.approx(1)
    last = found.curve.table.iloc[-1]
    assert (last.faithfulness, last.random) == pytest.approx((2 / 3, 2 / 3))
    _, other = patcher.halves()
    assert found.random == _random(other, len(TRUE), 0)
    assert found.random[0] > 0
    assert found.random != _random(patcher, len(TRUE), 0)
    assert "judged on 10 other sequences than it was found on" in found.note


def test_few_sequences_are_not_halved_and_it_says_so():
    assert "judged on the 9 sequences it was found on" in find_circuit(toy_patcher(9), "exact").note


def test_attribution_finds_the_same():
    """Of the same edges, so that they can be compared."""
    patcher = toy_patcher()
    assert find_circuit(patcher, "exact").edges == acdc(patcher, 0.01).edges


def slowly(patcher, threshold, measure):
    """One edge after the other, one forward each."""
    here, worse = patcher.graph, loss_of(patcher, measure)
    removed = np.zeros(len(here.edges), dtype=bool)
    worth = np.zeros(len(here.edges))
    for reader in reversed(here.readers):
        columns = range(len(here.edges))[here.columns[reader.name]]
        for i in reversed(columns):
            now = patcher.metric(removed[None], worse)[0].mean()
            removed[i] = True
            worth[i] = patcher.metric(removed[None], worse)[0].mean() - now
            removed[i] = worth[i] < threshold
    return ~removed, worth


@pytest.mark.parametrize("name", FAMILIES)
def test_several_at_once_are_as_one_by_one(name, monkeypatch):
    patcher, measure = patcher_of(name), "KL"
    each = np.eye(len(patcher.graph.edges), dtype=bool)
    alone = patcher.metric(each, loss_of(patcher, measure)).mean(1).numpy()
    alone -= patcher.metric(0 * each[:1] > 0, loss_of(patcher, measure)).mean().item()
    threshold = float(np.quantile(alone[alone > 1e-6], 0.6))
    kept, worth = slowly(patcher, threshold, measure)
    assert 2 < kept.sum() < len(kept) - 2
    for together in (1, 3, 8):
        monkeypatch.setattr(module, "_TOGETHER", together)
        found, rise = module.search(patcher, threshold, loss_of(patcher, measure))
        np.testing.assert_array_equal(patcher.graph.connected(found), patcher.graph.connected(kept))
        tried = rise.abs().sum(1).numpy() > 0
        np.testing.assert_allclose(rise.mean(1).numpy()[tried], worth[tried], atol=1e-10)
        assert np.abs(worth[~tried]).max(initial=0) < threshold, "led to what was gone"


def test_a_higher_threshold_keeps_less_and_nothing_in_the_end():
    patcher = patcher_of("transformer")
    sizes = [
        module.search(patcher, tau, loss_of(patcher, "KL"))[0].sum() for tau in (1e-5, 0.003, 1e6)
    ]
    assert sizes[0] > sizes[1] > sizes[2] == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_gates_that_are_open_or_shut_are_edges_kept_or_patched(name):
    patcher = patcher_of(name)
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 1.0):
        patched = rng.random(len(patcher.graph.edges)) < share
        z = torch.from_numpy(~patched).double()
        expected = patcher.metric(patched[None])[0]
        torch.testing.assert_close(patcher.pair.metric(_gated(patcher, z)), expected)


def test_the_divergence_is_that_of_the_definition():
    patcher = patcher_of("transformer")
    masks = np.eye(len(patcher.graph.edges), dtype=bool)[-3:]
    logits = patcher.metric(masks, lambda x: x[..., patcher.pair.final, :])
    whole = patcher.metric(0 * masks[:1] > 0, lambda x: x[..., patcher.pair.final, :])
    p, q = (
        torch.distributions.Categorical(logits=whole),
        torch.distributions.Categorical(logits=logits),
    )
    expected = torch.distributions.kl_divergence(p, q)
    torch.testing.assert_close(patcher.metric(masks, loss_of(patcher, "KL")), expected)


def test_a_seed_gives_one_mask():
    patcher = toy_patcher()
    one, again = (learned_mask(patcher, 0.05, seed=3, steps=50).scores.values for _ in range(2))
    np.testing.assert_array_equal(one, again)


def test_bad_input_is_refused():
    patcher = toy_patcher()
    with pytest.raises(ValueError, match=r"threshold is 0; allowed: above 0, such as 0\.01 nats"):
        acdc(patcher, 0)
    with pytest.raises(ValueError, match="measure is 'loss'; allowed: KL, logit difference"):
        acdc(patcher, 0.1, measure="loss")
    with pytest.raises(ValueError, match="price is 0"):
        learned_mask(patcher, 0)
    with pytest.raises(ValueError, match="steps is 0"):
        learned_mask(patcher, 0.1, steps=0)
