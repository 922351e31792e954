"""What a person asks for: the demo, reports, and the command line."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyses.reporting import report

__all__ = ["report"]


def __getattr__(name: str) -> object:
    """Drawing libraries load when a report is asked for, not when the command starts."""
    if name == "report":
        from analyses.reporting import report

        return report
    raise AttributeError(f"module 'analyses' has no attribute {name!r}")
