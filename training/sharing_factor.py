"""kappa: how much data lengths save, or cost, each other when they are learnt together.

    kappa = sum_n N*_n / N*_joint                       (arXiv 2602.18333; theory section 7)
    kappa_sep = sum_n N*_n / N_sep                      (theory section 8)

N_sep is the joint size that mechanisms learnt entirely apart would need, so kappa is to be read
against kappa_sep and not against 1: above it lengths share, below it they interfere.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.config import RunConfig
from training.n_star import NStar
from training.naming import describe
from training.processes import tell, worker_pool
from training.sample_size import Progress, sample_size

BOUNDS = ("=", ">=", "<=", "undetermined")


def _known(star: NStar) -> int:
    """N*, or the largest size that failed where it is censored."""
    return star.grid[-1] if star.value is None else star.value


def _text(star: NStar) -> str:
    if star.value is None:
        return f"> {star.grid[-1]}"
    return f"<= {star.value}" if star.bottom else str(star.value)


def separate_size(n_star: Mapping[int, int], pools: Mapping[int, int]) -> int:
    """N_sep: the smallest joint size at which every length n expects at least N*_n sequences.

    Each sequence's length is uniform among the lengths whose pool is not used up, so at joint size
    N every length has min(pool_n, c) with sum_n min(pool_n, c) = N; the neediest sets c:
    N_sep = sum_n min(pool_n, max_m N*_m). That is L max N*_n when no pool runs out.
    """
    for n, needed in n_star.items():
        if needed > pools[n]:
            raise ValueError(f"n_star: length {n} got {needed}, allowed up to its pool {pools[n]}")
    level = max(n_star.values())
    return sum(min(pools[n], level) for n in n_star)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFactor:
    """kappa of one cell, with the searches behind it.

    task, family, format, layout: what the cell is, in words. pools: training sequences per length.
    alone: N* of each length; joint: N* of all lengths together.
    """

    task: str
    family: str
    format: str
    layout: str
    lengths: tuple[int, ...]
    pools: Mapping[int, int]
    alone: Mapping[int, NStar]
    joint: NStar

    def __post_init__(self) -> None:
        grids = {(s.lrs, s.seeds, s.threshold) for s in (self.joint, *self.alone.values())}
        if len(grids) > 1:
            raise ValueError(
                f"SharingFactor: N* of different lrs, seeds or thresholds do not compare: {grids}"
            )
        if set(self.alone) != set(self.lengths) or set(self.pools) != set(self.lengths):
            raise ValueError(
                f"SharingFactor: alone and pools must have the lengths {self.lengths}, got "
                f"{tuple(self.alone)} and {tuple(self.pools)}"
            )

    @property
    def n_star(self) -> dict[int, int | None]:
        """N*_n by length; None where censored."""
        return {n: self.alone[n].value for n in self.lengths}

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
        return sum(_known(star) for star in self.alone.values()) / _known(self.joint)

    @property
    def interval(self) -> tuple[float, float | None]:
        """What the grid leaves open: kappa is above the first number and below the second.

        From the brackets of each search alone: no sampling error is in it. None: no upper end.
        """
        low = sum(star.interval[0] for star in self.alone.values())
        return self._against_joint(low, [star.interval[1] for star in self.alone.values()], sum)

    @property
    def n_sep(self) -> int | None:
        """The joint size that separate mechanisms would need; None if any N*_n is censored."""
        values = {n: value for n, value in self.n_star.items() if value is not None}
        if len(values) < len(self.lengths):
            return None
        return separate_size(values, self.pools)

    @property
    def kappa_sep(self) -> float | None:
        """sum_n N*_n / N_sep: what kappa would be if the lengths shared nothing."""
        if self.n_sep is None:
            return None
        return sum(_known(star) for star in self.alone.values()) / self.n_sep

    @property
    def ratio(self) -> float | None:
        """kappa / kappa_sep = N_sep / N*_joint, with the bound of kappa."""
        if self.kappa is None or self.kappa_sep is None:
            return None
        return self.kappa / self.kappa_sep

    @property
    def ratio_interval(self) -> tuple[float, float | None]:
        """What the grid leaves open for the ratio, as in `interval`."""
        lows = {n: star.interval[0] for n, star in self.alone.items()}
        highs = [star.interval[1] for star in self.alone.values()]

        def separate(values: Sequence[int]) -> int:
            return separate_size(dict(zip(self.alone, values, strict=True)), self.pools)

        return self._against_joint(separate_size(lows, self.pools), highs, separate)

    def _against_joint(
        self, low: int, highs: Sequence[int | None], total: Callable[[Sequence[int]], int]
    ) -> tuple[float, float | None]:
        joint_low, joint_high = self.joint.interval
        known = [high for high in highs if high is not None]
        lower = low / joint_high if joint_high is not None else 0.0
        upper = total(known) / joint_low if joint_low and len(known) == len(highs) else None
        return lower, upper

    def sentence(self) -> str:
        """The finding in words, with every number and bound."""
        layout = "" if self.format == "acot" else f", {self.layout} layout"
        lengths = ", ".join(map(str, self.lengths))
        stars = ", ".join(_text(self.alone[n]) for n in self.lengths)
        head = (
            f"{self.family} on {self.task} {self.format}{layout}, lengths {lengths}: N* alone "
            f"{stars}, together {_text(self.joint)}"
        )
        if self.kappa is None:
            return f"{head}; kappa is undetermined, since both sides of it are only bounded."
        low, high = self.interval
        open_range = f"{low:.2f} to {high:.2f}" if high is not None else f"above {low:.2f}"
        sign = "" if self.bound == "=" else f"{self.bound} "
        head = f"{head}; kappa {sign}{self.kappa:.2f} (the grid leaves open {open_range})"
        if self.kappa_sep is None:
            return f"{head}; kappa_sep is unknown, since a length alone ran out of sequences."
        low, high = self.ratio_interval
        if high is not None and high < 1:
            verdict = "below"
        elif low >= 1:
            verdict = "above"
        else:
            verdict = "not told apart by this grid from"
        return f"{head}, {verdict} the {self.kappa_sep:.2f} of lengths that share nothing."

    def record(self) -> dict[str, Any]:
        """Plain values for JSON; lengths as text where they are keys."""
        return {
            "task": self.task,
            "family": self.family,
            "format": self.format,
            "layout": self.layout,
            "lengths": list(self.lengths),
            "pools": {str(n): pool for n, pool in self.pools.items()},
            "n_star": {str(n): value for n, value in self.n_star.items()},
            "n_star_joint": self.joint.value,
            "kappa": self.kappa,
            "kappa_interval": list(self.interval),
            "bound": self.bound,
            "n_sep": self.n_sep,
            "kappa_sep": self.kappa_sep,
            "ratio": self.ratio,
            "ratio_interval": list(self.ratio_interval),
            "searches": {
                **{str(n): star.record() for n, star in self.alone.items()},
                "joint": self.joint.record(),
            },
        }


def sharing_factor(
    config: RunConfig,
    *,
    root: str | Path,
    lrs: Sequence[float],
    seeds: Sequence[int],
    stop_at_first_success: bool = True,
    workers: int = 1,
    progress: Progress | None = None,
) -> SharingFactor:
    """kappa of a cell: N* of config's task, and of each of its lengths alone.

    config: as in `sample_size`; its task has several `lengths`, and a field `longest` that lets a
    length alone keep the cell's layout and model shape. One grid of lrs and seeds serves all
    searches. workers: processes, one search each, the joint one first since it takes longest; with
    more than one, a script must guard its entry (`if __name__ == "__main__"`).

    Errors: ValueError for a task without lengths, and those of `sample_size`.
    """
    configs = _searches(config)
    report = _shared_progress(progress, list(configs))
    arguments = {
        "root": root,
        "lrs": lrs,
        "seeds": seeds,
        "stop_at_first_success": stop_at_first_success,
    }
    if workers < 1:
        raise ValueError(f"workers: got {workers}, allowed 1 or more")
    if workers == 1:
        found = {
            name: sample_size(part, progress=lambda s, t, n=name: report(n, s, t), **arguments)
            for name, part in configs.items()
        }
    else:
        found = _in_processes(configs, arguments, workers, report)
    task: Any = config.task
    return SharingFactor(
        task=f"Z_{task.modulus}",
        family=describe("family", config.family)["name"],
        format=task.format,
        layout=task.layout,
        lengths=task.lengths,
        pools={n: task.pool(n) for n in task.lengths},
        alone={n: found[str(n)] for n in task.lengths},
        joint=found["joint"],
    )


def _searches(config: RunConfig) -> dict[str, RunConfig]:
    """The joint search, then the lengths alone from the longest down."""
    task: Any = config.task
    if not all(hasattr(task, part) for part in ("lengths", "longest", "pool", "modulus")):
        raise ValueError(
            f"task: {type(task).__name__} has no lengths to share between, use modular_addition"
        )
    if len(task.lengths) < 2:
        raise ValueError(f"task.lengths: got {task.lengths}, allowed two or more")
    alone = {
        str(n): config.replace(task=replace(task, lengths=(n,), longest=task.reach))
        for n in sorted(task.lengths, reverse=True)
    }
    return {"joint": config, **alone}


def _shared_progress(progress: Progress | None, names: list[str]) -> Callable[..., None]:
    """Shares of all searches in one; the joint one counts as much as all others."""
    shares = dict.fromkeys(names, 0.0)
    weights = {name: 0.5 if name == "joint" else 0.5 / (len(names) - 1) for name in names}

    def report(name: str, share: float, text: str) -> None:
        shares[name] = share
        if progress:
            label = "all lengths" if name == "joint" else f"length {name}"
            progress(sum(weights[n] * shares[n] for n in names), f"{label}: {text}")

    return report


def _in_processes(
    configs: dict[str, RunConfig],
    arguments: dict[str, Any],
    workers: int,
    report: Callable[[str, float, str], None],
) -> dict[str, NStar]:
    with worker_pool(workers) as (pool, messages):
        futures: dict[str, Future[NStar]] = {
            name: pool.submit(_one_search, name, part, arguments) for name, part in configs.items()
        }
        while not all(future.done() for future in futures.values()):
            try:
                report(*messages.get(timeout=0.2))
            except queue.Empty:
                continue
        return {name: future.result() for name, future in futures.items()}


def _one_search(name: str, config: RunConfig, arguments: dict[str, Any]) -> NStar:
    return sample_size(config, progress=lambda s, t: tell(name, s, t), **arguments)
