"""A study's searches on many processes: dask.distributed, at home and on a cluster.

By default a cluster of processes on this machine, one thread each; with an address, whatever
workers that scheduler has (dask-jobqueue brings SLURM), which must see `root` under the same path.
Results live on disk alone: a worker never raises, it writes its record or its failure, and a search
whose worker was killed is given to another one, which goes on from the run folders.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from training.studies.estimate import estimate
from training.studies.folder import (
    claim,
    read_search,
    refuse_another,
    write_failure,
    write_search,
)
from training.studies.pace import Pace
from training.studies.study import Job, KappaStudy
from training.studies.worker import ignore_interrupts, search_here, stop_here

if TYPE_CHECKING:
    from distributed import Client, Future

ANSWER = "5s"
"""How long a scheduler may take to answer."""
SILENCE = 10.0
"""Seconds without a message after which it is asked whether there are workers at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What `watch` is told.

    done, total: searches. share: of the work, estimated. seconds_left: None until it can be said.
    job: the search this is about; job_share, text: how far it is and what it did. cell: the cell
    that ended with it, if one did. idle: why nothing happens, where nothing does.
    """

    done: int
    total: int
    share: float
    seconds_left: float | None
    job: str
    job_share: float
    text: str
    cell: str | None = None
    idle: str | None = None


Watch = Callable[[Update], None]


def run_study(
    study: KappaStudy,
    root: str | Path = "runs",
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    cells: Sequence[str] | None = None,
    watch: Watch | None = None,
) -> dict[str, str]:
    """Run every search of the study, or of some cells, that is not on record yet.

    Returns the searches that failed, by name, with a sentence each; the same call tries them again.
    An interrupt stops all workers at their next evaluation, and the same call goes on from there.
    scheduler: an address such as tcp://host:8786. Where it has no workers, they are waited for, as
    long as a cluster's queue takes, and `watch` is told so every ten seconds.
    workers: processes of the local cluster; None for one per core. A script that uses the local one
    must guard its entry (`__name__ == "__main__"`).

    Errors: ValueError for an unknown cell, a folder of another study, or a scheduler that does not
    answer.
    """
    if workers is not None and (workers < 1 or scheduler is not None):
        raise ValueError(
            f"workers: got {workers}, allowed 1 or more, and only without a scheduler, whose "
            "workers are its own"
        )
    root = Path(root).resolve()
    jobs = study.jobs(cells)
    claim(study, root)
    _share_records(jobs, root)
    waiting = _open(jobs, root)
    said: dict[str, str] = {}
    if waiting:
        costs = {name: e.cpu_seconds for name, e in estimate(study, _first(waiting)).items()}
        ordered = sorted(waiting.values(), key=lambda alike: -costs[alike[0].name])
        with _client(scheduler, workers, len(ordered)) as client:
            said = _Shift(client, root, jobs, ordered, costs, watch).run()
    left = [job for job in jobs if read_search(job, root) is None]
    return {job.name: said.get(job.name, "was not finished") for job in left}


def left_to_do(
    study: KappaStudy, root: str | Path = "runs", cells: Sequence[str] | None = None
) -> list[Job]:
    """Searches that are not on record, one for all that would train the same runs.

    Writes nothing. Errors: ValueError for an unknown cell or a folder of another study.
    """
    root = Path(root).resolve()
    jobs = study.jobs(cells)
    refuse_another(study, root)
    return _first(_open(jobs, root))


def _open(jobs: Sequence[Job], root: Path) -> dict[str, tuple[Job, ...]]:
    """Searches not on record, those that would train the same runs together."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(job.identity, []).append(job)
    return {
        identity: tuple(same)
        for identity, same in alike.items()
        if all(read_search(job, root) is None for job in same)
    }


def _share_records(jobs: Sequence[Job], root: Path) -> None:
    """What is on record for one job is written for all that would train the same runs."""
    known = {job.identity: star for job in jobs if (star := read_search(job, root)) is not None}
    for job in jobs:
        if job.identity in known and read_search(job, root) is None:
            write_search(job, root, known[job.identity])


def _first(waiting: Mapping[str, tuple[Job, ...]]) -> list[Job]:
    return [alike[0] for alike in waiting.values()]


@contextmanager
def _client(scheduler: str | None, workers: int | None, jobs: int) -> Iterator[Client]:
    """A client of the scheduler at an address, or of a cluster of our own that ends with it."""
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=ANSWER)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"scheduler: nobody answers as a dask scheduler at {scheduler!r} within {ANSWER}"
                f" ({error}); start one with `dask scheduler`, or leave it out for this machine"
            ) from error
        with client:
            yield client
        return
    from training.processes import cores

    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        LocalCluster(
            n_workers=min(workers or cores(), jobs),
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",  # any free port, so that studies can run side by side
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_worker_callbacks(ignore_interrupts)
        yield client


class _Shift:
    """The searches of one call, from their submission until each has a record or a failure."""

    def __init__(
        self,
        client: Client,
        root: Path,
        jobs: Sequence[Job],
        ordered: Sequence[tuple[Job, ...]],
        costs: Mapping[str, float],
        watch: Watch | None,
    ) -> None:
        self.client, self.root, self.watch = client, root, watch
        self.token = uuid4().hex
        self.alike = {alike[0].name: alike for alike in ordered}
        self.total = len(jobs)
        self.pace = Pace(costs)
        self.failed: dict[str, str] = {}
        self.left = {job.name for alike in ordered for job in alike}
        self.open_cells: dict[str, set[str]] = {}
        for job in jobs:
            if job.name in self.left:
                self.open_cells.setdefault(job.cell, set()).add(job.name)
        self.messages: queue.SimpleQueue[tuple[str, float, str] | Future] = queue.SimpleQueue()

    def run(self) -> dict[str, str]:
        """Searches that failed, by name."""
        self.client.subscribe_topic(self.token, lambda event: self.messages.put(event[1]))
        futures = {self._submit(place, name): name for place, name in enumerate(self.alike)}
        for future in futures:
            future.add_done_callback(self.messages.put)
        try:
            while self.left:
                try:
                    message = self.messages.get(timeout=SILENCE)
                except queue.Empty:
                    self._look_for_workers()
                    continue
                if isinstance(message, tuple | list):
                    name, share, text = message
                    if name not in self.left:
                        continue  # a message that its result overtook
                    self.pace.at(name, share)
                    self._tell(name, share, text)
                else:
                    self._ended(futures[message], message)
        finally:
            if self.left:
                self._stop(list(futures))
        return self.failed

    def _look_for_workers(self) -> None:
        with suppress(OSError, TimeoutError):
            if self.client.nthreads():
                return
            address = self.client.scheduler.address if self.client.scheduler else "the scheduler"
            idle = (
                f"waiting for workers: {address} has none; start some with `dask worker {address}`"
                f" where {self.root} is seen under this path, or interrupt, and go on later"
            )
            self._tell(min(self.left), 0.0, "waits for a worker", idle=idle)

    def _submit(self, place: int, name: str) -> Future:
        plain = [job.plain() for job in self.alike[name]]
        return self.client.submit(
            search_here,
            plain,
            str(self.root),
            self.token,
            key=f"search-{name}-{self.token}",
            pure=False,
            priority=-place,
        )

    def _ended(self, name: str, future: Future) -> None:
        alike = self.alike[name]
        if future.status == "finished":
            failed = future.result()
        else:
            failed = f"the worker or the scheduler was lost ({future.status}: {_lost(future)})"
            with suppress(OSError):
                for job in alike:
                    write_failure(job, self.root, failed, "")
        self.pace.at(name, 1.0)
        for job in alike:
            self.left.discard(job.name)
            open_in_cell = self.open_cells[job.cell]
            open_in_cell.discard(job.name)
            if failed:
                self.failed[job.name] = failed
            text = f"failed: {failed}" if failed else "on record"
            self._tell(job.name, 1.0, text, cell=None if open_in_cell else job.cell)

    def _tell(
        self, name: str, share: float, text: str, cell: str | None = None, idle: str | None = None
    ) -> None:
        if self.watch:
            self.watch(
                Update(
                    done=self.total - len(self.left),
                    total=self.total,
                    share=self.pace.share,
                    seconds_left=self.pace.seconds_left,
                    job=name,
                    job_share=share,
                    text=text,
                    cell=cell,
                    idle=idle,
                )
            )

    def _stop(self, futures: list[Future]) -> None:
        """Running searches stop at their next evaluation; waiting ones never start."""
        with suppress(OSError, TimeoutError):
            self.client.run(stop_here, self.token)
            self.client.cancel(futures)


def _lost(future: Future) -> str:
    return " ".join(str(future.exception()).split()) if future.status == "error" else "cancelled"
