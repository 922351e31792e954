"""The smallest set of best edges that carries the answer, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

import numpy as np
import pandas as pd

from circuits.attribution import EdgeScores, score_edges
from circuits.edge_patching import EdgePatcher
from circuits.faithfulness import RANDOM, Curve, curve, faithfulness, ranked, top
from circuits.graph import Graph
from circuits.pair import MINIMUM_GAP

ENOUGH = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Circuit:
    """Edges kept, and what they are worth on sequences that they were not chosen on.

    They are chosen, and `scores` are, on every second clean sequence; all else is measured on the
    other half, so that nothing is gained by choosing that random sets do not have. With fewer than
    10 sequences it is measured on those that the edges were chosen on, and note says so.

    mask (E,): the edges, all on paths from roots to the logits. faithfulness: what they carry
    alone, with interval (value, low, high); random: mean and 95th percentile of random sets of as
    many edges. completeness: the share of the gap that is lost when they are patched and all else
    stays. minimality: per edge, how much faithfulness falls without it. defined: False where the
    model's answers do not depend on the input enough (note says why); then there is no circuit,
    and raw effects alone are given.
    """

    graph: Graph = field(repr=False)
    scores: EdgeScores = field(repr=False)
    mask: np.ndarray = field(repr=False)
    faithfulness: tuple[float, float, float]
    random: tuple[float, float]
    completeness: float
    minimality: pd.DataFrame = field(repr=False)
    curve: Curve | None = field(repr=False)
    defined: bool
    note: str

    @property
    def edges(self) -> tuple[str, ...]:
        """In the order of the forward pass."""
        return tuple(str(self.graph.edges[i]) for i in np.flatnonzero(self.mask))

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.graph.nodes_of(self.mask)

    def __str__(self) -> str:
        if not self.defined:
            return f"no circuit: {self.note}"
        value, low, high = self.faithfulness
        return (
            f"circuit of {self.mask.sum()} of {len(self.mask)} edges ({self.scores.method}): "
            f"faithfulness {value:.2f} [{low:.2f}, {high:.2f}] (random sets of as many: "
            f"{self.random[0]:.2f}, 95% below {self.random[1]:.2f}); without it "
            f"{self.completeness:.2f} of the gap is lost"
        )

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{escape(edge)}</li>" for edge in self.edges)
        return f"<p>{escape(str(self))}</p><ul>{rows}</ul>"


def find_circuit(
    patcher: EdgePatcher,
    method: str = "ig inputs",
    *,
    share: float = ENOUGH,
    ranking: str = "absolute",
    steps: int = 5,
    seed: int = 0,
) -> Circuit:
    """Rank edges by `method`, keep the fewest first ones that reach `share`, drop dead ends.

    On one half of the sequences; on the other, if there are 10, the circuit is judged. The first
    size whose faithfulness reaches `share` is looked for by bisection; since faithfulness need not
    be monotone in the size, it is *a* smallest one. ValueError for a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; allowed: above 0, up to 1")
    if not patcher.gap >= MINIMUM_GAP:  # nor where it is no number
        return undefined(patcher, score_edges(patcher, method, steps))
    half, other = patcher.halves()
    scores = score_edges(half, method, steps)
    order = ranked(scores.values, ranking)
    if not half.gap >= MINIMUM_GAP:
        return undefined(half, scores)
    mask = top(order, np.array([_size(half, order, share)]))[0]
    return judge(other, scores, mask, chosen=half, share=share, ranking=ranking, seed=seed)


def judge(
    patcher: EdgePatcher,
    scores: EdgeScores,
    mask: np.ndarray,
    *,
    chosen: EdgePatcher,
    share: float = ENOUGH,
    ranking: str = "absolute",
    seed: int = 0,
) -> Circuit:
    """What the edges of `mask` (E,), without dead ends, are worth; the curve is of the scores.

    chosen: on what the edges and their scores were found, `patcher` itself or another half.
    """
    if not patcher.gap >= MINIMUM_GAP:  # nor where it is no number
        return undefined(patcher, scores)
    mask = patcher.graph.connected(mask)
    found = faithfulness(patcher, mask[None], seed)
    value, low, high = (float(side[0]) for side in (found.value, found.low, found.high))
    count = patcher.pair.sequences
    where = f"the {count} sequences" if patcher is chosen else f"{count} other sequences than"
    reached = (
        f"{'' if value >= share else 'only '}{value:.3f} of the gap with {mask.sum()} edges, "
        f"judged on {where} it was found on"
    )
    return Circuit(
        graph=patcher.graph,
        scores=scores,
        mask=mask,
        faithfulness=(value, low, high),
        random=_random(patcher, int(mask.sum()), seed),
        completeness=1 - float(faithfulness(patcher, ~mask[None], seed).value[0]),
        minimality=_minimality(patcher, mask, value),
        curve=curve(patcher, scores.values, ranking, seed),
        defined=True,
        note=reached,
    )


def undefined(patcher: EdgePatcher, scores: EdgeScores) -> Circuit:
    """No circuit: raw effects alone."""
    none = np.zeros(len(patcher.graph.edges), dtype=bool)
    nothing = float("nan")
    return Circuit(
        graph=patcher.graph,
        scores=scores,
        mask=none,
        faithfulness=(nothing, nothing, nothing),
        random=(nothing, nothing),
        completeness=nothing,
        minimality=pd.DataFrame({"edge": [], "fall": []}),
        curve=None,
        defined=False,
        note=(
            f"clean and corrupted answers lie {patcher.gap:.2f} logits apart (at least "
            f"{MINIMUM_GAP} are needed): the model has not learnt to tell these sequences apart"
        ),
    )


def _size(patcher: EdgePatcher, order: np.ndarray, share: float) -> int:
    """Edges needed, between one that is too few and one that is enough, halved until they meet."""
    low, high = 0, len(order)
    while high - low > 1:
        middle = np.unique(np.linspace(low, high, 10).round().astype(int)[1:-1])
        enough = faithfulness(patcher, top(order, middle)).value >= share
        if enough.any():
            first = int(np.argmax(enough))
            low, high = (int(middle[first - 1]) if first else low), int(middle[first])
        else:
            low = int(middle[-1])
    return high


def _random(patcher: EdgePatcher, size: int, seed: int) -> tuple[float, float]:
    rng, count = np.random.default_rng(seed), len(patcher.graph.edges)
    draws = np.concatenate([top(rng.permutation(count), np.array([size])) for _ in range(RANDOM)])
    values = faithfulness(patcher, draws, seed).value
    return float(values.mean()), float(np.percentile(values, 95))


def _minimality(patcher: EdgePatcher, mask: np.ndarray, whole: float) -> pd.DataFrame:
    inside = np.flatnonzero(mask)
    without = np.repeat(mask[None], len(inside), axis=0)
    without[np.arange(len(inside)), inside] = False
    falls = whole - faithfulness(patcher, without).value if len(inside) else np.empty(0)
    table = pd.DataFrame({"edge": [str(patcher.graph.edges[i]) for i in inside], "fall": falls})
    return table.sort_values("fall", ascending=False, ignore_index=True)
