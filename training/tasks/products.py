"""Running products in a group, and the symmetry of the tasks that ask for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from training.tasks.base import Symmetry

Compose = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(later, earlier) to their product, elementwise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relabellings:
    """A group that acts on the inputs and, by another action, on the answer of one length.

    inputs, answers: (g, q) integers, read-only; row r of both is one element of that group: it
    sends every input x to inputs[r, x] and then the answer y to answers[r, y]. So
    `commutant(inputs, answers)` are the matrices (answer, input) that are invariant at that length.
    """

    inputs: np.ndarray
    answers: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.inputs, self.answers):
            array.flags.writeable = False


class Group(ABC):
    """A finite group as a task declares it: its elements are 0..q-1, and 0 is the identity."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_elements(self) -> int:
        """q, the order of the group."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The group, as it is written: Z_5, S_3."""

    @property
    @abstractmethod
    def automorphisms(self) -> np.ndarray:
        """(generators, q): what may be done to all inputs and is then done to every state."""

    @property
    def central(self) -> tuple[int, ...]:
        """Elements that generate the centre, the identity left out; none unless a group says so."""
        return ()

    @abstractmethod
    def compose(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """The product later * earlier, elementwise."""

    @abstractmethod
    def inverse(self, element: np.ndarray) -> np.ndarray:
        """The inverse, elementwise."""

    @abstractmethod
    def _group_problems(self) -> Iterator[str]:
        """What is wrong with the fields that name the group, each with what is allowed."""

    def relabellings(self, length: int) -> Relabellings:
        """What maps sequences of `length` inputs to sequences whose answer follows (theory 3).

        First the automorphisms, which do to the answer what they do to the inputs, then x -> c x
        for each c of `central`, which does y -> c^length y: for Z_m the shift x -> x + c of all
        tokens at once, y -> y + length c, trivial where m divides length. There is nothing else
        from length 2 on, but for automorphisms that a task does not declare (S_6 has outer ones):
        if f(x_n) .. f(x_1) depends on x_n .. x_1 alone, put the identity in all places but two to
        find f(x) = c a(x) with c = f(0) central and a an automorphism.

        That the action depends on the length does *not* explain why lengths fail to share a
        mechanism: networks that solve the task show the structure of one group in all lengths
        also where kappa > 1. It is a fact about the data, not a finding about a network.

        Raises ValueError for a length below 1.
        """
        if length < 1:
            raise ValueError(f"relabellings: length got {length}, allowed 1 or more")
        every = np.arange(self.n_elements)
        shifts = np.array(self.central, dtype=np.int64)
        powers = running_products(self.compose, np.repeat(shifts[:, None], length, axis=1))[:, -1]
        inputs, answers = (
            self.compose(by[:, None], every).reshape(-1, len(every)) for by in (shifts, powers)
        )
        same = self.automorphisms.astype(np.int64).reshape(-1, len(every))
        return Relabellings(
            inputs=np.concatenate([same, inputs]), answers=np.concatenate([same, answers])
        )


def running_products(compose: Compose, inputs: np.ndarray) -> np.ndarray:
    """s_k = x_k * .. * x_1 at every k: (rows, n) int64 from inputs (rows, n)."""
    states = np.empty(inputs.shape, dtype=np.int64)
    states[:, 0] = inputs[:, 0]
    for k in range(1, inputs.shape[1]):
        states[:, k] = compose(inputs[:, k].astype(np.int64), states[:, k - 1])
    return states


def product_symmetry(automorphisms: np.ndarray, inverses: np.ndarray, n_positions: int) -> Symmetry:
    """Automorphisms (generators, q) act on the elements and fix the two tokens after them.

    inverses (q,). Directions: I, the identity of the elements; N, x -> 1/x; I_= and I_pad.
    Positions have no symmetry. Centring is within all tokens and within all positions, since an
    orbit of one token would vanish.
    """
    q = len(inverses)
    v = q + 2
    rows = automorphisms.astype(np.int64).reshape(-1, q)
    special = np.broadcast_to([q, q + 1], (len(rows), 2))
    eye = np.eye(v)
    negation = np.zeros((v, v))
    negation[inverses, np.arange(q)] = 1.0
    return Symmetry(
        token_generators=np.concatenate([rows, special], axis=1),
        position_generators=np.zeros((0, n_positions), dtype=np.int64),
        token_classes=(np.arange(v),),
        tracks=(np.arange(n_positions),),
        token_directions={
            "I": np.diag((np.arange(v) < q).astype(np.float64)),
            "N": negation,
            "I_=": np.diag(eye[q]),
            "I_pad": np.diag(eye[q + 1]),
        },
    )
