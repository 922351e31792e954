"""Permutation inversion: a permutation is listed as [i, pi(i)], and pi^-1 of the query is to be
predicted (theory, section 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.groups import TokenClass
from training.tasks.base import Batch
from training.tasks.block_list import (
    BlockList,
    choice,
    context,
    joined,
    laid,
    last,
    last_of,
    slots,
    split,
    stack,
    times,
    token,
    whole,
)
from training.tasks.corruption import NONE, Answer, agreed, distinct, exchanged, replaced
from training.tasks.program import Drawn, Laid, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationInversion(BlockList):
    """A block [i, pi(i)] for each of n_tokens tokens, in random order, and a query q;
    T = 2 n_tokens + 1.

    pi is uniform over all permutations, those with fixed points included: n! n orbits. All tokens
    are one class, renamed freely (which conjugates pi).
    """

    n_tokens: int
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("n_tokens", self.n_tokens, 2)
        slots(self.track_slots, 2)

    @property
    def circuit(self) -> tuple[str, ...]:
        """The theory lists none."""
        return ()

    @property
    def program(self) -> Program:
        """The draws, in order: each i and its image, then the slot of the query's block."""
        size = self.n_tokens
        tokens = TokenClass(name="token", start=0, size=size)
        firsts, images = ([f"{x}{i}" for i in range(size)] for x in ("i", "pi"))
        draws = [
            token(names[i], tokens, size, tuple(names[:i]))
            for i in range(size)
            for names in (firsts, images)
        ]

        def layout(drawn: Drawn) -> Laid:
            blocks = stack(drawn, *zip(firsts, images, strict=True))
            asked = blocks[np.arange(drawn.size), drawn["slot"]]
            return laid(blocks, asked[:, 1], asked[:, 0])

        return Program(
            classes=(tokens,),
            draws=(*draws, choice("slot", size)),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(2,) * size + (1,),
            track_slots=slots(self.track_slots, 2),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        blocks, query = context(batch, 1, 2)
        match = (blocks[:, :, 1] == query)[:, :, None]
        return {
            "query": last(batch),
            "match": times(match & [False, True]),
            "answer": times(match & [True, False]),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query: the query becomes another token (one token). key, value: the asked block and
        another change their second token, or their first (two tokens: a permutation has every
        token once on each side).
        """
        return ("query", "key", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        if part == "query":
            return replaced(tokens, last_of(tokens), np.arange(self.n_tokens))
        blocks, query = split(tokens, 1, 2)
        column = 1 if part == "key" else 0
        return joined(exchanged(blocks, blocks[:, :, 1] == query, [column]), tokens)

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, 1, 2)
        match = blocks[:, :, 1] == query
        found = np.where(match.sum(1) == 1, agreed(match, blocks[:, :, 0]), NONE)
        lawful = distinct(blocks[:, :, 0]) & distinct(blocks[:, :, 1]) & (found != NONE)
        return Answer(token=found, lawful=lawful)
