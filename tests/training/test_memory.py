import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from training.memory import keep_freed_memory
if {keep}: keep_freed_memory()
def step():
    blocks = [torch.ones(1_000_000) for _ in range(8)]
for _ in range(5): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_blocks_asked_for_again_cost_no_page_faults():
    """Eight blocks of 4 MB a step are 7,800 pages, which glibc alone gives back and takes anew."""
    with_it, without = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(keep=keep)]))
        for keep in (True, False)
    )
    assert with_it < 2_000 < 30_000 < without
