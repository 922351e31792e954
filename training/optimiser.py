"""SGD, Adam and AdamW on one flat vector that holds the parameters of all stacked members.

Elementwise, so one kernel call serves every tensor of every member; what differs between members
(learning rate, weight decay) is a vector of the same length. The updates are torch.optim's; a test
compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.config import Optimiser

EPSILON = 1e-8
"""Added to the root of Adam's second moment, as in torch.optim."""


def slots(rule: Optimiser) -> tuple[str, ...]:
    """Names of the vectors that the rule carries from step to step, as torch.optim names them."""
    if rule.name == "sgd":
        return ("momentum_buffer",) if rule.momentum else ()
    return ("exp_avg", "exp_avg_sq")


@dataclass(slots=True, kw_only=True)
class FlatOptimiser:
    """The rule with its state, for one flat parameter vector of length n.

    rule: its lr and weight_decay are not read; the vectors `lr` and `weight_decay` (n,) are, since
    members differ in them. weight_decay None: no member has any. state: one vector (n,) per slot.
    """

    rule: Optimiser
    lr: Tensor
    weight_decay: Tensor | None
    state: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in slots(self.rule):
            self.state.setdefault(name, torch.zeros_like(self.lr))

    def update(self, parameters: Tensor, gradient: Tensor, step: int) -> None:
        """Change `parameters` in place, from step - 1 to `step` (the first is 1)."""
        if self.weight_decay is not None:
            if self.rule.name == "adamw":
                parameters.mul_(1 - self.lr * self.weight_decay)
            else:
                gradient = torch.addcmul(gradient, parameters, self.weight_decay)
        if self.rule.name == "sgd":
            self._sgd(parameters, gradient)
        else:
            self._adam(parameters, gradient, step)

    def _sgd(self, parameters: Tensor, gradient: Tensor) -> None:
        if self.rule.momentum:
            gradient = self.state["momentum_buffer"].mul_(self.rule.momentum).add_(gradient)
        parameters.addcmul_(gradient, self.lr, value=-1)

    def _adam(self, parameters: Tensor, gradient: Tensor, step: int) -> None:
        first, second = self.rule.betas
        mean = self.state["exp_avg"].lerp_(gradient, 1 - first)
        square = self.state["exp_avg_sq"].mul_(second)
        square.addcmul_(gradient, gradient, value=1 - second)
        scale = square.sqrt().div_((1 - second**step) ** 0.5).add_(EPSILON)
        parameters.addcmul_(mean.div(scale), self.lr, value=-1 / (1 - first**step))
