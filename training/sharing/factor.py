"""kappa: how much data lengths save, or cost, each other when they are learnt together.

    kappa = sum_n N*_n / N*_joint                       (arXiv 2602.18333; theory section 7)
    kappa_sep = sum_n N*_n / N_sep                      (theory section 8)

N_sep is the joint size that mechanisms learnt entirely apart would need, so kappa is to be read
against kappa_sep and not against 1: above it lengths share, below it they interfere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training.config import RunConfig
from training.naming import describe
from training.sharing.interval import Interval, interval_covers, kappa_intervals
from training.sharing.n_star import NStar
from training.sharing.replicate import SEPARATE, Replicate, geometric_mean

JOINT = "joint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFactor:
    """kappa of one cell over its data seeds, with the searches behind it.

    task, family, format, layout, distribution: what the cell is, in words. pools: training
    sequences per length. replicates: one per data seed. Means over replicates are geometric.
    """

    task: str
    family: str
    format: str
    layout: str
    distribution: str
    lengths: tuple[int, ...]
    pools: Mapping[int, int]
    replicates: tuple[Replicate, ...]

    def __post_init__(self) -> None:
        if not self.replicates:
            raise ValueError("SharingFactor: got no replicate, allowed one or more data seeds")
        data_seeds = [replicate.data_seed for replicate in self.replicates]
        if len(set(data_seeds)) < len(data_seeds):
            raise ValueError(f"SharingFactor: data seeds {data_seeds} must differ")
        for r in self.replicates:
            if set(r.alone) != set(self.lengths) or set(self.pools) != set(self.lengths):
                raise ValueError(
                    f"SharingFactor: alone and pools must have the lengths {self.lengths}, got "
                    f"{tuple(r.alone)} and {tuple(self.pools)}"
                )
        stars = [star for r in self.replicates for star in r.stars.values()]
        grids = {(s.lrs, s.seeds, s.threshold, s.search, s.complete) for s in stars}
        if len(grids) > 1:
            raise ValueError(
                "SharingFactor: N* of different lrs, seeds, thresholds, searches or n50 do not "
                f"compare: {grids}"
            )

    @classmethod
    def of(cls, config: RunConfig, stars: Mapping[int, Mapping[str, NStar]]) -> SharingFactor:
        """From finished searches: data seed to name to N*, the names being those of `searches_of`.

        Errors: ValueError for names that are missing or too many.
        """
        names = set(searches_of(config))
        for data_seed, found in stars.items():
            if set(found) != names:
                raise ValueError(
                    f"stars: data seed {data_seed} got {sorted(found)}, allowed {sorted(names)}"
                )
        task: Any = config.task
        pools = {n: task.pool(n) for n in task.lengths}
        distribution = getattr(task, "distribution", "uniform")
        return cls(
            task=getattr(task, "label", type(task).__name__),
            family=describe("family", config.family)["name"],
            format=task.format,
            layout=task.layout,
            distribution=distribution,
            lengths=tuple(task.lengths),
            pools=pools,
            replicates=tuple(
                Replicate(
                    data_seed=data_seed,
                    pools=pools,
                    distribution=distribution,
                    alone={n: found[str(n)] for n in task.lengths},
                    joint=found[JOINT],
                )
                for data_seed, found in sorted(stars.items())
            ),
        )

    @property
    def n_star(self) -> dict[int, float | None]:
        """N*_n by length; None where censored for any data seed."""
        return {
            n: geometric_mean([r.alone[n].value for r in self.replicates]) for n in self.lengths
        }

    @property
    def n_star_joint(self) -> float | None:
        return geometric_mean([r.joint.value for r in self.replicates])

    @property
    def bound(self) -> str:
        """What `kappa` is to the true one: "=", ">=", "<=" or "undetermined".

        "undetermined" if any replicate is, or if one is bounded below and another above.
        """
        bounds = {r.bound for r in self.replicates} - {"="}
        return "=" if not bounds else bounds.pop() if len(bounds) == 1 else "undetermined"

    @property
    def kappa(self) -> float | None:
        """Mean of sum_n N*_n / N*_joint; where `bound` is not "=", the bound; None if undetermined.

        A censored N* enters a bound as the largest size that failed, which it exceeds.
        """
        return (
            None
            if self.bound == "undetermined"
            else geometric_mean([r.kappa for r in self.replicates])
        )

    @property
    def n_sep(self) -> float | None:
        """The joint size that separate mechanisms would need; None if any N*_n is censored."""
        return geometric_mean([r.n_sep for r in self.replicates])

    @property
    def kappa_sep(self) -> float | None:
        """sum_n N*_n / N_sep: what kappa would be if the lengths shared nothing."""
        return geometric_mean([r.kappa_sep for r in self.replicates])

    @property
    def ratio(self) -> float | None:
        """kappa / kappa_sep = N_sep / N*_joint, with the bound of kappa."""
        return (
            None
            if self.bound == "undetermined"
            else geometric_mean([r.ratio for r in self.replicates])
        )

    @property
    def interval(self) -> Interval:
        """95% interval of kappa (training/sharing/interval.py); `interval_covers` says of what."""
        return kappa_intervals(self.replicates)[0]

    @property
    def ratio_interval(self) -> Interval:
        return kappa_intervals(self.replicates)[1]

    @property
    def interval_covers(self) -> tuple[str, ...]:
        return interval_covers(self.replicates)

    @property
    def beyond(self) -> float | None:
        """Accuracy on sequences twice as long of the joint models, mean over data seeds."""
        values = [r.joint.beyond for r in self.replicates if r.joint.beyond is not None]
        return float(np.mean(values)) if len(values) == len(self.replicates) else None

    def sentence(self) -> str:
        """The finding in words, with every number and bound."""
        layout = "" if self.format == "acot" else f", {self.layout} layout"
        lengths = ", ".join(map(str, self.lengths))
        stars = ", ".join(self._text(str(n)) for n in self.lengths)
        head = (
            f"{self.family} on {self.task} {self.format}{layout}, lengths {lengths}: N* alone "
            f"{stars}, together {self._text(JOINT)}"
        )
        if self.kappa is None:
            return f"{head}; kappa is undetermined, since both sides of it are only bounded."
        (low, high), (ratio_low, ratio_high) = kappa_intervals(self.replicates)
        end = "no end" if ratio_high is None else f"{ratio_high:.2f}"
        chance = {"grid": "the grid", "initialisation": "initial weights", "data": "data seeds"}
        *first, last = [chance[part] for part in self.interval_covers]
        source = f"{', '.join(first)} and {last}" if first else last
        open_range = f"{low:.2f} to {high:.2f}" if high is not None else f"above {low:.2f}"
        sign = "" if self.bound == "=" else f"{self.bound} "
        head = f"{head}; kappa {sign}{self.kappa:.2f} ({source}: {open_range})"
        if self.kappa_sep is None:
            return f"{head}; kappa_sep is unknown, since a length alone ran out of sequences."
        least, most = SEPARATE
        if ratio_high is not None and ratio_high < least:
            verdict = "below"
        elif ratio_low > most:
            verdict = "above"
        else:
            verdict = "not told apart from"
        return (
            f"{head}, {ratio_low:.2f} to {end} of kappa_sep {self.kappa_sep:.2f}: {verdict} what "
            f"lengths that share nothing have ({least:.2f} to {most:.2f} of it)."
        )

    def _text(self, name: str) -> str:
        """N* of one search for each data seed."""
        stars = [r.stars[name] for r in self.replicates]
        return " / ".join(
            f"> {s.grid[-1]}" if s.value is None else f"<= {s.value}" if s.bottom else str(s.value)
            for s in stars
        )

    def record(self) -> dict[str, Any]:
        """Plain values for JSON, lengths as text where they are keys; `from_record` reads it."""
        interval, ratio_interval = kappa_intervals(self.replicates)
        return {
            "task": self.task,
            "family": self.family,
            "format": self.format,
            "layout": self.layout,
            "distribution": self.distribution,
            "lengths": list(self.lengths),
            "pools": {str(n): pool for n, pool in self.pools.items()},
            "n_star": {str(n): value for n, value in self.n_star.items()},
            "n_star_joint": self.n_star_joint,
            "kappa": self.kappa,
            "kappa_interval": list(interval),
            "bound": self.bound,
            "n_sep": self.n_sep,
            "kappa_sep": self.kappa_sep,
            "ratio": self.ratio,
            "ratio_interval": list(ratio_interval),
            "interval_covers": list(self.interval_covers),
            "beyond": self.beyond,
            "replicates": [r.record() for r in self.replicates],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> SharingFactor:
        """Errors: ValueError that names what is missing."""
        try:
            pools = {int(n): pool for n, pool in record["pools"].items()}
            replicates = []
            for entry in record["replicates"]:
                stars = {k: NStar.from_record(v) for k, v in entry["searches"].items()}
                replicates.append(
                    Replicate(
                        data_seed=entry["data_seed"],
                        pools=pools,
                        distribution=record["distribution"],
                        alone={n: stars[str(n)] for n in pools},
                        joint=stars[JOINT],
                    )
                )
            words = ("task", "family", "format", "layout", "distribution")
            return cls(
                **{word: record[word] for word in words},
                lengths=tuple(record["lengths"]),
                pools=pools,
                replicates=tuple(replicates),
            )
        except KeyError as error:
            raise ValueError(f"SharingFactor.from_record: {error} is missing") from error


def searches_of(config: RunConfig) -> dict[str, RunConfig]:
    """The searches of a cell by name: "joint", then the lengths alone from the longest down.

    A length alone keeps the cell's layout and model shape. Errors: ValueError for a task without
    lengths, or with one.
    """
    task: Any = config.task
    if not all(hasattr(task, part) for part in ("lengths", "longest", "pool")):
        raise ValueError(
            f"task: {type(task).__name__} has no lengths to share between, use modular_addition"
        )
    if len(task.lengths) < 2:
        raise ValueError(f"task.lengths: got {task.lengths}, allowed two or more")
    order = {"distribution": "uniform"} if hasattr(task, "distribution") else {}
    alone = {
        str(n): config.replace(task=replace(task, lengths=(n,), longest=task.reach, **order))
        for n in sorted(task.lengths, reverse=True)
    }
    return {JOINT: config, **alone}
