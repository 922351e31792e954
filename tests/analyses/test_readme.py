"""The README's snippet runs, and its markers are where the generator looks for them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from analyses.readme import BEGIN, END

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_findings_are_filled_in():
    block = README.split(BEGIN)[1].split(END)[0]
    assert len(block.strip().splitlines()) >= 8


@pytest.mark.slow
def test_the_snippet_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    off = float(re.search(r"off by ([\d.]+)%", done.stdout).group(1))
    assert off < 5
