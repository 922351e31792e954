"""Claims with what was measured and the verdict, as a table of Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def claims_table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Of records as `Claim.record` makes them; three digits or more, and the range claimed."""
    head = "| claim | statement | measured: value [95%]; claimed | verdict |\n|---|---|---|---|"
    return "\n".join([head, *map(_claim, claims)])


def _claim(claim: Mapping[str, Any]) -> str:
    measured = "; ".join(_comparison(entry) for entry in claim["comparisons"])
    lacks = f" (not on record: {', '.join(claim['missing'])})" if claim["missing"] else ""
    source = "" if claim["source"] == "ours" else claim["number"]
    return f"| {source or 'ours'} | {claim['statement']} | {measured} | {claim['verdict']}{lacks} |"


def _comparison(entry: Mapping[str, Any]) -> str:
    told = _told(entry)
    number = with_interval(entry["value"], entry["bound"], entry["low"], entry["high"], told)
    least, most = entry["expected"]
    claimed = told(least)
    if most is None:
        claimed += " or more"
    elif least != most:
        claimed += f" to {told(most)}"
    short = f" (too few {entry['short_of']} to judge)" if entry["short_of"] else ""
    return f"{entry['what']} {number}, claimed {claimed}{short}".replace("*", r"\*")


def _told(entry: Mapping[str, Any]) -> Callable[[float], str]:
    """Three significant digits; more where an end of the range would look like another number."""
    ends = [end for end in entry["expected"] if end is not None]
    found = [*ends, *(entry[key] for key in ("value", "low", "high") if entry[key] is not None)]
    apart = [
        (end, one) for end in ends for one in found if not math.isclose(end, one, rel_tol=1e-10)
    ]
    for count in range(3, 12):
        if all(f"{end:.{count}g}" != f"{one:.{count}g}" for end, one in apart):
            break
    return lambda value: f"{value:.{count}g}"


def with_interval(
    value: float | None,
    bound: str | None,
    low: float | None,
    high: float | None,
    number: Callable[[float], str] = "{:.2f}".format,
) -> str:
    """Empty where nothing was asked; "open" where only an interval is known.

    low, high: None where nothing bounds it. number: how a number is written.
    """
    if bound is None:
        return ""
    sign = "" if bound == "=" else f"{bound} "
    said = "open" if value is None else f"{sign}{number(value)}"
    least, most = ("no end" if end is None else number(end) for end in (low, high))
    return f"{said} [{least}, {most}]"
