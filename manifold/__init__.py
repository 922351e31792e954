"""Coordinates and dynamics: the invariant manifold that a task's symmetry dictates."""

from manifold.basis import Basis, Direction
from manifold.chance import captured_by_chance, expected_by_chance
from manifold.characters import (
    CharacterAverage,
    check_homomorphism,
    dimension_by_characters,
    dimension_over_rotations,
)
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
from manifold.function_space import Agreement, function_agreement
from manifold.intertwiners import Intertwiners
from manifold.invariant import four_coordinates, invariant_basis, paper_basis
from manifold.lift import Lift, lift
from manifold.missing import missing_directions
from manifold.plant import plant
from manifold.projection import project
from manifold.rebuild import Rebuilt, evaluate, rebuild
from manifold.state_coordinates import state_coordinates
from manifold.symmetry_check import SymmetryCheck, symmetry_check
from manifold.transverse import TransverseGrowth, growth_along, transverse_growth

__all__ = [
    "Agreement",
    "Basis",
    "Branch",
    "CharacterAverage",
    "CommutantBasis",
    "Direction",
    "ExactLaw",
    "Factored",
    "Fold",
    "Intertwiners",
    "Lift",
    "Rebuilt",
    "ReducedField",
    "SymmetryCheck",
    "TransverseGrowth",
    "captured_by_chance",
    "check_homomorphism",
    "commutant",
    "confinement_slopes",
    "continue_branch",
    "dimension_by_characters",
    "dimension_over_rotations",
    "effective_matrices",
    "equilibrium",
    "evaluate",
    "exact_confinement",
    "exact_law",
    "expected_by_chance",
    "four_coordinates",
    "function_agreement",
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
    "state_coordinates",
    "symmetry_check",
    "transverse_growth",
]
