"""One command per file: a function and the examples its help ends with."""

from types import MappingProxyType

from analyses.commands import (
    audit,
    bifurcate,
    circuits,
    demo,
    events,
    kappa,
    ode,
    planted,
    project,
    prune,
    report,
    status,
    train,
)

COMMANDS = MappingProxyType(
    {
        "demo": (demo.demo, demo.EXAMPLES),
        "train": (train.train, train.EXAMPLES),
        "kappa": (kappa.kappa, kappa.EXAMPLES),
        "status": (status.status, status.EXAMPLES),
        "audit": (audit.audit, audit.EXAMPLES),
        "project": (project.project, project.EXAMPLES),
        "events": (events.events, events.EXAMPLES),
        "ode": (ode.ode, ode.EXAMPLES),
        "bifurcate": (bifurcate.bifurcate, bifurcate.EXAMPLES),
        "circuits": (circuits.circuits, circuits.EXAMPLES),
        "prune": (prune.prune, prune.EXAMPLES),
        "planted": (planted.planted, planted.EXAMPLES),
        "report": (report.report, report.EXAMPLES),
    }
)
"""Command name -> what it runs and its examples, in the order of the help."""
