"""Coordinates and dynamics: the invariant manifold that a task's symmetry dictates."""

from manifold.basis import Basis, Direction
from manifold.commutant import CommutantBasis, commutant
from manifold.confinement import (
    confinement_slopes,
    exact_confinement,
    gradient_confinement,
    random_point,
)
from manifold.continuation import Branch, Fold, continue_branch, equilibrium
from manifold.effective import effective_matrices, remove_gauge
from manifold.exact_law import ExactLaw, exact_law
from manifold.factored import Factored
from manifold.field import ReducedField, reduced_field
from manifold.full_loss import loss_gradient
from manifold.intertwiners import Intertwiners
from manifold.invariant import four_coordinates, invariant_basis, paper_basis
from manifold.lift import Lift, lift
from manifold.missing import missing_directions
from manifold.plant import plant
from manifold.projection import captured_by_chance, project
from manifold.rebuild import Rebuilt, evaluate, rebuild
from manifold.transverse import TransverseGrowth, growth_along, transverse_growth

__all__ = [
    "Basis",
    "Branch",
    "CommutantBasis",
    "Direction",
    "ExactLaw",
    "Factored",
    "Fold",
    "Intertwiners",
    "Lift",
    "Rebuilt",
    "ReducedField",
    "TransverseGrowth",
    "captured_by_chance",
    "commutant",
    "confinement_slopes",
    "continue_branch",
    "effective_matrices",
    "equilibrium",
    "evaluate",
    "exact_confinement",
    "exact_law",
    "four_coordinates",
    "gradient_confinement",
    "growth_along",
    "invariant_basis",
    "lift",
    "loss_gradient",
    "missing_directions",
    "paper_basis",
    "plant",
    "project",
    "random_point",
    "rebuild",
    "reduced_field",
    "remove_gauge",
    "transverse_growth",
]
