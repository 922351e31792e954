"""Figures: matplotlib and seaborn to inline SVG, readable in print and by the colour-blind."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

PALETTE = sns.color_palette("colorblind")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kappalens",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.dpi": 100,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figure:
    """A drawing with what it says in words (`alt`), a caption, and the numbers behind it."""

    svg: str
    alt: str
    caption: str
    table: pd.DataFrame = field(repr=False)


@contextmanager
def canvas(
    columns: int = 1, width: float = 7.2, height: float = 3.2, **grid: Any
) -> Iterator[tuple[Canvas, Sequence[Axes]]]:
    """A row of panels under the house style; no global state is touched."""
    with mpl.rc_context(STYLE):
        figure = Canvas(figsize=(width, height), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, columns, **grid))
        yield figure, list(axes.flat)


def svg(figure: Canvas) -> str:
    """The drawing as an <svg> element without a header, the same bytes for the same data."""
    stream = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    own = "f" + hashlib.sha256(text.encode()).hexdigest()[:8] + "-"  # ids of one page must differ
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{own}", text)


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash together, so that neither is needed alone."""
    return {"color": PALETTE[index % len(PALETTE)], "linestyle": DASHES[index // len(PALETTE)]}
