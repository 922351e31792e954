"""K members of equal shape as one set of tensors with a leading member axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.config import RunConfig
from training.loss import mean_loss, supervised, token_loss
from training.memory import keep_freed_memory
from training.optimiser import FlatOptimiser, slots
from training.tasks import IGNORE, Batch

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CHUNK = 4096
"""Sequences, over all members, that one forward of an evaluation takes."""
FEW = 0.9
"""Share of supervised tokens below which a family's `forward_at` is used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """What one member brings into a stack: its configuration, weights and optimiser's vectors.

    weights: name -> array, frozen ones included. optimiser: "slot.name" -> array; empty before the
    first step.
    """

    config: RunConfig
    weights: Mapping[str, np.ndarray]
    optimiser: Mapping[str, np.ndarray]


class Stack:
    """Parameters of K members: each name a tensor (K, ...), all trained ones views of one vector.

    The loss is the sum over members of each one's mean cross-entropy over its supervised tokens, so
    that each member's gradient is that of its own loss alone.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        keep_freed_memory()
        first = members[0].config
        self.configs = [member.config for member in members]
        self.family = first.family
        self.device = torch.device(first.device)
        dtype = DTYPES[first.dtype]
        frozen = set(first.family.frozen)
        self._names = [name for name in members[0].weights if name not in frozen]
        self._shapes = {name: members[0].weights[name].shape for name in self._names}

        def flat(vectors: Sequence[Sequence[np.ndarray]]) -> Tensor:
            """Arrays [name][member] as one vector, name by name."""
            blocks = [np.stack(block).ravel() for block in vectors]
            return torch.from_numpy(np.concatenate(blocks)).to(self.device, dtype)

        def per_member(values: Sequence[float]) -> Tensor:
            sizes = torch.tensor([math.prod(shape) for shape in self._shapes.values()])
            repeats = sizes.repeat_interleave(len(values))
            every = torch.tensor(values, dtype=dtype).repeat(len(sizes))
            return every.repeat_interleave(repeats).to(self.device)

        self._flat = flat([[m.weights[name] for m in members] for name in self._names])
        self._frozen = {
            name: torch.from_numpy(np.stack([m.weights[name] for m in members])).to(
                self.device, dtype
            )
            for name in members[0].weights
            if name in frozen
        }
        decay = [config.optimiser.weight_decay for config in self.configs]
        state = {
            slot: flat([[m.optimiser[f"{slot}.{name}"] for m in members] for name in self._names])
            for slot in slots(first.optimiser)
            if members[0].optimiser
        }
        self._optimiser = FlatOptimiser(
            rule=first.optimiser,
            lr=per_member([config.optimiser.lr for config in self.configs]),
            weight_decay=per_member(decay) if any(decay) else None,
            state=state,
        )
        self._trained = self._views(self._flat, leaf=True)
        self._gradient: Tensor | None = None

    def __len__(self) -> int:
        return len(self.configs)

    def _views(self, flat: Tensor, leaf: bool = False) -> dict[str, Tensor]:
        """The vector cut into (K, ...) tensors that share its memory."""
        views, start = {}, 0
        for name, shape in self._shapes.items():
            size = len(self) * math.prod(shape)
            view = flat[start : start + size].view(len(self), *shape).detach()
            views[name] = view.requires_grad_() if leaf else view
            start += size
        return views

    def step(self, batches: Sequence[Batch], step: int) -> tuple[Tensor, dict[int, float]]:
        """One update of every member, from step - 1 to `step`, on one batch each.

        Returns the training losses (K,), float64, and {member: gradient norm} of those whose loss
        or gradient is not finite; their parameters are spoilt, the others' are right.
        """
        tokens, positions, targets = self._tensors(batches)
        losses = self._losses(tokens, positions, targets)
        gradients = torch.autograd.grad(
            losses.sum(), list(self._trained.values()), allow_unused=True, materialize_grads=True
        )
        gradient = torch.cat([g.reshape(-1) for g in gradients])
        self._gradient = gradient
        losses = losses.detach()
        diverged: dict[int, float] = {}
        if not math.isfinite(float(gradient.sum() + losses.sum())):
            norms = torch.tensor(self.gradient_norms(), dtype=torch.float64)
            bad = ~(torch.isfinite(norms) & torch.isfinite(losses.cpu()))
            diverged = {i: float(norms[i]) for i in torch.nonzero(bad).flatten().tolist()}
        with torch.no_grad():
            self._optimiser.update(self._flat, gradient, step)
        return losses.double().cpu(), diverged

    def _losses(self, tokens: Tensor, positions: Tensor, targets: Tensor) -> Tensor:
        """Each member's loss (K,), with no more logits than it needs where the family can."""
        family: Any = self.family
        params = self._trained | self._frozen
        if hasattr(family, "forward_last") and not (targets[..., :-1] != IGNORE).any():
            return mean_loss(family.forward_last(params, tokens, positions), targets[..., -1:])
        if hasattr(family, "forward_at"):
            at, scored = supervised(targets)
            if at.shape[1] < FEW * targets[0].numel():
                return mean_loss(family.forward_at(params, tokens, positions, at), scored)
        return mean_loss(family.forward(params, tokens, positions), targets)

    def gradient_norms(self) -> list[float]:
        """Each member's norm of the gradient of the last step; empty before the first."""
        if self._gradient is None:
            return []
        parts = [view.flatten(1).double() for view in self._views(self._gradient).values()]
        return torch.cat(parts, dim=1).norm(dim=1).tolist()

    def spoilt(self) -> list[int]:
        """Members with a parameter that is not finite."""
        if bool(torch.isfinite(self._flat.sum())):
            return []
        views = [view.flatten(1) for view in self._views(self._flat).values()]
        good = torch.isfinite(torch.cat(views, dim=1)).all(dim=1)
        return torch.nonzero(~good).flatten().tolist()

    def evaluate(self, batch: Batch, members: Sequence[int]) -> list[dict[str, float]]:
        """Validation loss and accuracies of some members on one batch that they share.

        validation_loss, validation_accuracy: means over supervised tokens. accuracy.<kind>: share
        of the kind's sequences that are right at their last supervised position; absent where the
        batch has no sequence of that kind.
        """
        index = torch.tensor(members, device=self.device)
        everything = self._trained | self._frozen
        params = {name: value.detach().index_select(0, index) for name, value in everything.items()}
        rows = max(1, CHUNK // len(members))
        losses, right = [], []
        with torch.no_grad():
            for start in range(0, len(batch), rows):
                part = batch[start : start + rows]
                tokens, positions, targets = self._tensors([part] * len(members))
                logits = self.family.forward(params, tokens, positions)
                losses.append(token_loss(logits, targets).double().sum((1, 2)).cpu())
                right.append((logits.argmax(-1) == targets).cpu().numpy())
        loss = torch.stack(losses).sum(0).numpy() / (batch.targets != IGNORE).sum()
        kinds = self.configs[0].task.kinds
        hits = np.concatenate(right, axis=1)
        return [
            {"validation_loss": float(loss[i]), **_accuracies(hits[i], batch, kinds)}
            for i in range(len(members))
        ]

    def member(self, i: int) -> Member:
        """Copies of member i's weights and optimiser's vectors."""
        weights = {
            name: value[i].detach().cpu().numpy().copy()
            for name, value in (self._trained | self._frozen).items()
        }
        vectors = {
            f"{slot}.{name}": value[i].cpu().numpy().copy()
            for slot, flat in self._optimiser.state.items()
            for name, value in self._views(flat).items()
        }
        return Member(config=self.configs[i], weights=weights, optimiser=vectors)

    def select(self, members: Sequence[int]) -> Stack:
        """The stack without those who left."""
        return Stack([self.member(i) for i in members])

    def _tensors(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, positions, targets, each (K, batch, time) int64."""
        alike = all(batch is batches[0] for batch in batches)

        def gather(name: str) -> Tensor:
            if alike:
                one = np.ascontiguousarray(getattr(batches[0], name), dtype=np.int64)
                return torch.from_numpy(one).to(self.device).expand(len(batches), *one.shape)
            every = np.stack([getattr(batch, name) for batch in batches])
            return torch.from_numpy(every.astype(np.int64, copy=False)).to(self.device)

        return gather("tokens"), gather("positions"), gather("targets")


def _accuracies(hits: np.ndarray, batch: Batch, kinds: Sequence[str]) -> dict[str, float]:
    """From hits (batch, time): the share over supervised tokens, and by kind at the last one."""
    supervised = batch.targets != IGNORE
    time = supervised.shape[1]
    last = time - 1 - supervised[:, ::-1].argmax(axis=1)
    final = hits[np.arange(len(batch)), last]
    scored = supervised.any(axis=1)
    result = {"validation_accuracy": float(hits[supervised].mean())}
    for k, kind in enumerate(kinds):
        of_kind = scored & (batch.kind == k)
        if of_kind.any():
            result[f"accuracy.{kind}"] = float(final[of_kind].mean())
    return result
