"""Conditional retrieval: a key has a value that depends on the context token beside it (theory,
section 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.groups import TokenClass
from training.tasks.base import Batch
from training.tasks.block_list import (
    BlockList,
    context,
    in_order,
    joined,
    laid,
    last,
    last_of,
    places,
    slots,
    split,
    stack,
    times,
    token,
    whole,
)
from training.tasks.corruption import NONE, Answer, agreed, distinct, exchanged, replaced
from training.tasks.program import ALWAYS, Draw, Drawn, Laid, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalRetrieval(BlockList):
    """n_blocks blocks [c, u, v] and a query [c*, u*] whose value is to be predicted,
    T = 3 n_blocks + 2.

    One block holds the answer, one has c* beside another key, one u* beside another context, so
    that neither token alone is enough. Further blocks have pairs (c, u) that are still unused:
    c uniform among contexts that have a key left, then u uniform among those. All other values
    differ from the answer and are free else. Blocks stand in random order. Contexts, keys and
    values are three classes, each renamed freely.
    """

    n_blocks: int
    n_contexts: int
    n_keys: int
    n_values: int
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("n_blocks", self.n_blocks, 3, "the answer, the same context, the same key")
        for name in ("n_contexts", "n_keys", "n_values"):
            whole(name, getattr(self, name), 2)
        pairs = self.n_contexts * self.n_keys
        if self.n_blocks > pairs:
            raise ValueError(
                f"n_blocks is {self.n_blocks}; at most n_contexts n_keys = {pairs}, "
                "since the pairs (context, key) of the blocks differ"
            )
        slots(self.track_slots, 3)

    @property
    def circuit(self) -> tuple[str, ...]:
        """The theory lists none: 2 heads or 3 layers solve it (section 4)."""
        return ()

    @property
    def program(self) -> Program:
        """The draws, in order: answer, same context, same key, further blocks, then places."""
        contexts = TokenClass(name="context", start=0, size=self.n_contexts)
        keys = TokenClass(name="key", start=self.n_contexts, size=self.n_keys)
        first_value = self.n_contexts + self.n_keys
        values = TokenClass(name="value", start=first_value, size=self.n_values)
        size = first_value + self.n_values
        blocks = [("c0", "u0", "v0"), ("c0", "u1", "v1"), ("c2", "u0", "v2")]
        draws = [
            token("c0", contexts, size),
            token("u0", keys, size),
            token("v0", values, size),
            token("u1", keys, size, ("u0",)),
            token("v1", values, size, ("v0",)),
            token("c2", contexts, size, ("c0",)),
            token("v2", values, size, ("v0",)),
        ]
        for i in range(3, self.n_blocks):
            draws += _unused_pair(i, [(c, u) for c, u, _ in blocks], contexts, keys, size)
            draws.append(token(f"v{i}", values, size, ("v0",)))
            blocks.append((f"c{i}", f"u{i}", f"v{i}"))

        def layout(drawn: Drawn) -> Laid:
            query = np.column_stack([drawn["c0"], drawn["u0"]])
            return laid(in_order(drawn, stack(drawn, *blocks)), query, drawn["v0"])

        return Program(
            classes=(contexts, keys, values),
            draws=(*draws, *places(self.n_blocks)),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(3,) * self.n_blocks + (2,),
            track_slots=slots(self.track_slots, 3),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        """As in `BlockList`, and "context" (B,): the context token of the query."""
        blocks, query = context(batch, 2, 3)
        match = (blocks[:, :, :2] == query[:, None]).all(2)[:, :, None]
        return {
            "query": last(batch),
            "context": last(batch, 2),
            "match": times(match & [False, True, False]),
            "answer": times(match & [False, False, True]),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query, query context: that token of the query becomes another, so that another block is
        asked for (one token). key, context: the asked block and another change that token (two
        tokens, since their pairs differ). value: the answer in the context becomes another (one).

        The law wants the asked context and the asked key in further blocks too; with few blocks
        another query cannot have both, and then one of them is given up.
        """
        return ("query", "query context", "key", "context", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        contexts, keys, values = (cls.tokens for cls in self.program.classes)
        if part.startswith("query"):
            back, every = (1, keys) if part == "query" else (2, contexts)
            return replaced(tokens, last_of(tokens, back), every)
        blocks, query = split(tokens, 2, 3)
        match = (blocks[:, :, :2] == query[:, None]).all(2)
        if part == "value":
            return replaced(tokens, times(match[:, :, None] & (np.arange(3) == 2)), values)
        return joined(exchanged(blocks, match, [1 if part == "key" else 0]), tokens)

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, 2, 3)
        same = blocks[:, :, :2] == query[:, None]
        match, value = same.all(2), blocks[:, :, 2]
        found = np.where(match.sum(1) == 1, agreed(match, value), NONE)
        pairs = blocks[:, :, 0] * self.vocabulary + blocks[:, :, 1]
        lawful = distinct(pairs) & (found != NONE) & (match | (value != found[:, None])).all(1)
        for this, other in ((0, 1), (1, 0)):
            lawful &= (same[:, :, this] & ~same[:, :, other]).any(1)
        return Answer(token=found, lawful=lawful)


def _unused_pair(
    i: int, pairs: list[tuple[str, str]], contexts: TokenClass, keys: TokenClass, size: int
) -> list[Draw]:
    """Draws c{i} and u{i} so that (c, u) is none of the `pairs` drawn before."""

    def free(drawn: Drawn) -> np.ndarray:
        """(states, contexts, keys)"""
        unused = np.ones((drawn.size, contexts.size, keys.size), dtype=bool)
        for c, u in pairs:
            unused[np.arange(drawn.size), drawn[c] - contexts.start, drawn[u] - keys.start] = False
        return unused

    def context_left(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        allowed = np.zeros((drawn.size, size), dtype=bool)
        allowed[:, contexts.tokens] = free(drawn).any(2)
        return [(ALWAYS, allowed)]

    def key_left(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        allowed = np.zeros((drawn.size, size), dtype=bool)
        here = np.arange(drawn.size), drawn[f"c{i}"] - contexts.start
        allowed[:, keys.tokens] = free(drawn)[here]
        return [(ALWAYS, allowed)]

    return [
        Draw(name=f"c{i}", alternatives=context_left),
        Draw(name=f"u{i}", alternatives=key_left),
    ]
