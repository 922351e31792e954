"""A clean and a corrupted run of the same sequences, and what separates their answers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from circuits.pair import Pair, of_sequences
from probes import Site, final_site, read_state
from training.families.base import Family, Params
from training.tasks.base import Batch, LengthTask, Task


def length_task(task: Task) -> LengthTask:
    """`task` if its sequences come in lengths; ValueError otherwise."""
    if isinstance(task, LengthTask):
        return task
    raise ValueError(
        f"{type(task).__name__} has no lengths; circuits by length need a task that has, such as "
        "modular_addition"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contrast:
    """Pairs of one length, both sides run through one model.

    site: the state at the final token. clean_state, corrupt_state: (batch, width). clean_gap,
    corrupt_gap: the metric M of each pair, the clean answer's logit minus the corrupted answer's at
    the final token, in each run. accuracy: share of clean sequences whose final answer is the
    model's first choice.
    """

    pair: Pair
    site: Site
    clean_state: Tensor
    corrupt_state: Tensor
    clean_gap: Tensor
    corrupt_gap: Tensor
    accuracy: float

    @property
    def gap(self) -> float:
        """Mean of M(clean) - M(corrupt), in logits: what a circuit has to explain."""
        return float((self.clean_gap - self.corrupt_gap).mean())

    def faithfulness(self, logits: Tensor) -> Tensor:
        """Each pair's share of the mean gap, (batch,); their mean is the faithfulness
        (M(kept) - M(corrupt)) / (M(clean) - M(corrupt)) of means."""
        return (self.pair.metric(logits) - self.corrupt_gap) / self.gap


def contrast(
    family: Family, params: Params, task: LengthTask, length: int, count: int, seed: int
) -> Contrast:
    """About `count` pairs of one length, run through one model.

    Where fewer held-out sequences exist they are repeated with other corruptions.
    """
    return _run(family, params, task, task.sequences(length, count, seed), count, seed)


def halves(
    family: Family, params: Params, task: LengthTask, length: int, count: int, seed: int
) -> tuple[Contrast, Contrast]:
    """Two contrasts of about `count` pairs each that share no clean sequence.

    Where only one sequence is held out, both are of it: too few for anything to be read.
    """
    drawn = task.sequences(length, 2 * count, seed)
    middle = (len(drawn) + 1) // 2
    first, second = drawn[:middle], drawn[min(middle, len(drawn) - 1) :]
    return (
        _run(family, params, task, first, count, seed),
        _run(family, params, task, second, count, seed + 1),
    )


def _run(
    family: Family, params: Params, task: LengthTask, drawn: Batch, count: int, seed: int
) -> Contrast:
    pair = of_sequences(task, drawn, count, seed)
    site = final_site(family, pair.clean.tokens.shape[1], pair.final)
    clean_state, clean_logits = read_state(family, params, pair.clean, site)
    corrupt_state, corrupt_logits = read_state(family, params, pair.corrupt, site)
    guess = clean_logits[:, pair.final].argmax(-1).numpy()
    return Contrast(
        pair=pair,
        site=site,
        clean_state=clean_state,
        corrupt_state=corrupt_state,
        clean_gap=pair.metric(clean_logits),
        corrupt_gap=pair.metric(corrupt_logits),
        accuracy=float((guess == pair.answers(pair.clean)).mean()),
    )
