"""What can be read linearly from a model's states, and whether it transfers between lengths."""

from probes.linear import Probe, linear_probe, transfer
from probes.states import Site, final_site, read_state, run_with_state, run_with_tap

__all__ = [
    "Probe",
    "Site",
    "final_site",
    "linear_probe",
    "read_state",
    "run_with_state",
    "run_with_tap",
    "transfer",
]
