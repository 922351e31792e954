"""What is causally used: circuits by length, node patching, elimination on coordinates."""

from circuits.circuit import Circuit
from circuits.directions import patch_directions
from circuits.discover import discover
from circuits.elimination import Elimination, eliminate
from circuits.export import edge_table, mib_graph
from circuits.gradient_cosines import GradientCosines, gradient_cosines
from circuits.heads import head_scores
from circuits.length_matrix import LengthMatrix, length_matrix
from circuits.pair import Pair, pairs
from circuits.patching import patch_nodes

__all__ = [
    "Circuit",
    "Elimination",
    "GradientCosines",
    "LengthMatrix",
    "Pair",
    "discover",
    "edge_table",
    "eliminate",
    "gradient_cosines",
    "head_scores",
    "length_matrix",
    "mib_graph",
    "pairs",
    "patch_directions",
    "patch_nodes",
]
