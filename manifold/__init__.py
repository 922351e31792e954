"""Coordinates and dynamics: the invariant manifold that a task's symmetry dictates."""

from manifold.basis import Basis, Direction
from manifold.commutant import CommutantBasis, commutant
from manifold.confinement import confinement_slopes, gradient_confinement, loss_gradient
from manifold.continuation import Branch, Fold, continue_branch, equilibrium
from manifold.effective import effective_matrices, remove_gauge
from manifold.field import ReducedField, reduced_field
from manifold.invariant import four_coordinates, invariant_basis, paper_basis
from manifold.projection import captured_by_chance, project
from manifold.rebuild import Rebuilt, evaluate, rebuild

__all__ = [
    "Basis",
    "Branch",
    "CommutantBasis",
    "Direction",
    "Fold",
    "Rebuilt",
    "ReducedField",
    "captured_by_chance",
    "commutant",
    "confinement_slopes",
    "continue_branch",
    "effective_matrices",
    "equilibrium",
    "evaluate",
    "four_coordinates",
    "gradient_confinement",
    "invariant_basis",
    "loss_gradient",
    "paper_basis",
    "project",
    "rebuild",
    "reduced_field",
    "remove_gauge",
]
