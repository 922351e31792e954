"""Associative recall: blocks [u, v], a query q, and its label to be predicted (theory, section 1).

Common tokens come in fixed pairs (in-weights knowledge), rare tokens get their label in context
only. f_r: probability that a query is rare; f_v: probability that a common query's label is not
its partner; burstiness b: how many blocks hold [query, label]. arXiv 2607.11875.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from training.groups import TokenClass, partner
from training.tasks.base import Batch
from training.tasks.block_list import (
    BlockList,
    arrangements,
    choice,
    context,
    joined,
    last,
    last_of,
    split,
    times,
    whole,
)
from training.tasks.corruption import NONE, Answer, agreed, exchanged, replaced
from training.tasks.program import ALWAYS, Draw, Drawn, Laid, Program

KINDS = ("rare", "match", "mismatch", "iwl")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociativeRecall(BlockList):
    """n_blocks blocks of two tokens and a query, T = 2 n_blocks + 1; N = n_common + n_rare.

    Tokens: common first, partner of 2i is 2i+1; rare after. Label of a rare token: another rare
    one, uniform; of a common one: its partner with probability 1 - f_v, else a common token
    outside its pair. A distractor's first token is rare with probability distractor_f_r, uniform
    in its class, the whole draw repeated while it equals the query; its label by the same rule
    with distractor_f_v. Both are the query's own unless given.
    Positions: each block, and the query, on a track of its own, of track_slots cyclic slots.

    kinds: rare, match, mismatch (by query and label) and iwl: a common query with its partner as
    answer, whose pair is not in the context (burstiness 0), answerable from the weights alone.
    """

    n_blocks: int
    n_common: int
    n_rare: int
    track_slots: int
    f_r: float
    f_v: float
    burstiness: int = 1
    distractor_f_r: float | None = None
    distractor_f_v: float | None = None

    def __post_init__(self) -> None:
        whole("n_blocks", self.n_blocks, 1)
        whole("n_common", self.n_common, 0)
        whole("n_rare", self.n_rare, 0)
        whole("track_slots", self.track_slots, 2, "a block of two tokens needs two slots")
        whole("burstiness", self.burstiness, 0)
        for name in ("f_r", "f_v", "distractor_f_r", "distractor_f_v"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; a probability, from 0 to 1")
        if self.burstiness > self.n_blocks:
            raise ValueError(
                f"burstiness is {self.burstiness}; at most n_blocks = {self.n_blocks}, "
                "since each copy of the query's pair takes a block"
            )
        if self.n_common % 2:
            raise ValueError(f"n_common is {self.n_common}; even, since common tokens form pairs")
        if self.n_common + self.n_rare < 2:
            raise ValueError(
                f"n_common + n_rare is {self.n_common + self.n_rare}; at least 2 tokens"
            )
        resolved = self._resolved
        for prefix in ("", "distractor_"):
            self._check_classes(prefix, resolved[f"{prefix}f_r"], resolved[f"{prefix}f_v"])

    def _check_classes(self, prefix: str, f_r: float, f_v: float) -> None:
        if f_r > 0 and self.n_rare < 2:
            raise ValueError(
                f"{prefix}f_r is {f_r} with n_rare = {self.n_rare}; rare tokens need n_rare >= 2 "
                f"(the label is another rare token), or {prefix}f_r = 0"
            )
        if f_r < 1 and self.n_common < 2:
            raise ValueError(
                f"{prefix}f_r is {f_r} with n_common = {self.n_common}; common tokens need "
                f"n_common >= 2, or {prefix}f_r = 1"
            )
        if f_r < 1 and f_v > 0 and self.n_common < 4:
            raise ValueError(
                f"{prefix}f_v is {f_v} with n_common = {self.n_common}; a label outside the pair "
                f"needs n_common >= 4, or {prefix}f_v = 0"
            )

    @property
    def _resolved(self) -> dict[str, float]:
        """The four probabilities with the distractors' defaults filled in."""
        d_r, d_v = self.distractor_f_r, self.distractor_f_v
        return {
            "f_r": self.f_r,
            "f_v": self.f_v,
            "distractor_f_r": self.f_r if d_r is None else d_r,
            "distractor_f_v": self.f_v if d_v is None else d_v,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    @property
    def program(self) -> Program:
        """The draws, in order: query, its label, the slots of its copies, then each distractor."""
        rules = _Rules(self)
        draws = [
            Draw(name="q", alternatives=rules.query),
            Draw(name="y", alternatives=rules.label("q", "query")),
            choice("slots", len(rules.sources)),
        ]
        for i in range(self.n_blocks - self.burstiness):
            draws.append(Draw(name=f"u{i}", alternatives=rules.distractor))
            draws.append(Draw(name=f"v{i}", alternatives=rules.label(f"u{i}", "distractor")))
        return Program(
            classes=(rules.common, rules.rare),
            draws=tuple(draws),
            layout=rules.layout,
            factors=rules.factors,
            parameters=self._resolved,
            blocks=(2,) * self.n_blocks + (1,),
            track_slots=self.track_slots,
        )

    @property
    def circuit(self) -> tuple[str, ...]:
        """Induction (theory, section 3): previous token, match, copy; the match I->I is negative.

        Without it the answer ties with the query where its pair comes first of all: the first
        token can attend to itself alone, and so is matched like the one after it.
        """
        if self.burstiness == 0:
            return ()
        found = (self.n_common > 0, "I_c"), (self.n_rare > 0, "I_r")
        names = [name for there, name in found if there]
        return (
            "1:M",
            *(f"2:{name} I->V1" for name in names),
            *(f"2:{name} I->I" for name in names),
            *(f"out:{name} V2" for name in names),
        )

    def spans(self, batch: Batch) -> dict[str, np.ndarray]:
        blocks, query = context(batch, 1, 2)
        match = (blocks[:, :, 0] == query)[:, :, None]
        return {
            "query": last(batch),
            "match": times(match & [True, False]),
            "answer": times(match & [False, True]),
        }

    @property
    def corruptions(self) -> tuple[str, ...]:
        """query: the query becomes another key of the context (one token). key: the query's blocks
        and another change keys (two tokens; a single other key would leave the query without a
        block, or with two). value: the label of the query's blocks becomes another (one token in
        each). With burstiness 0 the query alone: it becomes a common token whose pair is not there.
        """
        return ("query",) if self.burstiness == 0 else ("query", "key", "value")

    def edits(self, tokens: np.ndarray, part: str) -> np.ndarray:
        every = np.arange(self.vocabulary)
        if part == "query":
            return replaced(tokens, last_of(tokens), every)
        blocks, query = split(tokens, 1, 2)
        match = blocks[:, :, 0] == query
        if part == "key":
            return joined(exchanged(blocks, match, [0]), tokens)
        return replaced(tokens, times(match[:, :, None] & [False, True]), every)

    def answer(self, tokens: np.ndarray) -> Answer:
        """The label beside the query, or with burstiness 0 and f_v = 0 the partner."""
        return _Rules(self).answer(*split(tokens, 1, 2))

    def kind_of(self, tokens: np.ndarray, target: np.ndarray) -> np.ndarray:
        return _Rules(self).kind(tokens[:, -1], target)

    def kind_probabilities(self, f_r: Any, f_v: Any) -> dict[str, Any]:
        """Probability of each kind under these query statistics, floats or torch tensors.

        A common query's answer is of kind iwl instead of match where burstiness is 0.
        """
        match = "iwl" if self.burstiness == 0 else "match"
        return {"rare": f_r, match: (1.0 - f_r) * (1.0 - f_v), "mismatch": (1.0 - f_r) * f_v}

    def given(self, kind: str) -> AssociativeRecall:
        """The task whose every sequence is of this kind; distractors stay as they are."""
        changes: dict[str, dict[str, Any]] = {
            "rare": {"f_r": 1.0},
            "match": {"f_r": 0.0, "f_v": 0.0},
            "mismatch": {"f_r": 0.0, "f_v": 1.0},
            "iwl": {"f_r": 0.0, "f_v": 0.0, "burstiness": 0},
        }
        if kind not in changes:
            raise ValueError(f"kind is {kind!r}; one of {', '.join(KINDS)}")
        return replace(self, **{**asdict(self), **self._resolved, **changes[kind]})


class _Rules:
    """The law of the draws of one task, on arrays of parallel states."""

    def __init__(self, task: AssociativeRecall) -> None:
        self.task = task
        self.common = TokenClass(name="common", start=0, size=task.n_common, structure="pairs")
        self.rare = TokenClass(name="rare", start=task.n_common, size=task.n_rare)
        self.ids = np.arange(task.n_common + task.n_rare)
        self.is_rare = self.ids >= task.n_common
        self.pairless = task.burstiness == 0
        self.sources = arrangements(task.n_blocks, task.burstiness)

    def query(self, drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        shape = (drawn.size, len(self.ids))
        return [
            ("query rare", np.broadcast_to(self.is_rare, shape)),
            ("query common", np.broadcast_to(~self.is_rare, shape)),
        ]

    def label(self, key: str, whose: str):
        """Another rare token for a rare key; partner or a common token outside the pair."""

        def alternatives(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
            token = drawn[key][:, None]
            rare_key = self.is_rare[token]
            mate = ~rare_key & (self.ids == partner(token, self.common))
            other = self.ids != token
            return [
                (ALWAYS, rare_key & self.is_rare & other),
                (f"{whose} match", mate),
                (f"{whose} mismatch", ~rare_key & ~self.is_rare & other & ~mate),
            ]

        return alternatives

    def distractor(self, drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        query = drawn["q"][:, None]
        rare_query, other = self.is_rare[query], self.ids != query
        return [
            (f"{kind} beside {beside} query", given & members & other)
            for beside, given in (("rare", rare_query), ("common", ~rare_query))
            for kind, members in (("rare", self.is_rare), ("common", ~self.is_rare))
        ]

    def factors(self, f_r, f_v, distractor_f_r, distractor_f_v) -> dict[str, Any]:
        """Probabilities of the alternatives; the distractor's class given that it is not q.

        Before the repetition a token u has probability rho / N_r or (1 - rho) / N_c, with
        rho = distractor_f_r; leaving out u = q and renormalising gives the four below.
        """
        one_rare = distractor_f_r / max(self.rare.size, 1)
        one_common = (1.0 - distractor_f_r) / max(self.common.size, 1)
        return {
            "query rare": f_r,
            "query common": 1.0 - f_r,
            "query match": 1.0 - f_v,
            "query mismatch": f_v,
            "distractor match": 1.0 - distractor_f_v,
            "distractor mismatch": distractor_f_v,
            "rare beside rare query": (distractor_f_r - one_rare) / (1.0 - one_rare),
            "common beside rare query": (1.0 - distractor_f_r) / (1.0 - one_rare),
            "rare beside common query": distractor_f_r / (1.0 - one_common),
            "common beside common query": (1.0 - distractor_f_r - one_common) / (1.0 - one_common),
        }

    def layout(self, drawn: Drawn) -> Laid:
        count = self.sources.max() + 1
        first = np.column_stack([drawn["q"], *(drawn[f"u{i}"] for i in range(count - 1))])
        second = np.column_stack([drawn["y"], *(drawn[f"v{i}"] for i in range(count - 1))])
        source = self.sources[drawn["slots"]]
        blocks = [np.take_along_axis(column, source, 1) for column in (first, second)]
        context = np.stack(blocks, axis=2).reshape(drawn.size, -1)
        query, answer = drawn["q"], drawn["y"]
        return Laid(
            tokens=np.column_stack([context, query]),
            target=answer,
            kind=self.kind(query, answer),
        )

    def kind(self, query: np.ndarray, answer: np.ndarray) -> np.ndarray:
        match = KINDS.index("iwl" if self.pairless else "match")
        kind = np.where(answer == partner(query, self.common), match, KINDS.index("mismatch"))
        return np.where(self.is_rare[query], KINDS.index("rare"), kind)

    def answer(self, blocks: np.ndarray, query: np.ndarray) -> Answer:
        task, chance = self.task, self.task._resolved
        key, label = blocks[:, :, 0], blocks[:, :, 1]
        match = key == query
        fits = self._may_be(query, chance["f_r"])[:, 0]
        if task.burstiness == 0:
            known = ~match.any(1) & ~self.is_rare[query[:, 0]] & (chance["f_v"] == 0.0)
            found = np.where(known, partner(query[:, 0], self.common), NONE)
        else:
            found = agreed(match, label)
            ruled = self._may_label(query[:, 0], np.maximum(found, 0), chance["f_v"])
            found = np.where(ruled, found, NONE)
        beside = self._may_be(key, chance["distractor_f_r"])
        beside &= self._may_label(key, label, chance["distractor_f_v"])
        fits &= (match.sum(1) == task.burstiness) & (match | beside).all(1)
        return Answer(token=found, lawful=fits & (found != NONE))

    def _may_be(self, key: np.ndarray, f_r: float) -> np.ndarray:
        """Whether a key of this class can be drawn."""
        return np.where(self.is_rare[key], f_r > 0.0, f_r < 1.0)

    def _may_label(self, key: np.ndarray, label: np.ndarray, f_v: float) -> np.ndarray:
        """Whether the key can have this label."""
        rare = self.is_rare[key]
        paired = np.where(label == partner(key, self.common), f_v < 1.0, f_v > 0.0)
        return (rare == self.is_rare[label]) & (label != key) & (rare | paired)
