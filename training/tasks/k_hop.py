"""k-hop induction: the answer of one look-up is the query of the next (theory, section 1)."""

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
    token,
    whole,
)
from training.tasks.corruption import NONE, Answer, distinct, exchanged, replaced
from training.tasks.program import Drawn, Laid, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class KHop(BlockList):
    """Chains t_0, .., t_hops cut into blocks [t_j, t_(j+1)]; query t_0 of the first, answer its
    t_hops. T = 2 chains hops + 1.

    All tokens of all chains differ, and the blocks stand in random order. They are one class,
    renamed freely. With a single chain its end could be found without following it.
    """

    hops: int
    n_tokens: int
    chains: int = 2
    track_slots: int | None = None

    def __post_init__(self) -> None:
        whole("hops", self.hops, 1)
        whole("chains", self.chains, 2, "with one chain its end is a shortcut to the answer")
        least = self.chains * (self.hops + 1)
        whole("n_tokens", self.n_tokens, least, "chains (hops + 1) different tokens")
        slots(self.track_slots, 2)

    @property
    def circuit(self) -> tuple[str, ...]:
        """Induction, and for each further hop a match with what was just found (theory, section 4).

        Every match comes with a negative one to the token itself, as in `AssociativeRecall`. The
        theory lists 4 coordinates for 1 hop and 6 for 2; further hops repeat the step.
        """
        found = ["I", *(f"V{layer}" for layer in range(2, self.hops + 1))]
        matches = (
            f"{layer}:I_t {path}->{to}" for layer, path in enumerate(found, 2) for to in ("V1", "I")
        )
        return ("1:M", *matches, f"out:I_t V{self.hops + 1}")

    @property
    def program(self) -> Program:
        """The draws, in order: every token of every chain, then the place of each block."""
        tokens = TokenClass(name="token", start=0, size=self.n_tokens)
        names = [f"t{c}.{j}" for c in range(self.chains) for j in range(self.hops + 1)]
        draws = [token(x, tokens, self.n_tokens, tuple(names[:i])) for i, x in enumerate(names)]
        pairs = [
            (f"t{c}.{j}", f"t{c}.{j + 1}") for c in range(self.chains) for j in range(self.hops)
        ]

        def layout(drawn: Drawn) -> Laid:
            return laid(
                in_order(drawn, stack(drawn, *pairs)), drawn["t0.0"], drawn[names[self.hops]]
            )

        return Program(
            classes=(tokens,),
            draws=(*draws, *places(len(pairs))),
            layout=layout,
            factors=dict,
            parameters={},
            blocks=(2,) * len(pairs) + (1,),
            track_slots=slots(self.track_slots, 2),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        """As in `BlockList`, and "hops" (B, hops): where t_0, t_1, .. stand as keys of blocks."""
        blocks, query = context(batch, 1, 2)
        found = []
        for _ in range(self.hops):
            block = (blocks[:, :, 0] == query).argmax(1)
            found.append(2 * block)
            query = np.take_along_axis(blocks[:, :, 1], block[:, None], 1)
        hops = np.column_stack(found)
        return {
            "query": last(batch),
            "match": hops[:, :1],
            "answer": hops[:, -1:] + 1,
            "hops": hops,
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query: the query becomes the start of another chain (one token). key: at a random hop the
        block of the query's chain and one of another chain change keys, so that the chains go on
        where the other did (two tokens; else a key would be there twice). value: the end of the
        query's chain becomes another token (one token).
        """
        return ("query", "key", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        every = np.arange(self.n_tokens)
        if part == "query":
            return replaced(tokens, last_of(tokens), every)
        blocks, query = split(tokens, 1, 2)
        there, at = np.arange(blocks.shape[1]), []
        for _ in range(self.hops):
            at.append((blocks[:, :, 0] == query).argmax(1))
            query = np.take_along_axis(blocks[:, :, 1], at[-1][:, None], 1)
        if part == "key":
            moved = [exchanged(blocks, there == block[:, None], [0]) for block in at]
            return joined(np.concatenate(moved, axis=1), tokens)
        return replaced(tokens, 2 * at[-1][:, None] + 1, every)

    def answer(self, tokens: np.ndarray) -> Answer:
        blocks, query = split(tokens, 1, 2)
        keys, values = blocks[:, :, 0], blocks[:, :, 1]
        token, found = query[:, 0], np.ones(len(tokens), dtype=bool)
        for _ in range(self.hops):
            match = keys == token[:, None]
            found &= match.sum(1) == 1
            token = np.take_along_axis(values, match.argmax(1)[:, None], 1)[:, 0]
        follows = keys[:, None] == values[:, :, None]
        starts = ~follows.any(1)
        onward = np.where(follows.any(2), follows.argmax(2), keys.shape[1])
        onward = np.pad(onward, ((0, 0), (0, 1)), constant_values=keys.shape[1])
        at = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
        for _ in range(self.hops - 1):
            at = np.take_along_axis(onward, at, 1)
        whole_chains = (at < keys.shape[1]) & (np.take_along_axis(onward, at, 1) == keys.shape[1])
        lawful = found & distinct(keys) & distinct(values) & (starts.sum(1) == self.chains)
        lawful &= (~starts | whole_chains).all(1) & ((keys == query) & starts).any(1)
        return Answer(token=np.where(found, token, NONE), lawful=lawful)
