"""Freed memory stays with the process: a training step asks for the same blocks again."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1
_LARGEST_MAPPED = 2**25
"""The most that glibc takes for the second."""


@cache
def keep_freed_memory() -> None:
    """Tell glibc not to hand freed blocks back to the system, for the rest of the process.

    A stack's activations are blocks of some MB. Handed back and asked for again, each costs a page
    fault per 4 kB: thousands a step, 5% of a transformer's time on an idle machine and 15% on a
    busy one. Where the C library is another, nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_MAPPED)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
