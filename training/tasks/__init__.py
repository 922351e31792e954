"""Tasks by name. A new task is one file here and one line in TASKS."""

from types import MappingProxyType

from training.tasks.associative_recall import AssociativeRecall
from training.tasks.base import IGNORE, Batch, LengthTask, Symmetry, Task
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition
from training.tasks.state_tracking import StateTracking

TASKS = MappingProxyType(
    {
        "associative_recall": AssociativeRecall,
        "modular_addition": ModularAddition,
        "permutation_composition": PermutationComposition,
    }
)

__all__ = [
    "IGNORE",
    "TASKS",
    "AssociativeRecall",
    "Batch",
    "LengthTask",
    "ModularAddition",
    "PermutationComposition",
    "StateTracking",
    "Symmetry",
    "Task",
]
