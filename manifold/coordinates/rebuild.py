"""The model rebuilt from its coordinates alone, run with full matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.effective import disentangled
from manifold.coordinates.run_basis import check_task
from manifold.coordinates.sequences import check_sequences
from manifold.coordinates.shares import check_finite
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
    ValueError for coordinates that are NaN or infinite, and a basis of another task's sizes.
    """
    bad = [name for name, ok in zip(basis, np.isfinite(c).ravel(), strict=False) if not ok]
    if bad:
        few = ", ".join(bad[:5]) + (", .." if len(bad) > 5 else "")
        raise ValueError(
            f"rebuild: {len(bad)} of {basis.dim} coordinates are NaN or infinite ({few}); allowed: "
            f"finite ones, as at a step that the run kept"
        )
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
    loss, accuracy = run_matrices(task, basis, matrices, batch)
    return Rebuilt(
        loss=float(loss),
        accuracy={kind: float(share) for kind, share in accuracy.items()},
        size=len(batch),
    )


def run_matrices(
    task: Task, basis: Basis, matrices: Mapping[str, np.ndarray], batch: Batch
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Loss (..) and accuracy by kind (..) of matrices (..) + `Basis.shape`, one model each."""
    _check(task, basis, matrices, batch)
    model = AttentionOnly(layers=basis.layers, heads=basis.heads)
    lead = matrices[READOUT].shape[:-2]
    params = disentangled(basis, matrices)
    for name in ("embed.token", "embed.position"):
        params[name] = params[name].expand(*lead, *params[name].shape)
    last = bool((batch.targets[:, :-1] == IGNORE).all())
    parts = []
    with torch.no_grad():
        for start in range(0, len(batch), CHUNK):
            part = batch[start : start + CHUNK]
            tokens, positions = (
                torch.from_numpy(np.array(side)).expand(*lead, *side.shape)
                for side in (part.tokens, part.positions)
            )
            forward = model.forward_last if last else model.forward
            parts.append(forward(params, tokens, positions))
    return score(task, torch.cat(parts, dim=-3), batch)


def _check(task: Task, basis: Basis, matrices: Mapping[str, np.ndarray], batch: Batch) -> None:
    check_task("rebuild", task, basis)
    check_finite("rebuild", {b: np.sum(np.square(matrices[b]), (-2, -1)) for b in basis.blocks})
    check_sequences(batch.tokens, batch.positions, basis.vocabulary, basis.n_positions)


def score(
    task: Task, logits: torch.Tensor, batch: Batch
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Mean cross-entropy per supervised token (..) and accuracy by kind that occurs, (..) each.

    logits: (.., batch, time, vocabulary), or at the last position alone.
    """
    targets = torch.from_numpy(np.array(batch.targets[:, -logits.shape[-2] :]))
    supervised = targets != IGNORE
    chosen, answers = logits[..., supervised, :], targets[supervised]
    of_answer = chosen.gather(-1, answers.expand(*chosen.shape[:-1])[..., None])[..., 0]
    losses = chosen.logsumexp(-1) - of_answer
    right = (chosen.argmax(-1) == answers).double()
    kinds = torch.from_numpy(np.array(batch.kind))[:, None].expand(supervised.shape)[supervised]
    accuracy = {
        kind: right[..., kinds == index].mean(-1).numpy()
        for index, kind in enumerate(task.kinds)
        if (kinds == index).any()
    }
    return losses.mean(-1).numpy(), accuracy
