"""Sequences with one input changed so that the answer changes: what a task says, and the choice.

A task names its corruptions, lists for each what a sequence may become (`edits`), and reads the
answer of any sequence off its tokens (`answer`), which also says whether its law can draw it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

NONE = -1
"""The answer of a sequence that has none, or more than one."""

_AT_ONCE = 2**21
"""Tokens of the candidates that are looked at together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """token (S,): what the task's rule says of each sequence, or NONE. lawful (S,): whether the
    law gives the sequence with this answer a probability above 0."""

    token: np.ndarray
    lawful: np.ndarray


def agreed(match: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(S,) the value of every matching block (S, blocks), or NONE where they differ or none is."""
    first = np.take_along_axis(values, match.argmax(1)[:, None], 1)
    same = match.any(1) & (~match | (values == first)).all(1)
    return np.where(same, first[:, 0], NONE)


def distinct(tokens: np.ndarray) -> np.ndarray:
    """Whether the tokens along the last axis all differ."""
    ordered = np.sort(tokens, axis=-1)
    return (ordered[..., 1:] != ordered[..., :-1]).all(-1)


def replaced(tokens: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(B, values, T): tokens (B, T) with each of the values in turn at the times (B, c); -1: none.

    What stands in several places is one input, and changes in all of them.
    """
    here = (np.arange(tokens.shape[1]) == at[:, :, None]).any(1)
    return np.where(here[:, None], values[:, None], tokens[:, None])


def exchanged(blocks: np.ndarray, match: np.ndarray, columns: list[int]) -> np.ndarray:
    """(B, blocks, blocks, length): candidate j has these columns of the matching blocks (B, blocks)
    and of block j exchanged."""
    out = np.repeat(blocks[:, None], blocks.shape[1], axis=1)
    part = blocks[:, :, columns]
    own = np.take_along_axis(part, match.argmax(1)[:, None, None], 1)[:, None]
    there = np.eye(blocks.shape[1], dtype=bool)[None, :, :, None]
    mixed = np.where(there, own, out[..., columns])
    out[..., columns] = np.where(match[:, None, :, None], part[:, :, None], mixed)
    return out


def choose(
    tokens: np.ndarray,
    answers: np.ndarray,
    edits: Callable[[np.ndarray], np.ndarray],
    answer: Callable[[np.ndarray], Answer],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (B, T) and answers (B,) of one edit of each sequence whose answer is another.

    Uniform among the lawful ones, else among those that have an answer at all; a sequence without
    any comes back as it was.
    """
    tokens, answers = tokens.copy(), answers.copy()
    start = 0
    while start < len(tokens):
        one = edits(tokens[start : start + 1])
        rows = slice(start, start + max(1, _AT_ONCE // max(one.size, 1)))
        candidates = edits(tokens[rows])
        count, kinds, time = candidates.shape
        read = answer(candidates.reshape(-1, time))
        found, lawful = (x.reshape(count, kinds) for x in (read.token, read.lawful))
        fits = (found != NONE) & (found != answers[rows, None])
        best = np.where((fits & lawful).any(1, keepdims=True), fits & lawful, fits)
        pick = np.where(best, rng.random(best.shape), -1.0).argmax(1)
        row = np.flatnonzero(best.any(1))
        tokens[start + row] = candidates[row, pick[row]]
        answers[start + row] = found[row, pick[row]]
        start = rows.stop
    return tokens, answers
