"""State tracking: the running product of group elements, at several lengths.

theory sections 7 and 8 (arXiv 2602.18333): every sequence of elements exists once, some are held
out for validation, and a training set of size N is the first N of a random order of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from training.tasks.base import Batch, Symmetry, generator
from training.tasks.layouts import FORMATS, LAYOUTS, Layout, Places, lay, offsets, places
from training.tasks.products import Group, product_symmetry, running_products
from training.tasks.sequence_order import (
    DISTRIBUTIONS,
    fresh_rows,
    mixture_counts,
    training_order,
    validation_order,
)
from training.tasks.sequence_pool import SequencePool

_BATCH, _CORRUPT, _CHOOSE = 2, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTracking(Group):
    """States s_k = x_k * .. * x_1 of n group elements, n drawn from `lengths`.

    Tokens: the elements 0..q-1 (0 is the identity), "=" is q, padding is q+1, in every format.

    format, what is shown and what is predicted at each token:
      outcome  x_1 .. x_n =                  s_n at "=";
      cot      x_1 .. x_n = s_1 .. s_(n-1)   s_1 at "=", s_k at the token s_(k-1);
      acot     x_1 .. x_n                    s_k at x_k.
    layout, L the longest length of the cell:
      usual          inputs at 0..n-1, "=" at n, the chain after it;
      aligned        inputs at 0..n-1, padding up to L-1, "=" at L whatever n, the chain after it.
                     (acot has neither "=" nor chain, so it cannot be aligned.)
      right_aligned  padding first, inputs at L-n..L-1, "=" at L, the chain after it;
      aligned_masked, right_aligned_masked  the same, and the padding is hidden: its position id is
                     -1, and no other token attends to it;
      random_offset  as usual, and position ids start at an offset, uniform on 0..L, which is a
                     fixed function of the sequence.
    Elsewhere a position's id is its place in the sequence. Padding is a token that, unless masked,
    may be attended to, and is never scored; after the last token it fills sequences up to `time`,
    and a causal model cannot see it there.

    distribution: how lengths are mixed in the training set. uniform: each row's length is uniform
        among those that are not used up; short_to_long: each length used up before the next.
    longest: L, where it is not max(lengths); gives a task of one length the layout and the model
        shape of a cell with several.
    validation_size: sequences held out per length, at most 20% of those that exist.
    split_seed: which ones; the same validation set for every data seed, distribution, training
        size and format.

    Errors: ValueError for impossible values, one line for all of them.
    """

    lengths: tuple[int, ...]
    format: str
    layout: str = "usual"
    distribution: str = "uniform"
    validation_size: int = 2000
    longest: int | None = None
    split_seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(self.lengths))
        problems = list(_problems(self))
        if problems:
            raise ValueError(f"{type(self).__name__}: " + "; ".join(problems))

    @property
    def n_answers(self) -> int:
        return self.n_elements

    @property
    def vocabulary(self) -> int:
        """Elements, "=" and padding: q + 2."""
        return self.n_elements + 2

    @property
    def reach(self) -> int:
        """L: the longest length of the cell, which fixes the layout and the positions."""
        return self.longest or max(self.lengths)

    @property
    def n_positions(self) -> int:
        """Tokens of the longest sequence of the cell; L more with random_offset."""
        return self._layout.n_positions

    @property
    def time(self) -> int:
        """Tokens per sequence, after padding."""
        return self._places.shown.shape[1]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The lengths, as strings."""
        return tuple(str(n) for n in self.lengths)

    @property
    def symmetry(self) -> Symmetry:
        """The group's automorphisms: states are mapped as the inputs are (`product_symmetry`)."""
        elements = np.arange(self.n_elements)
        return product_symmetry(self.automorphisms, self.inverse(elements), self.n_positions)

    def pool(self, length: int | None = None) -> int:
        """Training sequences that exist at `length`, or at all lengths together."""
        if length is None:
            return sum(pool.size for pool in _pools(self))
        return _pools(self)[self._index(length)].size

    def held_out(self, length: int) -> int:
        """Validation sequences at `length`."""
        return _pools(self)[self._index(length)].held_out

    @property
    def endless(self) -> bool:
        """Whether the pool is too large to be listed: then train_size None means fresh draws."""
        return not all(pool.listed for pool in _pools(self))

    def batch(self, seed: int, k: int, size: int, train_size: int | None = None) -> Batch:
        """`size` rows drawn with replacement from the first `train_size` rows of the pool.

        The order of the pool depends on the data seed alone, and a smaller training set is a
        prefix of a larger one (`order`). None: all rows; or, where the pool is `endless`, fresh
        training sequences in every batch, their lengths uniform.
        """
        draw = generator(seed, _BATCH, k)
        if train_size is None and self.endless:
            return self._fresh(draw, size)
        limit = self._limit(train_size)
        inputs, kind = training_order(_pools(self), self.distribution, seed).first(limit)
        rows = draw.integers(0, limit, size)
        return self._encode(inputs[rows], kind[rows])

    def order(self, seed: int, train_size: int | None = None) -> Batch:
        """The training set itself: the first `train_size` rows (None: all) of the pool, once.

        ValueError for more than there are, and for None where the pool is `endless`.
        """
        if train_size is None and self.endless:
            raise ValueError(
                f"train_size: got None, but the {self.pool()} training sequences of {self.label} "
                "are too many to list; give a number"
            )
        order = training_order(_pools(self), self.distribution, seed)
        return self._encode(*order.first(self._limit(train_size)))

    def mixture(self, seed: int, train_size: int) -> dict[str, int]:
        """How many of the first `train_size` rows have each length: kind to count."""
        limit = self._limit(train_size)
        counts = mixture_counts(_pools(self), self.distribution, seed, limit)
        return dict(zip(self.kinds, counts, strict=True))

    def evaluation(self, seed: int, size: int) -> Batch:
        """The validation set in an order that depends on `seed`, cut after `size` rows.

        Each row's length is uniform among those that are not used up, whatever the training
        distribution is. With `size` at least the number held out it is the same set for every seed.
        """
        held_out = sum(pool.held_out for pool in _pools(self))
        return self._encode(*validation_order(_pools(self), seed).first(min(size, held_out)))

    def sequences(self, length: int, count: int, seed: int, split: str = "validation") -> Batch:
        """At most `count` different sequences of one length, chosen by `seed`.

        split: "validation", or "training" (the whole pool, whatever a model was trained on).
        """
        if split not in ("validation", "training"):
            raise ValueError(f"split: got {split!r}, allowed 'validation' or 'training'")
        index = self._index(length)
        pool = _pools(self)[index]
        if split == "validation":
            rows = generator(seed, _CHOOSE, length).permutation(pool.validation())[:count]
        else:
            rows = pool.training(seed, _CHOOSE).take(count)
        inputs = np.zeros((len(rows), max(self.lengths)), dtype=rows.dtype)
        inputs[:, :length] = rows
        return self._encode(inputs, np.full(len(rows), index))

    def corrupt(self, batch: Batch, seed: int) -> Batch:
        """Each sequence with one input changed: same length, another answer, its own chain.

        The changed place is uniform among the n inputs and the new element among the q - 1 others,
        so that every state from there on changes. Positions stay, with random_offset too, so that
        the two can be compared place by place.
        """
        draw = generator(seed, _CORRUPT)
        lengths = np.array(self.lengths)[batch.kind]
        inputs = np.take_along_axis(batch.tokens, self._places.inputs[batch.kind], axis=1)
        inputs[np.arange(inputs.shape[1]) >= lengths[:, None]] = 0
        rows, place = np.arange(len(batch)), draw.integers(0, lengths)
        shift = draw.integers(1, self.n_elements, len(batch))
        inputs[rows, place] = (inputs[rows, place] + shift) % self.n_elements
        return replace(self._encode(inputs, batch.kind), positions=batch.positions)

    def final(self, batch: Batch) -> np.ndarray:
        """(batch,): where the last state s_n is predicted."""
        return self._places.final[batch.kind]

    def step(self, batch: Batch) -> np.ndarray:
        """(batch, time): k where s_k is predicted (outcome: the one place counts as n), else 0."""
        return self._places.step[batch.kind]

    def inputs(self, batch: Batch) -> np.ndarray:
        """(batch, longest): where x_1 .. x_n stand; what follows them is not theirs."""
        return self._places.inputs[batch.kind]

    @property
    def _layout(self) -> Layout:
        return Layout(format=self.format, layout=self.layout, reach=self.reach)

    @property
    def _places(self) -> Places:
        return places(self._layout, self.lengths)

    def _index(self, length: int) -> int:
        if length not in self.lengths:
            raise ValueError(f"length: got {length}, allowed {self.lengths}")
        return self.lengths.index(length)

    def _limit(self, train_size: int | None) -> int:
        exist = self.pool()
        if train_size is not None and not 1 <= train_size <= exist:
            raise ValueError(
                f"train_size: got {train_size}, allowed 1 to {exist}, the training sequences that "
                f"exist at lengths {self.lengths} of {self.label}"
            )
        return exist if train_size is None else train_size

    def _fresh(self, draw: np.random.Generator, size: int) -> Batch:
        if self.distribution == "short_to_long" and len(self.lengths) > 1:
            raise ValueError(
                f"train_size: got None, but short_to_long would never leave a length of which "
                f"{self.label} has too many sequences to list (of {self.lengths}); give a number"
            )
        return self._encode(*fresh_rows(_pools(self), draw, size))

    def _encode(self, inputs: np.ndarray, kind: np.ndarray) -> Batch:
        """Sequences of inputs (rows, longest of lengths), each followed by zeros."""
        offset = None
        if self.layout == "random_offset":
            offset = offsets(inputs, kind, self.lengths, self.n_elements, self.reach)
        states = running_products(self.compose, inputs)
        return lay(self._places, inputs, states, kind, self.n_elements, offset)


@lru_cache(maxsize=64)
def _pools(task: StateTracking) -> tuple[SequencePool, ...]:
    common = {"validation_size": task.validation_size, "split_seed": task.split_seed}
    return tuple(SequencePool(symbols=task.n_elements, length=n, **common) for n in task.lengths)


def _problems(task: StateTracking) -> Iterator[str]:
    """Everything wrong with the fields, each with what is allowed."""
    choices = {"format": FORMATS, "layout": LAYOUTS, "distribution": DISTRIBUTIONS}
    for name, allowed in choices.items():
        if getattr(task, name) not in allowed:
            yield f"{name}: got {getattr(task, name)!r}, allowed {', '.join(allowed)}"
    if task.format == "acot" and task.layout in ("aligned", "aligned_masked"):
        yield "layout: acot has no '=' and no chain to align; allowed the other layouts"
    if task.validation_size < 1:
        yield f"validation_size: got {task.validation_size}, allowed 1 or more"
    if task.split_seed < 0:
        yield f"split_seed: got {task.split_seed}, allowed 0 or more"
    group = list(task._group_problems())
    yield from group
    if not task.lengths or len(set(task.lengths)) < len(task.lengths) or min(task.lengths) < 2:
        yield f"lengths: got {task.lengths}, allowed one or more different lengths, each at least 2"
        return
    if task.longest is not None and task.longest < max(task.lengths):
        yield f"longest: got {task.longest}, allowed {max(task.lengths)} (max of lengths) or more"
    for n in task.lengths if not group else ():
        if task.n_elements**n < 5:
            yield (
                f"lengths: only {task.n_elements}^{n} sequences of length {n} exist, and 20% of "
                "them leaves none for validation; at least 5 are needed"
            )
