"""For lengths n and m: what the circuit of length n is worth to length m."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuits.contrast import Contrast, contrast, length_task
from circuits.subspace import kept, random_subspace, smallest_subspace
from training import Run

MINIMUM_GAP = 0.3
MINIMUM_ACCURACY = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthMatrix:
    """Faithfulness at length m (column) of the subspace circuit of length n (row).

    lengths: (L,). matrix, lower, upper: (L, L), the value and its 95% bootstrap interval over
    sequence pairs; NaN where undefined. random_baseline, random_upper: (L, L), the mean and the
    95th percentile over random subspaces of the same size. size: (L,), directions in each circuit,
    out of `width`. gap: (L,), logits. accuracy: (L,), of the final answer. defined: (L, L).
    sharing, sharing_interval: mean off-diagonal over mean diagonal, each above its random
    baseline; 1 when one circuit serves all lengths, 0 when each has its own; None if undefined.
    """

    lengths: tuple[int, ...]
    matrix: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    random_baseline: np.ndarray
    random_upper: np.ndarray
    size: np.ndarray
    width: int
    gap: np.ndarray
    accuracy: np.ndarray
    defined: np.ndarray
    site: str
    step: int
    sharing: float | None
    sharing_interval: tuple[float, float] | None

    def sentence(self) -> str:
        missing = [
            f"length {n} ({self.accuracy[i]:.2f} accuracy, gap {self.gap[i]:.2f})"
            for i, n in enumerate(self.lengths)
            if not self.defined[i, i]
        ]
        if self.sharing is None or self.sharing_interval is None:
            return f"The length matrix is undefined: not learnt, {', '.join(missing)}."
        low, high = self.sharing_interval
        text = (
            f"A length's circuit is worth {self.sharing:.2f} [{low:.2f}, {high:.2f}] of its own "
            f"to the other lengths, above random subspaces of equal size."
        )
        return text + (f" Left out as not learnt: {', '.join(missing)}." if missing else "")


def length_matrix(
    run: Run,
    step: int | None = None,
    *,
    faithfulness: float = 0.9,
    samples: int = 256,
    random_draws: int = 20,
    seed: int = 0,
) -> LengthMatrix:
    """The length matrix of one checkpoint (the last by default) of a jointly trained run.

    Theory, section 8: the circuit of length n is the smallest principal subspace of its
    clean-minus-corrupt states at the final token with the given faithfulness; circuits are found
    on one half of the pairs and read on the other. Undefined where a length is not learnt to 0.95
    or its gap is below 0.3 logits.
    """
    step = run.steps[-1] if step is None else step
    task, family, params = length_task(run.task), run.family, run[step].params()
    lengths = task.lengths
    fit = [contrast(family, params, task, n, samples, 2 * seed) for n in lengths]
    test = [contrast(family, params, task, n, samples, 2 * seed + 1) for n in lengths]
    learnt = np.array([min(a.accuracy, b.accuracy) for a, b in zip(fit, test, strict=True)])
    gap = np.array([min(a.gap, b.gap) for a, b in zip(fit, test, strict=True)])
    usable = (learnt >= MINIMUM_ACCURACY) & (gap >= MINIMUM_GAP)
    found = [
        smallest_subspace(family, params, pair, faithfulness) if ok else None
        for pair, ok in zip(fit, usable, strict=True)
    ]
    scores: dict[tuple[int, int], np.ndarray] = {}
    randoms: dict[tuple[int, int], np.ndarray] = {}
    generator = torch.Generator().manual_seed(seed)
    for i, subspace in enumerate(found):
        if subspace is None:
            continue
        width, size = subspace.shape
        draws = [
            random_subspace(width, size, generator, subspace.dtype) for _ in range(random_draws)
        ]
        for j in np.flatnonzero(usable).tolist():
            scores[i, j] = kept(family, params, test[j], subspace).numpy()
            values = [kept(family, params, test[j], draw).mean().item() for draw in draws]
            randoms[i, j] = np.array(values)
    return _summary(lengths, step, fit, usable, found, scores, randoms, gap, learnt, seed)


def _summary(
    lengths, step, fit: list[Contrast], usable, found, scores, randoms, gap, learnt, seed
) -> LengthMatrix:
    count = len(lengths)
    empty = np.full((count, count), np.nan)
    matrix, lower, upper, mean, high = (empty.copy() for _ in range(5))
    boot = np.full((1000, count, count), np.nan)
    rng = np.random.default_rng(seed)
    for (i, j), values in scores.items():
        resampled = values[rng.integers(0, len(values), (1000, len(values)))].mean(1)
        boot[:, i, j] = resampled
        matrix[i, j] = values.mean()
        lower[i, j], upper[i, j] = np.percentile(resampled, [2.5, 97.5])
        mean[i, j], high[i, j] = randoms[i, j].mean(), np.percentile(randoms[i, j], 95)
    sharing = _sharing(matrix[None], mean, usable)
    interval = _sharing(boot, mean, usable)
    return LengthMatrix(
        lengths=lengths,
        matrix=matrix,
        lower=lower,
        upper=upper,
        random_baseline=mean,
        random_upper=high,
        size=np.array([0 if s is None else s.shape[1] for s in found]),
        width=fit[0].clean_state.shape[1],
        gap=gap,
        accuracy=learnt,
        defined=np.outer(usable, usable),
        site=fit[-1].site.hook,
        step=step,
        sharing=None if sharing is None else float(sharing[0]),
        sharing_interval=None
        if interval is None
        else (float(np.percentile(interval, 2.5)), float(np.percentile(interval, 97.5))),
    )


def _sharing(matrices: np.ndarray, baseline: np.ndarray, usable: np.ndarray) -> np.ndarray | None:
    """Mean off-diagonal over mean diagonal above baseline, for a stack (draws, L, L)."""
    keep = np.flatnonzero(usable)
    if len(keep) < 2:
        return None
    above = (matrices - baseline)[:, keep][:, :, keep]
    own = np.eye(len(keep), dtype=bool)
    return above[:, ~own].mean(1) / above[:, own].mean(1)
