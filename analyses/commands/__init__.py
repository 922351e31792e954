"""One command per file: a function and the examples its help ends with."""

from types import MappingProxyType

from analyses.commands import demo, kappa, report, train

COMMANDS = MappingProxyType(
    {
        "demo": (demo.demo, demo.EXAMPLES),
        "train": (train.train, train.EXAMPLES),
        "kappa": (kappa.kappa, kappa.EXAMPLES),
        "report": (report.report, report.EXAMPLES),
    }
)
"""Command name -> what it runs and its examples, in the order of the help."""
