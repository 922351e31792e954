"""What stands in place of the corrupted run, for every family."""

import numpy as np
import pytest
import torch

from circuits.ablation import ABLATIONS, ablation
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.pair import Pair, pairs
from training.families.dense_ssm import DenseSSM
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.transformer import Transformer
from training.tasks import ModularAddition

SUM = ModularAddition(modulus=4, lengths=(3,), format="acot")
FAMILIES = {
    "transformer": Transformer(layers=2, heads=2, width=8, init_std=0.5),
    "lstm": LSTM(width=5),
    "dense_ssm": DenseSSM(width=5),
    "mamba": Mamba(width=4, layers=2, state=3),
}


@pytest.fixture(params=FAMILIES)
def parts(request):
    family = FAMILIES[request.param]
    params = family.initialise(SUM, 0, torch.float64)
    pair = pairs(SUM, 11, 0)
    return family, params, graph(family, params, pair.clean.tokens.shape[1], pair.final), pair


@pytest.mark.parametrize("how", ABLATIONS)
def test_nothing_patched_is_the_clean_run_and_everything_is_the_ablated_one(parts, how):
    """So that faithfulness is 1 with every edge kept and 0 with none."""
    patcher = EdgePatcher(*parts, ablation(*parts, how))
    count = len(parts[2].edges)
    found = patcher.metric(np.array([np.zeros(count, bool), np.ones(count, bool)]))
    expected = torch.stack([patcher.clean_metric, patcher.corrupt_metric])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_with_everything_resampled_each_sequence_is_another_one(parts):
    pair = parts[3]
    instead = ablation(*parts, "resample", 0)
    patcher = EdgePatcher(*parts, instead)
    every = np.ones((1, len(parts[2].edges)), dtype=bool)
    logits = patcher.metric(every, lambda x: x[..., pair.final, :])[0]
    alone = patcher.metric(~every, lambda x: x[..., pair.final, :])[0]
    for row, found in enumerate(logits):
        same = [i for i, x in enumerate(alone) if torch.allclose(x, found, atol=1e-9)]
        assert same, "no clean sequence has these logits"
        assert all(pair.answers(pair.clean)[i] != pair.answers(pair.clean)[row] for i in same)
    other = ablation(*parts, "resample", 1)
    assert any(not torch.equal(other[name], instead[name]) for name in instead)


def test_means_are_means(parts):
    patcher = EdgePatcher(*parts)
    by_position, flat = (ablation(*parts, how) for how in ("mean per position", "mean"))
    for node in parts[2].nodes:
        value = patcher.clean[node.name]
        torch.testing.assert_close(by_position[node.name][0], value.mean(0))
    if type(parts[0]) is Transformer:
        head = flat["head 1.0"]
        torch.testing.assert_close(head, patcher.clean["head 1.0"].mean((0, 1), keepdim=True))
    else:
        state = "state 0." if type(parts[0]) is Mamba else "state "
        every = torch.cat([x for name, x in patcher.clean.items() if name.startswith(state)])
        torch.testing.assert_close(flat[f"{state}1"][0], every.mean(0))


def test_zero_is_zero_and_corrupted_is_nothing_else(parts):
    assert all((x == 0).all() for x in ablation(*parts, "zero").values())
    assert ablation(*parts, "corrupted") is None


def test_bad_input_is_refused(parts):
    with pytest.raises(ValueError, match="ablation is 'noise'; allowed: corrupted, mean"):
        ablation(*parts, "noise")
    pair = parts[3]
    one = Pair(clean=pair.clean[:1], corrupt=pair.corrupt[:1], sequences=1, final=pair.final)
    with pytest.raises(ValueError, match="two different sequences"):
        ablation(*parts[:3], one, "resample")
