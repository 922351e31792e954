"""In-context n-grams: blocks of n tokens; the first n - 1 of one come again, its last is to be
predicted (theory, section 1). With n = 2 it is associative recall without in-weights knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.groups import TokenClass
from training.tasks.base import Batch
from training.tasks.block_list import (
    BlockList,
    arrangements,
    choice,
    context,
    joined,
    laid,
    last,
    slots,
    split,
    stack,
    times,
    token,
    whole,
)
from training.tasks.corruption import NONE, Answer, agreed, distinct, exchanged, replaced
from training.tasks.program import Draw, Drawn, Laid, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class InContextNgram(BlockList):
    """n_blocks blocks of n tokens and a query of n - 1, T = n (n_blocks + 1) - 1.

    The tokens of a block differ from each other. `burstiness` blocks hold the query's n-gram; a
    distractor's first token is none of the query's, else it is free: its other tokens may be the
    query's, distractors may repeat and disagree. All tokens are one class, renamed freely.
    """

    n_blocks: int
    n_tokens: int
    n: int = 2
    burstiness: int = 1
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("n", self.n, 2, "a key of n - 1 tokens and its answer")
        whole("n_blocks", self.n_blocks, 1)
        whole("n_tokens", self.n_tokens, self.n, f"the {self.n} tokens of a block differ")
        whole("burstiness", self.burstiness, 1, "only the context can answer")
        slots(self.track_slots, self.n)
        if self.burstiness > self.n_blocks:
            raise ValueError(
                f"burstiness is {self.burstiness}; at most n_blocks = {self.n_blocks}, since each "
                "copy of the query's n-gram takes a block"
            )

    @property
    def circuit(self) -> tuple[str, ...]:
        """Induction for n = 2, with its negative match I->I as in `AssociativeRecall` (theory,
        sections 3 and 6). For n = 3 the theory lists none."""
        return ("1:M", "2:I_t I->V1", "2:I_t I->I", "out:I_t V2") if self.n == 2 else ()

    @property
    def program(self) -> Program:
        """The draws, in order: the query's n-gram, the slots of its copies, each distractor."""
        tokens = TokenClass(name="token", start=0, size=self.n_tokens)
        sources = arrangements(self.n_blocks, self.burstiness)

        def block(name: str, first_unlike: tuple[str, ...] = ()) -> list[Draw]:
            names = [f"{name}.{j}" for j in range(self.n)]
            return [
                token(
                    names[j], tokens, self.n_tokens, (*names[:j], *(first_unlike if not j else ()))
                )
                for j in range(self.n)
            ]

        query = block("query")
        key = tuple(draw.name for draw in query[:-1])
        others = [block(f"other{i}", key) for i in range(self.n_blocks - self.burstiness)]
        names = [tuple(draw.name for draw in drawn) for drawn in (query, *others)]

        def layout(drawn: Drawn) -> Laid:
            blocks = stack(drawn, *names)
            source = sources[drawn["slots"]][:, :, None]
            return laid(np.take_along_axis(blocks, source, 1), blocks[:, 0, :-1], blocks[:, 0, -1])

        return Program(
            classes=(tokens,),
            draws=(*query, choice("slots", len(sources)), *(d for other in others for d in other)),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(self.n,) * self.n_blocks + (self.n - 1,),
            track_slots=slots(self.track_slots, self.n),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        blocks, query = context(batch, self.n - 1, self.n)
        match = (blocks[:, :, :-1] == query[:, None]).all(2)[:, :, None]
        token_of = np.arange(self.n)
        return {
            "query": last(batch),
            "match": times(match & (token_of == self.n - 2)),
            "answer": times(match & (token_of == self.n - 1)),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query: the query's n - 1 tokens become those of another block (at n = 2 one token; one of
        several would hardly ever be found in the context). key: the query's blocks and another
        change their first n - 1 tokens (2 (n - 1) tokens; else the query would have no block, or
        two). value: the last token of the query's blocks becomes another (one token in each).
        """
        return ("query", "key", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        blocks, query = split(tokens, self.n - 1, self.n)
        match = (blocks[:, :, :-1] == query[:, None]).all(2)
        if part == "query":
            before = np.repeat(tokens[:, None, : 1 - self.n], blocks.shape[1], axis=1)
            return np.concatenate([before, blocks[:, :, :-1]], axis=2)
        if part == "key":
            return joined(exchanged(blocks, match, list(range(self.n - 1))), tokens)
        ends = times(match[:, :, None] & (np.arange(self.n) == self.n - 1))
        return replaced(tokens, ends, np.arange(self.n_tokens))

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, self.n - 1, self.n)
        match = (blocks[:, :, :-1] == query[:, None]).all(2)
        found = agreed(match, blocks[:, :, -1])
        other = (blocks[:, :, :1] != query[:, None]).all(2)
        lawful = distinct(blocks).all(1) & (match | other).all(1)
        lawful &= (match.sum(1) == self.burstiness) & (found != NONE)
        return Answer(token=found, lawful=lawful)
