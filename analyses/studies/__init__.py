"""The studies of the demo: each turns runs into facts, and facts into one section of a report."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from analyses.studies import confinement, folds, rebuilt, reduced, sharing

STUDIES: Mapping[str, Any] = MappingProxyType(
    {
        "reduced": reduced,
        "confinement": confinement,
        "folds": folds,
        "rebuilt": rebuilt,
        "sharing": sharing,
    }
)

__all__ = ["STUDIES"]
