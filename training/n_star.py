"""What a search for N* found: every size it tried, how each member ended, and the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOutcome:
    """How one member of a size ended.

    state: solved; done, stopped or diverged without solving; halted because another had solved.
    step and losses (nats per supervised token), accuracy: of its last evaluation. run: its folder.
    """

    lr: float
    seed: int
    state: str
    step: int
    train_loss: float | None
    validation_loss: float | None
    accuracy: float | None
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One size: what became of every member.

    mixture: training sequences per kind at this size, mean over the data seeds; with several
    lengths it is uniform only until one has no sequences left.
    cause: why it failed. "data": some member learnt its training set and not the validation set.
    "optimisation": none did, so the failure says something about the budget of steps only. None
    where it succeeded.
    """

    size: int
    members: tuple[MemberOutcome, ...]
    mixture: Mapping[str, float]
    cause: str | None

    @property
    def solved(self) -> bool:
        return any(member.state == "solved" for member in self.members)

    @property
    def winner(self) -> MemberOutcome | None:
        """The solved member with the fewest steps."""
        solved = [member for member in self.members if member.state == "solved"]
        return min(solved, key=lambda member: member.step, default=None)

    @property
    def member_steps(self) -> int:
        return sum(member.step for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class NStar:
    """The smallest size found to succeed, with all that bounds it.

    value: N*, or None where it is censored.
    censored: no size succeeded, so N* is above grid[-1] (as far as this budget tells).
    bottom: the smallest size of the grid succeeded, so N* is at most `value`.
    interval: N* lies above the first number (the largest failure below, 0 at the bottom) and is at
    most the second (None where censored).
    monotone: no size failed above one that succeeded.
    n50: the smallest size tried at which at least half of the members succeed; None where members
    were halted at the first success.
    trials: every size tried, in the order of the search. threshold: on the validation loss.
    """

    value: int | None
    interval: tuple[int, int | None]
    censored: bool
    bottom: bool
    monotone: bool
    n50: int | None
    grid: tuple[int, ...]
    trials: tuple[Trial, ...]
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    threshold: float

    @property
    def solved(self) -> dict[int, Path]:
        """Size to the folder of the member that solved it first."""
        winners = {trial.size: trial.winner for trial in self.trials}
        return {size: Path(winner.run) for size, winner in sorted(winners.items()) if winner}

    @property
    def member_steps(self) -> int:
        """Training steps of all members of all sizes: the cost of the search."""
        return sum(trial.member_steps for trial in self.trials)

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = asdict(self)
        for entry, trial in zip(plain["trials"], self.trials, strict=True):
            entry["solved"] = trial.solved
        return plain
