"""Worker processes that report to the one that started them and never outlive it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

_outbox: Any = None


@contextmanager
def worker_pool(workers: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Spawned workers with one torch thread each, and the queue of what they `tell`.

    They end when their parent is killed: a worker that went on would train in folders that a
    second attempt is about to resume.
    """
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    with ProcessPoolExecutor(workers, context, initializer=_prepare, initargs=(messages,)) as pool:
        yield pool, messages


def tell(*message: object) -> None:
    """From inside a worker: put a message into the queue of its pool."""
    _outbox.put(message)


def _prepare(messages: Any) -> None:
    import torch

    global _outbox
    _outbox = messages
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def cores() -> int:
    """Processor cores that this process may use."""
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known else os.cpu_count() or 1
