"""What a transformer does with a group's tokens, on the directions that the group singles out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from manifold.groups.haar import haar
from manifold.states.isotypic import Isotypic
from training.families.transformer import Transformer
from training.tasks.base import generator
from training.tasks.state_tracking import StateTracking


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenDirections:
    """Matrices among the q elements of a group, on its translations and isotypic parts.

    matrices: names, "direct", "OV l.h" and "QK l.h" for layer l and head h, from 0.
    c: (matrix, side, q), coefficient of the translation by each element; sides are left and right
        (`Isotypic.coefficients`).
    share: (matrix, side, part), ||P W||^2 / ||W||^2 for P the projection on the part's matrices
        that commute with the side's translations; NaN where W is 0. Shares of one side add up to
        at most 1; left and right overlap (in class functions), and are equal for a commutative
        group. The parts are those of `Isotypic` but for the trivial one, which is gauge.
    chance: (part,), the mean share of random matrices U S V^T of the same singular values, U and V
        uniform orthogonal in what is not gauge: dimension / (q (q - 1)) for every spectrum.
    chance_high: (matrix, side, part), what 97.5% of such matrices stay below (100 draws,
        40 in groups of more than 200 elements, where shares vary little).
    """

    matrices: tuple[str, ...]
    c: np.ndarray
    share: np.ndarray
    chance: np.ndarray
    chance_high: np.ndarray


def left_out(family: Transformer) -> tuple[str, ...]:
    """What of the model the token matrices do not hold."""
    absent = {
        "positions": family.positions != "none",
        "MLPs": family.mlp,
        "biases": family.mlp or family.layer_norm,
        "division by the standard deviation in LayerNorm": family.layer_norm,
        "paths through several heads": family.layers > 1,
    }
    return tuple(name for name, yes in absent.items() if yes)


def token_matrices(
    weights: Mapping[str, ArrayLike], family: Transformer, task: StateTracking
) -> dict[str, np.ndarray]:
    """Effective matrices among the elements' tokens, (q, q) float64 each, gauge removed.

    With E = W_E and U = W_U on the q elements, one embedding for all positions:

        direct = (E U)^T,  OV = (E W_V W_O U)^T  [answer, input],
        QK = E W_Q (E W_K)^T / sqrt(head width)  [query, key].

    LayerNorm's centring and gain are part of every map that reads through it; what is not in them
    is listed by `left_out`. Gauge: the mean over answers leaves the softmax of the output, the mean
    over keys that of the attention, so both are taken out.

    Raises ValueError where tokens, or names, of the weights are not those of task and family.
    """
    w = {name: np.asarray(value, dtype=float) for name, value in weights.items()}
    q = task.n_elements
    for name, axis in (("embed.W_E", 0), ("unembed.W_U", 1)):
        if name not in w:
            raise ValueError(f"token matrices: the weights lack {name}, so are no transformer's")
        if w[name].shape[axis] != task.vocabulary:
            raise ValueError(
                f"token matrices: {name} has {w[name].shape[axis]} tokens, but {task.label} with "
                f"'=' and padding has {task.vocabulary}; give the task the model was trained on"
            )
    tokens = w["embed.W_E"][:q]

    def read(x: np.ndarray, norm: str) -> np.ndarray:
        if not family.layer_norm:
            return x
        return (x - x.mean(-1, keepdims=True)) * w[f"{norm}.w"]

    def answer(x: np.ndarray) -> np.ndarray:
        logits = (read(x, "ln_final") @ w["unembed.W_U"][:, :q]).T
        return logits - logits.mean(0)

    found = {"direct": answer(tokens)}
    for layer in range(family.layers):
        block = f"blocks.{layer}."
        seen = read(tokens, block + "ln1")
        for h in range(family.heads):
            query, key, value, out = (w[f"{block}attn.W_{side}"][h] for side in "QKVO")
            found[f"OV {layer}.{h}"] = answer(seen @ value @ out)
            scores = seen @ query @ (seen @ key).T / np.sqrt(query.shape[-1])
            found[f"QK {layer}.{h}"] = scores - scores.mean(1, keepdims=True)
    return found


def token_directions(matrices: Mapping[str, np.ndarray], parts: Isotypic) -> TokenDirections:
    """The matrices of `token_matrices` in a group's directions."""
    stack = np.stack(list(matrices.values()))
    q = stack.shape[-1]
    chance = parts.dimensions[1:] / (q * (q - 1))
    high = [_chance_high(name, matrix, parts) for name, matrix in matrices.items()]
    return TokenDirections(
        matrices=tuple(matrices),
        c=parts.coefficients(stack),
        share=_shares(stack, parts),
        chance=chance,
        chance_high=np.stack(high),
    )


def _shares(matrices: np.ndarray, parts: Isotypic) -> np.ndarray:
    squares = parts.squares(parts.coefficients(matrices))[..., 1:]
    total = np.square(matrices).sum((-2, -1))[..., None, None]
    return np.where(total > 0, squares / np.where(total > 0, total, 1.0), np.nan)


def _chance_high(name: str, matrix: np.ndarray, parts: Isotypic) -> np.ndarray:
    """(side, part), the 97.5% quantile for random matrices of the same spectrum and gauge."""
    values = np.linalg.svd(matrix, compute_uv=False)[:-1]
    u, v = _drawn(len(matrix))
    drawn = (u * values) @ v.swapaxes(-1, -2)
    if name.startswith("QK"):
        drawn = drawn.swapaxes(-1, -2)
    return np.quantile(_shares(drawn, parts), 0.975, axis=0)


@lru_cache(maxsize=2)
def _drawn(q: int) -> tuple[np.ndarray, np.ndarray]:
    """(draws, q, q - 1) twice, orthonormal columns: u free of the constants, v not."""
    draws = 100 if q <= 200 else 40
    rng = generator(q, *b"token_directions")
    free = np.linalg.svd(np.eye(q) - 1.0 / q)[0][:, : q - 1]
    u = free @ haar(rng, draws, q - 1, q - 1)
    v = haar(rng, draws, q, q - 1)
    u.flags.writeable = v.flags.writeable = False
    return u, v
