"""The whole path on tiny sizes: resumed after a kill, rendered again, complete."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analyses.demo import demo, write_report
from analyses.readme import BEGIN, END, write_readme

COMMAND = Path(sys.executable).with_name("kappalens")
KEYS = {
    "schema_version", "quick", "seeds", "manifold", "branches", "bifurcations", "kappa", "circuits",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A quick demo that is killed once on its way."""
    out = tmp_path_factory.mktemp("demo") / "out"
    words = [str(COMMAND), "demo", "--quick", "--out", str(out)]
    first = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*/*/checkpoints/step_*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(out / "report.html") in done.stdout
    return out


@pytest.mark.slow
def test_the_report_says_everything(folder):
    facts = json.loads((folder / "report.json").read_text())
    assert set(facts) == KEYS
    assert set(facts["manifold"]) == {
        "dim", "captured", "off_manifold_gradient", "off_manifold_gradient_by_matrix",
        "reduced_vs_full", "reduced_vs_full_by_initialisation", "emergence", "rebuilt",
    }  # fmt: skip
    assert [(b["start"], len(b["folds"])) for b in facts["branches"]] == [
        ("from zero", 2),
        ("from zero", 0),
        ("in context", 1),
    ]
    folds = sorted(b["value"] for b in facts["bifurcations"])
    assert folds == pytest.approx([0.0394612950, 0.0919474877, 0.2337750337], abs=1e-7)
    for entry in facts["kappa"]:
        assert entry["bound"] in ("=", ">=", "<=", "undetermined")
        assert set(entry["n_star"]) == {str(n) for n in entry["lengths"]}


@pytest.mark.slow
def test_the_page_needs_nothing_else(folder):
    html = (folder / "report.html").read_text()
    assert len(html) < 2_000_000
    assert not re.search(r"<script|<link|@import|(src|href)=[\"']https?:", html)
    anchors = set(re.findall(r'href="#([^"]+)"', html))
    own = {a for a in anchors if re.fullmatch(r"[a-z]+", a)}
    assert len(own) == 5
    assert all(f'id="{a}"' in html for a in own)


@pytest.mark.slow
def test_calling_again_trains_nothing(folder):
    before = {p: p.stat().st_mtime_ns for p in (folder / "runs").rglob("*.safetensors")}
    assert before
    seen = []
    demo(folder, quick=True, watch=lambda job, share, text: seen.append(text))
    assert set(seen) == {"done before"}
    assert before == {p: p.stat().st_mtime_ns for p in (folder / "runs").rglob("*.safetensors")}


@pytest.mark.slow
def test_another_seed_is_refused(folder):
    with pytest.raises(ValueError, match="another demo"):
        demo(folder, quick=True, seed=1)


@pytest.mark.slow
def test_an_unfinished_demo_names_what_is_missing(folder, tmp_path):
    (tmp_path / "facts").mkdir()
    (tmp_path / "demo.json").write_text((folder / "demo.json").read_text())
    with pytest.raises(ValueError, match=r"facts.*missing"):
        write_report(tmp_path)


@pytest.mark.slow
def test_the_readme_is_written_from_it(folder, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nstale lines\n{END}\nafter\n")
    write_readme(folder, readme, tmp_path / "docs")
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale lines" not in text
    assert "coordinates" in text
    assert {p.name for p in (tmp_path / "docs").iterdir()} == {"trajectories.svg", "folds.svg"}
