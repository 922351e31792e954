"""What a study of the page on dynamics is: a module with these four."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from analyses.claim import Claim

Say = Callable[[str], None]
"""say(what happens now): progress of long work."""


class Study(Protocol):
    """A module: what it measures, and how that reads.

    TITLE: heading of its section.
    """

    TITLE: str

    def measure(self, folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
        """Facts, which JSON can hold. Runs it trains go to `folder`, and are not trained twice.

        quick: the same path in seconds, for the tests; its numbers mean nothing.
        """
        ...

    def text(self, facts: Mapping[str, Any]) -> str:
        """The section in Markdown; figures as ![what it shows](dynamics/name.svg)."""
        ...

    def figures(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """File name, as `text` links it, without its folder, to an <svg> element."""
        ...

    def claims(self, facts: Mapping[str, Any]) -> tuple[Claim, ...]:
        """What the facts say of claims of the papers, or of ours."""
        ...
