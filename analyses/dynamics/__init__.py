"""The studies of docs/dynamics.md, one a file; a new one is its file and its line here."""

from collections.abc import Mapping
from types import MappingProxyType

from analyses.dynamics import (
    branches,
    control,
    false_alarms,
    fit,
    folds,
    full,
    hysteresis,
    rival_heads,
    theorems,
    winner,
)
from analyses.dynamics.base import Study

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "full": full,
        "folds": folds,
        "branches": branches,
        "hysteresis": hysteresis,
        "winner": winner,
        "rival_heads": rival_heads,
        "control": control,
        "false_alarms": false_alarms,
        "fit": fit,
        "theorems": theorems,
    }
)
"""Name to study, in the order of the page."""

__all__ = ["STUDIES"]
