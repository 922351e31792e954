"""The exact law of a small task: every sequence at every placement, with its probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.tasks.base import IGNORE, Batch, Task

LIMIT = 2_000_000
"""Sequences times placements that are still enumerated."""
CHUNK = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactLaw:
    """tokens (S, T), target, kind and probability (S,); placements (P, T), all equally likely.

    Sequences and placements are independent, so the law has S * P outcomes.
    """

    tokens: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    probability: np.ndarray
    placements: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens) * len(self.placements)

    def parts(self, size: int = CHUNK) -> Iterator[tuple[Batch, np.ndarray]]:
        """The whole law in batches of at most about `size`, with the weight of each row."""
        sequences, places = len(self.tokens), len(self.placements)
        step = max(1, size // sequences)
        targets = np.full(self.tokens.shape, IGNORE)
        targets[:, -1] = self.target
        for start in range(0, places, step):
            here = self.placements[start : start + step]
            count = len(here)
            yield (
                Batch(
                    tokens=np.tile(self.tokens, (count, 1)),
                    positions=np.repeat(here, sequences, axis=0),
                    targets=np.tile(targets, (count, 1)),
                    kind=np.tile(self.kind, count),
                ),
                np.tile(self.probability, count) / places,
            )


def exact_law(task: Task, limit: int = LIMIT) -> ExactLaw:
    """Every outcome of a task that has a program (theory, section 1); for small instances.

    Nothing is assumed about symmetry: renamed and moved copies are separate outcomes. Outcomes of
    probability 0 are left out. ValueError for a task without a program, or with more than `limit`
    outcomes.
    """
    program: Any = getattr(task, "program", None)
    if program is None:
        raise ValueError(
            f"exact law: {type(task).__name__} has no program of draws to enumerate; the "
            f"block-list tasks have one: sample instead"
        )
    blocks, slots = len(program.blocks), program.track_slots
    places = int(np.prod(np.arange(1, blocks + 1))) * slots**blocks
    if program.few_orbits(max(limit // places, 0)) is None:
        raise ValueError(_too_many(task, f"over {limit // places:,} kinds of", places, limit))
    laid, probability = program.law()
    if len(probability) * places > limit:
        raise ValueError(_too_many(task, f"{len(probability):,}", places, limit))
    rows = probability > 0
    return ExactLaw(
        tokens=laid.tokens[rows],
        target=laid.target[rows],
        kind=laid.kind[rows],
        probability=probability[rows],
        placements=program.placements(),
    )


def _too_many(task: Task, sequences: str, places: int, limit: int) -> str:
    return (
        f"exact law: {type(task).__name__} has {sequences} sequences times {places:,} placements "
        f"and at most {limit:,} outcomes are enumerated; take fewer blocks, tokens or track "
        f"slots, or sample"
    )
