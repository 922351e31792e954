"""Dense-SSM: a linear recurrence whose whole transition matrix is chosen by the token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from training.families.base import Params, Tap, check_tokens, no_tap, read_out
from training.families.wiring import Node, Reader, Wiring
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
    Hooks at step t: hook_embed.{t}, (batch, vocabulary), the token's one-hot row, in which A is
    linear; hook_state_in.{t}, the state that A(x_t) multiplies; hook_state.{t}, (batch, d), the
    state after token t, which is what the next step starts from; hook_read_out.{t}, that state as
    the read-out sees it.
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
        """One product per step, of the state with all matrices side by side."""
        a, start = params["transition.A"], params["state.h_0"]
        if tap is no_tap:
            stacked = a.ndim == 4
            some = (a, start, tokens) if stacked else (a[None], start[None], tokens[None])
            states: Tensor = _Scan.apply(*some)  # type: ignore[assignment]
            states = states if stacked else states[0]
        else:
            states = self._step_by_step(a, start, tokens, tap)
        return read_out(states, params["unembed.W_U"], params["unembed.b_U"])

    def _step_by_step(self, a: Tensor, start: Tensor, tokens: Tensor, tap: Tap) -> Tensor:
        """States (..., batch, time, d), each handed to its hook: the state outer the one-hot x_t,
        times all matrices side by side."""
        side_by_side = a.mT.flatten(-3, -2)
        chosen = functional.one_hot(tokens, a.shape[-3]).to(a.dtype)
        h = start.unsqueeze(-2).expand(*tokens.shape[:-1], self.width)
        states = []
        for t, one_hot in enumerate(chosen.unbind(-2)):
            pick = tap(f"hook_embed.{t}", one_hot).unsqueeze(-1)
            h = tap(f"hook_state_in.{t}", h)
            h = tap(f"hook_state.{t}", (pick * h.unsqueeze(-2)).flatten(-2) @ side_by_side)
            states.append(tap(f"hook_read_out.{t}", h))
        return torch.stack(states, dim=-2)

    def hook_names(self, time: int) -> tuple[str, ...]:
        parts = ("embed", "state_in", "state", "read_out")
        return tuple(f"hook_{part}.{t}" for t in range(time) for part in parts)

    def wiring(self, params: Params, time: int) -> Wiring:
        """Tokens and states at each step; a state reads its token and the state before."""
        nodes, readers = [], []
        for t in range(time):
            state = f"state {t}"
            nodes += [
                Node(name=f"token {t}", tap=f"hook_embed.{t}"),
                Node(name=state, tap=f"hook_state.{t}"),
            ]
            readers.append(
                Reader(
                    name=f"{state} token",
                    tap=f"hook_embed.{t}",
                    feeds=state,
                    sources=(f"token {t}",),
                )
            )
            if t:
                readers.append(
                    Reader(
                        name=f"{state} state",
                        tap=f"hook_state_in.{t}",
                        feeds=state,
                        sources=(f"state {t - 1}",),
                    )
                )
            readers.append(
                Reader(
                    name=f"logits {t}", tap=f"hook_read_out.{t}", feeds="logits", sources=(state,)
                )
            )
        return Wiring(nodes=tuple(nodes), readers=tuple(readers))


class _Scan(Function):
    """The states of K members and their gradient, written out.

    A step multiplies the state by every matrix and keeps the rows of x_t's: the products are V
    times as many as needed, and still several times as fast as a matrix gathered for each
    sequence. Backwards the same way.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, start: Tensor, tokens: Tensor) -> Tensor:
        """a (K, V, d, d), start (K, d), tokens (K, batch, time): states (K, batch, time, d)."""
        members, vocabulary, d, _ = a.shape
        _, batch, time = tokens.shape
        check_tokens(tokens, vocabulary)
        wide = a.reshape(members, vocabulary * d, d)
        rows = tokens.permute(2, 0, 1).reshape(time, -1)
        rows = rows + torch.arange(members * batch, device=a.device) * vocabulary
        states = a.new_empty(time + 1, members, batch, d)
        states[0] = start[:, None]
        every = a.new_empty(members, batch, vocabulary * d)
        for t in range(time):
            torch.bmm(states[t], wide.mT, out=every)
            torch.index_select(every.view(-1, d), 0, rows[t], out=states[t + 1].view(-1, d))
        ctx.save_for_backward(wide, rows, states)
        return states[1:].permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        wide, rows, states = ctx.saved_tensors
        (g,) = gradients
        members, wide_rows, d = wide.shape
        incoming = g.permute(2, 0, 1, 3).contiguous()
        # The gradient of one step's product before rows were kept: zero in all other rows.
        spread = wide.new_zeros(members, states.shape[2], wide_rows)
        slope = torch.zeros_like(wide)
        total = incoming[-1]
        for t in reversed(range(len(rows))):
            spread.view(-1, d).index_copy_(0, rows[t], total.view(-1, d))
            slope.baddbmm_(spread.mT, states[t])
            total = torch.bmm(spread, wide)
            if t:
                total += incoming[t - 1]
                spread.zero_()
        return slope.view(members, -1, d, d), total.sum(1), None
