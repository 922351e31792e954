"""Hopf points, where a pair of complex eigenvalues crosses the imaginary axis."""

from __future__ import annotations

import numpy as np

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.equations import (
    NEWTON_STEPS,
    Equations,
    curvature,
    rows,
    second,
    solve,
    third,
)


def refine_hopf(equations: Equations, x: np.ndarray, p: float) -> Bifurcation | None:
    """The point near (x, p) with a pair +-i omega, by Newton to rounding.

    F = 0, J q = i omega q, q normalised by its first guess, in x, p, omega and both parts of q.
    None where Newton does not converge, or converges to a pair of real eigenvalues +-mu.
    """
    n, jacobian = len(x), equations.jacobian(x, p)
    if not np.isfinite(jacobian).all():
        return None
    values, vectors = np.linalg.eig(jacobian)
    turning = np.flatnonzero(np.imag(values) > 0)
    if not len(turning):
        return None
    chosen = turning[np.argmin(np.abs(np.real(values[turning])))]
    u, s, frame = _phased(vectors[:, chosen])
    omega, best = float(np.imag(values[chosen])), np.inf
    found = (x, p, omega, u, s)
    for _ in range(3 * NEWTON_STEPS):
        jacobian = equations.jacobian(x, p)
        gap = np.concatenate(
            [
                equations.residual(x, p),
                jacobian @ u + omega * s,
                jacobian @ s - omega * u,
                [frame @ u - 1, frame @ s],
            ]
        )
        size = float(np.abs(gap).max())
        if not np.isfinite(size) or (size >= best and best < 1e-11):
            break
        if size < best:
            best, found = size, (x, p, omega, u, s)
        system = np.zeros((3 * n + 2, 3 * n + 2))  # unknowns x, p, omega, u, s
        first, last = slice(n + 2, 2 * n + 2), slice(2 * n + 2, 3 * n + 2)
        system[:n, : n + 1] = rows(equations, x, p)
        system[n : 2 * n, : n + 1] = second(equations, x, p, np.append(u, 0.0))
        system[2 * n : 3 * n, : n + 1] = second(equations, x, p, np.append(s, 0.0))
        system[n : 2 * n, n + 1], system[2 * n : 3 * n, n + 1] = s, -u
        system[n : 2 * n, first] = system[2 * n : 3 * n, last] = jacobian
        system[n : 2 * n, last], system[2 * n : 3 * n, first] = (
            omega * np.eye(n),
            -omega * np.eye(n),
        )
        system[-2, first] = system[-1, last] = frame
        if not np.isfinite(system).all():
            break
        move = np.linalg.lstsq(system, -gap, rcond=None)[0]
        x, p, omega = x + move[:n], float(p + move[n]), float(omega + move[n + 1])
        u, s = u + move[first], s + move[last]
    x, p, omega, u, s = found
    if best > 1e-9 or abs(omega) < 1e-6 * max(1e-3, float(np.abs(jacobian).max())):
        return None
    return _hopf(equations, x, p, abs(omega), u + 1j * np.sign(omega) * s, best)


def _hopf(
    equations: Equations, x: np.ndarray, p: float, omega: float, q: np.ndarray, residual: float
) -> Bifurcation | None:
    n, q, jacobian = len(x), q / np.linalg.norm(q), equations.jacobian(x, p)
    left, vectors = np.linalg.eig(jacobian.T)
    w = vectors[:, np.argmin(np.abs(left - 1j * omega))]
    w = w / (w @ q)  # w J = i omega w, w . q = 1
    moved = solve(jacobian, -equations.parameter_derivative(x, p))
    if moved is None:
        return None
    slope = second(equations, x, p, np.append(moved, 1.0))[:, :n]
    u, s = np.real(q), np.imag(q)
    bu, bs = curvature(equations, x, p, u), curvature(equations, x, p, s)
    cu, cs = third(equations, x, p, u), third(equations, x, p, s)
    cubic = cu @ u + cs @ u + 1j * (cu @ s + cs @ s)  # D^3 F(q, q, conj q)
    steady = np.linalg.solve(jacobian, bu @ u + bs @ s)
    double = np.linalg.solve(2j * omega * np.eye(n) - jacobian, (bu + 1j * bs) @ q)
    third_order = cubic - 2 * (bu + 1j * bs) @ steady + (bu - 1j * bs) @ double
    values = np.linalg.eigvals(jacobian)
    return Bifurcation(
        kind="hopf",
        value=float(p),
        state=np.array(x),
        eigenvalues=values[np.argsort(np.abs(values.real), kind="stable")],
        null_vector=q,
        transversality=float((w @ slope @ q).real),
        cubic=float((w @ third_order).real / (2 * omega)),
        frequency=omega,
        residual=residual,
    )


def _phased(q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real and imaginary parts of q, turned to be at right angles, and c with c . u = 1."""
    q = q * np.exp(-0.5j * np.angle(q @ q))
    u = np.real(q)
    return u, np.imag(q), u / (u @ u)
