"""What happens to a fixed point where an eigenvalue crosses zero: one record for every kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

KINDS = ("fold", "transcritical", "pitchfork", "hopf", "crossover")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bifurcation:
    """A degenerate fixed point F(x, p) = 0, or a crossover, where nothing degenerates.

    With v the null vector of J, |v| = 1, and w the left one, w . v = 1:

    - fold: transversality w . dF/dp, quadratic w . D^2 F(v, v); both differ from 0.
    - transcritical: transversality d(eigenvalue)/dp, up to its sign, which differs between the two
      branches; quadratic as above, not 0.
    - pitchfork: transversality d(eigenvalue)/dp on the branch that does not turn; quadratic 0;
      cubic w . (D^3 F(v, v, v) + 3 D^2 F(v, h)), J h = -D^2 F(v, v).
    - hopf: eigenvalues +-i `frequency`, null_vector complex; transversality d(real part)/dp;
      cubic the first Lyapunov coefficient for |v| = 1 (Kuznetsov, sections 3.5 and 5.4).
    - crossover: a chosen difference changes sign with every eigenvalue negative.

    value: of the parameter. state: (n,). eigenvalues: of J, the one nearest to zero (hopf: nearest
    to the imaginary axis) first. directions: transcritical and pitchfork, (2, n + 1), tangents in
    (x, p) of the branch it was found on and of the other. residual: largest entry of the extended
    system. Entries that a kind does not have are nan.
    """

    kind: str
    value: float
    state: np.ndarray
    eigenvalues: np.ndarray
    residual: float
    null_vector: np.ndarray | None = None
    transversality: float = float("nan")
    quadratic: float = float("nan")
    cubic: float = float("nan")
    frequency: float = float("nan")
    directions: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; one of {', '.join(KINDS)}")
        for array in (self.state, self.eigenvalues, self.null_vector, self.directions):
            if array is not None:
                array.setflags(write=False)

    @property
    def criticality(self) -> str | None:
        """Pitchfork and Hopf: "supercritical" (what splits off attracts) or "subcritical"."""
        if self.kind not in ("pitchfork", "hopf"):
            return None
        return "supercritical" if self.cubic < 0 else "subcritical"

    def __str__(self) -> str:
        name = f"{self.criticality} {self.kind}" if self.criticality else self.kind
        turning = f", frequency {self.frequency:.6g}" if self.kind == "hopf" else ""
        return f"{name} at {self.value:.10g}{turning}"


def by_size(values: np.ndarray) -> np.ndarray:
    """Eigenvalues in order of their distance from zero."""
    return values[np.argsort(np.abs(values), kind="stable")]


def oriented(v: np.ndarray) -> np.ndarray:
    """v with its largest entry positive."""
    return v if v[np.argmax(np.abs(v))] > 0 else -v
