"""LSTM: one layer with gates between an embedding and a linear head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.families.base import Params, Tap, lookup, no_tap
from training.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTM:
    """c_t = f c_(t-1) + i g, h_t = o tanh(c_t), logits_t = h_t W_U + b_U (arXiv 2602.18333).

    (i, f, g, o) = (sig, sig, tanh, sig) of x_t W_x + h_(t-1) W_h + b, with x_t the token's
    embedding, sig the logistic function, and h and c zero before the first token. This is
    torch.nn.LSTM with one layer, whose two biases, always added, are one here. No positions.

    width: of the embedding, of h and of c.

    Parameters: embed.W_E (vocabulary, width), standard normal at the start as in nn.Embedding;
    lstm.W_x and lstm.W_h (width, 4 width) and lstm.b (4 width,), the gates side by side in the
    order i, f, g, o, uniform within 1 / sqrt(width) as in nn.LSTM (b the sum of two such);
    unembed.W_U (width, vocabulary) and unembed.b_U (vocabulary,), uniform in the same range as in
    nn.Linear.
    Hooks, (batch, width) each: hook_cell.{t}, c_t, then hook_state.{t}, h_t; what a hook returns
    is what this step's h and the next step go on from.
    """

    width: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"LSTM: width: got {self.width}, allowed 1 or more")

    @property
    def frozen(self) -> tuple[str, ...]:
        return ()

    @property
    def any_length(self) -> bool:
        return True

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        d, v = self.width, task.vocabulary

        def uniform(*shape: int) -> Tensor:
            return (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * d**-0.5

        params = {
            "embed.W_E": torch.randn((v, d), generator=draw, dtype=torch.float64),
            "lstm.W_x": uniform(d, 4 * d),
            "lstm.W_h": uniform(d, 4 * d),
            "lstm.b": uniform(4 * d) + uniform(4 * d),
            "unembed.W_U": uniform(d, v),
            "unembed.b_U": uniform(v),
        }
        return {name: value.to(dtype) for name, value in params.items()}

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        """With few tokens, x_t W_x + b is a row of one table, looked up for all steps at once."""
        bias = params["lstm.b"].unsqueeze(-2)
        table = params["embed.W_E"] @ params["lstm.W_x"] + bias
        inputs, recurrent = lookup(table, tokens), params["lstm.W_h"]
        h = c = inputs.new_zeros(*tokens.shape[:-1], self.width)
        states = []
        for t, x in enumerate(inputs.unbind(-2)):
            i, f, g, o = (x + h @ recurrent).chunk(4, dim=-1)
            c = tap(f"hook_cell.{t}", f.sigmoid() * c + i.sigmoid() * g.tanh())
            h = tap(f"hook_state.{t}", o.sigmoid() * c.tanh())
            states.append(h)
        stacked = torch.stack(states, dim=-2)
        head, bias = params["unembed.W_U"], params["unembed.b_U"]
        logits = stacked.flatten(-3, -2) @ head + bias.unsqueeze(-2)
        return logits.unflatten(-2, tokens.shape[-2:])

    def hook_names(self, time: int) -> tuple[str, ...]:
        return tuple(f"hook_{part}.{t}" for t in range(time) for part in ("cell", "state"))
