"""Indirect object identification: of the two names in a block one comes again, and the other is to
be predicted (theory, section 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.groups import TokenClass
from training.tasks.base import Batch
from training.tasks.block_list import (
    BlockList,
    choice,
    context,
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
class IndirectObject(BlockList):
    """n_blocks blocks [A, B] and a query [S], S one of the names; T = 2 n_blocks + 1.

    function_words: [A, and, B] .. [S, gave] instead, T = 3 n_blocks + 2; the two words are fixed
    tokens after the names. All names differ; they are one class, renamed freely.
    """

    n_blocks: int
    n_names: int
    function_words: bool = False
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("n_blocks", self.n_blocks, 1)
        whole("n_names", self.n_names, 2 * self.n_blocks, "two different names for each block")
        if not isinstance(self.function_words, bool):
            raise ValueError(f"function_words is {self.function_words!r}; true or false")
        slots(self.track_slots, self._length)

    @property
    def _length(self) -> int:
        return 3 if self.function_words else 2

    @property
    def circuit(self) -> tuple[str, ...]:
        """Of one block: every name of the context, less the query (theory, section 4: two
        coordinates). With more blocks or function words the theory lists none.

        The coefficient of out:I_t I is negative.
        """
        simple = self.n_blocks == 1 and not self.function_words
        return ("out:I_t V1", "out:I_t I") if simple else ()

    @property
    def program(self) -> Program:
        """The draws, in order: every name, then which of them is the query."""
        count = 2 * self.n_blocks
        names = TokenClass(name="token", start=0, size=self.n_names)
        words = TokenClass(
            name="word", start=self.n_names, size=2 * self.function_words, structure="fixed"
        )
        size = names.size + words.size
        drawn_names = [f"name{i}" for i in range(count)]
        draws = [token(x, names, size, tuple(drawn_names[:i])) for i, x in enumerate(drawn_names)]

        def layout(drawn: Drawn) -> Laid:
            every = stack(drawn, tuple(drawn_names))[:, 0]
            subject = np.take_along_axis(every, drawn["who"][:, None], 1)
            other = np.take_along_axis(every, drawn["who"][:, None] ^ 1, 1)[:, 0]
            blocks = every.reshape(drawn.size, self.n_blocks, 2)
            if self.function_words:
                blocks = np.insert(blocks, 1, words.start, axis=2)
                subject = np.insert(subject, 1, words.start + 1, axis=1)
            return laid(blocks, subject, other)

        return Program(
            classes=(names, words),
            draws=(*draws, choice("who", count)),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(self._length,) * self.n_blocks + (self._length - 1,),
            track_slots=slots(self.track_slots, self._length),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        blocks, query = context(batch, self._length - 1, self._length)
        names = blocks[:, :, :: self._length - 1] == query[:, :1, None]
        match = np.zeros(blocks.shape, dtype=bool)
        answer = match.copy()
        match[:, :, :: self._length - 1] = names
        answer[:, :, :: self._length - 1] = names[:, :, ::-1]
        return {
            "query": last(batch, self._length - 1),
            "match": times(match),
            "answer": times(answer),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query: the query becomes another name of the context (one token). key: its name in the
        context and one of another block change places (two tokens; else it would be there twice, or
        not at all). value: the name beside it becomes one that is not there (one token).
        """
        return ("query", "key", "value") if self.n_blocks > 1 else ("query", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        blocks, query = split(tokens, self._length - 1, self._length)
        every = np.arange(self.n_names)
        if part == "query":
            return replaced(tokens, last_of(tokens, self._length - 1), every)
        ends = [0, self._length - 1]
        names = blocks[:, :, ends].reshape(len(tokens), -1)
        match = names == query[:, :1]
        time = (self._length * np.arange(self.n_blocks)[:, None] + ends).ravel()
        if part == "key":
            moved = exchanged(names[:, :, None], match, [0])[..., 0]
            out = np.repeat(tokens[:, None], moved.shape[1], axis=1)
            out[:, :, time] = moved
            return out
        return replaced(tokens, time[match.argmax(1) ^ 1][:, None], every)

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, self._length - 1, self._length)
        names = blocks[:, :, [0, self._length - 1]]
        match = (names == query[:, :1, None]).reshape(len(tokens), -1)
        found = agreed(match, names[:, :, ::-1].reshape(len(tokens), -1))
        found = np.where(match.sum(1) == 1, found, NONE)
        lawful = distinct(names.reshape(len(tokens), -1)) & (found != NONE)
        return Answer(token=found, lawful=lawful)
