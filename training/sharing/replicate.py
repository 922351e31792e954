"""kappa of one data seed, and the joint size that lengths sharing nothing would need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.sharing.n_star import NStar

SEPARATE = (0.8 / 1.3, 0.8 * 1.3)
"""kappa / kappa_sep of lengths learnt apart: about 0.8 in planted models (theory, section 8), give
or take a grid step. Above it lengths share, below it they interfere."""


def separate_size(
    n_star: Mapping[int, Any], pools: Mapping[int, int], distribution: str = "uniform"
) -> Any:
    """N_sep: the smallest joint size at which every length n has at least N*_n sequences.

    n_star: by length, numbers or arrays of equal shape. pools: training sequences per length.
    uniform: each sequence's length is uniform among those whose pool is not used up, so at joint
    size N every length expects min(pool_n, c) with sum_n min(pool_n, c) = N; the neediest sets c:
    N_sep = sum_n min(pool_n, max_m N*_m). That is L max N*_n when no pool runs out.
    short_to_long: every shorter pool comes before the longest length's first sequence, so
    N_sep = sum of the shorter pools + N* of the longest.

    Errors: ValueError for a length that needs more than its pool.
    """
    _check_pools(n_star, pools)
    if distribution == "short_to_long":
        longest = max(n_star)
        return sum(pools[n] for n in n_star if n != longest) + n_star[longest]
    level = np.max(np.stack(list(n_star.values())), axis=0)
    total = np.sum([np.minimum(level, float(pools[n])) for n in n_star], axis=0)
    return total if np.ndim(total) else int(total)


def prefix_size(n_star: Mapping[int, Any], pools: Mapping[int, int]) -> Any:
    """The joint size at which every length n has N*_n sequences of its own length or longer.

    What lengths need together if step k is learnt by itself from every sequence that has a step k,
    as aligned chain of thought supervises it: a longer sequence counts for all shorter lengths.
    Uniform lengths, as in `separate_size`: at level c, length m has min(pool_m, c) sequences.

    n_star, pools, errors: as in `separate_size`.
    """
    _check_pools(n_star, pools)
    lengths = sorted(n_star)
    level = np.zeros_like(np.asarray(n_star[lengths[0]], dtype=np.float64))
    for n in lengths:
        level = np.maximum(level, _level(n_star[n], [pools[m] for m in lengths if m >= n]))
    total = np.sum([np.minimum(level, float(pools[m])) for m in lengths], axis=0)
    return total if np.ndim(total) else int(np.ceil(total))


def _level(needed: Any, pools: Sequence[int]) -> np.ndarray:
    """The least c with sum_m min(pool_m, c) >= needed; needed is at most the pools together."""
    ascending = sorted(map(float, pools))
    level, used = np.zeros_like(np.asarray(needed, dtype=np.float64)), 0.0
    for index, pool in enumerate(ascending):
        share = (needed - used) / (len(ascending) - index)
        level = np.where(share > level, np.minimum(share, pool), level)
        used += pool
    return level


def _check_pools(n_star: Mapping[int, Any], pools: Mapping[int, int]) -> None:
    for n, needed in n_star.items():
        if np.any(np.asarray(needed) > float(pools[n])):
            raise ValueError(f"n_star: length {n} got {needed}, allowed up to its pool {pools[n]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """The searches of one data seed.

    alone: N* of each length; joint: N* of all lengths together. pools, distribution: of the joint
    task. All searches have one grid of lrs, seeds and threshold: N* is a minimum over it.
    """

    data_seed: int
    pools: Mapping[int, int]
    distribution: str
    alone: Mapping[int, NStar]
    joint: NStar

    def __post_init__(self) -> None:
        wrong = {s.data_seed for s in self.stars.values()} - {self.data_seed}
        if wrong:
            raise ValueError(f"Replicate: data seed {self.data_seed} got searches of {wrong}")

    @property
    def stars(self) -> dict[str, NStar]:
        """Every search by name: "joint", then the lengths."""
        return {"joint": self.joint, **{str(n): star for n, star in self.alone.items()}}

    @property
    def n_star(self) -> dict[int, int | None]:
        """N*_n by length; None where censored."""
        return {n: star.value for n, star in self.alone.items()}

    @property
    def bound(self) -> str:
        """What `kappa` is to the true one on this grid: "=", ">=", "<=" or "undetermined".

        N*_n censored, or N*_joint at the bottom of its grid: at least. The reverse: at most. Both:
        undetermined.
        """
        alone = self.alone.values()
        at_least = self.joint.bottom or any(star.censored for star in alone)
        at_most = self.joint.censored or any(star.bottom for star in alone)
        if at_least and at_most:
            return "undetermined"
        return ">=" if at_least else "<=" if at_most else "="

    @property
    def kappa(self) -> float | None:
        """sum_n N*_n / N*_joint; where `bound` is not "=", the bound; None if undetermined.

        A censored N* enters a bound as the largest size that failed, which it exceeds.
        """
        if self.bound == "undetermined":
            return None
        return self._sum / _known(self.joint)

    @property
    def n_sep(self) -> int | None:
        """The joint size that separate mechanisms would need; None if any N*_n is censored."""
        if any(value is None for value in self.n_star.values()):
            return None
        return separate_size(self.n_star, self.pools, self.distribution)

    @property
    def kappa_sep(self) -> float | None:
        """sum_n N*_n / N_sep: what kappa would be if the lengths shared nothing."""
        return None if self.n_sep is None else self._sum / self.n_sep

    @property
    def ratio(self) -> float | None:
        """kappa / kappa_sep = N_sep / N*_joint, with the bound of kappa."""
        if self.kappa is None or self.n_sep is None:
            return None
        return self.n_sep / _known(self.joint)

    @property
    def _sum(self) -> int:
        return sum(map(_known, self.alone.values()))

    def record(self) -> dict[str, Any]:
        """Plain values for JSON; lengths as text where they are keys."""
        return {
            "data_seed": self.data_seed,
            "n_star": {str(n): value for n, value in self.n_star.items()},
            "n_star_joint": self.joint.value,
            "kappa": self.kappa,
            "bound": self.bound,
            "n_sep": self.n_sep,
            "kappa_sep": self.kappa_sep,
            "ratio": self.ratio,
            "beyond": self.joint.beyond,
            "searches": {name: star.record() for name, star in self.stars.items()},
        }


def _known(star: NStar) -> int:
    """N*, or the largest size that failed where it is censored."""
    return star.grid[-1] if star.value is None else star.value


def geometric_mean(values: Sequence[float | None]) -> Any:
    """Exact where all values are equal; None if any is None."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return known[0] if len(set(known)) == 1 else float(np.exp(np.mean(np.log(known))))
