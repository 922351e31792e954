import ctypes
import subprocess
import sys

import pytest

HELD = """
import ctypes, torch
from training.memory import keep_freed_memory
if {keep}: keep_freed_memory()
def step():
    blocks = [torch.ones(1_000_000) for _ in range(8)]
for _ in range(5): step()
mallinfo = ctypes.CDLL(None).mallinfo2
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
mallinfo.restype = Info
print(mallinfo().a)
"""
"""Prints the bytes that the allocator took from the system and has not given back (`arena`)."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="of glibc's allocator")
def test_freed_blocks_stay_with_the_process():
    """Eight blocks of 4 MB: glibc alone gives them back, and every next step takes them anew."""
    with_it, without = (
        int(subprocess.check_output([sys.executable, "-c", HELD.format(keep=keep)]))
        for keep in (True, False)
    )
    assert with_it - without > 20_000_000
