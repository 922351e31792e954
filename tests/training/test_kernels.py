"""The two written-out pieces against what torch makes of them."""

import pytest
import torch

from training.families.kernels import attend, normalise


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def slow(q, kv, seen):
    k, v = kv.unbind(2)
    scores = torch.einsum("nrhw,nthw->nhrt", q, k) * q.shape[-1] ** -0.5
    hidden = (seen == 0).unsqueeze(-3)
    return torch.einsum("nhrt,nthw->nrhw", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


CAUSAL = torch.ones(5, 5, dtype=torch.float64).tril()
SEEN = {
    "one mask for all": CAUSAL,
    "some rows": CAUSAL[torch.tensor([[1, 4, 4], [0, 2, 3], [4, 4, 0]])],
    "holes": ((CAUSAL * torch.tensor([1.0, 1, 0, 1, 1])) + torch.eye(5))
    .clamp(max=1)
    .expand(3, 5, 5),
}


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("seen", SEEN.values(), ids=list(SEEN))
def test_attention_is_a_softmax_over_the_seen(seen, scale):
    """With scores far apart too, whose exponentials are cut off at e^-80."""
    seen = seen.double()
    q, kv = scale * drawn(3, seen.shape[-2], 2, 4), drawn(3, 5, 2, 2, 4)
    torch.testing.assert_close(attend(q, kv, seen), slow(q, kv, seen), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seen", SEEN.values(), ids=list(SEEN))
def test_gradients_are_those_of_finite_differences(seen):
    seen = seen.double()
    q, kv = drawn(3, seen.shape[-2], 2, 2).requires_grad_(), drawn(3, 5, 2, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: attend(a, b, seen), (q, kv))
    assert torch.autograd.gradcheck(lambda a: normalise(a, 1e-5), (drawn(3, 4).requires_grad_(),))


def test_a_normal_x_is_that_of_layer_norm():
    x = 3 + 5 * drawn(2, 3, 6)
    expected = torch.nn.functional.layer_norm(x, (6,), eps=1e-5)
    torch.testing.assert_close(normalise(x, 1e-5), expected, rtol=1e-12, atol=1e-12)
