"""From a run's checkpoint to its circuit: pairs, graph, search, and what can go wrong in words."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from circuits import attribution
from circuits.ablation import ablation as ablated
from circuits.acdc import acdc
from circuits.attribution import score_edges
from circuits.circuit import ENOUGH, Circuit, find_circuit, undefined
from circuits.edge_patching import EdgePatcher, record
from circuits.graph import graph
from circuits.learned_mask import learned_mask
from circuits.pair import MINIMUM_GAP, pairs
from training import Run

METHODS = (*attribution.METHODS, "ACDC", "learned mask")
PATIENCE = 600.0
"""Seconds that exact patching may be expected to take."""
WORTH = 0.01
"""Nats that an edge must be worth to ACDC and learned masks."""


def discover(
    run: Run,
    step: int | None = None,
    *,
    length: int | None = None,
    kind: str | None = None,
    part: str | None = None,
    method: str = "ig inputs",
    ablation: str = "corrupted",
    samples: int = 256,
    share: float = ENOUGH,
    worth: float = WORTH,
    patience: float = PATIENCE,
    seed: int = 0,
) -> Circuit:
    """The circuit of one checkpoint, the last unless `step` is given, of any family.

    length, kind, part: which sequences, and which input is changed in them (`circuits.pairs`);
    about `samples` pairs. method: one of METHODS. ablation: what patched edges carry
    (`circuits.ablation`). share: of the answer that the circuit is to carry, for the methods that
    rank edges; worth: nats of KL that an edge must be worth, for ACDC and learned masks.
    patience: seconds of exact patching (`exact`, `ACDC`) beyond which it is refused.

    Not defined, with a note that says why, where the model has not learned these sequences: where
    clean and corrupted runs lie less than 0.3 logits apart, or not more than chance (95%).
    ValueError for what cannot be asked: a step or a length that is not there, a method that does
    not exist, a graph too large for exact patching.
    """
    check(method)
    patcher = prepare(
        run, step, length=length, kind=kind, part=part, ablation=ablation, samples=samples,
        seed=seed,
    )  # fmt: skip
    return search(patcher, method, share=share, worth=worth, patience=patience, seed=seed)


def check(method: str) -> None:
    """ValueError unless the method is one of METHODS."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")


def prepare(
    run: Run,
    step: int | None = None,
    *,
    length: int | None = None,
    kind: str | None = None,
    part: str | None = None,
    ablation: str = "corrupted",
    samples: int = 256,
    seed: int = 0,
) -> EdgePatcher:
    """One checkpoint on its pairs, ready to be patched; arguments as in `discover`."""
    params = run[run.steps[-1] if step is None else step].params()
    pair = pairs(run.task, samples, seed, length, kind=kind, part=part)
    here = graph(run.family, params, pair.clean.tokens.shape[1], pair.final)
    try:
        parts = run.family, params, here, pair
        return EdgePatcher(*parts, ablated(*parts, ablation, seed))
    except ValueError as error:
        if length is None or length in getattr(run.task, "lengths", ()):
            raise
        raise ValueError(
            f"length is {length}; this model cannot take it ({error}): it was trained on lengths "
            f"{', '.join(map(str, getattr(run.task, 'lengths', ())))}"
        ) from error


def search(
    patcher: EdgePatcher,
    method: str = "ig inputs",
    *,
    share: float = ENOUGH,
    worth: float = WORTH,
    patience: float = PATIENCE,
    seed: int = 0,
) -> Circuit:
    """The circuit by one of METHODS; arguments as in `discover`."""
    check(method)
    right = accuracy(patcher)
    trouble = _trouble(patcher, right)
    if trouble is None and method in ("exact", "ACDC"):
        _affordable(patcher, method, patience)
    if trouble is not None:  # raw effects, by the method that costs next to nothing
        return replace(undefined(patcher, score_edges(patcher, "attribution")), note=trouble)
    if method == "ACDC":
        found = acdc(patcher, worth, seed=seed)
    elif method == "learned mask":
        found = learned_mask(patcher, worth, seed=seed)
    else:
        found = find_circuit(patcher, method, share=share, seed=seed)
    return replace(found, note=f"{found.note}; {_answers(right)}")


def accuracy(patcher: EdgePatcher) -> float:
    """Share of the clean sequences whose answer is the model's first choice."""
    pair = patcher.pair
    logits = _final(patcher)
    return float((logits.argmax(-1).cpu().numpy() == pair.answers(pair.clean)).mean())


def _final(patcher: EdgePatcher) -> Tensor:
    """Logits (batch, vocabulary) of the clean run where the answer is predicted."""
    none = np.zeros((1, len(patcher.graph.edges)), dtype=bool)
    return patcher.metric(none, lambda x: x[..., patcher.pair.final, :])[0]


def _answers(right: float) -> str:
    return f"the model answers {right:.0%} of the clean sequences"


def _trouble(patcher: EdgePatcher, right: float) -> str | None:
    """Why there is no circuit, or None."""
    metric = patcher.clean_metric
    if not math.isfinite(patcher.gap):
        return "the model's logits are not finite: this checkpoint has diverged"
    low, high = _gap_interval(patcher)
    if patcher.gap >= MINIMUM_GAP and low > 0:
        return None
    apart = (
        f"clean and corrupted runs lie {patcher.gap:.2f} [{low:.2f}, {high:.2f}] logits apart; at "
        f"least {MINIMUM_GAP}, and more than chance, are needed"
    )
    if float((metric - patcher.corrupt_metric).abs().max()) < 1e-6:
        return f"the metric is constant, whatever edges carry ({apart}; {_answers(right)})"
    return f"the model has not learned to tell these sequences apart ({apart}; {_answers(right)})"


def _gap_interval(patcher: EdgePatcher) -> tuple[float, float]:
    """95% (normal, over clean sequences) of the mean gap between clean and corrupted runs, whatever
    the ablation; a single sequence has its own gap for both ends."""
    pair = patcher.pair
    rows = (torch.from_numpy(x) for x in (pair.corrupt.tokens, pair.corrupt.positions))
    _, logits = record(patcher.family, patcher.params, patcher.graph, *rows)
    gaps = pair.by_sequence(patcher.clean_metric - pair.metric(logits))
    if len(gaps) < 2:
        return float(gaps.mean()), float(gaps.mean())
    half = 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return float(gaps.mean() - half), float(gaps.mean() + half)


def _affordable(patcher: EdgePatcher, method: str, patience: float) -> None:
    """ValueError where patching every edge by itself would take longer than `patience` seconds."""
    seconds = exact_seconds(patcher)
    if seconds > patience:
        count = len(patcher.graph.edges)
        raise ValueError(
            f"{method} patches each of {count} edges on {len(patcher.pair.clean)} pairs, about "
            f"{seconds:.0f} s on this machine; allowed: {patience:.0f} s. The method 'ig inputs' "
            "takes a few forward and backward passes; or ask for fewer samples or more patience"
        )


def exact_seconds(patcher: EdgePatcher) -> float:
    """What patching every edge by itself would take here, from a few of them."""
    count = len(patcher.graph.edges)
    few = np.eye(count, dtype=bool)[:: max(1, count // 4)][:4]
    patcher.metric(few[:1])
    start = time.perf_counter()
    patcher.metric(few)
    return (time.perf_counter() - start) / len(few) * count
