"""The page on kappa says what its record says, and its YAML is a study."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from analyses.kappa_page import ARCHIVE, BEGIN, DRAWING, END, PAGE, RECORD, keep, write_page
from analyses.kappa_table import write_table
from training import KappaStudy, preset

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_written_from_the_record(tmp_path):
    for name in (PAGE, RECORD):
        shutil.copy(DOCS / name, tmp_path)
    write_page(tmp_path)
    assert (tmp_path / PAGE).read_text() == (DOCS / PAGE).read_text(), "run `make kappa-page`"
    assert (tmp_path / DRAWING).read_text().lstrip().startswith("<svg")


def test_every_cell_and_every_claim_of_the_record_is_on_the_page():
    record = json.loads((DOCS / RECORD).read_text())
    numbers = (DOCS / PAGE).read_text().split(BEGIN)[1].split(END)[0]
    cells = [row for row in record["rows"] if row["data_seed"] is None]
    assert cells
    for row in cells:
        (line,) = [x for x in numbers.splitlines() if x.startswith(f"| {row['cell']} |")]
        if row["n_star"]["joint"] is not None:
            assert f"{row['n_star']['joint']:,.0f}" in line
        if row["kappa"] is not None:
            assert f"{row['kappa']:.2f}" in line
        assert line.count("censored") == sum(v is None for v in row["n_star"].values())
    for claim in record["claims"]:
        assert claim["statement"] in numbers


def test_the_record_is_of_the_preset_as_it_is():
    record = json.loads((DOCS / RECORD).read_text())
    finished = {row["cell"] for row in record["rows"]}
    waiting = {name.split(".")[0] for name in record["missing"]}
    assert finished | waiting == {cell.name for cell in preset("small").cells}
    said = (DOCS / PAGE).read_text()
    assert all(cell in said for cell in waiting), "what is missing is named on the page"


@pytest.mark.slow
def test_the_record_is_what_its_searches_say(tmp_path):
    with tarfile.open(DOCS / ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    said = json.loads((DOCS / RECORD).read_text())
    assert rounded(write_table(preset("small"), tmp_path)) == rounded(said)


def test_what_is_kept_unpacks_to_the_same_files(tmp_path):
    study, docs = tmp_path / "kappa-small", tmp_path / "docs"
    (study / "searches").mkdir(parents=True)
    docs.mkdir()
    for name in ("study.json", "table.json", "searches/a.0.joint.json", "searches/a.0.4.json"):
        (study / name).write_text(f'{{"is": "{name}"}}')
    keep(study, docs)
    assert json.loads((docs / RECORD).read_text()) == {"is": "table.json"}
    with tarfile.open(docs / ARCHIVE) as archive:
        archive.extractall(tmp_path / "again", filter="data")
    for name in ("study.json", "searches/a.0.joint.json", "searches/a.0.4.json"):
        assert (tmp_path / "again" / "kappa-small" / name).read_text() == f'{{"is": "{name}"}}'


def rounded(value):
    """Numbers to nine digits: exp and log differ in the last between processors."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_the_page_needs_its_markers(tmp_path):
    shutil.copy(DOCS / RECORD, tmp_path)
    (tmp_path / PAGE).write_text("no markers")
    with pytest.raises(ValueError, match="must hold the markers"):
        write_page(tmp_path)


def test_the_study_on_the_page_is_one(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / PAGE).read_text(), flags=re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    (cell,) = KappaStudy.from_yaml(tmp_path / "mine.yaml").cells
    assert cell.lrs == (1e-2, 3e-3)
