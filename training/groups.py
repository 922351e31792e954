"""Token classes and position tracks: who may be renamed into whom, and by which generators.

A token class is "free" (any renaming inside it: S_n), "pairs" (partners stay together:
S_2 wr S_(n/2)) or "fixed" (nobody renames them). Positions lie on tracks of m cyclic slots
(Z_m wr S_tracks). Theory, section 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClass:
    """`size` tokens of one kind, numbered from `start`; in a class of pairs 2i and 2i+1 belong."""

    name: str
    start: int
    size: int
    structure: Literal["free", "pairs", "fixed"] = "free"

    def __post_init__(self) -> None:
        if self.structure not in ("free", "pairs", "fixed"):
            raise ValueError(
                f"structure of class {self.name!r} is {self.structure!r}; free | pairs | fixed"
            )
        if self.size < 0 or (self.structure == "pairs" and self.size % 2):
            raise ValueError(
                f"size of class {self.name!r} is {self.size}; at least 0, and even for pairs"
            )

    @property
    def width(self) -> int:
        """Tokens that are renamed together: 2 in a class of pairs, else 1."""
        return 2 if self.structure == "pairs" else 1

    @property
    def tokens(self) -> np.ndarray:
        return np.arange(self.start, self.start + self.size)


def partner(tokens: np.ndarray, pairs: TokenClass) -> np.ndarray:
    """The other token of each pair: 2i <-> 2i+1 counted from the start of the class."""
    return pairs.start + ((tokens - pairs.start) ^ 1)


def relabel(tokens: np.ndarray, classes: Sequence[TokenClass]) -> np.ndarray:
    """Rename each row (sequences, columns) by first appearance within each class.

    The first pair or token of a class that appears becomes its first, the second its second;
    in a pair the member that appears first becomes the even one. Two rows lie in one orbit of
    the token group exactly when they come out equal. Fixed tokens stay.
    """
    out, columns = tokens.copy(), np.arange(tokens.shape[1])
    for cls in classes:
        if not cls.size or cls.structure == "fixed":
            continue
        inside = (tokens >= cls.start) & (tokens < cls.start + cls.size)
        unit, member = np.divmod(tokens - cls.start, cls.width)
        unit = np.where(inside, unit, -1)
        first = (unit[:, :, None] == unit[:, None, :]).argmax(2)  # where its unit appeared first
        number = np.cumsum(inside & (first == columns), axis=1) - 1
        name, flip = (np.take_along_axis(x, first, axis=1) for x in (number, member))
        out[inside] = (cls.start + cls.width * name + (member ^ flip))[inside]
    return out


def token_generators(classes: Sequence[TokenClass]) -> np.ndarray:
    """Permutations (g, vocabulary) that generate the product of the classes' groups."""
    identity = np.arange(sum(cls.size for cls in classes))
    generators = []
    for cls in classes:
        if cls.structure == "fixed":
            continue
        units = cls.tokens.reshape(-1, cls.width)
        if cls.structure == "pairs" and len(units):
            swap = identity.copy()
            swap[units[0]] = units[0][::-1]
            generators.append(swap)
        generators += _symmetric_group(units, identity)
    return np.array(generators, dtype=int).reshape(-1, len(identity))


def position_generators(tracks: int, slots: int) -> np.ndarray:
    """Permutations (g, tracks * slots) that generate Z_slots wr S_tracks."""
    identity = np.arange(tracks * slots)
    positions = identity.reshape(tracks, slots)
    turn = identity.copy()
    turn[positions[0]] = np.roll(positions[0], -1)
    return np.array([turn, *_symmetric_group(positions, identity)])


def _symmetric_group(units: np.ndarray, identity: np.ndarray) -> list[np.ndarray]:
    """A transposition and, from three on, a cycle of the rows of `units`."""
    generators = []
    if len(units) > 1:
        transposition = identity.copy()
        transposition[units[:2]] = units[1::-1]
        generators.append(transposition)
    if len(units) > 2:
        cycle = identity.copy()
        cycle[units] = np.roll(units, -1, axis=0)
        generators.append(cycle)
    return generators


def random_renamings(
    classes: Sequence[TokenClass], rng: np.random.Generator, size: int
) -> np.ndarray:
    """Independent uniform elements of the token group, (size, vocabulary): v goes to out[:, v]."""
    out = np.tile(np.arange(sum(cls.size for cls in classes)), (size, 1))
    for cls in classes:
        if not cls.size or cls.structure == "fixed":
            continue
        units = cls.tokens.reshape(-1, cls.width)
        image = units[rng.random((size, len(units))).argsort(1)]
        if cls.structure == "pairs":
            flip = rng.random((size, len(units), 1)) < 0.5
            image = np.where(flip, image[:, :, ::-1], image)
        out[:, cls.tokens] = image.reshape(size, -1)
    return out


def random_moves(tracks: int, slots: int, rng: np.random.Generator, size: int) -> np.ndarray:
    """Independent uniform elements of Z_slots wr S_tracks, (size, tracks * slots)."""
    track = rng.random((size, tracks)).argsort(1)[:, :, None]
    turn = rng.integers(slots, size=(size, tracks, 1))
    return (track * slots + (np.arange(slots) + turn) % slots).reshape(size, -1)


def token_directions(classes: Sequence[TokenClass]) -> dict[str, np.ndarray]:
    """I_<x> per class, x its name's first letter, and C, the map of each token to its partner.

    ValueError for two classes whose names share their first letter.
    """
    letters: dict[str, str] = {}
    for cls in (cls for cls in classes if cls.size):
        first = cls.name[:1]
        if first in letters:
            raise ValueError(
                f"classes {letters[first]!r} and {cls.name!r} would both be called 'I_{first}'; "
                f"allowed: names that differ in their first letter"
            )
        letters[first] = cls.name
    size = sum(cls.size for cls in classes)
    directions, partners = {}, np.zeros((size, size))
    for cls in classes:
        if cls.size:
            identity = np.zeros((size, size))
            identity[cls.tokens, cls.tokens] = 1.0
            directions[f"I_{cls.name[0]}"] = identity
        if cls.structure == "pairs":
            partners[partner(cls.tokens, cls), cls.tokens] = 1.0
    if partners.any():
        directions["C"] = partners
    return directions


def position_directions(tracks: int, slots: int) -> dict[str, np.ndarray]:
    """I_p and the shifts: M_ij = 1 iff j is the slot before i on i's track; M^T, M^2, M^3, ..."""
    previous = np.kron(np.eye(tracks), np.roll(np.eye(slots), -1, axis=1))
    directions = {"I_p": np.eye(tracks * slots)}
    for power in range(1, slots):
        name = "M" if power == 1 else "M^T" if power == slots - 1 else f"M^{power}"
        directions[name] = np.linalg.matrix_power(previous, power)
    return directions


def placement(tracks: np.ndarray, offsets: np.ndarray, blocks: Sequence[int], slots: int):
    """Positions (sequences, time) of blocks of the given lengths on their tracks.

    tracks, offsets: (sequences, blocks). Token j of a block lies j slots after the offset,
    cyclically.
    """
    block = np.repeat(np.arange(len(blocks)), blocks)
    step = np.concatenate([np.arange(length) for length in blocks])
    return tracks[:, block] * slots + (offsets[:, block] + step) % slots
