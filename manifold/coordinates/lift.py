"""Any transformer as one that only attends, and how far its logits are from the network's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from manifold.coordinates.factored import Factored
from manifold.coordinates.sequences import check_sequences
from manifold.coordinates.shares import ratio
from manifold.coordinates.stream import Arrays, Stream, fold
from training.families.transformer import EPSILON, Transformer
from training.tasks.base import IGNORE, Batch, Task

SEQUENCES = 128
"""Held-out sequences that norms and MLPs are measured on (more with a wide MLP: SAMPLES tokens for
each number that its map predicts from), and as many others that judge the lift."""
SAMPLES = 16
CUT = 1e-10
"""Directions of the stream below this share of the largest second moment are left out of the
least-squares maps."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lift:
    """A transformer's affine stream and what that leaves of its function.

    exact: neither LayerNorm nor MLP, so that the logits are the network's to rounding.
    logit_error: rms of the difference of logits over the rms of the network's, both after the
    mean over the vocabulary is removed, at supervised positions of held-out sequences.
    agreement: share of these where both have the same largest logit.
    Both NaN where logits overflow. Both (..), float64, with the leading axes of the stream.
    """

    stream: Stream
    exact: bool
    logit_error: np.ndarray
    agreement: np.ndarray

    @property
    def factored(self) -> Factored:
        """The effective matrices between paths, as factors: of any size."""
        return Factored(stream=self.stream)


def lift(source: Any, family: Transformer | None = None, task: Task | None = None) -> Lift:
    """Fold a transformer's norms, biases and MLPs into an affine stream, float64.

    source: a checkpoint, several of one run's kind (then the result has a leading axis), or a
    mapping of parameter names to arrays or tensors, then with its family and task; the arrays may
    all have one leading axis.

    Biases are exact: a last entry of the stream that is always 1 carries them. LayerNorm becomes
    centring, gain and one number, the mean of 1 / standard deviation at that norm over all tokens
    of a batch of the task (over supervised ones at the last norm). An MLP becomes the affine map
    of least squared error from the stream before it to what it writes, on the same batch: on
    trained models the rebuilt loss is then 0.002 to 0.004, against 2.5 with the MLP left out.
    Without LayerNorm and MLP nothing is approximated.

    ValueError for rotary positions, for tasks that hide tokens (masked layouts), and for weights
    that are not finite or whose names and sizes are not those of family and task.
    """
    family, task = _described(source, family, task)
    weights = _stacked(source, family, task)
    approximate = family.layer_norm or family.mlp
    used = measured_on(family, task) if approximate else 0
    batch = task.evaluation(0, used + SEQUENCES)
    check_sequences(batch.tokens, batch.positions, task.vocabulary, task.n_positions)
    used = min(used, len(batch) // 2)
    network, scales, maps = _observe(weights, family, batch, used)
    stream = fold(weights, family, task, scales, maps)
    judged = slice(used, None)
    lifted = stream.logits(batch.tokens[judged], batch.positions[judged])
    supervised = batch.targets[judged] != IGNORE
    error, agreement = _compare(
        network[..., judged, :, :][..., supervised, :], lifted[..., supervised, :]
    )
    return Lift(stream=stream, exact=not approximate, logit_error=error, agreement=agreement)


def _described(
    source: Any, family: Transformer | None, task: Task | None
) -> tuple[Transformer, Task]:
    """Family and task, the source's own unless given. ValueError for what has no affine stream."""
    if isinstance(source, Sequence) and not source:
        raise ValueError("lift: got no checkpoint; give one or several")
    first = source[0] if isinstance(source, Sequence) else source
    family = getattr(first, "family", None) if family is None else family
    task = getattr(first, "task", None) if task is None else task
    if not isinstance(family, Transformer):
        raise ValueError(
            f"lift: {type(family).__name__} is no transformer; a mapping of weights is given with "
            f"its family and task"
        )
    check_liftable(family)
    if task is None:
        raise ValueError("lift: a mapping of weights is given with its task, got none")
    return family, task


def measured_on(family: Transformer, task: Task) -> int:
    """Sequences that norms and MLPs are measured on."""
    if not family.mlp:
        return SEQUENCES
    tokens = task.evaluation(0, 1).tokens.shape[1]
    return max(SEQUENCES, -(-SAMPLES * (family.width + 1) // tokens))


def check_liftable(family: Transformer) -> None:
    if family.positions == "rotary":
        raise ValueError(
            "effective matrices: a transformer with positions 'rotary' has none: they turn queries "
            "and keys by both places, also along a path that attention has moved from its place, "
            "so that no matrix between tokens and positions gives the scores; "
            "allowed: learned, sinusoidal, none"
        )


def _stacked(source: Any, family: Any, task: Task) -> dict[str, np.ndarray]:
    """Weights by name as float64, checked; several checkpoints along a leading axis."""
    several = isinstance(source, Sequence)
    members = [arrays(one, family, task) for one in (source if several else [source])]
    if not several:
        return members[0]
    return {name: np.stack([member[name] for member in members]) for name in members[0]}


def arrays(source: Any, family: Any, task: Task) -> dict[str, np.ndarray]:
    """A checkpoint's or a mapping's weights as float64; ValueError unless finite and of the names
    and sizes of family and task."""
    where = str(getattr(source, "path", "weights"))
    weights = {
        name: np.array(value.detach().cpu() if isinstance(value, torch.Tensor) else value, float)
        for name, value in getattr(source, "weights", source).items()
    }
    expected = {k: tuple(v.shape) for k, v in family.initialise(task, 0, torch.float32).items()}
    missing = sorted(set(expected) - set(weights))
    if missing:
        raise ValueError(f"{where}: lacks {', '.join(missing)}, which {family} on {task} has")
    surplus = sorted(set(weights) - set(expected))
    if surplus:
        raise ValueError(
            f"{where}: has {', '.join(surplus)}, which {family} has not; allowed: "
            f"{', '.join(expected)}; give the family that the weights are of"
        )
    wrong = [
        f"{name} is {weights[name].shape}, {shape} is needed"
        for name, shape in expected.items()
        if weights[name].shape[-len(shape) :] != shape
    ]
    if wrong:
        raise ValueError(
            f"{where}: sizes are not those of the task (vocabulary {task.vocabulary}, positions "
            f"{task.n_positions}) and the family: {'; '.join(wrong)}"
        )
    for name in expected:
        bad = int(np.sum(~np.isfinite(weights[name])))
        if bad:
            raise ValueError(
                f"{where}: {name} {weights[name].shape} has {bad} entries that are not finite; "
                f"was the run stopped as diverged?"
            )
    return {name: weights[name] for name in expected}


def _observe(
    weights: Arrays, family: Transformer, batch: Batch, used: int
) -> tuple[np.ndarray, dict[str, np.ndarray], tuple[np.ndarray, ...]]:
    """The network's logits on the batch, and scales and maps from its first `used` sequences."""
    lead = weights["embed.W_E"].shape[:-2]
    params = {name: torch.from_numpy(value) for name, value in weights.items()}
    tokens, positions = (
        torch.from_numpy(side).expand(*lead, *side.shape)
        for side in (batch.tokens, batch.positions)
    )
    supervised = torch.from_numpy(batch.targets[:used] != IGNORE)
    scales: dict[str, np.ndarray] = {}
    maps: list[np.ndarray] = []
    middle: list[torch.Tensor] = []

    def tap(name: str, x: torch.Tensor) -> torch.Tensor:
        block, _, hook = name.rpartition(".")
        seen = x[..., :used, :, :].flatten(-3, -2) if used else x
        if hook == "hook_resid_pre" and family.layer_norm:
            scales[f"{block}.ln1"] = _scale(seen)
        elif hook == "hook_resid_mid":
            middle[:] = [seen]
        elif hook == "hook_mlp_out":
            maps.append(_least_squares(middle[0], seen))
        elif name == f"blocks.{family.layers - 1}.hook_resid_post" and family.layer_norm:
            scales["ln_final"] = _scale(x[..., :used, :, :][..., supervised, :])
        return x

    with torch.no_grad():
        logits = family.forward(params, tokens, positions, *([tap] if used else []))
    return logits.numpy(), scales, tuple(maps)


def _scale(x: torch.Tensor) -> np.ndarray:
    """Mean of 1 / standard deviation of x (.., samples, width)."""
    return (x.var(-1, correction=0) + EPSILON).rsqrt().mean(-1).numpy()


def _least_squares(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """(.., width + 1, out), the last row the constant: least |x A + b - y|^2, A of least norm."""
    x_mean, y_mean = x.mean(-2, keepdim=True), y.mean(-2, keepdim=True)
    centred = x - x_mean
    moment = centred.mT @ centred
    values, vectors = torch.linalg.eigh(moment)
    kept = values > CUT * values[..., -1:]
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    slope = (vectors * inverse.unsqueeze(-2)) @ (vectors.mT @ (centred.mT @ (y - y_mean)))
    return torch.cat([slope, y_mean - x_mean @ slope], dim=-2).numpy()


def _compare(network: np.ndarray, lifted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Relative rms difference of logits (.., samples, vocabulary) and agreement of the largest."""
    centred = [side - side.mean(-1, keepdims=True) for side in (network, lifted)]
    rms = np.sqrt(np.mean(centred[0] ** 2, axis=(-2, -1)))
    error = np.sqrt(np.mean((centred[1] - centred[0]) ** 2, axis=(-2, -1)))
    agree = np.mean(network.argmax(-1) == lifted.argmax(-1), axis=-1)
    relative = np.where(np.isfinite(rms), ratio(error, rms), np.nan)
    known = np.isfinite(network).all((-2, -1)) & np.isfinite(lifted).all((-2, -1))
    return relative, np.where(known, agree, np.nan)
