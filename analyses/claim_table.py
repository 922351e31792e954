"""Claims with what was measured and the verdict, as a table of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def claims_table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Of records as `Claim.record` makes them."""
    head = "| claim | statement | measured: value [95%] | verdict |\n|---|---|---|---|"
    return "\n".join([head, *map(_claim, claims)])


def _claim(claim: Mapping[str, Any]) -> str:
    measured = "; ".join(_comparison(entry) for entry in claim["comparisons"])
    lacks = f" (not on record: {', '.join(claim['missing'])})" if claim["missing"] else ""
    source = "" if claim["source"] == "ours" else claim["number"]
    return f"| {source or 'ours'} | {claim['statement']} | {measured} | {claim['verdict']}{lacks} |"


def _comparison(entry: Mapping[str, Any]) -> str:
    number = with_interval(entry["value"], entry["bound"], entry["low"], entry["high"])
    short = f" (too few {entry['short_of']} to judge)" if entry["short_of"] else ""
    return f"{entry['what']} {number}{short}".replace("*", r"\*")


def with_interval(value: float | None, bound: str | None, low: float, high: float | None) -> str:
    """Empty where nothing was asked; "open" where only an interval is known."""
    if bound is None:
        return ""
    sign = "" if bound == "=" else f"{bound} "
    number = "open" if value is None else f"{sign}{value:.2f}"
    return f"{number} [{low:.2f}, {'no end' if high is None else f'{high:.2f}'}]"
