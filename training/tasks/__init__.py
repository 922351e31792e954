"""Tasks by name. A new task is one file here and one line in TASKS."""

from types import MappingProxyType

from training.tasks.associative_recall import AssociativeRecall
from training.tasks.base import IGNORE, Batch, LengthTask, Symmetry, Task
from training.tasks.block_list import BlockList
from training.tasks.conditional_retrieval import ConditionalRetrieval
from training.tasks.in_context_ngram import InContextNgram
from training.tasks.indirect_object import IndirectObject
from training.tasks.k_hop import KHop
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition
from training.tasks.permutation_inversion import PermutationInversion
from training.tasks.relation_retrieval import RelationRetrieval
from training.tasks.state_tracking import StateTracking

TASKS = MappingProxyType(
    {
        "associative_recall": AssociativeRecall,
        "conditional_retrieval": ConditionalRetrieval,
        "in_context_ngram": InContextNgram,
        "indirect_object": IndirectObject,
        "k_hop": KHop,
        "modular_addition": ModularAddition,
        "permutation_composition": PermutationComposition,
        "permutation_inversion": PermutationInversion,
        "relation_retrieval": RelationRetrieval,
    }
)

__all__ = [
    "IGNORE",
    "TASKS",
    "AssociativeRecall",
    "Batch",
    "BlockList",
    "ConditionalRetrieval",
    "InContextNgram",
    "IndirectObject",
    "KHop",
    "LengthTask",
    "ModularAddition",
    "PermutationComposition",
    "PermutationInversion",
    "RelationRetrieval",
    "StateTracking",
    "Symmetry",
    "Task",
]
