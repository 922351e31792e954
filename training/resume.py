"""Where a stack of runs goes on, so that it ends with the bits of one that was never stopped.

The bits of stacked arithmetic depend on who is in the stack. So the stack that was recorded in the
folders goes on from the last step R at which everyone who was in it then has a good checkpoint: who
had left by R stays out, who left after R is trained again from R, and leaves again where it left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.run import CHECKPOINTS, STATUS, Run, kept_steps

ENDED = ("done", "solved", "stopped", "diverged")
"""States that are final. A halted run is not: it may be asked to go on without the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Members to train together, in order, and the step they go on from (None: from nothing).

    stack: the run ids recorded for them, of those who left before `step` too.
    """

    runs: tuple[Run, ...]
    step: int | None
    stack: tuple[str, ...]


def plan(runs: Sequence[Run]) -> list[Start]:
    """The stacks that are left to train among runs of equal shape; none for those that ended.

    Raises ValueError for a run that ended and whose checkpoints are gone.
    """
    status = {run.run_id: _status(run) for run in runs}
    recorded = _recorded(status)
    stacks: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if status[run.run_id].get("state") not in ENDED:
            stacks.setdefault(recorded[run.run_id], []).append(run)
    by_id = {run.run_id: run for run in runs}
    starts = []
    for stack, unfinished in stacks.items():
        members = unfinished
        if stack and all(recorded.get(i) == stack for i in stack):
            members = [by_id[i] for i in stack]
        else:
            stack = tuple(run.run_id for run in unfinished)
        inside, step = _common(members, {run.run_id for run in unfinished}, status)
        starts.append(Start(runs=tuple(inside), step=step, stack=stack))
    return starts


def _recorded(status: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Each run's stack as its folder has it; a run that a kill left without is in the one that
    names it."""
    recorded = {run_id: tuple(known.get("stack", ())) for run_id, known in status.items()}
    for stack in set(recorded.values()):
        for run_id in stack:
            if recorded.get(run_id) == ():
                recorded[run_id] = stack
    return recorded


def _common(
    members: Sequence[Run], unfinished: set[str], status: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Run], int | None]:
    """Who goes on, and from which step R."""
    left = {r.run_id: status[r.run_id]["step"] for r in members if r.run_id not in unfinished}
    steps = {run.run_id: set(kept_steps(run.path)) for run in members}
    for step in sorted(set[int]().union(*steps.values()), reverse=True):
        inside = [run for run in members if left.get(run.run_id, step + 1) > step]
        if all(step in steps[run.run_id] and _good(run, step) for run in inside):
            return inside, step
    return list(members), None


def _status(run: Run) -> dict[str, Any]:
    """Empty before the run has begun. Only who diverged at once may have ended with no step."""
    status = run.status if (run.path / STATUS).exists() else {}
    state = status.get("state")
    if state in ENDED and state != "diverged" and not kept_steps(run.path):
        raise ValueError(
            f"{run.path / CHECKPOINTS}: has no checkpoints, but {STATUS} says {state}; delete"
            f" {run.path} to train it again"
        )
    return status


def _good(run: Run, step: int) -> bool:
    """Whether training can go on from there."""
    checkpoint = run[step]
    try:
        checkpoint.check()
    except ValueError:
        return False
    return not checkpoint.pruned
