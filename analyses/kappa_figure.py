"""kappa beside kappa_sep, a row for each cell, as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from analyses.figures import PALETTE, canvas, svg

CUT = 4.0
"""An open interval is drawn this many times beyond kappa, with an arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One row: a name, and kappa with its bound and interval; None where it is not known.

    high: None where nothing bounds kappa from above.
    """

    name: str
    kappa: float | None
    bound: str | None
    low: float
    high: float | None
    kappa_sep: float | None


def kappa_drawing(marks: Sequence[Mark]) -> str:
    """Dots: kappa, with a line over its interval (an arrow where it is open). Diamonds: kappa_sep.

    An <svg> element. kappa is on a logarithmic axis with a dotted line at 1.
    """
    with canvas(height=0.9 + 0.4 * len(marks)) as (figure, (axis,)):
        axis.axvline(1, color="black", lw=0.6, ls=":")
        for row, mark in enumerate(marks):
            _draw(axis, row, mark)
        axis.plot([], [], "o", color=PALETTE[0], ms=6, label="kappa")
        axis.plot([], [], "D", mfc="none", color=PALETTE[1], ms=7, label="kappa_sep")
        axis.set(xlabel="sharing factor", xscale="log", ylim=(len(marks) - 0.5, -0.6))
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_yticks(range(len(marks)), [mark.name for mark in marks])
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return svg(figure)


def _draw(axis: Axes, row: int, mark: Mark) -> None:
    if mark.kappa_sep is not None:
        axis.plot(mark.kappa_sep, row, "D", mfc="none", color=PALETTE[1], ms=7)
    if mark.kappa is None:
        axis.annotate("undetermined", (1, row), xytext=(4, 0), textcoords="offset points",
                      va="center", style="italic")  # fmt: skip
        return
    low = max(mark.low, mark.kappa / CUT)
    high = min(mark.high or mark.kappa * CUT, mark.kappa * CUT)
    axis.plot([low, high], [row, row], color=PALETTE[0], lw=1)
    for end, cut, arrow in ((low, mark.low < low, "<"), (high, mark.high != high, ">")):
        if cut:
            axis.plot(end, row, arrow, color=PALETTE[0], ms=5)
    axis.plot(mark.kappa, row, "o", color=PALETTE[0], ms=6)
    sign = "" if mark.bound == "=" else f"{mark.bound} "
    axis.annotate(f"{sign}{mark.kappa:.2f}", (mark.kappa, row - 0.18), ha="center")
