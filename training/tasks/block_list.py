"""What every task of the block-list class has; a task file holds its draws and its layout.

A sequence is a list of blocks, the query's last, and the next token is to be predicted (theory,
section 1). Query kinds have one vocabulary over all tasks: `rare` is what only context can answer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import combinations
from typing import Self

import numpy as np

from training.groups import TokenClass
from training.tasks.base import Batch, Symmetry, generator
from training.tasks.corruption import Answer, choose
from training.tasks.program import ALWAYS, Draw, Drawn, Laid, Program

_TRAINING, _EVALUATION, _CORRUPT = 0, 1, 2


class BlockList(ABC):
    """Sequences of blocks on tracks, from one `program`; subclasses are frozen dataclasses."""

    __slots__ = ()

    @property
    @abstractmethod
    def program(self) -> Program:
        """The draws in order, the layout and the token classes: the law of the sequences."""

    @property
    @abstractmethod
    def circuit(self) -> tuple[str, ...]:
        """Directions, as `manifold` names them, of the textbook circuit for one head per layer.

        Empty where none is known with certainty.
        """

    @abstractmethod
    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        """Times (indices into the sequence) of the structural parts of each sequence.

        "query" (B,): the token that is looked up; "match" (B, c): where it stands in the context,
        or the last token of it where it is several; "answer" (B, c): where the answer to it
        stands. Column i of both belong together; c is the largest number of matches in the batch,
        at least 1, and -1 fills up.
        """

    @property
    @abstractmethod
    def corruptions(self) -> tuple[str, ...]:
        """What `corrupt` can change, by name; the class says what each name stands for."""

    @abstractmethod
    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        """(B, candidates, T): what sequences (B, T) may become when this part is changed."""

    @abstractmethod
    def answer(self, tokens: np.ndarray) -> Answer:
        """The answer read off each sequence (S, T), every token in its class's place."""

    def kind_of(self, tokens: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(S,) the kind of each sequence (S, T) with its answer (S,)."""
        return np.zeros(len(tokens), dtype=int)

    def corrupt(self, batch: Batch, seed: int, part: str | None = None) -> Batch:
        """Each sequence with `part` (of `corruptions`; the first unless given) changed.

        Same length, same placement, another answer, by the task's own rule; the change is uniform
        among those that the task's law can draw, or where there is none, among those that leave
        the sequence one answer. A sequence that has neither comes back unchanged. ValueError for
        another part.
        """
        part = self.corruptions[0] if part is None else part
        if part not in self.corruptions:
            raise ValueError(f"part is {part!r}; one of {', '.join(self.corruptions)}")
        tokens, answers = choose(
            batch.tokens,
            batch.targets[:, -1],
            lambda rows: self.edits(rows, part),
            self.answer,
            generator(_CORRUPT, seed, self.corruptions.index(part)),
        )
        targets = batch.targets.copy()
        targets[:, -1] = answers
        kind = self.kind_of(tokens, answers)
        return replace(batch, tokens=tokens, targets=targets, kind=kind)

    @property
    def vocabulary(self) -> int:
        return self.program.vocabulary

    @property
    def n_positions(self) -> int:
        return len(self.program.blocks) * self.program.track_slots

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("rare",)

    @property
    def symmetry(self) -> Symmetry:
        return self.program.symmetry

    @property
    def circuit_layers(self) -> int:
        """Layers that `circuit` needs: the largest that its names speak of; 0 without a circuit."""
        return max((_layer(name) for name in self.circuit), default=0)

    def batch(self, seed: int, k: int, size: int, train_size: int | None = None) -> Batch:
        """Training batch k of data seed `seed`; the pool is without end."""
        if train_size is not None:
            raise ValueError(
                f"train_size is {train_size}; {type(self).__name__} draws without end: "
                "leave it null"
            )
        return self.program.sample(generator(_TRAINING, seed, k), size)

    def evaluation(self, seed: int, size: int, kind: str | None = None) -> Batch:
        """Fresh sequences, of one kind where `kind` is given; never those of a training batch."""
        task = self if kind is None else self.given(kind)
        stream = 0 if kind is None else 1 + self.kinds.index(kind)
        return task.program.sample(generator(_EVALUATION, seed, stream), size)

    def given(self, kind: str) -> Self:
        """The task whose every sequence is of this kind."""
        if kind not in self.kinds:
            raise ValueError(f"kind is {kind!r}; one of {', '.join(self.kinds)}")
        return self


def _layer(name: str) -> int:
    """The deepest layer in "2:I_t I->V1" or "out:I_t V2V1": 2 in both."""
    return max(int(number) for number in re.findall(r"^\d+(?=:)|(?<=V)\d+", name) or ["0"])


def token(name: str, cls: TokenClass, vocabulary: int, unlike: tuple[str, ...] = ()) -> Draw:
    """A token uniform in its class among those that differ from the draws named in `unlike`."""
    ids = np.arange(vocabulary)
    members = (ids >= cls.start) & (ids < cls.start + cls.size)

    def alternatives(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        allowed = np.broadcast_to(members, (drawn.size, vocabulary)).copy()
        for other in unlike:
            allowed &= ids != drawn[other][:, None]
        return [(ALWAYS, allowed)]

    return Draw(name=name, alternatives=alternatives)


def choice(name: str, choices: int) -> Draw:
    """A structural choice, uniform."""

    def alternatives(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        return [(ALWAYS, np.ones((drawn.size, choices), dtype=bool))]

    return Draw(name=name, alternatives=alternatives, choices=choices)


def places(count: int) -> tuple[Draw, ...]:
    """place0, place1, ..: `count` things in a random order, thing i at place{i}."""
    here = np.arange(count)

    def place(i: int) -> Draw:
        def alternatives(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
            free = np.ones((drawn.size, count), dtype=bool)
            for before in range(i):
                free &= here != drawn[f"place{before}"][:, None]
            return [(ALWAYS, free)]

        return Draw(name=f"place{i}", alternatives=alternatives, choices=count)

    return tuple(place(i) for i in range(count))


def in_order(drawn: Drawn, things: np.ndarray) -> np.ndarray:
    """(states, count, ...) with thing i moved to place{i}."""
    place = np.column_stack([drawn[f"place{i}"] for i in range(things.shape[1])])
    source = place.argsort(1).reshape(*place.shape, *(1,) * (things.ndim - 2))
    return np.take_along_axis(things, source, 1)


def arrangements(n_blocks: int, copies: int) -> np.ndarray:
    """(choices, n_blocks): what each block holds: 0 the query's block, i the i-th distractor."""
    sources = []
    for chosen in combinations(range(n_blocks), copies):
        rest = iter(range(1, n_blocks + 1))
        sources.append([0 if block in chosen else next(rest) for block in range(n_blocks)])
    return np.array(sources)


def stack(drawn: Drawn, *blocks: tuple[str, ...]) -> np.ndarray:
    """(states, blocks, block length) of the draws with these names."""
    return np.stack([np.column_stack([drawn[name] for name in block]) for block in blocks], axis=1)


def laid(blocks: np.ndarray, query: np.ndarray, target: np.ndarray) -> Laid:
    """Context blocks (states, blocks, length), the query's tokens (states, ...) and the answer."""
    tokens = np.column_stack([blocks.reshape(len(blocks), -1), query])
    return Laid(tokens=tokens, target=target, kind=np.zeros(len(tokens), dtype=int))


def context(batch: Batch, query: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Context blocks (B, blocks, length) and the query's tokens (B, query) of a batch."""
    return split(batch.tokens, query, length)


def split(tokens: np.ndarray, query: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """As `context`, of tokens (B, T)."""
    if (tokens.shape[1] - query) % length:
        raise ValueError(
            f"the batch has {tokens.shape[1]} tokens a sequence; this task has blocks of {length} "
            f"and {query} at the end: ask the task that drew the batch"
        )
    return tokens[:, :-query].reshape(len(tokens), -1, length), tokens[:, -query:]


def joined(blocks: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(B, candidates, T): other context blocks (B, candidates, .., ..) before the query of each
    sequence (B, T)."""
    flat = blocks.reshape(*blocks.shape[:2], -1)
    query = np.repeat(tokens[:, None, flat.shape[2] :], flat.shape[1], axis=1)
    return np.concatenate([flat, query], axis=2)


def times(marks: np.ndarray) -> np.ndarray:
    """(B, c) increasing times of the marked tokens (B, blocks, length), filled up with -1."""
    flat = marks.reshape(len(marks), -1)
    width = max(int(flat.sum(1).max(initial=0)), 1)
    order = np.argsort(~flat, axis=1, kind="stable")[:, :width]
    return np.where(np.take_along_axis(flat, order, 1), order, -1)


def last(batch: Batch, back: int = 1) -> np.ndarray:
    """(B,) the time `back` tokens from the end."""
    return np.full(len(batch), batch.tokens.shape[1] - back)


def last_of(tokens: np.ndarray, back: int = 1) -> np.ndarray:
    """(B, 1) the time `back` tokens from the end of each sequence (B, T)."""
    return np.full((len(tokens), 1), tokens.shape[1] - back)


def whole(name: str, value: int, least: int, why: str = "") -> None:
    """ValueError unless `value` is a whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        reason = f" ({why})" if why else ""
        raise ValueError(f"{name} is {value!r}; a whole number, at least {least}{reason}")


def slots(track_slots: int | None, longest: int) -> int:
    """Slots of each track: twice the longest block unless given, so that M^j and M^-j differ."""
    if track_slots is None:
        return 2 * longest
    whole("track_slots", track_slots, longest, f"a block of {longest} tokens needs as many slots")
    return track_slots
