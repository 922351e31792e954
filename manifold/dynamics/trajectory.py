"""Times and states of runs, from what `project` returns or from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import xarray as xr

Given = xr.Dataset | tuple[np.ndarray, np.ndarray]
"""A Dataset of `project`, with one run or several, or (times, states) of one run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """One run: times (n,), which increase, and states (n, dim); n is at least 2.

    name: of the run, for people. coordinates: their names, where they are known.
    """

    name: str
    times: np.ndarray
    states: np.ndarray
    coordinates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        times = np.array(self.times, dtype=float)
        states = np.array(self.states, dtype=float)
        if times.ndim != 1 or states.ndim != 2 or len(times) != len(states):
            raise ValueError(
                f"trajectory {self.name}: times {times.shape} and states {states.shape}; "
                f"allowed: (n,) and (n, coordinates)"
            )
        if len(times) < 2:
            raise ValueError(
                f"trajectory {self.name}: {len(times)} checkpoint says nothing about movement; "
                f"at least 2 are needed: keep more (`checkpoints` of the run's configuration)"
            )
        if not (np.isfinite(times).all() and np.isfinite(states).all()):
            raise ValueError(f"trajectory {self.name}: times or states are not finite")
        stuck = np.flatnonzero(np.diff(times) <= 0)
        if len(stuck):
            at = stuck[0]
            raise ValueError(
                f"trajectory {self.name}: times must increase, got {times[at]:g} and then "
                f"{times[at + 1]:g} (checkpoints {at} and {at + 1}); sort them, keep each once"
            )
        times.flags.writeable = states.flags.writeable = False
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "states", states)

    def __len__(self) -> int:
        return len(self.times)


def read_trajectories(given: Given | Sequence[Given]) -> list[Trajectory]:
    """One for each run, in the order given; steps that a run has not kept are left out.

    ValueError for nothing at all, for runs of different coordinates, and as `Trajectory`.
    """
    several = isinstance(given, Sequence) and not _is_pair(given)
    found: list[Trajectory] = []
    for one in given if several else [given]:
        if isinstance(one, xr.Dataset):
            found += _of_dataset(one)
        elif _is_pair(one):
            found.append(Trajectory(name=f"run {len(found)}", times=one[0], states=one[1]))
        else:
            raise ValueError(
                f"trajectories: got {type(one).__name__}; allowed: a Dataset of `project`, a pair "
                f"(times, states), or a list of these"
            )
    if not found:
        raise ValueError("trajectories: got none; give at least one run")
    sizes = sorted({one.states.shape[1] for one in found})
    if len(sizes) > 1:
        raise ValueError(
            f"trajectories: runs of {' and '.join(map(str, sizes))} coordinates; project all of "
            f"them in one basis"
        )
    named = {one.coordinates for one in found if one.coordinates}
    if len(named) > 1:
        raise ValueError(
            "trajectories: runs whose coordinates have different names; project all of them in one "
            "basis"
        )
    return found


def _is_pair(given: Any) -> TypeGuard[tuple[np.ndarray, np.ndarray]]:
    """(times, states), and not a list of two runs: the first of a pair is a list of numbers."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        return False
    return not any(isinstance(side, (xr.Dataset, tuple)) for side in given) and (
        np.ndim(given[0]) == 1 and np.ndim(given[1]) != 1
    )


def _of_dataset(data: xr.Dataset) -> list[Trajectory]:
    missing = [name for name in ("c", "time") if name not in data]
    if missing:
        raise ValueError(
            f"trajectories: the Dataset has no {' and no '.join(missing)}; allowed: what "
            f"`project` returns (c and time over run, step and coordinate)"
        )
    names: tuple[str, ...] = ()
    if "coordinate" in data.coords:
        names = tuple(map(str, data["coordinate"].values))
    found = []
    for i in range(data.sizes["run"]):
        times = data["time"].values[i]
        kept = np.isfinite(times)
        found.append(
            Trajectory(
                name=str(data["run"].values[i]),
                times=times[kept],
                states=data["c"].values[i][kept],
                coordinates=names,
            )
        )
    return found
