"""What a worker process does for a study: one search at a time, and it never raises."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from training.sharing.sample_size import sample_size
from training.studies.folder import write_failure, write_search
from training.studies.study import Job

PAUSE = 0.5
"""Seconds between two messages of one worker."""


class _Stopped(Exception):
    """The study was interrupted."""


_stopped: set[str] = set()


def ignore_interrupts() -> None:
    """In a worker of our own: Ctrl-C reaches all processes of a terminal, and ours stops them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def stop_here(token: str) -> None:
    """In a worker: end the searches of a call at their next evaluation."""
    _stopped.add(token)


def search_here(plain: Sequence[Mapping[str, Any]], root: str, token: str) -> str | None:
    """In a worker: one search, recorded under the name of every job that asks for it.

    Returns None, or one line on why it failed, which is then on disk too.
    """
    from distributed import get_worker

    worker = get_worker()
    name = f"{plain[0]['cell']}.{plain[0]['data_seed']}.{plain[0]['search_name']}"

    told = -PAUSE

    def progress(share: float, text: str) -> None:
        nonlocal told
        if token in _stopped:
            raise _Stopped
        if time.monotonic() - told >= PAUSE:
            worker.log_event(token, (name, share, text))
            told = time.monotonic()

    jobs: list[Job] = []
    try:
        torch.set_num_threads(1)
        jobs = [Job.from_plain(one) for one in plain]
        star = sample_size(jobs[0].config, root=root, progress=progress, **jobs[0].arguments())
        for job in jobs:
            write_search(job, Path(root), star)
    except _Stopped:
        return "stopped"
    except Exception as error:  # whatever one search meets, the others must go on
        said = " ".join(f"{type(error).__name__}: {error}".split())
        with suppress(OSError):
            for job in jobs:
                write_failure(job, Path(root), said, traceback.format_exc())
        return said
    return None
