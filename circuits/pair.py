"""Clean and corrupted sequences in pairs, and what separates their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.tasks.base import Batch

MINIMUM_GAP = 0.3
"""Logits that clean and corrupted runs must differ by before a share of it means anything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Batches of equal length that differ in one input so that the answer changes.

    sequences: how many different clean ones there are; they may be repeated as a whole, each time
    with other corruptions. final: the token at which the answer is predicted.
    """

    clean: Batch
    corrupt: Batch
    sequences: int
    final: int

    def __post_init__(self) -> None:
        shapes = self.clean.tokens.shape, self.corrupt.tokens.shape
        if shapes[0] != shapes[1]:
            raise ValueError(f"clean and corrupted sequences differ in shape: {shapes}")
        alike = self.answers(self.clean) == self.answers(self.corrupt)
        if alike.any():
            raise ValueError(
                f"{int(alike.sum())} of {len(alike)} pairs have the same answer in both: the "
                "metric, clean answer minus corrupted answer, would be 0 whatever the model does"
            )

    def answers(self, batch: Batch) -> np.ndarray:
        """(batch,) what is to be said at `final`."""
        return batch.targets[:, self.final]

    def metric(self, logits: Tensor) -> Tensor:
        """Logit of the clean answer minus that of the corrupted one at `final`, (.., batch).

        logits (.., batch, time, vocabulary).
        """
        right, wrong = (
            torch.from_numpy(self.answers(batch)).to(logits.device)
            for batch in (self.clean, self.corrupt)
        )
        last = logits[..., self.final, :]
        shape = (*last.shape[:-1], 1)
        sides = [last.gather(-1, side[:, None].expand(shape))[..., 0] for side in (right, wrong)]
        return sides[0] - sides[1]

    def by_sequence(self, values: Tensor) -> np.ndarray:
        """Means over the pairs of each clean sequence, (.., sequences): the independent units.

        values (.., batch).
        """
        found = values.detach().double().cpu().numpy()
        return found.reshape(*found.shape[:-1], -1, self.sequences).mean(-2)
