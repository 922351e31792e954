"""What a search for N* found: every size it tried, how each member ended, and the bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

FAILED = ("done", "stopped", "diverged")
"""Ends of a member that has not solved its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOutcome:
    """How one member of a size ended.

    seed: of the initial weights. state: solved; one of FAILED; or open, since another has solved
    the size: halted on its way, or waiting, when its run has not begun and has no folder.
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

    mixture: training sequences per kind at this size; with several lengths it is uniform only
    until one has no sequences left.
    cause: why it failed. "data": some member learnt its training set and not the validation set.
    "optimisation": none did, so the failure says something about the budget of steps only. None
    where it succeeded.
    """

    size: int
    members: tuple[MemberOutcome, ...]
    mixture: Mapping[str, int]
    cause: str | None

    @property
    def solved(self) -> bool:
        return any(member.state == "solved" for member in self.members)

    @property
    def half(self) -> bool:
        """Whether at least half of the members solved it."""
        return 2 * sum(member.state == "solved" for member in self.members) >= len(self.members)

    @property
    def winner(self) -> MemberOutcome | None:
        """The solved member with the fewest steps."""
        solved = [member for member in self.members if member.state == "solved"]
        return min(solved, key=lambda member: member.step, default=None)

    @property
    def member_steps(self) -> int:
        return sum(member.step for member in self.members)


def bracket(trials: Collection[Trial], seeds: Collection[int]) -> tuple[int, int | None]:
    """What the trials say of N* of the members with these seeds alone.

    It lies above the first number, the largest size below the second at which all of them failed
    (0: no such size), and is at most the second, the smallest size that one of them solved (None:
    no such size). A member that was halted or is waiting has neither failed nor solved.
    """
    solved, failed = [], []
    for trial in trials:
        states = [member.state for member in trial.members if member.seed in seeds]
        if "solved" in states:
            solved.append(trial.size)
        elif states and all(state in FAILED for state in states):
            failed.append(trial.size)
    value = min(solved, default=None)
    return max((size for size in failed if value is None or size < value), default=0), value


@dataclass(frozen=True, slots=True, kw_only=True)
class NStar:
    """The smallest size found to succeed for one data seed, with all that bounds it.

    value: N*, or None where it is censored.
    censored: no size succeeded, so N* is above grid[-1] (as far as this budget tells).
    bottom: the smallest size of the grid succeeded, so N* is at most `value`.
    interval: N* lies above the first number (the largest failure below, 0 at the bottom) and is at
    most the second (None where censored).
    monotone: no size failed above one that succeeded.
    n50: the smallest size, going up from N*, at which at least half of the members succeed; None
    where no size did, or where `complete` is False.
    complete: members whose verdict was open at N* and above went on, until n50 and the smallest
    size that each seed solves were bracketed; without it only the interval of the grid is known.
    beyond: accuracy of the winner of the largest solved size on sequences twice as long, 0 at
    chance (training/sharing/beyond.py); None where that does not apply.
    trials: every size tried, in the order of the search. data_seed: of every member. seeds: of the
    initial weights. threshold: on the validation loss. search: its name in SEARCHES.
    """

    value: int | None
    interval: tuple[int, int | None]
    censored: bool
    bottom: bool
    monotone: bool
    n50: int | None
    complete: bool
    beyond: float | None
    grid: tuple[int, ...]
    trials: tuple[Trial, ...]
    data_seed: int
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    threshold: float
    search: str

    @property
    def solved(self) -> dict[int, Path]:
        """Size to the folder of the member that solved it first."""
        winners = {trial.size: trial.winner for trial in self.trials}
        return {size: Path(winner.run) for size, winner in sorted(winners.items()) if winner}

    @property
    def limited(self) -> bool:
        """Censored for want of optimisation: that bounds the budget of steps, and N* not at all."""
        failed = [trial for trial in self.trials if not trial.solved]
        largest = max(failed, key=lambda trial: trial.size, default=None)
        return self.censored and largest is not None and largest.cause == "optimisation"

    @property
    def member_steps(self) -> int:
        """Training steps of all members of all sizes: the cost of the search."""
        return sum(trial.member_steps for trial in self.trials)

    def bracket(self, seeds: Collection[int]) -> tuple[int, int | None]:
        """The interval of N* had only these of the seeds been tried."""
        if self.complete and set(seeds) != set(self.seeds):
            return bracket(self.trials, seeds)
        return self.interval

    def record(self) -> dict[str, Any]:
        """Plain values for JSON; `from_record` reads them back to an equal object."""
        plain = asdict(self)
        for entry, trial in zip(plain["trials"], self.trials, strict=True):
            entry["solved"] = trial.solved
        return plain

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> NStar:
        """Errors: ValueError that names what is missing, unknown, or of another type."""
        fields = dict(record)
        if unknown := sorted(set(fields) - set(cls.__dataclass_fields__)):
            raise ValueError(f"NStar.from_record: got unknown {', '.join(unknown)}")
        trials = fields.get("trials")
        if not isinstance(trials, list | tuple) or not all(isinstance(t, Mapping) for t in trials):
            raise ValueError("NStar.from_record: trials are missing, or no list of mappings")
        fields["trials"] = [{k: v for k, v in t.items() if k != "solved"} for t in trials]
        try:
            star = _reader().validate_python(fields)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors()
            )
            raise ValueError(f"NStar.from_record: {wrong}") from error
        solved = [trial.size for trial in star.trials if trial.solved]
        if star.trials and star.value != min(solved, default=None):
            raise ValueError(f"NStar.from_record: value {star.value} is not what its trials say")
        return star


@cache
def _reader() -> TypeAdapter[NStar]:
    return TypeAdapter(NStar)
