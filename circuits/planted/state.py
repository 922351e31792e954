"""States step by step: a Dense-SSM that adds up some of its tokens, an LSTM that keeps the last."""

from __future__ import annotations

import numpy as np
import torch

from circuits.planted.base import Planted
from circuits.planted.sequences import answered, pair_of
from manifold.groups.haar import haar
from training.families.dense_ssm import DenseSSM
from training.families.lstm import GATES, LSTM

SEQUENCES = 64
GAIN = 6.0
NOISE = 0.01
SATURATED = 12.0
"""Before a gate's logistic function: as good as open."""


def clocked_sum(seed: int) -> Planted:
    return _clocked(seed, heard=True)


def unheard(seed: int) -> Planted:
    """A control: the clocked sum in the state, never read."""
    return _clocked(seed, heard=False)


def _clocked(seed: int, heard: bool) -> Planted:
    """Dense-SSM whose state holds a clock and the sum, modulo m, of the tokens at chosen steps.

    Blocks of the state, turned by one random rotation: (clock, sum), one-hot in T m entries; the
    sum of all tokens, never read; a constant that the logits read. Truth: the tokens of the chosen
    steps, the states from the first of them on, and the last read-out.
    """
    rng = np.random.default_rng([seed, *b"clocked sum"])
    m, time = int(rng.integers(3, 6)), int(rng.integers(4, 13))
    chosen = np.sort(rng.permutation(time)[: int(rng.integers(1, time))])
    clock = np.zeros((m, time * m, time * m))
    total = np.stack([np.roll(np.eye(m), x, axis=0) for x in range(m)])
    for x in range(m):
        for t in range(time):
            step = np.eye(time)[:, [(t + 1) % time]] @ np.eye(time)[[t]]
            clock[x] += np.kron(step, total[x] if t in chosen else np.eye(m))
    width = time * m + m + 1
    a = np.zeros((m, width, width))
    a[:, : time * m, : time * m], a[:, time * m : -1, time * m : -1] = clock, total
    a[:, -1, -1] = 1
    start = np.zeros(width)
    start[[0, time * m, -1]] = 1
    head = np.zeros((width, m))
    if heard:
        head[: time * m] = GAIN * np.tile(np.eye(m), (time, 1))
    head[-1] = rng.standard_normal(m)
    turn = haar(rng, width, width)
    params = {
        "transition.A": turn.T @ (a + _normal(rng, *a.shape)) @ turn,
        "state.h_0": start @ turn,
        "unembed.W_U": turn.T @ head,
        "unembed.b_U": rng.standard_normal(m),
    }
    clean, corrupt = _differing(rng, m, time, chosen)
    sides = [answered(tokens, tokens[:, chosen].sum(1) % m) for tokens in (clean, corrupt)]
    truth = [f"token {t} -> state {t} token" for t in chosen]
    truth += [f"state {t - 1} -> state {t} state" for t in range(chosen[0] + 1, time)]
    truth += [f"state {time - 1} -> logits {time - 1}"]
    return Planted(
        construction="clocked sum" if heard else "unheard",
        family=DenseSSM(width=width),
        params={name: torch.from_numpy(value) for name, value in params.items()},
        pair=pair_of([sides[0]], [sides[1]], SEQUENCES),
        truth=tuple(truth) if heard else (),
        decoys=("sum of all tokens: written, never read", "constant: read, always the same"),
    )


def latch(seed: int) -> Planted:
    """LSTM that keeps the last of its marked tokens, among others that it lets pass.

    Tokens 0 .. m - 1 are marked: they close the forget gate of the cell's first m entries and open
    their input gate; the others, as many, leave both as they are. m more entries add up all
    tokens, never read. Marked tokens stand at two steps. Truth: the second one's way into the cell,
    the cell from there on, and out.
    """
    rng = np.random.default_rng([seed, *b"latch"])
    m, time = int(rng.integers(3, 6)), int(rng.integers(4, 13))
    first, second = np.sort(rng.permutation(time)[:2])
    width = 2 * m
    gate = {name: np.zeros((2 * m, width)) for name in GATES}  # token to gate, before its function
    gate["i"][:m, :m], gate["i"][m:, :m] = SATURATED, -SATURATED
    gate["f"][:m, :m], gate["f"][m:, :m] = -SATURATED, SATURATED
    gate["g"][:m, :m] = np.eye(m)
    gate["f"][:, m:] = SATURATED
    gate["g"][:, m:] = rng.standard_normal((2 * m, m))
    gate["o"][:] = 1.0
    head = np.zeros((width, 2 * m))
    head[:m, :m] = 2 * GAIN * np.eye(m)
    embed = haar(rng, 2 * m, 2 * m)
    side_by_side = np.concatenate([gate[name] for name in GATES], axis=1)
    params = {
        "embed.W_E": embed,
        "lstm.W_x": embed.T @ side_by_side,
        "lstm.W_h": _normal(rng, width, 4 * width),
        "lstm.b": np.zeros(4 * width),
        "unembed.W_U": head + _normal(rng, *head.shape),
        "unembed.b_U": rng.standard_normal(2 * m),
    }
    clean = m + rng.integers(0, m, (SEQUENCES, time))
    corrupt = m + rng.integers(0, m, (SEQUENCES, time))
    for tokens in (clean, corrupt):
        tokens[:, [first, second]] = rng.integers(0, m, (SEQUENCES, 2))
    same = clean[:, second] == corrupt[:, second]
    corrupt[same, second] = (corrupt[same, second] + rng.integers(1, m, same.sum())) % m
    sides = [answered(tokens, tokens[:, second]) for tokens in (clean, corrupt)]
    truth = [f"token {second} -> g {second} token", f"g {second} -> cell {second} g"]
    truth += [f"cell {t - 1} -> cell {t} cell" for t in range(second + 1, time)]
    last = time - 1
    truth += [f"cell {last} -> state {last} cell", f"state {last} -> logits {last}"]
    return Planted(
        construction="latch",
        family=LSTM(width=width),
        params={name: torch.from_numpy(value) for name, value in params.items()},
        pair=pair_of([sides[0]], [sides[1]], SEQUENCES),
        truth=tuple(truth),
        decoys=("sum of all tokens: written, never read", "first mark: forgotten"),
    )


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return NOISE / np.sqrt(shape[-1]) * rng.standard_normal(shape)


def _differing(
    rng: np.random.Generator, m: int, time: int, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens below m (SEQUENCES, time) twice, whose sums at the chosen steps differ."""
    clean, corrupt = rng.integers(0, m, (2, SEQUENCES, time))
    same = (clean[:, chosen].sum(1) - corrupt[:, chosen].sum(1)) % m == 0
    at = chosen[-1]
    corrupt[same, at] = (corrupt[same, at] + rng.integers(1, m, same.sum())) % m
    return clean, corrupt
