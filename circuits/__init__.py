"""What is causally used: circuits by length, node patching, elimination on coordinates."""

from circuits.elimination import Elimination, eliminate
from circuits.gradient_cosines import GradientCosines, gradient_cosines
from circuits.heads import head_scores
from circuits.length_matrix import LengthMatrix, length_matrix
from circuits.pair import Pair, pairs
from circuits.patching import patch_nodes

__all__ = [
    "Elimination",
    "GradientCosines",
    "LengthMatrix",
    "Pair",
    "eliminate",
    "gradient_cosines",
    "head_scores",
    "length_matrix",
    "pairs",
    "patch_nodes",
]
