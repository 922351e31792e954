"""LSTM: one layer with gates between an embedding and a linear head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from training.families.base import Params, Tap, check_tokens, lookup, no_tap, read_out
from training.families.wiring import Node, Reader, Wiring
from training.tasks.base import Task

GATES = ("i", "f", "g", "o")
"""In the order in which their weights lie side by side."""


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
    Hooks at step t, (batch, width) each, or (batch, 4, width) with the gates side by side:
    hook_embed.{t}, x_t; hook_token_in.{t} and hook_state_in.{t}, x_t and h_(t-1) as each gate reads
    them; hook_gate.{t}, (i, f, g, o); hook_cell_in.{t}, c_(t-1); hook_cell.{t}, c_t;
    hook_cell_out.{t}, c_t as h_t reads it; hook_state.{t}, h_t; hook_read_out.{t}, h_t as the head
    reads it. What hook_cell and hook_state return is what this step and the next go on from.
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
        """With few tokens, x_t W_x + b is a row of one table, made for the whole sequence."""
        table = params["embed.W_E"] @ params["lstm.W_x"] + params["lstm.b"].unsqueeze(-2)
        check_tokens(tokens, table.shape[-2])
        weights = (table, params["lstm.W_h"], params["unembed.W_U"], params["unembed.b_U"])
        if tap is not no_tap:
            return self._step_by_step(params, tokens, tap)
        if table.ndim == 3:
            return _Fast.apply(*weights, tokens)  # type: ignore[return-value]
        alone: Tensor = _Fast.apply(*(w[None] for w in weights), tokens[None])  # type: ignore
        return alone[0]

    def _step_by_step(self, params: Params, tokens: Tensor, tap: Tap) -> Tensor:
        embedded = lookup(params["embed.W_E"], tokens)
        bias = params["lstm.b"].unsqueeze(-2)
        h = c = embedded.new_zeros(*tokens.shape[:-1], self.width)
        states = []
        for t, x in enumerate(embedded.unbind(-2)):
            x = self._by_gate(
                tap, f"hook_token_in.{t}", tap(f"hook_embed.{t}", x), params["lstm.W_x"]
            )
            x = x + self._by_gate(tap, f"hook_state_in.{t}", h, params["lstm.W_h"]) + bias
            i, f, g, o = x.chunk(4, dim=-1)
            gates = torch.stack([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], dim=-2)
            i, f, g, o = tap(f"hook_gate.{t}", gates).unbind(-2)
            c = tap(f"hook_cell.{t}", f * tap(f"hook_cell_in.{t}", c) + i * g)
            h = tap(f"hook_state.{t}", o * tap(f"hook_cell_out.{t}", c).tanh())
            states.append(tap(f"hook_read_out.{t}", h))
        return read_out(torch.stack(states, dim=-2), params["unembed.W_U"], params["unembed.b_U"])

    def _by_gate(self, tap: Tap, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """x (..., batch, width) through the gates' weights side by side; a gate of its own where
        somebody edits what it reads."""
        whole = x.unsqueeze(-2).expand(*x.shape[:-1], len(GATES), self.width)
        read = tap(name, whole)
        if read is whole:
            return x @ weight
        apart = weight.unflatten(-1, (len(GATES), self.width))
        return torch.einsum("...bgd,...dge->...bge", read, apart).flatten(-2)

    def hook_names(self, time: int) -> tuple[str, ...]:
        parts = ("embed", "token_in", "state_in", "gate", "cell_in", "cell", "cell_out", "state")
        parts += ("read_out",)
        return tuple(f"hook_{part}.{t}" for t in range(time) for part in parts)

    def wiring(self, params: Params, time: int) -> Wiring:
        """Tokens, gates, cells and states at each step."""
        nodes: list[Node] = []
        readers: list[Reader] = []

        def reads(name: str, tap: str, feeds: str, source: str, part: int | None = None) -> None:
            readers.append(
                Reader(name=f"{feeds} {name}", tap=tap, part=part, feeds=feeds, sources=(source,))
            )

        for t in range(time):
            nodes.append(Node(name=f"token {t}", tap=f"hook_embed.{t}"))
            for part, gate in enumerate(GATES):
                reads("token", f"hook_token_in.{t}", f"{gate} {t}", f"token {t}", part)
            for part, gate in enumerate(GATES if t else ()):
                reads("state", f"hook_state_in.{t}", f"{gate} {t}", f"state {t - 1}", part)
            for part, gate in enumerate(GATES):
                nodes.append(Node(name=f"{gate} {t}", tap=f"hook_gate.{t}", part=part))
            for part, gate in enumerate(GATES[:-1]):
                reads(gate, f"hook_gate.{t}", f"cell {t}", f"{gate} {t}", part)
            if t:
                reads("cell", f"hook_cell_in.{t}", f"cell {t}", f"cell {t - 1}")
            nodes.append(Node(name=f"cell {t}", tap=f"hook_cell.{t}"))
            last = len(GATES) - 1
            reads(GATES[-1], f"hook_gate.{t}", f"state {t}", f"{GATES[-1]} {t}", last)
            reads("cell", f"hook_cell_out.{t}", f"state {t}", f"cell {t}")
            nodes.append(Node(name=f"state {t}", tap=f"hook_state.{t}"))
            readers.append(
                Reader(
                    name=f"logits {t}",
                    tap=f"hook_read_out.{t}",
                    feeds="logits",
                    sources=(f"state {t}",),
                )
            )
        return Wiring(nodes=tuple(nodes), readers=tuple(readers))


class _Fast(Function):
    """The logits of K members and their gradient, written out.

    States are columns: (K, d, batch), below them the one-hot tokens, so that one product with
    (W_h; table)^T gives the gates (K, 4 d, batch), each gate's entries side by side in memory.
    tanh x = 2 sig(2 x) - 1 throughout (a CPU takes five times as long for its tanh), the first
    factor 2 being in the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, recurrent: Tensor, head: Tensor, bias: Tensor, tokens: Tensor
    ) -> Tensor:
        """table (K, V, 4 d), recurrent (K, d, 4 d), head (K, d, V), bias (K, V), tokens (K, batch,
        time): logits (K, batch, time, V)."""
        members, d, _ = recurrent.shape
        _, batch, time = tokens.shape
        weights = _doubled(torch.cat([recurrent, table], dim=1))
        columns = _columns(tokens, d, table)
        states = columns[1:, :, :d]
        gates = table.new_empty(time, members, 4 * d, batch)
        cells = table.new_zeros(time + 1, members, d, batch)
        entry, bent = torch.empty_like(cells[1:]), torch.empty_like(cells[1:])
        minus_one, enters = table.new_tensor(-1.0), weights.mT
        for t, (i, f, g, o) in enumerate(zip(*gates.chunk(4, dim=2), strict=True)):
            torch.bmm(enters, columns[t], out=gates[t]).sigmoid_()
            torch.add(minus_one, g, alpha=2, out=entry[t])
            c = torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, entry[t])
            torch.add(minus_one, torch.add(c, c).sigmoid_(), alpha=2, out=bent[t])
            torch.mul(o, bent[t], out=states[t])
        ctx.save_for_backward(weights, head, columns, gates, cells, entry, bent)
        logits = torch.matmul(head.mT, states) + bias[..., None]
        return logits.permute(1, 3, 0, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, head, columns, gates, cells, entry, bent = ctx.saved_tensors
        outer = gradients[0].permute(2, 0, 3, 1).contiguous()
        d = head.shape[1]
        one, zero = weights.new_tensor(1.0), weights.new_tensor(0.0)
        incoming, back = torch.matmul(head, outer), weights[:, :d]
        slope, dc = torch.zeros_like(weights), torch.zeros_like(cells[0])
        before, after, straight = (torch.empty_like(x) for x in (gates[0], gates[0], dc))
        d_i, d_f, d_g, d_o = after.chunk(4, dim=1)
        steps = list(zip(*gates.chunk(4, dim=2), strict=True))
        for t in reversed(range(len(steps))):
            (i, f, _, o), dh, e = steps[t], incoming[t], bent[t]
            torch.addcmul(one, e, e, value=-1, out=straight)
            dc.addcmul_(straight.mul_(o), dh)
            torch.mul(dc, entry[t], out=d_i)
            torch.mul(dc, cells[t], out=d_f)
            torch.addcmul(zero, dc, i, value=2, out=d_g)
            torch.mul(dh, e, out=d_o)
            torch.addcmul(gates[t], gates[t], gates[t], value=-1, out=before).mul_(after)
            slope.baddbmm_(columns[t], before.mT)
            if t:
                incoming[t - 1].baddbmm_(back, before)
                dc.mul_(f)
        d_head = torch.matmul(outer, columns[1:, :, :d].mT).sum(0).mT
        recurrent, table = _doubled(slope).split([d, slope.shape[1] - d], dim=1)
        return table, recurrent, d_head, outer.sum((0, 3)), None


def _doubled(weights: Tensor) -> Tensor:
    """Weights (K, in, 4 d) with those of the third gate, g, twice as large."""
    i, f, g, o = weights.chunk(4, dim=2)
    return torch.cat([i, f, 2 * g, o], dim=2)


def _columns(tokens: Tensor, d: int, table: Tensor) -> Tensor:
    """(time + 1, K, d + V, batch): room for h_(t-1), 0 at first, over the one-hot x_t."""
    members, batch, time = tokens.shape
    vocabulary = table.shape[1]
    columns = table.new_zeros(time + 1, members, d + vocabulary, batch)
    columns[:-1, :, d:].scatter_(2, tokens.permute(2, 0, 1)[:, :, None], 1.0)
    return columns
