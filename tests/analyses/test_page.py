"""What goes into a report is plain JSON and escaped HTML, whole or not at all."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from analyses.figures import Figure, canvas, line_style, svg
from analyses.page import plain, render, table_html, write_json
from analyses.studies.base import Section


def drawing():
    with canvas(2) as (figure, axes):
        axes[0].plot([0, 1], [0, 1], **line_style(0))
        return svg(figure)


def page():
    figure = Figure(
        svg=drawing(), alt="a < b", caption="A & B", table=pd.DataFrame({"x": [1.0, math.nan]})
    )
    section = Section(
        anchor="one", title="One <two>", findings=("f < 1",), text=("t",), figures=(figure,)
    )
    return render(title="T", lead="L", sections=[section], notes={"seed": "0"})


def test_undefined_numbers_become_null():
    facts = {"a": np.float64("nan"), "b": [math.inf, np.int64(3)], 4: np.array([1.5, math.nan])}
    assert plain(facts) == {"a": None, "b": [None, 3], "4": [1.5, None]}


def test_json_is_written_whole(tmp_path):
    path = write_json(tmp_path / "x.json", {"a": math.nan})
    assert json.loads(path.read_text()) == {"a": None}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_equal_data_gives_equal_bytes():
    assert drawing() == drawing()


def test_a_page_stands_alone_and_escapes_what_it_is_given():
    html = page()
    assert not re.search(r"<script|<link|@import|(src|href)=[\"']https?:", html)
    assert "One &lt;two&gt;" in html
    assert 'aria-label="a &lt; b"' in html
    assert "f &lt; 1" in html
    assert 'href="#one"' in html
    assert 'id="one"' in html


def test_every_figure_has_words_and_numbers():
    html = page()
    assert html.count("<svg") == html.count('role="img"') == html.count("<table") == 1


@pytest.mark.parametrize("rows", [10, 5000])
def test_long_tables_are_thinned_and_say_so(rows):
    html = table_html(pd.DataFrame({"x": range(rows)}))
    assert html.count("<tr") <= 401 + 1
    assert ("evenly spaced" in html) == (rows > 400)
