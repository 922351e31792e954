"""Where inputs, "=", the chain and padding stand in a sequence (theory, section 8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from training.tasks.base import IGNORE, Batch, generator

FORMATS = ("outcome", "cot", "acot")
LAYOUTS = (
    *("usual", "aligned", "right_aligned", "random_offset"),
    *("aligned_masked", "right_aligned_masked"),
)
ABSENT = -1
"""Position id of a token that no other may attend to."""

_OFFSET = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Places of a sequence of n inputs, for any n up to `reach`, the longest length of the cell.

    format, layout: as in `StateTracking`.
    """

    format: str
    layout: str
    reach: int

    def first(self, n: int) -> int:
        """Place of the first input."""
        return self.reach - n if self.layout.startswith("right_aligned") else 0

    def equals(self, n: int) -> int:
        """Place of "="."""
        return n if self.layout in ("usual", "random_offset") else self.reach

    def span(self, n: int) -> int:
        """Tokens of a sequence of n inputs, without the padding after it."""
        if self.format == "acot":
            return self.first(n) + n
        return self.equals(n) + (1 if self.format == "outcome" else n)

    def steps(self, n: int) -> np.ndarray:
        """Supervised places, in the order of what is predicted there."""
        if self.format == "acot":
            return self.first(n) + np.arange(n)
        return self.equals(n) + np.arange(1 if self.format == "outcome" else n)

    @property
    def masked(self) -> bool:
        """Whether padding is hidden from the other tokens."""
        return self.layout.endswith("_masked")

    @property
    def n_positions(self) -> int:
        drift = self.reach if self.layout == "random_offset" else 0
        return self.span(self.reach) + drift


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """The layout of several lengths as arrays, one row for each; R is the longest of them.

    shown, asked (lengths, time): which column of [R inputs, R states, "=", padding, nothing] is
    the token, or the target, at each place. inputs (lengths, R): places of the inputs, 0 where
    there is none. step (lengths, time): k where the state after k inputs is predicted, else 0.
    final (lengths,): place of the last prediction. masked: as in `Layout`.
    """

    shown: np.ndarray
    asked: np.ndarray
    inputs: np.ndarray
    step: np.ndarray
    final: np.ndarray
    masked: bool


@lru_cache(maxsize=64)
def places(layout: Layout, lengths: tuple[int, ...]) -> Places:
    most, time = max(lengths), max(layout.span(n) for n in lengths)
    equals, padding, nothing = 2 * most, 2 * most + 1, 2 * most + 2
    shown = np.full((len(lengths), time), padding)
    asked = np.full((len(lengths), time), nothing)
    inputs = np.zeros((len(lengths), most), dtype=np.int64)
    step = np.zeros((len(lengths), time), dtype=np.int64)
    for row, n in enumerate(lengths):
        k, steps = np.arange(n), layout.steps(n)
        inputs[row, :n] = layout.first(n) + k
        shown[row, inputs[row, :n]] = k
        if layout.format != "acot":
            shown[row, layout.equals(n)] = equals
        if layout.format == "cot":
            shown[row, steps[1:]] = most + k[:-1]
        answered = k[-1:] if layout.format == "outcome" else k
        asked[row, steps] = most + answered
        step[row, steps] = answered + 1
    final = np.array([layout.steps(n)[-1] for n in lengths])
    return Places(
        shown=shown, asked=asked, inputs=inputs, step=step, final=final, masked=layout.masked
    )


def lay(
    place: Places,
    inputs: np.ndarray,
    states: np.ndarray,
    kind: np.ndarray,
    n_elements: int,
    offset: np.ndarray | None,
) -> Batch:
    """Sequences of inputs and states (rows, R), whatever stands after a sequence's own.

    kind (rows,): row of `place` for each. offset (rows,): of the position ids; None: 0.
    """
    kind = kind.astype(np.int64)
    special = np.array([n_elements, n_elements + 1, IGNORE])
    columns = [inputs, states, np.broadcast_to(special, (len(inputs), 3))]
    source = np.concatenate(columns, axis=1, dtype=np.int64)
    tokens = np.take_along_axis(source, place.shown[kind], axis=1)
    positions = np.empty_like(tokens)
    positions[:] = np.arange(tokens.shape[1])
    if offset is not None:
        positions += offset[:, None]
    if place.masked:
        positions[tokens == n_elements + 1] = ABSENT
    targets = np.take_along_axis(source, place.asked[kind], axis=1)
    return Batch(tokens=tokens, positions=positions, targets=targets, kind=kind)


def offsets(
    inputs: np.ndarray, kind: np.ndarray, lengths: tuple[int, ...], n_elements: int, reach: int
) -> np.ndarray:
    """(rows,) on 0..reach: each sequence's own, a scrambled sum over its inputs and its length.

    inputs (rows, R) are followed by zeros, which add nothing, so R does not matter.
    """
    mixed = np.array(lengths, dtype=np.uint64)[kind]
    for row, column in zip(_offset_table(n_elements, reach), inputs.T, strict=False):
        mixed += row[column]
    for _ in range(2):
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(reach + 1)).astype(np.int64)


@lru_cache(maxsize=64)
def _offset_table(n_elements: int, reach: int) -> np.ndarray:
    """(reach, n_elements) uint64; element 0 adds nothing."""
    rng = generator(0, _OFFSET, n_elements, reach)
    table = rng.integers(0, 2**64, (reach, n_elements), dtype=np.uint64)
    table[:, 0] = 0
    return table
