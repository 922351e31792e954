"""Dense-SSM: a linear recurrence whose whole transition matrix is chosen by the token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.families.base import Params, Tap, no_tap
from training.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSSM:
    """h_t = A(x_t) h_(t-1), logits_t = h_t W_U + b_U (arXiv 2602.18333; theory section 7).

    A is linear in the token's embedding; with a small vocabulary that is one matrix per token. No
    additive term, no nonlinearity and no positions, so order enters by the products alone.

    width: d, of the state.
    learned_start: h_0 is trained, or stays where it was drawn.

    Parameters: transition.A (vocabulary, d, d), orthogonal at the start; state.h_0 (d,), norm 1
    at the start, and so every state's; unembed.W_U (d, vocabulary), standard deviation 1 / sqrt(d),
    so logits start small; unembed.b_U (vocabulary,), zero.
    Hooks: hook_state.{t}, (batch, d), the state after token t; what a hook returns is what the
    next step starts from.
    """

    width: int
    learned_start: bool = True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"DenseSSM: width: got {self.width}, allowed 1 or more")

    @property
    def frozen(self) -> tuple[str, ...]:
        return () if self.learned_start else ("state.h_0",)

    @property
    def any_length(self) -> bool:
        return True

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        d, v = self.width, task.vocabulary

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.float64)

        q, r = torch.linalg.qr(normal(v, d, d))
        signs = torch.sign(torch.diagonal(r, dim1=-2, dim2=-1))
        start = normal(d)
        params = {
            "transition.A": q * signs[:, None, :],
            "state.h_0": start / start.norm(),
            "unembed.W_U": normal(d, v) * d**-0.5,
            "unembed.b_U": torch.zeros(v, dtype=torch.float64),
        }
        return {name: value.to(dtype) for name, value in params.items()}

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        """One product per step: (h outer one-hot of x_t) with all matrices side by side."""
        a = params["transition.A"]
        vocabulary = a.shape[-3]
        side_by_side = a.transpose(-2, -1).flatten(-3, -2)
        chosen = functional.one_hot(tokens, vocabulary).to(a.dtype)[..., None]
        h = params["state.h_0"].unsqueeze(-2).expand(*tokens.shape[:-1], self.width)
        states = []
        for t, pick in enumerate(chosen.unbind(-3)):
            h = tap(f"hook_state.{t}", (pick * h.unsqueeze(-2)).flatten(-2) @ side_by_side)
            states.append(h)
        stacked = torch.stack(states, dim=-2)
        head, bias = params["unembed.W_U"], params["unembed.b_U"]
        logits = stacked.flatten(-3, -2) @ head + bias.unsqueeze(-2)
        return logits.unflatten(-2, tokens.shape[-2:])

    def hook_names(self, time: int) -> tuple[str, ...]:
        return tuple(f"hook_state.{t}" for t in range(time))
