"""A clean and a corrupted run of the same sequences, and what separates their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probes import Site, final_site, read_state
from training.families.base import Family, Params
from training.tasks.base import Batch, LengthTask, Task

MINIMUM_GAP = 0.3
"""Logits that clean and corrupted runs must differ by before a share of it means anything."""


def length_task(task: Task) -> LengthTask:
    """`task` if its sequences come in lengths; ValueError otherwise."""
    if isinstance(task, LengthTask):
        return task
    raise ValueError(
        f"{type(task).__name__} has no lengths; circuits by length need a task that has, such as "
        "modular_addition"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contrast:
    """Pairs that differ in one input so that the answer changes, both run through one model.

    clean, corrupt: batches of equal length. sequences: how many different clean ones there are;
    they are repeated as a whole, each time with other corruptions. site: the state at the final
    token. clean_state, corrupt_state: (batch, width). clean_gap, corrupt_gap: the metric M per
    pair, the clean answer's logit minus the corrupted answer's at the final token, in each run.
    accuracy: share of clean sequences whose final answer is the model's first choice.
    """

    clean: Batch
    corrupt: Batch
    sequences: int
    final: int
    site: Site
    clean_state: Tensor
    corrupt_state: Tensor
    clean_gap: Tensor
    corrupt_gap: Tensor
    accuracy: float

    @property
    def gap(self) -> float:
        """Mean of M(clean) - M(corrupt), in logits: what a circuit has to explain."""
        return float((self.clean_gap - self.corrupt_gap).mean())

    def metric(self, logits: Tensor) -> Tensor:
        """M per pair (batch,), in logits."""
        return answer_gap(logits, self.clean, self.corrupt, self.final)

    def faithfulness(self, logits: Tensor) -> Tensor:
        """Each pair's share of the mean gap, (batch,); their mean is the faithfulness
        (M(kept) - M(corrupt)) / (M(clean) - M(corrupt)) of means."""
        return (self.metric(logits) - self.corrupt_gap) / self.gap

    def by_sequence(self, values: Tensor) -> np.ndarray:
        """Means over the pairs of each clean sequence, (sequences,): the independent units."""
        return values.double().numpy().reshape(-1, self.sequences).mean(0)


def answer_gap(logits: Tensor, clean: Batch, corrupt: Batch, final: int) -> Tensor:
    rows = torch.arange(len(clean))
    right = torch.from_numpy(clean.targets[:, final])
    wrong = torch.from_numpy(corrupt.targets[:, final])
    return logits[rows, final, right] - logits[rows, final, wrong]


def contrast(
    family: Family, params: Params, task: LengthTask, length: int, count: int, seed: int
) -> Contrast:
    """About `count` pairs of one length, run through one model.

    Where fewer held-out sequences exist they are repeated with other corruptions.
    """
    return _run(family, params, task, task.sequences(length, count, seed), count, seed)


def halves(
    family: Family, params: Params, task: LengthTask, length: int, count: int, seed: int
) -> tuple[Contrast, Contrast]:
    """Two contrasts of about `count` pairs each that share no clean sequence.

    Where only one sequence is held out, both are of it: too few for anything to be read.
    """
    drawn = task.sequences(length, 2 * count, seed)
    middle = (len(drawn) + 1) // 2
    first, second = drawn[:middle], drawn[min(middle, len(drawn) - 1) :]
    return (
        _run(family, params, task, first, count, seed),
        _run(family, params, task, second, count, seed + 1),
    )


def _run(
    family: Family, params: Params, task: LengthTask, drawn: Batch, count: int, seed: int
) -> Contrast:
    clean = drawn[np.tile(np.arange(len(drawn)), max(1, count // len(drawn)))]
    corrupt = task.corrupt(clean, seed)
    final = int(np.unique(task.final(clean)).item())
    site = final_site(family, clean.tokens.shape[1], final)
    clean_state, clean_logits = read_state(family, params, clean, site)
    corrupt_state, corrupt_logits = read_state(family, params, corrupt, site)
    guess = clean_logits[:, final].argmax(-1).numpy()
    return Contrast(
        clean=clean,
        corrupt=corrupt,
        sequences=len(drawn),
        final=final,
        site=site,
        clean_state=clean_state,
        corrupt_state=corrupt_state,
        clean_gap=answer_gap(clean_logits, clean, corrupt, final),
        corrupt_gap=answer_gap(corrupt_logits, clean, corrupt, final),
        accuracy=float((guess == clean.targets[:, final]).mean()),
    )
