"""Rival circuits as named coordinates: several ways to solve one task (theory, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from manifold.coordinates.basis import Basis
from manifold.coordinates.invariant import invariant_basis
from training.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """A name, and the coordinates that work together, as `invariant_basis` names them.

    Each works by being positive: a negative value on the same direction is something else.
    """

    name: str
    coordinates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """Two or more circuits for one task, in attention_only of so many layers and heads.

    Circuits may share coordinates; what tells them apart is what each has of its own.
    ValueError where a circuit has none, and for names that come twice.
    """

    layers: int
    heads: int = 1
    circuits: tuple[Circuit, ...]

    def __post_init__(self) -> None:
        names = self.names
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"rivalry: circuits got {', '.join(names) or 'none'}; allowed: two or more, each "
                f"with a name of its own"
            )
        bare = [name for name in names if not self.own(name)]
        if bare:
            raise ValueError(
                f"rivalry: {', '.join(bare)} has no coordinate that no other circuit has, so "
                f"nothing would tell who won"
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(circuit.name for circuit in self.circuits)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """All circuits' coordinates, each once."""
        return tuple(dict.fromkeys(x for c in self.circuits for x in c.coordinates))

    def own(self, name: str) -> tuple[str, ...]:
        """The coordinates of a circuit that no other has."""
        others = {x for c in self.circuits if c.name != name for x in c.coordinates}
        (found,) = (c for c in self.circuits if c.name == name)
        return tuple(x for x in found.coordinates if x not in others)

    def basis(self, task: Task) -> Basis:
        """The reduced model that holds the circuits and nothing else."""
        whole = invariant_basis(task, layers=self.layers, heads=self.heads)
        missing = [x for x in self.coordinates if x not in whole.names]
        if missing:
            raise ValueError(
                f"rivalry: {task} has no direction {', '.join(missing)}; there are "
                f"{', '.join(whole.names[:40])}"
            )
        return whole.select(self.coordinates)

    def places(self, names: tuple[str, ...]) -> np.ndarray:
        """(circuits, dim): which of these coordinates each circuit has of its own.

        ValueError where one of the rivalry's is not among them.
        """
        missing = [x for x in self.coordinates if x not in names]
        if missing:
            raise ValueError(
                f"rivalry: the field has no coordinate {', '.join(missing)}; allowed: a field of "
                f"one token class with coordinates='all', layers={self.layers}, "
                f"heads={self.heads}, or with coordinates=rivalry.basis(task)"
            )
        return np.array([[x in self.own(name) for x in names] for name in self.names])


_PREVIOUS, _MATCH, _COPY = "1:M", "2:I_t I->V1", "out:I_t V2"
_SAME, _NEXT = "1:I_t", "2:M^T V1->I"

ONE_HOP = Rivalry(
    layers=2,
    circuits=(
        Circuit(name="A", coordinates=(_PREVIOUS, _MATCH, _COPY)),
        Circuit(name="B", coordinates=(_SAME, _NEXT, _COPY, "out:I_t V2V1")),
    ),
)
"""A, induction: hear the previous token, match it. B, a pointer: attend to the same token, then to
the place after it. Both copy what layer 2 attends to; B may also read it through layer 1, as it
does in the network that section 3 of the theory takes apart."""

TWO_HOP = Rivalry(
    layers=4,
    circuits=(
        Circuit(name="A", coordinates=(_PREVIOUS, _MATCH, "3:I_t V2->V1", "out:I_t V3")),
        Circuit(name="B", coordinates=(_SAME, _NEXT, "3:I_t V2->I", "4:M^T V3->I", "out:I_t V4")),
    ),
)
"""2-hop induction: A matches twice in three layers and leaves the fourth; B points twice, and needs
it (theory, section 4)."""

TWO_HEADS = Rivalry(
    layers=2,
    heads=2,
    circuits=tuple(
        Circuit(
            name=f"head {h}",
            coordinates=(f"1.{h}:M", f"2.0:I_t I->V1.{h}", "out:I_t V2.0"),
        )
        for h in range(2)
    ),
)
"""Induction through one head of layer 1 or through the other: nothing prefers either."""

RIVALRIES: Mapping[str, Rivalry] = MappingProxyType(
    {"1-hop": ONE_HOP, "2-hop": TWO_HOP, "two heads": TWO_HEADS}
)
