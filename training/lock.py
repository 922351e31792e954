"""One process at a time writes in a run's folder, or a demo's."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOCK = ".lock"
"""An empty file in the folder; what counts is who holds it, not that it is there."""
PATIENCE, PAUSE = 1.0, 0.02
"""Seconds that `locked` tries for, since a look at the folder holds its lock for a moment."""


@contextmanager
def locked(folders: Sequence[Path]) -> Iterator[None]:
    """Hold the folders' locks; the system lets go of them when the process ends, however it ends.

    Raises ValueError where another process still holds one after PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    _allow_open_files(len(folders))
    with ExitStack() as held:
        for folder in folders:
            file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            held.callback(os.close, file)
            while not _taken(file):
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"{folder}: is in use by another process; wait for it, or end it"
                    )
                time.sleep(PAUSE)
        yield


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def _allow_open_files(count: int) -> None:
    """A lock is an open file, and a process may have 256 to 1,024 of these unless it asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if resource.RLIM_INFINITY != soft < wanted:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
