import ctypes
import json
import subprocess
import sys

import pytest

HELD = """
import ctypes, json, torch
from training.memory import keep_freed_memory
mallinfo = ctypes.CDLL(None).mallinfo2
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
mallinfo.restype = Info
if {keep}: keep_freed_memory()
def state(): return mallinfo().a, mallinfo().e
before = state()
block = torch.ones(7_500_000)
there = state()
del block
after = state()
print(json.dumps([[y - x for x, y in zip(before, now)] for now in (there, after)]))
"""
"""Prints by how many bytes the heap (`arena`) and what is mapped apart from it (`hblkhd`) grew
with a block of 30 MB, and once it is freed."""
MOST = 25_000_000
"""Of the block: some of it may go where the heap had room."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="of glibc's allocator")
def test_freed_blocks_stay_with_the_process():
    """glibc alone maps a large block apart, and gives it back at once."""
    kept, given_back = (
        json.loads(subprocess.check_output([sys.executable, "-c", HELD.format(keep=keep)]))
        for keep in (True, False)
    )
    (heap, mapped), (heap_after, _) = kept
    assert heap >= MOST
    assert mapped < MOST / 2
    assert heap_after >= MOST
    (_, mapped), (_, mapped_after) = given_back
    assert mapped >= MOST
    assert mapped_after < MOST / 2
