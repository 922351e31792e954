"""What every model family is: a pure forward with taps, for one model or K stacked members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from training.tasks.base import Task

Params = Mapping[str, Tensor]
Tap = Callable[[str, Tensor], Tensor]


def no_tap(name: str, x: Tensor) -> Tensor:
    """The tap of training: nothing is read and nothing is changed."""
    return x


@runtime_checkable
class Family(Protocol):
    """A frozen value (its fields are its hyperparameters) that makes and runs parameters.

    Parameters are a flat mapping of name to tensor. Every parameter may carry one leading member
    axis; then tokens and positions carry it too: (K, batch, time), and logits are
    (K, batch, time, vocabulary).

    A family may also have `forward_last(params, tokens, positions)`, the logits at the last
    position alone, (..., batch, 1, vocabulary): training uses it where only that is supervised;
    and `forward_at(params, tokens, positions, at)`, the logits (K, 1, count, vocabulary) at the
    tokens `at` (K, count) of each member's batch * time, equally many of each sequence in turn:
    used where few are supervised.
    It may have `wiring(params, time)`, its nodes, readers and edges on sequences of `time` tokens
    (training.families.wiring), which circuits are made of.
    It may say with `hides` that a token with position id -1 is hidden from all others; training
    refuses tasks with such tokens otherwise. It may say with `any_length` whether it takes
    sequences longer than its task's; one that does not say is taken not to.
    """

    @property
    def frozen(self) -> tuple[str, ...]:
        """Names of parameters that are saved but never trained."""
        ...

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Parameters of one member; a function of its arguments alone."""
        ...

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        """Logits at every position; calls `tap(hook name, value)` wherever one may look or edit."""
        ...

    def hook_names(self, time: int) -> tuple[str, ...]:
        """Every name `forward` taps on sequences of `time` tokens."""
        ...


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """Rows of `table` (..., rows, width) at `index` (..., batch, time): (..., batch, time, width).

    The member axis of `table`, where there is one, is that of `index`. ValueError for an index
    outside the table: sequences longer than the model's context, or tokens it does not know.
    """
    rows, width = table.shape[-2:]
    check_tokens(index, rows)
    if table.ndim > 2:
        members = torch.arange(len(table), device=index.device) * rows
        index = index + members.view(-1, *(1,) * (index.ndim - 1))
    found = table.reshape(-1, width).index_select(0, index.reshape(-1))
    return found.view(*index.shape, width)


def check_tokens(index: Tensor, rows: int) -> None:
    """Raise ValueError for ids that a table of so many rows does not have."""
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < rows:
        raise ValueError(
            f"token or position ids run from {int(index.min())} to {int(index.max())}; this model "
            f"has 0 to {rows - 1} (its vocabulary or its context)"
        )


def read_out(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Logits h W + b: h (..., batch, time, width), weight (..., width, V), bias (..., V).

    Computed as (W^T h^T)^T: rows as short as a small vocabulary make the product five times as
    slow. So the last axis of what comes out is not the contiguous one.
    """
    y = weight.mT @ h.flatten(-3, -2).mT
    if bias is not None:
        y = y + bias.unsqueeze(-1)
    return y.unflatten(-1, h.shape[-3:-1]).movedim(-3, -1)
