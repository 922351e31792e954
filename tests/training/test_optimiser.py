"""The flat optimisers against torch.optim, member by member."""

import pytest
import torch

from training.config import Optimiser
from training.optimiser import FlatOptimiser

RULES = [
    ({"name": "sgd"}, torch.optim.SGD, {}),
    ({"name": "sgd", "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    ({"name": "adam"}, torch.optim.Adam, {}),
    ({"name": "adam", "betas": (0.8, 0.95)}, torch.optim.Adam, {"betas": (0.8, 0.95)}),
    ({"name": "adamw"}, torch.optim.AdamW, {}),
]


@pytest.mark.parametrize(("rule", "reference", "options"), RULES)
@pytest.mark.parametrize("decays", [(0.0, 0.0), (0.1, 0.03)])
def test_each_member_moves_as_torch_optim_moves_it(rule, reference, options, decays):
    rates, size, draw = (0.02, 0.3), 5, torch.Generator().manual_seed(0)
    start = torch.randn(2, size, generator=draw, dtype=torch.float64)
    singles = [start[i].clone().requires_grad_() for i in range(2)]
    torch_rules = [
        reference([single], lr=lr, weight_decay=decay, **options)
        for single, lr, decay in zip(singles, rates, decays, strict=True)
    ]
    flat = start.clone().reshape(-1)

    def per_element(values):
        return torch.tensor(values, dtype=torch.float64).repeat_interleave(size)

    decay = per_element(decays) if any(decays) else None
    ours = FlatOptimiser(rule=Optimiser(**rule), lr=per_element(rates), weight_decay=decay)
    for step in range(1, 31):
        gradients = torch.randn(2, size, generator=draw, dtype=torch.float64)
        for i in range(2):
            singles[i].grad = gradients[i].clone()
            torch_rules[i].step()
        ours.update(flat, gradients.reshape(-1), step)
    expected = torch.stack([single.detach() for single in singles])
    torch.testing.assert_close(flat.view(2, size), expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(expected, start)
