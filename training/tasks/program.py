"""A task as a small probabilistic program: ordered draws and a layout (theory, section 1).

From this one definition follow the sampler, the exact law at small sizes, the orbits of the
sequences under the token group with their exact weights, the generators and the invariance test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np

from training.groups import (
    TokenClass,
    placement,
    position_directions,
    position_generators,
    random_moves,
    random_renamings,
    relabel,
    token_directions,
    token_generators,
)
from training.tasks.base import IGNORE, Batch, Symmetry
from training.tasks.orbits import Laid, Orbits, as_batch

ALWAYS = "always"
"""The factor of a draw that has one alternative: probability 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(Mapping[str, np.ndarray]):
    """What has been drawn so far in `size` parallel states: a column (size,) per draw."""

    size: int
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """One random choice: a token, or a structural choice in range(choices).

    alternatives(drawn) -> [(factor, candidates), ...], candidates boolean (states, values): the
    draw takes alternative `factor` with that factor's probability, then a value uniformly among
    its candidates. An alternative without candidates in a state does not exist there. In each
    state the alternatives are disjoint and the factors of those that exist sum to 1.
    """

    name: str
    alternatives: Callable[[Drawn], Sequence[tuple[str, np.ndarray]]]
    choices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Draws in order, then a layout.

    classes: token classes, consecutive from token 0. layout(drawn) -> Laid.
    factors(**parameters) -> {factor: value} in plain arithmetic, so that floats and torch tensors
    go through; ALWAYS need not be among them. parameters: the task's own values.
    blocks: tokens in each block, the query's last. track_slots: slots m of each track.
    """

    classes: tuple[TokenClass, ...]
    draws: tuple[Draw, ...]
    layout: Callable[[Drawn], Laid]
    factors: Callable[..., Mapping[str, Any]]
    parameters: Mapping[str, float]
    blocks: tuple[int, ...]
    track_slots: int

    @property
    def vocabulary(self) -> int:
        return sum(cls.size for cls in self.classes)

    @property
    def symmetry(self) -> Symmetry:
        tracks, slots = len(self.blocks), self.track_slots
        return Symmetry(
            token_generators=token_generators(self.classes),
            position_generators=position_generators(tracks, slots),
            token_classes=tuple(cls.tokens for cls in self.classes if cls.size),
            tracks=tuple(np.arange(tracks * slots).reshape(tracks, slots)),
            token_directions=token_directions(self.classes),
            position_directions=position_directions(tracks, slots),
        )

    def sample(self, rng: np.random.Generator, size: int) -> Batch:
        """`size` independent sequences, each with its own placement."""
        values = {ALWAYS: 1.0, **self.factors(**self.parameters)}
        drawn = Drawn(size)
        for draw in self.draws:
            value = _choose(draw.alternatives(drawn), values, rng.random(size))
            drawn = Drawn(size, {**drawn, draw.name: value})
        tracks = rng.random((size, len(self.blocks))).argsort(1)
        offsets = rng.integers(self.track_slots, size=(size, len(self.blocks)))
        positions = placement(tracks, offsets, self.blocks, self.track_slots)
        return as_batch(self.layout(drawn), positions)

    def relabelled(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Every sequence moved by its own uniform element of the token and the placement group.

        Whatever law the sequences had, the new one is invariant: a biased data set becomes
        symmetric. What the group keeps stays: partners are still partners, fixed tokens stay.
        Raises ValueError where tokens or positions are not those of the program.
        """
        count, slots = len(self.blocks), self.track_slots
        for name, values, size in (
            ("tokens", batch.tokens, self.vocabulary),
            ("targets", batch.targets[batch.targets != IGNORE], self.vocabulary),
            ("positions", batch.positions, count * slots),
        ):
            if values.size and not 0 <= values.min() <= values.max() < size:
                raise ValueError(
                    f"{name} of the batch run from {values.min()} to {values.max()}; "
                    f"this task has 0 to {size - 1}: relabel with the task that drew the batch"
                )
        rename = random_renamings(self.classes, rng, len(batch))
        move = random_moves(count, slots, rng, len(batch))
        supervised = np.where(batch.targets == IGNORE, 0, batch.targets)
        renamed = np.take_along_axis(rename, supervised, 1)
        return Batch(
            tokens=np.take_along_axis(rename, batch.tokens, 1),
            positions=np.take_along_axis(move, batch.positions, 1),
            targets=np.where(batch.targets == IGNORE, IGNORE, renamed),
            kind=batch.kind,
        )

    def law(self) -> tuple[Laid, np.ndarray]:
        """Every sequence and its exact probability; for tiny instances (each is enumerated)."""
        every = self._enumerate(renaming=False)
        assert every is not None
        return Laid(tokens=every.tokens, target=every.target, kind=every.kind), every.weights()

    def orbits(self) -> Orbits:
        """Every sequence up to renaming (1,836 at n=3, N_c=6, N_r=5), weights as monomials."""
        found = self.few_orbits(None)
        assert found is not None
        return found

    def few_orbits(self, limit: int | None) -> Orbits | None:
        """The orbits, or None as soon as there are more than `limit` of them."""
        return self._enumerate(renaming=True, limit=limit)

    def placements(self) -> np.ndarray:
        """Every placement (count, time), all equally likely; for tiny instances."""
        count, slots = len(self.blocks), self.track_slots
        pairs = [
            (order, offset)
            for order in permutations(range(count))
            for offset in product(range(slots), repeat=count)
        ]
        tracks, offsets = (np.array(column) for column in zip(*pairs, strict=True))
        return placement(tracks, offsets, self.blocks, slots)

    def one_placement(self) -> np.ndarray:
        """The representative of all placements, (time,): block i from the start of track i."""
        order = np.arange(len(self.blocks))[None]
        return placement(order, np.zeros_like(order), self.blocks, self.track_slots)[0]

    def invariance(self) -> float:
        """Largest |p(g x) - p(x)| over all sequences, placements and generators; 0 by design."""
        laid, probability = self.law()
        rows = np.column_stack([laid.tokens, laid.target])
        gap = max(
            (_law_gap(rows, g[rows], probability) for g in self.symmetry.token_generators),
            default=0.0,
        )
        places = self.placements()
        uniform = np.full(len(places), 1.0 / len(places))
        moved = [g[places] for g in self.symmetry.position_generators]
        return max(gap, *(_law_gap(places, image, uniform) for image in moved))

    def _enumerate(self, renaming: bool, limit: int | None = None) -> Orbits | None:
        names = tuple(self.factors(**self.parameters))
        column = {name: np.arange(len(names)) == i for i, name in enumerate(names)}
        column[ALWAYS] = np.zeros(len(names), dtype=bool)
        drawn, coefficient = Drawn(1), np.ones(1)
        exponents = np.zeros((1, len(names)), dtype=int)
        for draw in self.draws:
            parts = []
            for name, mask in draw.alternatives(drawn):
                state, value = np.nonzero(mask)
                chance = coefficient / np.maximum(mask.sum(1), 1)
                parts.append((state, value, chance[state], exponents[state] + column[name]))
            state, value, coefficient, exponents = (
                np.concatenate(part) for part in zip(*parts, strict=True)
            )
            columns = {**{name: old[state] for name, old in drawn.items()}, draw.name: value}
            if renaming:
                columns, coefficient, exponents = self._rename(columns, coefficient, exponents)
            drawn = Drawn(len(coefficient), columns)
            if limit is not None and drawn.size > limit:
                return None
        return self._collect(self.layout(drawn), coefficient, exponents, names, renaming)

    def _rename(self, columns: dict[str, np.ndarray], coefficient, exponents):
        """Relabel the tokens drawn so far and merge states that became equal."""
        tokens = [draw.name for draw in self.draws if draw.choices is None and draw.name in columns]
        renamed = relabel(np.column_stack([columns[name] for name in tokens]), self.classes)
        columns = {**columns, **dict(zip(tokens, renamed.T, strict=True))}
        first, group = merge(np.column_stack([*columns.values(), exponents]))
        coefficient = np.bincount(group, weights=coefficient, minlength=len(first))
        return {name: old[first] for name, old in columns.items()}, coefficient, exponents[first]

    def _collect(self, laid: Laid, coefficient, exponents, names, renaming: bool) -> Orbits:
        """Sequences that different draws lead to become one, with several monomials."""
        rows = np.column_stack([laid.tokens, laid.target])
        if renaming:
            rows = relabel(rows, self.classes)
        first, orbit = merge(np.column_stack([rows, laid.kind]))
        return Orbits(
            tokens=rows[first, :-1],
            target=rows[first, -1],
            kind=laid.kind[first],
            positions=self.one_placement(),
            coefficient=coefficient,
            exponents=exponents,
            orbit=orbit,
            factor_names=names,
            factors=self.factors,
            parameters=self.parameters,
        )


def merge(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal rows of non-negative integers: (first row of each group, group of each row)."""
    key, span = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        size = int(column.max(initial=0)) + 1
        if span * size > 2**62:
            values, key = np.unique(key, return_inverse=True)
            span = len(values)
        key, span = key * size + column, span * size
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group


def _choose(
    alternatives: Sequence[tuple[str, np.ndarray]], values: Mapping[str, Any], uniform: np.ndarray
) -> np.ndarray:
    """A value for each state, (states,), by inverting the cumulative distribution at `uniform`."""
    chance = np.zeros(alternatives[0][1].shape)
    for name, mask in alternatives:
        count = mask @ np.ones(mask.shape[1])
        chance += mask * (values[name] / np.maximum(count, 1.0))[:, None]
    edges = np.ascontiguousarray(chance.T)
    for before, here in pairwise(edges):  # a cumulative sum in place, three times faster
        here += before
    return (edges <= uniform * edges[-1]).sum(0)


def _law_gap(rows: np.ndarray, images: np.ndarray, probability: np.ndarray) -> float:
    """Largest difference between the law on `rows` and its image; rows are all different."""
    _, group = merge(np.concatenate([rows, images]))
    before = np.bincount(group[: len(rows)], weights=probability, minlength=group.max() + 1)
    after = np.bincount(group[len(rows) :], weights=probability, minlength=group.max() + 1)
    return float(np.abs(before - after).max())
