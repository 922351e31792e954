"""Training: stacked members advance together, each writes its own folder, any kill resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from training.config import RunConfig
from training.lock import locked
from training.resume import ENDED, Start, plan
from training.run import Run, create, rewind, state_of
from training.stack import DTYPES, Member, Stack
from training.tasks import IGNORE, Batch
from training.trainee import Trainee

Progress = Callable[[int, int, Mapping[str, float]], None]
"""progress(step, total, latest), after every evaluation. total: the longest member's last step.
latest: members, alive, lowest validation_loss and highest validation_accuracy among the alive."""


def train(config: RunConfig, root: str | Path = "runs", progress: Progress | None = None) -> Run:
    """Train one member, or go on where it was stopped; a run that has ended returns at once.

    Writes <root>/<study>/<run id>. Equal configurations give equal bits, however often the run was
    killed. Raises ValueError before anything is written if the task cannot give what is asked, the
    folder cannot be written, or another process is training this run.
    """
    return train_many([config], root=root, progress=progress)[0]


def train_many(
    configs: Sequence[RunConfig],
    root: str | Path = "runs",
    progress: Progress | None = None,
    stop_at_first_success: bool = False,
) -> list[Run]:
    """Train many members, those of equal shape stacked; one folder each, in the order given.

    Equal shape: task, family, batch size, dtype, device and optimiser agree; learning rate, weight
    decay, seeds, train_size, steps and when to stop may differ. A member's batches do not depend on
    the others, nor, to rounding (1e-5 after 200 steps), do its weights; calling again with the same
    members after a kill, or once a full disk has room again, gives the same bits.
    stop_at_first_success: once one member is solved, all others are halted where they are; a later
    call without it lets them go on.
    """
    for config in configs:
        if not isinstance(config, RunConfig):
            raise ValueError(
                f"train got {config!r}; allowed: a RunConfig (from a file: RunConfig.from_yaml),"
                " and train_many takes a list of them"
            )
    ids = [config.run_id for config in configs]
    unique = dict(zip(ids, configs, strict=True))
    for config in unique.values():
        _try_out(config)
    runs = {run_id: create(config, Path(root)) for run_id, config in unique.items()}
    groups: dict[str, list[Run]] = {}
    for run in runs.values():
        groups.setdefault(_shape(run.config), []).append(run)
    unfinished = [run.path for run in runs.values() if state_of(run) not in ENDED]
    with locked(unfinished), _one_thread():
        for start in [start for group in groups.values() for start in plan(group)]:
            again = {run.run_id for run in start.runs}
            solved = any(state_of(run) == "solved" for i, run in runs.items() if i not in again)
            halt = stop_at_first_success and solved
            if not (halt and all(state_of(run) == "halted" for run in start.runs)):
                with _disk_named(root):
                    _Advance(start, progress, stop_at_first_success).go(halt)
    return [runs[run_id] for run_id in ids]


def _shape(config: RunConfig) -> str:
    """What members must share to be stacked."""
    plain = config.canonical()
    shared = [plain[key] for key in ("task", "family", "batch_size", "dtype", "device")]
    rule = [plain["optimiser"][key] for key in ("name", "momentum", "betas")]
    return json.dumps([shared, rule], sort_keys=True)


def _try_out(config: RunConfig) -> None:
    """Draw what the run will need, so that an impossible one fails before it leaves a folder."""
    task, seeds = config.task, config.seeds
    first = task.batch(seeds.data, 0, config.batch_size, config.train_size)
    held_out = task.evaluation(seeds.eval, config.eval_size)
    for name, batch in (("batch", first), ("evaluation", held_out)):
        if not (batch.targets != IGNORE).any():
            raise ValueError(
                f"task {task}: its {name} supervises no token, so nothing can be learnt"
            )
    hidden = (first.positions < 0).any() or (held_out.positions < 0).any()
    if hidden and not getattr(config.family, "hides", False):
        raise ValueError(
            f"family {type(config.family).__name__} reads every token and cannot leave out the"
            f" padding that {task} hides; allowed: a transformer, or the layout without _masked"
        )
    if config.device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"device got {config.device!r}, but torch sees no CUDA; allowed: cpu")


@contextmanager
def _disk_named(root: str | Path) -> Iterator[None]:
    """A full disk, or one that went away, as one line: a failed write does not name its file."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{root}: cannot be written any more ({error.strerror or error}); make room, then the"
            " same call goes on from the last whole checkpoints"
        ) from error


@contextmanager
def _one_thread() -> Iterator[None]:
    """One and two threads sum in different orders and give different bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Advance:
    """One stack from its start until nobody is left in it."""

    def __init__(self, start: Start, progress: Progress | None, stop_at_first: bool) -> None:
        self.start = start
        self.progress = progress
        self.stop_at_first = stop_at_first
        self.total = max(run.config.steps for run in start.runs)
        self.held_out: dict[tuple[int, int], Batch] = {}
        self.trainees = [Trainee.at(run, start.stack, start.step) for run in start.runs]
        for trainee in self.trainees:
            kept, trainee.outcome = trainee.outcome, None
            trainee.report(start.step or 0)
            trainee.outcome = kept
            rewind(trainee.run, start.step)
        self.stack = Stack([_member(run, start.step) for run in start.runs])
        self.due = sorted(set[int]().union(*(t.evaluations for t in self.trainees)), reverse=True)

    def go(self, halt: bool) -> None:
        step = self.start.step
        if step is None:
            step = 0
            self._settle(step)
        if halt or (self.stop_at_first and self._solved()):
            self._halt()
        self._part(step)
        while self.trainees:
            self._update(step)
            step += 1
            if not self.trainees:
                return  # the last of them diverged
            while self.due and self.due[-1] < step:
                self.due.pop()
            if self.due and self.due[-1] == step:
                self._settle(step)
                self._part(step)

    def _update(self, step: int) -> None:
        """From `step` to the next one; who diverges leaves with the checkpoint it has."""
        drawn: dict[tuple[int, int | None], Batch] = {}
        batches = []
        for trainee in self.trainees:
            config = trainee.run.config
            key = (config.seeds.data, config.train_size)
            if key not in drawn:
                drawn[key] = config.task.batch(key[0], step, config.batch_size, key[1])
            batches.append(drawn[key])
        losses, diverged = self.stack.step(batches, step + 1)
        for i, (trainee, loss) in enumerate(zip(self.trainees, losses.tolist(), strict=True)):
            if i in diverged:
                trainee.outcome = (
                    "diverged",
                    f"training loss {loss:.4g}, gradient norm {diverged[i]:.4g} at step {step}",
                )
            else:
                trainee.learnt(loss)
        if diverged:
            self._part(step)

    def _settle(self, step: int) -> None:
        """What is due at a step: rows, then checkpoints, so that a kill at any moment is safe."""
        spoilt = self.stack.spoilt()
        for i in spoilt:
            self.trainees[i].outcome = ("diverged", f"weights not finite at step {step}")
            self._say_gradient(i)
        due = [i for i, t in enumerate(self.trainees) if step in t.evaluations and not t.outcome]
        self._evaluate(step, due)
        if self.stop_at_first and self._solved():
            early = [i for i, t in enumerate(self.trainees) if i not in due and not t.outcome]
            self._evaluate(step, early)
            self._halt()
        for i, trainee in enumerate(self.trainees):
            if i not in spoilt and (trainee.outcome or step in trainee.checkpoints):
                trainee.save(step, self.stack.member(i))
                if trainee.outcome is None:
                    trainee.report(step)
        self._show(step)

    def _evaluate(self, step: int, members: Sequence[int]) -> None:
        """Members that share an evaluation are evaluated in one forward."""
        shared: dict[tuple[int, int], list[int]] = {}
        for i in members:
            config = self.trainees[i].run.config
            shared.setdefault((config.seeds.eval, config.eval_size), []).append(i)
        for key, sharing in shared.items():
            if key not in self.held_out:
                self.held_out[key] = self.trainees[0].run.task.evaluation(*key)
            measured = self.stack.evaluate(self.held_out[key], sharing)
            for i, values in zip(sharing, measured, strict=True):
                self.trainees[i].record(step, values)
                self._say_gradient(i)

    def _say_gradient(self, i: int) -> None:
        """Of a member that diverged, the gradient that spoilt it, where there was one."""
        trainee = self.trainees[i]
        if trainee.outcome is not None and trainee.outcome[0] == "diverged":
            for norm in self.stack.gradient_norms()[i : i + 1]:
                why = f"{trainee.outcome[1]}, gradient norm {norm:.4g}"
                trainee.outcome = ("diverged", why)

    def _solved(self) -> bool:
        return any(t.outcome is not None and t.outcome[0] == "solved" for t in self.trainees)

    def _halt(self) -> None:
        for trainee in self.trainees:
            if trainee.outcome is None:
                trainee.outcome = ("halted", "another member was solved first")

    def _part(self, step: int) -> None:
        """Those with an outcome write it down and leave the stack."""
        stay = [i for i, trainee in enumerate(self.trainees) if trainee.outcome is None]
        if len(stay) == len(self.trainees):
            return
        for trainee in self.trainees:
            if trainee.outcome is not None:
                trainee.report(step)
        self.trainees = [self.trainees[i] for i in stay]
        if stay:
            self.stack = self.stack.select(stay)

    def _show(self, step: int) -> None:
        if self.progress is None:
            return
        alive = [t.row for t in self.trainees if t.row and t.row["validation_loss"] is not None]
        latest = {
            "members": float(len(self.start.runs)),
            "alive": float(sum(t.outcome is None for t in self.trainees)),
        }
        if alive:
            latest["validation_loss"] = min(row["validation_loss"] for row in alive)
            latest["validation_accuracy"] = max(row["validation_accuracy"] for row in alive)
        self.progress(step, self.total, latest)


def _member(run: Run, step: int | None) -> Member:
    """Weights and optimiser's vectors as they were at a kept step, or drawn anew."""
    config = run.config
    if step is not None:
        kept = run[step]
        return Member(config=config, weights=kept.weights, optimiser=kept.optimizer or {})
    drawn = config.family.initialise(config.task, config.seeds.init, DTYPES[config.dtype])
    return Member(
        config=config, weights={name: value.numpy() for name, value in drawn.items()}, optimiser={}
    )
