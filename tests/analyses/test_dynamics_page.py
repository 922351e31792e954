"""The page on dynamics says what its records say; a record is measured by the same code."""

import json
import re
import shutil
from pathlib import Path

import pytest

from analyses.dynamics import STUDIES
from analyses.dynamics.page import FOLDER, PAGE, measure, on_record, write_page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_written_from_the_records(tmp_path):
    shutil.copy(DOCS / PAGE, tmp_path)
    shutil.copytree(DOCS / FOLDER, tmp_path / FOLDER, dirs_exist_ok=True)
    drawings = {path.name for path in (tmp_path / FOLDER).glob("*.svg")}
    write_page(tmp_path)
    assert (tmp_path / PAGE).read_text() == (DOCS / PAGE).read_text(), "run `make dynamics-page`"
    assert {path.name for path in (tmp_path / FOLDER).glob("*.svg")} == drawings
    linked = (tmp_path / PAGE).read_text()
    assert all(f"({FOLDER}/{name})" in linked for name in drawings)


def test_every_file_that_the_page_links_exists():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / PAGE).read_text())
    files = [link for link in links if "://" not in link]
    assert files
    assert [file for file in files if not (DOCS / file).exists()] == []


def test_no_record_is_of_the_quick_setting():
    assert not any(record["quick"] for record in on_record(DOCS).values())


def test_an_unknown_study_is_named(tmp_path):
    with pytest.raises(ValueError, match="no study is named nonsense"):
        measure(["nonsense"], tmp_path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_measured_and_written(name, tmp_path):
    shutil.copy(DOCS / PAGE, tmp_path)
    measure([name], tmp_path / "runs", tmp_path, quick=True)
    record = json.loads((tmp_path / FOLDER / f"{name}.json").read_text())
    assert record["quick"]
    assert record["seconds"] > 0
    write_page(tmp_path)
    text = (tmp_path / PAGE).read_text()
    assert f"## {STUDIES[name].TITLE}" in text
    assert "nan" not in text.lower().split()
