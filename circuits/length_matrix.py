"""For lengths n and m: what the circuit of length n is worth to length m."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from circuits.contrast import Contrast, halves, length_task
from circuits.pair import MINIMUM_GAP
from circuits.subspace import kept, random_subspace, smallest_subspace
from training import Run

MINIMUM_ACCURACY = 0.95
MINIMUM_SEQUENCES = 5
RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthMatrix:
    """Faithfulness at length m (column) of the subspace circuit of length n (row).

    lengths: (L,). matrix, lower, upper: (L, L), the value and its 95% bootstrap interval over
    clean sequences; NaN where undefined. random_baseline, random_upper: (L, L), the mean and the
    95th percentile over random subspaces of the same size. size: (L,), directions in each circuit,
    out of `width`. sequences: (L,), clean sequences that the column is read on; as many others
    found the circuits. gap: (L,), logits. accuracy: (L,), of the final answer. defined: (L, L).
    sharing, sharing_interval: mean off-diagonal over mean diagonal, each above the row's random
    baseline; 1 when one circuit serves all lengths, 0 when each has its own; the interval holds
    the error of sequences and of the random subspaces; None if undefined.
    """

    lengths: tuple[int, ...]
    matrix: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    random_baseline: np.ndarray
    random_upper: np.ndarray
    size: np.ndarray
    width: int
    sequences: np.ndarray
    gap: np.ndarray
    accuracy: np.ndarray
    defined: np.ndarray
    site: str
    step: int
    sharing: float | None
    sharing_interval: tuple[float, float] | None

    def sentence(self) -> str:
        missing = [
            f"length {n} (accuracy {self.accuracy[i]:.2f}, gap {self.gap[i]:.2f}, read on "
            f"{self.sequences[i]} sequences)"
            for i, n in enumerate(self.lengths)
            if not self.defined[i, i]
        ]
        if self.sharing is None or self.sharing_interval is None:
            return f"The length matrix is undefined: {', '.join(missing)}."
        low, high = self.sharing_interval
        text = (
            f"A length's circuit is worth {self.sharing:.2f} [{low:.2f}, {high:.2f}] of its own "
            f"to the other lengths, above random subspaces of equal size."
        )
        return text + (f" Left out: {', '.join(missing)}." if missing else "")


def length_matrix(
    run: Run,
    step: int | None = None,
    *,
    faithfulness: float = 0.9,
    samples: int = 256,
    random_draws: int = 50,
    seed: int = 0,
) -> LengthMatrix:
    """The length matrix of one checkpoint (the last by default) of a jointly trained run.

    Theory, section 8: the circuit of length n is the smallest principal subspace of its
    clean-minus-corrupt states at the final token with the given faithfulness. Circuits are found
    on one half of the held-out sequences and read on the other, about `samples` pairs each.
    Undefined where a length is not learnt to 0.95, its gap is below 0.3 logits, or fewer than 5
    sequences are held out to read it on.
    """
    step = run.steps[-1] if step is None else step
    task, family, params = length_task(run.task), run.family, run[step].params()
    pairs = [halves(family, params, task, n, samples, seed) for n in task.lengths]
    fit, test = [a for a, _ in pairs], [b for _, b in pairs]
    learnt = np.array([min(a.accuracy, b.accuracy) for a, b in pairs])
    gap = np.array([min(a.gap, b.gap) for a, b in pairs])
    sequences = np.array([one.pair.sequences for one in test])
    usable = (learnt >= MINIMUM_ACCURACY) & (gap >= MINIMUM_GAP) & (sequences >= MINIMUM_SEQUENCES)
    generator = torch.Generator().manual_seed(seed)
    size, width = np.zeros(len(fit), dtype=int), fit[0].clean_state.shape[1]
    scores: dict[tuple[int, int], np.ndarray] = {}
    chance: dict[tuple[int, int], np.ndarray] = {}
    columns = np.flatnonzero(usable).tolist()
    for i in columns:
        subspace = smallest_subspace(family, params, fit[i], faithfulness)
        size[i] = subspace.shape[1]
        draws = [
            random_subspace(width, int(size[i]), generator, subspace.dtype)
            for _ in range(random_draws)
        ]
        for j in columns:
            scores[i, j] = test[j].pair.by_sequence(kept(family, params, test[j], subspace))
            chance[i, j] = np.array(
                [kept(family, params, test[j], draw).mean().item() for draw in draws]
            )
    table = _Resampled(len(fit), scores, chance, seed)
    return LengthMatrix(
        lengths=task.lengths,
        matrix=table.matrix,
        lower=np.percentile(table.matrices, 2.5, axis=0),
        upper=np.percentile(table.matrices, 97.5, axis=0),
        random_baseline=table.baseline,
        random_upper=table.baseline_upper,
        size=size,
        width=width,
        sequences=sequences,
        gap=gap,
        accuracy=learnt,
        defined=np.outer(usable, usable),
        site=_site(fit),
        step=step,
        sharing=table.sharing(columns),
        sharing_interval=table.sharing_interval(columns),
    )


def _site(fit: list[Contrast]) -> str:
    return fit[-1].site.hook


class _Resampled:
    """The matrix and its random baseline, with bootstrap draws of sequences and of subspaces."""

    def __init__(
        self,
        count: int,
        scores: Mapping[tuple[int, int], np.ndarray],
        chance: Mapping[tuple[int, int], np.ndarray],
        seed: int,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.matrix, self.baseline, self.baseline_upper = np.full((3, count, count), np.nan)
        self.matrices, self.baselines = np.full((2, RESAMPLES, count, count), np.nan)
        for (i, j), values in scores.items():
            self.matrix[i, j] = values.mean()
            self.matrices[:, i, j] = _means(values, rng)
            self.baseline[i, j] = chance[i, j].mean()
            self.baseline_upper[i, j] = np.percentile(chance[i, j], 95)
            self.baselines[:, i, j] = _means(chance[i, j], rng)

    def sharing(self, columns: list[int]) -> float | None:
        if len(columns) < 2:
            return None
        return float(_index(self.matrix[None], self.baseline[None], columns)[0])

    def sharing_interval(self, columns: list[int]) -> tuple[float, float] | None:
        if len(columns) < 2:
            return None
        low, high = np.percentile(_index(self.matrices, self.baselines, columns), [2.5, 97.5])
        return float(low), float(high)


def _means(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Bootstrap means, (RESAMPLES,)."""
    return values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)


def _index(matrices: np.ndarray, baselines: np.ndarray, columns: list[int]) -> np.ndarray:
    """Mean off-diagonal over mean diagonal for a stack (draws, L, L), above each row's baseline.

    One baseline for the row, the mean over its columns, so that its noise cancels where all are
    equal.
    """
    inside = np.ix_(range(len(matrices)), columns, columns)
    above = matrices[inside] - baselines[inside].mean(2, keepdims=True)
    own = np.eye(len(columns), dtype=bool)
    return above[:, ~own].mean(1) / above[:, own].mean(1)
