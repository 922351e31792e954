"""Clean and corrupted sequences in pairs, and what separates their answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from training.tasks.base import Batch, LengthTask, Task
from training.tasks.block_list import BlockList
from training.tasks.state_tracking import StateTracking

MINIMUM_GAP = 0.3
"""Logits that clean and corrupted runs must differ by before a share of it means anything."""
SELDOM = 0.02
"""A corruption that fewer of the sequences admit than this share is left out."""
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Batches of equal length that differ in one input so that the answer changes.

    sequences: how many different clean ones there are; they may be repeated as a whole, each time
    with other corruptions. final: the token at which the answer is predicted. parts: which input
    was changed in each repetition, where the task names several.
    """

    clean: Batch
    corrupt: Batch
    sequences: int
    final: int
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shapes = self.clean.tokens.shape, self.corrupt.tokens.shape
        if shapes[0] != shapes[1]:
            raise ValueError(f"clean and corrupted sequences differ in shape: {shapes}")
        if not len(self.clean) or len(self.clean) % self.sequences:
            raise ValueError(
                f"{len(self.clean)} pairs are no whole repetition of {self.sequences} sequences"
            )
        still = (self.clean.tokens == self.corrupt.tokens).all(1)
        if still.any():
            raise ValueError(
                f"{int(still.sum())} of {len(still)} pairs have equal tokens in both: clean and "
                "corrupted run are one, and no patch can change anything; change an input of each"
            )
        alike = self.answers(self.clean) == self.answers(self.corrupt)
        if alike.any():
            raise ValueError(
                f"{int(alike.sum())} of {len(alike)} pairs have the same answer in both: the "
                "metric, clean answer minus corrupted answer, would be 0 whatever the model does"
            )

    @property
    def sentence(self) -> str:
        """What is compared, in a few words."""
        changed = f"changed in: {', '.join(self.parts)}" if self.parts else "one input changed"
        return f"{len(self.clean)} pairs of {self.sequences} sequences, {changed}"

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """Rows of the batches that hold these sequences, with all their corruptions."""
        return np.arange(len(self.clean)).reshape(-1, self.sequences)[:, chosen].ravel()

    def take(self, chosen: np.ndarray) -> Pair:
        """These sequences alone, with all their corruptions."""
        rows = self.rows(chosen)
        clean, corrupt = self.clean[rows], self.corrupt[rows]
        return replace(self, clean=clean, corrupt=corrupt, sequences=len(chosen))

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


def pairs(
    task: Task,
    count: int,
    seed: int,
    length: int | None = None,
    *,
    kind: str | None = None,
    part: str | None = None,
) -> Pair:
    """About `count` pairs of held-out sequences of a task, corrupted as the task itself says.

    length: of a task that has lengths; its longest unless given. kind: of the clean
    sequences, where queries have kinds; all, as they come, unless given. part: which input is
    changed, of the task's `corruptions`; unless given every sequence is there once with each, since
    what one of them leaves as it was (a query, the keys, the values) no patch can see. ValueError
    for what the task does not have.
    """
    if count < 1:
        raise ValueError(f"count is {count}; allowed: 1 or more pairs")
    if isinstance(task, BlockList):
        if length is not None:
            raise ValueError(f"{type(task).__name__} has no lengths; leave out length {length}")
        return _of_blocks(task, count, seed, kind, part)
    if isinstance(task, LengthTask):
        for name, value in (("kind", kind), ("part", part)):
            if value is not None:
                raise ValueError(f"{type(task).__name__} has no {name}s; leave out {value!r}")
        chosen = task if length is None else at_length(task, length)
        drawn = chosen.sequences(length or max(task.lengths), count, seed)
        return of_sequences(chosen, drawn, count, seed)
    raise ValueError(
        f"{type(task).__name__} does not say how to corrupt its sequences; a task of blocks or one "
        "with lengths does (its `corrupt`)"
    )


def at_length(task: LengthTask, length: int) -> LengthTask:
    """The task with sequences of this length, laid out as its own are.

    ValueError for a length that its layout cannot hold.
    """
    if length in task.lengths:
        return task
    if not isinstance(task, StateTracking):
        raise ValueError(f"length is {length}; allowed: {', '.join(map(str, task.lengths))}")
    if length > task.reach and task.layout != "usual":
        raise ValueError(
            f"length is {length}; the {task.layout} layout ends at {task.reach}: ask for a length "
            "up to that"
        )
    return replace(task, lengths=(length,), longest=max(length, task.reach))


def of_sequences(task: LengthTask, drawn: Batch, count: int, seed: int) -> Pair:
    """About `count` pairs of these sequences of one length: all of them, as often as fits."""
    clean = drawn[np.tile(np.arange(len(drawn)), max(1, count // len(drawn)))]
    final = int(np.unique(task.final(clean)).item())
    return Pair(clean=clean, corrupt=task.corrupt(clean, seed), sequences=len(drawn), final=final)


def _of_blocks(task: BlockList, count: int, seed: int, kind: str | None, part: str | None) -> Pair:
    """Sequences that admit every corruption that is asked for, drawn until there are enough."""
    wanted = task.corruptions if part is None else (part,)
    for round_ in range(_ROUNDS):
        clean = task.evaluation(seed, max(count, 8) * 4**round_ // 2, kind)
        corrupt = {name: task.corrupt(clean, seed, name) for name in wanted}
        able = {n: (b.targets != clean.targets).any(1) for n, b in corrupt.items()}
        parts = tuple(name for name in wanted if able[name].mean() >= SELDOM)
        rows = np.flatnonzero(np.all([able[name] for name in parts], axis=0)) if parts else []
        size = max(1, count // max(len(parts), 1))
        if len(rows) >= size or (round_ == _ROUNDS - 1 and len(rows) > 1):
            break
    else:
        raise ValueError(
            f"hardly a sequence of {task}{f' of kind {kind}' if kind else ''} can be changed in "
            f"its {' or '.join(wanted) or 'inputs'} so that its answer changes: ask for another "
            "part, or for sequences of another kind"
        )
    rows = np.asarray(rows)[:size]
    return Pair(
        clean=clean[np.tile(rows, len(parts))],
        corrupt=_together([corrupt[name][rows] for name in parts]),
        sequences=len(rows),
        final=clean.tokens.shape[1] - 1,
        parts=parts,
    )


def _together(batches: list[Batch]) -> Batch:
    names = ("tokens", "positions", "targets", "kind")
    return Batch(**{n: np.concatenate([getattr(b, n) for b in batches]) for n in names})
