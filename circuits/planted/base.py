"""A model whose circuit is known, with the sequences to read it on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from circuits.graph import Graph, graph
from circuits.pair import Pair
from training.families.base import Family, Params


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planted:
    """One model with hand-set weights.

    truth: the edges, as "source -> reader", that carry what the answer depends on and that differ
    between the clean and the corrupted sequences; an edge that always carries the same (out of
    positions, where these are equal in both) is needed too, but no exchange of runs can show it.
    Empty for a control. apart: edges of parts that act only when another is ablated: neither right
    nor wrong to find. decoys: what else was put in, named.
    """

    construction: str
    family: Family
    params: Params = field(repr=False)
    pair: Pair = field(repr=False)
    truth: tuple[str, ...]
    apart: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        time = self.pair.clean.tokens.shape[1]
        return graph(self.family, self.params, time, self.pair.final)

    def masks(self, whole: Graph) -> tuple[np.ndarray, np.ndarray]:
        """(E,) the edges of the truth and those apart."""
        return whole.mask(self.truth), whole.mask(self.apart)
