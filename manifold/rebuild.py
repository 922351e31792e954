"""The model rebuilt from its coordinates alone, run with full matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from manifold.basis import Basis
from manifold.effective import disentangled
from training.families.attention_only import AttentionOnly
from training.tasks.base import IGNORE, Batch, Task

CHUNK = 1000  # sequences in one forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """loss: nats per supervised token. accuracy: share of supervised tokens, by kind of sequence;
    only kinds that occur. size: sequences."""

    loss: float
    accuracy: Mapping[str, float]
    size: int


def rebuild(
    task: Task,
    basis: Basis,
    c: np.ndarray,
    *,
    size: int = 2000,
    seed: int = 0,
    batch: Batch | None = None,
) -> Rebuilt:
    """Loss and accuracy of W = sum_i c_i B_i on `size` held-out sequences, or on `batch`.

    Float64, by the forward of attention_only on the full matrices: the slow reference of the
    reduced field, with which it shares nothing but the basis.
    """
    return evaluate(task, basis, basis.matrices(c), size=size, seed=seed, batch=batch)


def evaluate(
    task: Task,
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    *,
    size: int = 2000,
    seed: int = 0,
    batch: Batch | None = None,
) -> Rebuilt:
    """As `rebuild`, for any effective matrices in the basis' frame, on its span or off it."""
    batch = task.evaluation(seed, size) if batch is None else batch
    model = AttentionOnly(layers=basis.layers, heads=basis.heads)
    params = disentangled(basis, matrices)
    losses, right = [], []
    with torch.no_grad():
        for start in range(0, len(batch), CHUNK):
            part = batch[start : start + CHUNK]
            tokens, positions, targets = map(
                torch.from_numpy, (part.tokens, part.positions, part.targets)
            )
            logits = model.forward(params, tokens, positions)
            loss = functional.cross_entropy(
                logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none"
            )
            losses.append(loss.view(targets.shape).numpy())
            right.append((logits.argmax(-1) == targets).numpy())
    supervised, hits = batch.targets != IGNORE, np.concatenate(right)
    accuracy = {}
    for index, kind in enumerate(task.kinds):
        chosen = supervised & (batch.kind == index)[:, None]
        if chosen.any():
            accuracy[kind] = float(hits[chosen].mean())
    loss = float(np.concatenate(losses)[supervised].mean())
    return Rebuilt(loss=loss, accuracy=accuracy, size=len(batch))
