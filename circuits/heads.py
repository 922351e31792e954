"""What each attention head looks at: scores on token ids, beside chance and what it does.

The score of a head on a pattern is the mean attention, over the tokens at which the pattern asks
for something, that lands where it asks. Its baseline is the same mean under uniform attention to
all tokens up to the query. Patterns, for a query at token i of a sequence x:

    previous token    i - 1
    duplicate token   j < i with x_j = x_i
    induction         j <= i with x_(j-1) = x_i, j - 1 < i: what followed the same token before
    k-hop             k - 1 times more from there: what followed the last such token before
    step input        of state tracking: the input x_k where s_k is predicted

Pointer heads come in pairs (theory, section 6, circuit B): the first finds a token like the query,
the second the place after the one that the first found there, sum_j A1[i, j] A2[i, j + 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from circuits.edge_patching import EdgePatcher
from training.families.base import Family, Params
from training.tasks.base import Batch

HOPS = (2, 3)
RESAMPLES = 1000


def previous_token(tokens: np.ndarray) -> np.ndarray:
    """(batch, time, time) True at (i, i - 1)."""
    time = tokens.shape[1]
    return np.broadcast_to(np.eye(time, k=-1, dtype=bool), (len(tokens), time, time))


def duplicate_token(tokens: np.ndarray) -> np.ndarray:
    """True at (i, j) with j < i and x_j = x_i."""
    time = tokens.shape[1]
    return (tokens[:, :, None] == tokens[:, None, :]) & np.tri(time, k=-1, dtype=bool)


def induction(tokens: np.ndarray) -> np.ndarray:
    """True at (i, j) with x_(j-1) = x_i and j - 1 < i."""
    found = np.zeros((*tokens.shape, tokens.shape[1]), dtype=bool)
    found[:, :, 1:] = duplicate_token(tokens)[:, :, :-1]
    return found


def k_hop(tokens: np.ndarray, hops: int) -> np.ndarray:
    """True at (i, j), j the end of `hops` hops from i, each to what followed the last earlier token
    that is the same."""
    found = np.zeros((*tokens.shape, tokens.shape[1]), dtype=bool)
    place = _last_earlier(tokens)
    rows, here = np.arange(len(tokens))[:, None], np.arange(tokens.shape[1])[None]
    at, alive = np.broadcast_to(here, tokens.shape), np.ones(tokens.shape, dtype=bool)
    for _ in range(hops):
        before = place[rows, at]
        alive = alive & (before >= 0)
        at = np.where(before >= 0, before + 1, 0)
    which, query = np.nonzero(alive)
    found[which, query, at[which, query]] = True
    return found


def _last_earlier(tokens: np.ndarray) -> np.ndarray:
    """(batch, time) the last j < i with x_j = x_i, -1 where there is none."""
    same = duplicate_token(tokens)
    last = same.shape[2] - 1 - same[:, :, ::-1].argmax(2)
    return np.where(same.any(2), last, -1)


PATTERNS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "previous token": previous_token,
        "duplicate token": duplicate_token,
        "induction": induction,
        **{f"{k}-hop": lambda tokens, k=k: k_hop(tokens, k) for k in HOPS},
    }
)


def step_input(task: object, batch: Batch) -> np.ndarray | None:
    """True at (i, j) where s_k is predicted at i and x_k stands at j; None for another task."""
    inputs, steps = getattr(task, "inputs", None), getattr(task, "step", None)
    if inputs is None or steps is None:
        return None
    places, step = inputs(batch), steps(batch)
    found = np.zeros((*batch.tokens.shape, batch.tokens.shape[1]), dtype=bool)
    rows, query = np.nonzero(step)
    found[rows, query, places[rows, step[rows, query] - 1]] = True
    return found


def attention(family: Family, params: Params, batch: Batch) -> dict[str, Tensor]:
    """Head name ("head 0.1") to its attention (batch, time, time). ValueError without heads."""
    seen: dict[str, Tensor] = {}

    def tap(name: str, value: Tensor) -> Tensor:
        if name.endswith("attn.hook_pattern"):
            layer = name.split(".")[1]
            for head, pattern in enumerate(value.unbind(-3)):
                seen[f"head {layer}.{head}"] = pattern
        return value

    with torch.no_grad():
        rows = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
        family.forward(params, *rows, tap)
    if not seen:
        raise ValueError(
            f"{type(family).__name__} has no attention heads; for a recurrent family read its "
            "states (node patching by step, states as group elements)"
        )
    return seen


def head_scores(patcher: EdgePatcher, task: object = None, *, seed: int = 0) -> pd.DataFrame:
    """One row a head and pattern, and a pair of heads for "pointer".

    Columns: head, pattern, via (the first head of a pair), score, low, high (95% bootstrap over
    sequences), baseline, effect: the metric's fall in logits when all that the head writes is
    patched, with its 95% (effect_low, effect_high). Patterns that no token asks for are left out.
    """
    batch = patcher.pair.clean
    heads = attention(patcher.family, patcher.params, batch)
    targets = {name: pattern(batch.tokens) for name, pattern in PATTERNS.items()}
    steps = step_input(task, batch)
    if steps is not None:
        targets["step input"] = steps
    effects, rows = _effects(patcher, list(heads)), []
    rng = np.random.default_rng(seed)
    for name, weights in heads.items():
        seen = weights.double().numpy()
        for pattern, target in targets.items():
            wanted = np.asarray(target.any(2))
            if wanted.any():
                hits = (seen * target).sum(2)
                chance = target.sum(2) / np.arange(1, target.shape[1] + 1)
                rows.append(
                    {"head": name, "pattern": pattern, "via": ""}
                    | _summary(hits, chance, wanted, patcher, rng)
                    | effects[name]
                )
    rows += _pointers(heads, patcher, effects, rng)
    return pd.DataFrame(rows)


def _pointers(heads, patcher: EdgePatcher, effects, rng) -> Iterator[dict]:
    """Every head with the earlier one whose finds it points past the most."""
    time = patcher.pair.clean.tokens.shape[1]
    wanted = np.broadcast_to(np.arange(time) >= 2, patcher.pair.clean.tokens.shape)
    if time < 3:
        return
    length = np.arange(1, time + 1)
    chance = np.broadcast_to((length - 1) / length**2, wanted.shape)
    for name, weights in heads.items():
        layer = int(name.split()[1].split(".")[0])
        earlier = {n: w for n, w in heads.items() if int(n.split()[1].split(".")[0]) < layer}
        hits = {
            n: (first[:, :, :-1] * weights[:, :, 1:]).sum(2).double().numpy()
            for n, first in earlier.items()
        }
        if not hits:
            continue
        via = max(hits, key=lambda n: hits[n][wanted].mean())
        yield (
            {"head": name, "pattern": "pointer", "via": via}
            | _summary(hits[via], chance, wanted, patcher, rng)
            | effects[name]
        )


def _summary(
    hits: np.ndarray,
    chance: np.ndarray,
    wanted: np.ndarray,
    patcher: EdgePatcher,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Means over the tokens that ask, (batch, time); intervals over sequences."""
    total, count = (hits * wanted).sum(1), wanted.sum(1)
    total, count = (x.reshape(-1, patcher.pair.sequences).sum(0) for x in (total, count))
    draws = rng.integers(0, len(total), (RESAMPLES, len(total)))
    with np.errstate(invalid="ignore"):
        means = total[draws].sum(1) / count[draws].sum(1)
    low, high = np.nanpercentile(means, [2.5, 97.5])
    return {
        "score": float(total.sum() / count.sum()),
        "low": float(low),
        "high": float(high),
        "baseline": float((chance * wanted).sum() / wanted.sum()),
    }


def _effects(patcher: EdgePatcher, heads: list[str]) -> dict[str, dict[str, float]]:
    """The metric's fall when every edge out of a head is patched."""
    graph = patcher.graph
    masks = np.array([[edge.source == head for edge in graph.edges] for head in heads])
    falls = patcher.pair.by_sequence(patcher.clean_metric - patcher.metric(masks))
    found = {}
    for head, fall in zip(heads, falls, strict=True):
        half = 1.96 * fall.std(ddof=1) / np.sqrt(len(fall)) if len(fall) > 1 else np.inf
        mean = float(fall.mean())
        found[head] = {"effect": mean, "effect_low": mean - half, "effect_high": mean + half}
    return found
