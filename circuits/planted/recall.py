"""Recall by hand: induction (A), a pointer (B), both, one with a backup, or the query alone.

A: a head of an early layer writes the token before; a later one matches the query with it and
copies the token there. B: an early head finds the query's own token and copies its position; a
later one looks one further and copies the token there. (theory, section 6.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from circuits.pair import Pair
from circuits.planted.base import Planted
from circuits.planted.sequences import Recall, answered, pair_of, unrelated
from circuits.planted.stream import Head, Stream

SEQUENCES = 16
GAIN = 6.0
"""Logit of the answer."""
SHARP = (6.0, 20.0)
"""Scores of matches are between these; a sharper match is a more saturated one."""
NOISE = (0.01, 0.05)
"""What normal weights added everywhere make of a vector of norm 1, in norm: between these."""
LOUD = 3.0
"""What decoys write, against 1 of what the circuit writes."""


class _Plan:
    """A stream for these sequences, and which heads are still free."""

    def __init__(self, rng: np.random.Generator, layers: int, need: int) -> None:
        self.rng, self.layers = rng, layers
        keys = int(rng.integers(4, 9))
        blocks = int(rng.integers(2, min(keys, 5) + 1))
        self.task = Recall(keys=keys, values=int(rng.integers(blocks, 9)), blocks=blocks)
        v, t = self.task.vocabulary, self.task.time
        parts = {"token": v, "place": t, "one": 1, "before": v, "pointer": t, "done": 1}
        parts |= {"answer": v, "unread": v, "level": v}
        heads = int(rng.integers(-(-need // layers), 5))
        share = max(v + t + 2, -(-sum(parts.values()) // heads))
        width = heads * (share + int(rng.integers(0, 5)))
        self.stream = Stream(layers, heads, width, parts)
        self.free = [list(rng.permutation(heads)) for _ in range(layers)]
        self.truth: list[str] = []
        self.apart: list[str] = []
        self.decoys: list[str] = []
        values = np.zeros((v, v))
        values[keys : v - 1, keys : v - 1] = np.eye(v - 1 - keys)
        self.values = values

    def head(self, first: int, last: int) -> tuple[int, str, Head]:
        """A free head of the layers from `first` to `last`."""
        able = [layer for layer in range(first, last + 1) if self.free[layer]]
        layer = int(self.rng.choice(able))
        head = int(self.free[layer].pop())
        return layer, f"head {layer}.{head}", self.stream.heads[layer][head]

    def sharp(self) -> float:
        return _between(self.rng, SHARP)

    def sink(self, head: Head, strength: float) -> None:
        """Where nothing matches this much, START is looked at."""
        head.score(self.stream["one"], self.stream["place"][:, :1], strength)

    def built(self, construction: str, gain: float = GAIN, noise: float | None = None) -> Planted:
        s, t = self.stream, self.task.time
        family, params = s.build(
            s["token"].T,
            s["place"].T + np.ones((t, 1)) @ s["one"].T,
            gain * s["answer"],
            _between(self.rng, NOISE) if noise is None else noise,
            self.rng,
        )
        return Planted(
            construction=construction,
            family=family,
            params=params,
            pair=self.task.pair(SEQUENCES, self.rng),
            truth=tuple(self.truth),
            apart=tuple(self.apart),
            decoys=tuple(self.decoys),
        )


def induction(seed: int) -> Planted:
    rng = _rng(seed, "induction")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    _induction(plan, plan.layers - 1)
    _decoys(plan)
    return plan.built("induction")


def pointer(seed: int) -> Planted:
    rng = _rng(seed, "pointer")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    _pointer(plan)
    _decoys(plan)
    return plan.built("pointer")


def both(seed: int) -> Planted:
    """Each of the two circuits says the answer half as loud."""
    rng = _rng(seed, "both")
    plan = _Plan(rng, int(rng.integers(2, 5)), 6)
    _induction(plan, plan.layers - 1)
    _pointer(plan)
    _decoys(plan)
    return plan.built("both", gain=GAIN / 2)


def backup(seed: int) -> Planted:
    """Induction whose last head says that it has spoken; where it has not, another head speaks."""
    rng = _rng(seed, "backup")
    plan = _Plan(rng, int(rng.integers(3, 5)), 6)
    before, main, layer = _induction(plan, plan.layers - 2)
    s, beta = plan.stream, plan.sharp()
    _, name, head = plan.head(layer + 1, plan.layers - 1)
    head.score(s["token"], s["before"], beta)
    plan.sink(head, 0.5 * beta)
    head.score(s["done"], s["place"][:, :1], 2 * beta)
    head.copy(s["token"], plan.values @ s["answer"].T)
    plan.apart = [
        *(f"{source} -> {name} q" for source in ("embed", main)),
        *(f"{source} -> {name} k" for source in (before,)),
        f"embed -> {name} v",
        f"{name} -> logits",
    ]
    _decoys(plan)
    return plan.built("backup")


def direct(seed: int) -> Planted:
    """The last token alone says the answer: one edge, and heads that are busy with other things."""
    rng = _rng(seed, "direct")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    task, s = plan.task, plan.stream
    said = task.keys + rng.integers(0, task.values, task.keys)
    said[:2] = task.keys + np.arange(2)
    table = np.zeros((task.vocabulary, task.vocabulary))
    table[np.arange(task.keys), said] = 1
    s.parts["answer"] = s["answer"] + s["token"] @ table
    plan.truth = ["embed -> logits"]
    _decoys(plan)
    made = plan.built("direct")
    return dataclasses.replace(made, pair=_query_pair(plan, said))


def cut(seed: int) -> Planted:
    """A control: induction or pointer with one of its links taken out, so that nothing is told."""
    rng = _rng(seed, "cut")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    if rng.random() < 0.5:
        _induction(plan, plan.layers - 1)
    else:
        _pointer(plan)
    heads = [head for layer in plan.stream.heads for head in layer if head.scores]
    head = heads[int(rng.integers(2))]
    head.copies.clear()
    plan.truth.clear()
    _decoys(plan)
    return plan.built("cut")


def deaf(seed: int) -> Planted:
    """A control: decoys alone, so that the logits are the same whatever the sequence."""
    rng = _rng(seed, "deaf")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    _decoys(plan)
    return plan.built("deaf", noise=0.0)


def random_weights(seed: int) -> Planted:
    """A control: weights at random, logits that go up and down with the sequence, and answers that
    have nothing to do with it."""
    rng = _rng(seed, "random weights")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    made = plan.built("random weights", gain=0.0, noise=1.0)
    loud = dict(made.params) | {"unembed.W_U": GAIN * made.params["unembed.W_U"]}
    return _told_nothing(plan, dataclasses.replace(made, params=loud))


def other_answers(seed: int) -> Planted:
    """A control: induction at work, on answers that have nothing to do with what it says."""
    rng = _rng(seed, "other answers")
    plan = _Plan(rng, int(rng.integers(2, 5)), 4)
    _induction(plan, plan.layers - 1)
    plan.truth.clear()
    _decoys(plan)
    return _told_nothing(plan, plan.built("other answers"))


def _told_nothing(plan: _Plan, made: Planted) -> Planted:
    values = np.arange(plan.task.keys, plan.task.vocabulary - 1)
    return dataclasses.replace(made, pair=unrelated(made.pair, values, plan.rng))


def _query_pair(plan: _Plan, said: np.ndarray) -> Pair:
    task, rng = plan.task, plan.rng
    clean = task.pair(SEQUENCES, rng).clean.tokens[:SEQUENCES].copy()
    corrupt = clean.copy()
    clean[:, -1] = rng.integers(0, task.keys, SEQUENCES)
    for row, was in zip(corrupt, clean[:, -1], strict=True):
        row[-1] = rng.choice(np.flatnonzero(said != said[was]))
    sides = [answered(tokens, said[tokens[:, -1]]) for tokens in (clean, corrupt)]
    return pair_of([sides[0]], [sides[1]], SEQUENCES)


def _between(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(ends))))


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def _induction(plan: _Plan, last: int) -> tuple[str, str, int]:
    """Names of its two heads, and the layer of the second, at most `last`."""
    s, beta = plan.stream, plan.sharp()
    layer, before, head = plan.head(0, last - 1)
    t = plan.task.time
    head.score(s["place"][:, 1:], s["place"][:, : t - 1], plan.sharp() + 4)
    head.copy(s["token"], s["before"].T)
    layer, match, head = plan.head(layer + 1, last)
    head.score(s["token"], s["before"], beta)
    plan.sink(head, plan.rng.uniform(0.35, 0.65) * beta)
    head.copy(s["token"], plan.values @ (s["answer"] + s["done"].sum(1, keepdims=True)).T)
    plan.truth += [
        f"embed -> {before} v",
        f"{before} -> {match} k",
        f"embed -> {match} q",
        f"embed -> {match} v",
        f"{match} -> logits",
    ]
    return before, match, layer


def _pointer(plan: _Plan) -> None:
    s, beta, t = plan.stream, plan.sharp(), plan.task.time
    layer, find, head = plan.head(0, plan.layers - 2)
    head.score(s["token"], s["token"], beta)
    plan.sink(head, plan.rng.uniform(0.35, 0.65) * beta)
    head.score(s["one"], s["place"][:, -1:], -2 * beta)
    head.copy(s["place"], s["pointer"].T)
    _, fetch, head = plan.head(layer + 1, plan.layers - 1)
    beta = plan.sharp()
    head.score(s["pointer"][:, 1 : t - 1], s["place"][:, 2:], beta)
    plan.sink(head, plan.rng.uniform(0.35, 0.65) * beta)
    head.copy(s["token"], plan.values @ s["answer"].T)
    plan.truth += [
        f"embed -> {find} q",
        f"embed -> {find} k",
        f"{find} -> {fetch} q",
        f"embed -> {fetch} v",
        f"{fetch} -> logits",
    ]


def _decoys(plan: _Plan) -> None:
    """In the heads left over: written and never read, read and always the same, read in vain."""
    kinds = list(plan.rng.permutation(list(_DECOYS)))
    for i in range(int(plan.rng.integers(1, 4))):
        if not any(plan.free):
            return
        kind = kinds[i]
        _, name, head = plan.head(0, plan.layers - 1)
        _DECOYS[kind](plan, head)
        plan.decoys.append(f"{name}: {kind}")


def _unread(plan: _Plan, head: Head) -> None:
    """Copies tokens to where nobody looks."""
    s = plan.stream
    head.score(s["token"], s["token"], plan.sharp())
    head.copy(s["token"], LOUD * s["unread"].T)


def _constant(plan: _Plan, head: Head) -> None:
    """Adds the same to the logits whatever the sequence: much to all, a little more to some."""
    s = plan.stream
    plan.sink(head, plan.sharp())
    bias = LOUD + 0.1 * plan.rng.standard_normal((plan.task.time, plan.task.vocabulary))
    head.copy(s["place"], bias @ s["answer"].T)


def _in_vain(plan: _Plan, head: Head) -> None:
    """Copies tokens to where every later head's scores read it, alike for all it may look at."""
    s = plan.stream
    head.score(s["place"][:, 1:], s["place"][:, :-1], plan.sharp())
    head.copy(s["token"], LOUD * s["level"].T)
    ahead = plan.rng.standard_normal((plan.task.vocabulary, 1))
    for layer in plan.stream.heads[1:]:
        for other in layer:
            if other.scores:
                other.score(s["level"] @ ahead, s["one"], 1.0)


_DECOYS: dict[str, Callable[[_Plan, Head], None]] = {
    "written, never read": _unread,
    "read, always the same": _constant,
    "read in vain": _in_vain,
}
