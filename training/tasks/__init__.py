"""Tasks by name. A new task is one file here and one line in TASKS."""

from types import MappingProxyType

from training.tasks.associative_recall import AssociativeRecall
from training.tasks.base import IGNORE, Batch, Symmetry, Task
from training.tasks.modular_addition import ModularAddition

TASKS = MappingProxyType(
    {"associative_recall": AssociativeRecall, "modular_addition": ModularAddition}
)

__all__ = ["IGNORE", "TASKS", "AssociativeRecall", "Batch", "ModularAddition", "Symmetry", "Task"]
