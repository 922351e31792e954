"""Coordinates and dynamics: the invariant manifold that a task's symmetry dictates."""

from manifold.coordinates.basis import Basis, Direction
from manifold.coordinates.chance import captured_by_chance, expected_by_chance
from manifold.coordinates.effective import effective_matrices, remove_gauge
from manifold.coordinates.factored import Factored
from manifold.coordinates.function_space import Agreement, function_agreement
from manifold.coordinates.invariant import four_coordinates, invariant_basis, paper_basis
from manifold.coordinates.lift import Lift, lift
from manifold.coordinates.plant import plant
from manifold.coordinates.projection import project
from manifold.coordinates.rebuild import Rebuilt, evaluate, rebuild
from manifold.dynamics.basin import basin
from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.branch_switching import switch_branch
from manifold.dynamics.change_point import ChangePoint, change_point
from manifold.dynamics.continuation import (
    Branch,
    continue_branch,
    continue_equations,
    equilibrium,
)
from manifold.dynamics.control import Control
from manifold.dynamics.crossover import crossovers
from manifold.dynamics.cusp import Cusp, FoldCurve, continue_folds
from manifold.dynamics.event import Event, Events
from manifold.dynamics.events import events
from manifold.dynamics.field import ReducedField, reduced_field
from manifold.dynamics.fit import fit_ode
from manifold.dynamics.fixed_points import FixedPoint, FixedPoints, fixed_points
from manifold.dynamics.monitor import Monitor
from manifold.dynamics.optimiser_flow import follow_optimiser
from manifold.dynamics.phase_diagram import PhaseDiagram, in_context, phase_diagram
from manifold.dynamics.rivalry import RIVALRIES, Circuit, Rivalry
from manifold.dynamics.rollout import Judgement, Rollout
from manifold.dynamics.sparse_fit import SparseFit
from manifold.dynamics.stability import stable_rate
from manifold.dynamics.structured_fit import StructuredFit
from manifold.dynamics.suppression import Suppression, burstiness, suppression
from manifold.dynamics.winner import predict_winner, who_won
from manifold.groups.characters import (
    CharacterAverage,
    check_homomorphism,
    dimension_by_characters,
    dimension_over_rotations,
)
from manifold.groups.commutant import CommutantBasis, commutant
from manifold.groups.intertwiners import Intertwiners
from manifold.states.state_coordinates import state_coordinates
from manifold.symmetry.confinement import (
    confinement_slopes,
    exact_confinement,
    gradient_confinement,
    random_point,
)
from manifold.symmetry.exact_law import ExactLaw, exact_law
from manifold.symmetry.full_loss import loss_gradient
from manifold.symmetry.missing import missing_directions
from manifold.symmetry.symmetry_check import SymmetryCheck, symmetry_check
from manifold.symmetry.transverse import TransverseGrowth, growth_along, transverse_growth

__all__ = [
    "RIVALRIES",
    "Agreement",
    "Basis",
    "Bifurcation",
    "Branch",
    "ChangePoint",
    "CharacterAverage",
    "Circuit",
    "CommutantBasis",
    "Control",
    "Cusp",
    "Direction",
    "Event",
    "Events",
    "ExactLaw",
    "Factored",
    "FixedPoint",
    "FixedPoints",
    "FoldCurve",
    "Intertwiners",
    "Judgement",
    "Lift",
    "Monitor",
    "PhaseDiagram",
    "Rebuilt",
    "ReducedField",
    "Rivalry",
    "Rollout",
    "SparseFit",
    "StructuredFit",
    "Suppression",
    "SymmetryCheck",
    "TransverseGrowth",
    "basin",
    "burstiness",
    "captured_by_chance",
    "change_point",
    "check_homomorphism",
    "commutant",
    "confinement_slopes",
    "continue_branch",
    "continue_equations",
    "continue_folds",
    "crossovers",
    "dimension_by_characters",
    "dimension_over_rotations",
    "effective_matrices",
    "equilibrium",
    "evaluate",
    "events",
    "exact_confinement",
    "exact_law",
    "expected_by_chance",
    "fit_ode",
    "fixed_points",
    "follow_optimiser",
    "four_coordinates",
    "function_agreement",
    "gradient_confinement",
    "growth_along",
    "in_context",
    "invariant_basis",
    "lift",
    "loss_gradient",
    "missing_directions",
    "paper_basis",
    "phase_diagram",
    "plant",
    "predict_winner",
    "project",
    "random_point",
    "rebuild",
    "reduced_field",
    "remove_gauge",
    "stable_rate",
    "state_coordinates",
    "suppression",
    "switch_branch",
    "symmetry_check",
    "transverse_growth",
    "who_won",
]
