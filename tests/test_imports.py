"""Imports run one way; importing a room is cheap and silent; the rooms are the installed ones."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("training", "probes", "manifold", "circuits", "analyses")
MAY_IMPORT = {
    "training": set(),
    "probes": {"training"},
    "manifold": {"training"},
    "circuits": {"training", "probes", "manifold"},
    "analyses": {"training", "probes", "manifold", "circuits"},
}
ROOT = Path(__file__).parents[1]


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names} & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        wrong = imported_rooms(path) - MAY_IMPORT[room] - {room}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("room", ROOMS[:-1])
def test_importing_a_room_is_light_and_silent(room):
    heavy = "{'transformer_lens', 'transformers', 'matplotlib', 'seaborn'}"
    code = f"import sys, {room}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", ""), done


def test_the_rooms_share_one_parent_when_installed(tmp_path):
    """Unrelated distributions called `circuits`, `probes` and `manifold` would shadow ours."""
    rooms = ", ".join(ROOMS)
    code = f"import {rooms}; print({{m.__path__[0].rsplit('/', 1)[0] for m in ({rooms})}})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert len(ast.literal_eval(done.stdout)) == 1, done.stdout


@pytest.mark.parametrize(("folder", "mapping"), [("tasks", "TASKS"), ("families", "FAMILIES")])
def test_one_file_and_one_line_for_each_plugin(folder, mapping):
    module = importlib.import_module(f"training.{folder}")
    shared = {
        "__init__",
        "attention",
        "base",
        "block_list",
        "kernels",
        "orbits",
        "positions",
        "program",
    }
    shared |= {"corruption", "layouts", "products", "sequence_order", "sequence_pool"}
    shared |= {"state_tracking", "wiring"}
    files = {path.stem for path in (ROOT / "training" / folder).glob("*.py")} - shared
    assert files == set(getattr(module, mapping))
