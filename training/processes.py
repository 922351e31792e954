"""Worker processes that never outlive the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Spawned workers, each with one torch thread, that end when their parent is killed.

    A worker that went on would train in folders that a second attempt is about to resume.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare)


def _prepare() -> None:
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
