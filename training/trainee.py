"""One member while it is trained: what it has measured, and when and why it leaves the stack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.checkpoint import write_checkpoint
from training.run import CHECKPOINTS, METRICS, Run, append_row, read_rows, write_status
from training.schedule import checkpoint_steps, evaluation_steps
from training.stack import Member


@dataclass(slots=True, kw_only=True)
class Trainee:
    """Mutable; what a resumed run needs of it is written into every checkpoint.

    stack: run ids trained together. evaluations, checkpoints: the steps at which each is due.
    best, best_step: what patience counts from. train_sum, train_count: training losses since the
    last evaluation. row: the last evaluation. outcome: (state, why) once it is to leave.
    """

    run: Run
    stack: Sequence[str]
    evaluations: frozenset[int]
    checkpoints: frozenset[int]
    best: float | None = None
    best_step: int = 0
    train_sum: float = 0.0
    train_count: int = 0
    row: Mapping[str, Any]
    outcome: tuple[str, str] | None = None

    @classmethod
    def at(cls, run: Run, stack: Sequence[str], step: int | None) -> Trainee:
        """The member as it was at a kept step, or before its first."""
        trainee = cls(
            run=run,
            stack=stack,
            evaluations=frozenset(evaluation_steps(run.config)),
            checkpoints=frozenset(checkpoint_steps(run.config)),
            row={},
        )
        if step is not None:
            kept = run[step].meta["engine"]
            trainee.best, trainee.best_step = kept["best"], kept["best_step"]
            trainee.train_sum, trainee.train_count = kept["train_sum"], kept["train_count"]
            trainee.outcome = tuple(kept["outcome"]) if kept["outcome"] else None
            rows = [row for row in read_rows(run.path / METRICS) if row["step"] <= step]
            trainee.row = rows[-1] if rows else {}
        return trainee

    def learnt(self, loss: float) -> None:
        self.train_sum += loss
        self.train_count += 1

    def record(self, step: int, measured: Mapping[str, float]) -> None:
        """Write an evaluation down and decide by it."""
        train_loss = self.train_sum / self.train_count if self.train_count else None
        row = {"step": step, "time": self.time(step), "train_loss": train_loss, **measured}
        self.row = {key: _finite(value) for key, value in row.items()}
        self.train_sum, self.train_count = 0.0, 0
        append_row(self.run, self.row)
        self._decide(step, measured["validation_loss"])

    def _decide(self, step: int, loss: float) -> None:
        config, stop = self.run.config, self.run.config.stop
        if not math.isfinite(loss):
            self.outcome = ("diverged", f"validation loss {loss} at step {step}")
        elif stop.loss is not None and loss < stop.loss:
            why = f"validation loss {loss:.4g} at step {step}, under {stop.loss:g}"
            self.outcome = ("solved", why)
        elif step == config.steps:
            missed = "" if stop.loss is None else f", not under {stop.loss:g}"
            self.outcome = ("done", f"all {step} steps; validation loss {loss:.4g}{missed}")
        elif self.best is None or loss < self.best * (1 - stop.margin):
            self.best, self.best_step = loss, step
        elif stop.patience is not None and step - self.best_step >= stop.patience:
            self.outcome = (
                "stopped",
                f"best validation loss {self.best:.4g} of step {self.best_step} not bettered by"
                f" {stop.margin:.2%} in {stop.patience} steps",
            )

    def save(self, step: int, member: Member) -> None:
        """Write the checkpoint of this step."""
        config = self.run.config
        outcome = self.outcome if self.outcome and self.outcome[0] != "halted" else None
        meta = {
            "run_id": self.run.run_id,
            "time": self.time(step),
            "tokens_seen": step * config.batch_size * self.run.task_time,
            "engine": {
                "best": self.best,
                "best_step": self.best_step,
                "train_sum": self.train_sum,
                "train_count": self.train_count,
                "outcome": outcome,
            },
        }
        folder = self.run.path / CHECKPOINTS
        write_checkpoint(
            folder, step=step, weights=member.weights, optimizer=member.optimiser, meta=meta
        )

    def report(self, step: int) -> None:
        """Write the status: still running, or why it left."""
        state, why = self.outcome or ("running", f"{step} of {self.run.config.steps} steps")
        write_status(self.run, state=state, step=step, why=why, metrics=self.row, stack=self.stack)

    def time(self, step: int) -> float:
        """Sum of the learning rates of the updates before `step`."""
        return step * self.run.config.optimiser.lr


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
