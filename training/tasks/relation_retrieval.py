"""Relation retrieval: every key has one value for each of two fixed relations, and the query names
the relation (theory, section 1)."""

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
class RelationRetrieval(BlockList):
    """n_blocks blocks [u, v_0, v_1] and a query [u*, c] to be answered by v_c of u*'s block,
    T = 3 n_blocks + 2.

    Keys differ; the two values of a block differ, and are free else. Keys and values are two
    classes, each renamed freely; the two relation tokens, last in the vocabulary, are fixed.
    """

    n_blocks: int
    n_keys: int
    n_values: int
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("n_blocks", self.n_blocks, 1)
        whole("n_keys", self.n_keys, self.n_blocks, "a different key for each block")
        whole("n_values", self.n_values, 2, "the two values of a block differ")
        slots(self.track_slots, 3)

    @property
    def circuit(self) -> tuple[str, ...]:
        """None is known: with centred relation tokens it is not solved on the manifold (theory,
        section 3)."""
        return ()

    @property
    def program(self) -> Program:
        """The draws, in order: the blocks, the slot of the query's block, the relation."""
        keys = TokenClass(name="key", start=0, size=self.n_keys)
        values = TokenClass(name="value", start=self.n_keys, size=self.n_values)
        first = self.n_keys + self.n_values
        relations = TokenClass(name="relation", start=first, size=2, structure="fixed")
        size = first + 2
        blocks = [(f"u{i}", f"v{i}.0", f"v{i}.1") for i in range(self.n_blocks)]
        draws = []
        for i, (key, one, two) in enumerate(blocks):
            draws.append(token(key, keys, size, tuple(before for before, _, _ in blocks[:i])))
            draws += [token(one, values, size), token(two, values, size, (one,))]

        def layout(drawn: Drawn) -> Laid:
            every = stack(drawn, *blocks)
            asked = every[np.arange(drawn.size), drawn["slot"]]
            query = np.column_stack([asked[:, 0], relations.start + drawn["relation"]])
            return laid(every, query, asked[np.arange(drawn.size), 1 + drawn["relation"]])

        return Program(
            classes=(keys, values, relations),
            draws=(*draws, choice("slot", self.n_blocks), choice("relation", 2)),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(3,) * self.n_blocks + (2,),
            track_slots=slots(self.track_slots, 3),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        """As in `BlockList`, and "relation" (B,): the relation token of the query."""
        blocks, query = context(batch, 2, 3)
        match = (blocks[:, :, 0] == query[:, :1])[:, :, None]
        value = 1 + query[:, 1] - (self.n_keys + self.n_values)
        return {
            "query": last(batch, 2),
            "relation": last(batch),
            "match": times(match & [True, False, False]),
            "answer": times(match & (np.arange(3) == value[:, None, None])),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query, relation: that token of the query becomes another (one token). key: the asked
        block and another change keys (two tokens, since keys differ). value: the asked value
        becomes another (one token).
        """
        return ("query", "relation", "key", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        keys, values, relations = (cls.tokens for cls in self.program.classes)
        if part in ("query", "relation"):
            back, every = (2, keys) if part == "query" else (1, relations)
            return replaced(tokens, last_of(tokens, back), every)
        blocks, query = split(tokens, 2, 3)
        match = blocks[:, :, 0] == query[:, :1]
        if part == "key":
            return joined(exchanged(blocks, match, [0]), tokens)
        asked = 1 + query[:, 1] - relations[0]
        return replaced(
            tokens, times(match[:, :, None] & (np.arange(3) == asked[:, None, None])), values
        )

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, 2, 3)
        match = blocks[:, :, 0] == query[:, :1]
        column = 1 + query[:, 1] - (self.n_keys + self.n_values)
        value = np.take_along_axis(blocks, column[:, None, None], 2)[:, :, 0]
        found = np.where(match.sum(1) == 1, agreed(match, value), NONE)
        lawful = distinct(blocks[:, :, 0]) & distinct(blocks[:, :, 1:]).all(1)
        return Answer(token=found, lawful=lawful & (found != NONE))
