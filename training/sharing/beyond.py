"""Accuracy on sequences longer than any that was trained on (arXiv 2602.18333, claim 4.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from training.run import Run
from training.tasks import LengthTask

CHUNK = 250
"""Sequences that one forward takes."""


def accuracy_beyond(run: Run, factor: int = 2, samples: int = 500, seed: int = 0) -> float | None:
    """(accuracy - chance) / (1 - chance) at the final answer, of the run's last checkpoint.

    On `samples` sequences (at most a fifth of what exists) of `factor` times the longest length
    that was trained on, in the same format and layout. Chance is 1 / n_answers: the result is 0 at
    chance, 1 where the model is always right. With chain of thought the right earlier steps are
    shown, as in the validation loss.

    None where it does not apply: the family has no parameters for longer sequences (its
    `any_length`), or the task has no lengths.

    Errors: ValueError for factor below 2 or samples below 1.
    """
    if factor < 2 or samples < 1:
        raise ValueError(
            f"factor, samples: got {factor}, {samples}, allowed factor 2 or more, samples 1 or more"
        )
    if not isinstance(run.task, LengthTask) or not getattr(run.family, "any_length", False):
        return None
    task: Any = run.task
    length = factor * max(task.lengths)
    longer = replace(task, lengths=(length,), longest=None, validation_size=samples)
    batch = longer.sequences(length, samples, seed)
    final = longer.final(batch)
    params = run.last.params()
    right = 0
    with torch.no_grad():
        for start in range(0, len(batch), CHUNK):
            rows = slice(start, start + CHUNK)
            part, at = batch[rows], torch.from_numpy(final[rows])
            tokens, positions = (torch.from_numpy(x) for x in (part.tokens, part.positions))
            logits = run.family.forward(params, tokens.long(), positions.long())
            answers = logits[torch.arange(len(part)), at].argmax(-1).numpy()
            right += int((answers == part.targets[range(len(part)), final[rows]]).sum())
    chance = 1 / task.n_answers
    return (right / len(batch) - chance) / (1 - chance)
