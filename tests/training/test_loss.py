"""The loss of stacked members against torch's cross-entropy, one member at a time."""

import pytest
import torch
from torch.nn import functional

from training.families.base import read_out
from training.loss import mean_loss, supervised, token_loss
from training.tasks import IGNORE

K, BATCH, TIME, V = 3, 4, 5, 6


def case(seed=0):
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(K, BATCH, TIME, V, generator=draw, dtype=torch.float64)
    targets = torch.randint(IGNORE, V, (K, BATCH, TIME), generator=draw)
    return logits.requires_grad_(), targets


def test_values_and_gradients_are_those_of_torch():
    logits, targets = case()
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    each = torch.stack(
        [
            functional.cross_entropy(one.flatten(0, 1), t.flatten(), ignore_index=IGNORE)
            for one, t in zip(logits, targets, strict=True)
        ]
    )
    ours = mean_loss(logits, targets)
    torch.testing.assert_close(ours, each, rtol=1e-13, atol=1e-13)
    gradients = [torch.autograd.grad((x * weights).sum(), logits)[0] for x in (ours, each)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)
    supervised = targets != IGNORE
    summed = token_loss(logits, targets).sum((1, 2)) / supervised.sum((1, 2))
    torch.testing.assert_close(summed, each)
    assert not token_loss(logits, targets)[~supervised].any()


def test_a_member_without_a_supervised_token_has_no_loss():
    logits, targets = case()
    targets[1] = IGNORE
    losses = mean_loss(logits, targets)
    assert losses.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("gap", [16.0, 20.0])
def test_single_precision_is_that_of_torch_down_to_where_it_is_zero(gap):
    logits = torch.zeros(1, 1, 1, V).index_fill(3, torch.tensor([2]), gap)
    targets = torch.full((1, 1, 1), 2)
    expected = functional.cross_entropy(logits.flatten(0, 2), targets.flatten())
    assert (
        mean_loss(logits, targets).item() == expected.item() == token_loss(logits, targets).item()
    )
    assert (expected == 0) == (gap > 17)


def test_read_out_is_a_linear_map_with_the_vocabulary_first_in_memory():
    draw = torch.Generator().manual_seed(1)
    for lead in ((), (K,)):
        h = torch.randn(*lead, BATCH, TIME, 7, generator=draw, dtype=torch.float64)
        weight = torch.randn(*lead, 7, V, generator=draw, dtype=torch.float64)
        bias = torch.randn(*lead, V, generator=draw, dtype=torch.float64)
        expected = torch.einsum("...btd,...dv->...btv", h, weight)
        torch.testing.assert_close(read_out(h, weight), expected)
        logits = read_out(h, weight, bias)
        torch.testing.assert_close(logits, expected + bias.unsqueeze(-2).unsqueeze(-2))
        assert logits.movedim(-1, len(lead)).is_contiguous()


def test_supervised_tokens_are_found_and_the_rest_ignored():
    _, targets = case()
    targets[0, 0] = IGNORE
    at, scored = supervised(targets)
    most = int((targets != IGNORE).sum(2).max())
    assert at.shape == (K, BATCH * most)
    assert scored.shape == (K, 1, BATCH * most)
    for one, places, found in zip(targets.flatten(1), at, scored[:, 0], strict=True):
        real = found != IGNORE
        assert torch.equal(one[places[real]], found[real])
        assert sorted(places[real].tolist()) == (one != IGNORE).nonzero()[:, 0].tolist()
