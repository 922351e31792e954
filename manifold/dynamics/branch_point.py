"""Points where two branches of fixed points cross: transcritical and pitchfork."""

from __future__ import annotations

import numpy as np

from manifold.dynamics.bifurcation import Bifurcation, by_size, oriented
from manifold.dynamics.equations import NEWTON_STEPS, Equations, rows, second, third
from manifold.dynamics.fold import left_null_vector

LEVEL = 1e-6
"""Below this ratio of quadratic to the other terms, states in lengths of `scale`: a pitchfork."""


def refine_branch_point(
    equations: Equations, y: np.ndarray, towards: np.ndarray, lengths: np.ndarray
) -> Bifurcation | None:
    """The point near y = (x, p) where dF/d(x, p) loses rank, by Newton to rounding.

    F + beta b = 0, F_y phi_1 = 0, F_y phi_2 = 0 in y, beta and the two null vectors, which are
    normalised by their first guess; regular where two branches cross at an angle. towards: the
    tangent of the branch it is met on, (n + 1,). lengths: units of y, (n + 1,). None where
    Newton does not converge, or where no two branches cross there.
    """
    n, y, best = len(y) - 1, y.astype(float), np.inf
    left, _, right = np.linalg.svd(_rows(equations, y) * lengths)
    b, frame = left[:, -1], right[-2:]
    nulls, beta, found = frame.copy(), 0.0, y
    for _ in range(3 * NEWTON_STEPS):
        slopes = _rows(equations, y) * lengths
        gap = np.concatenate(
            [
                equations.residual(y[:-1], float(y[-1])) + beta * b,
                slopes @ nulls[0],
                slopes @ nulls[1],
                (frame @ nulls.T - np.eye(2)).ravel(),
            ]
        )
        size = float(np.abs(gap).max())
        if not np.isfinite(size) or (size >= best and best < 1e-11):
            break
        if size < best:
            best, found = size, y
        system = np.zeros((3 * n + 4, 3 * n + 4))
        system[:n, : n + 1], system[:n, n + 1] = slopes, b
        for k in range(2):
            block = slice(n * (k + 1), n * (k + 2))
            mine = slice(n + 2 + k * (n + 1), n + 2 + (k + 1) * (n + 1))
            system[block, : n + 1] = _second(equations, y, nulls[k] * lengths) * lengths
            system[block, mine] = slopes
            for j in range(2):
                system[3 * n + 2 * j + k, mine] = frame[j]
        if not np.isfinite(system).all():
            break
        move = np.linalg.lstsq(system, -gap, rcond=None)[0]
        y, beta = y + move[: n + 1] * lengths, beta + move[n + 1]
        nulls = nulls + move[n + 2 :].reshape(2, n + 1)
    return _classify(equations, found, towards, lengths, best) if best < 1e-9 else None


def _classify(
    equations: Equations, y: np.ndarray, towards: np.ndarray, lengths: np.ndarray, residual: float
) -> Bifurcation | None:
    """Which kind, from the equation a t^2 + 2 b t + c = 0 of the tangents (z + t v, 1)."""
    x, p = y[:-1], float(y[-1])
    jacobian, by_parameter = np.hsplit(rows(equations, x, p), [len(x)])
    v = oriented(np.linalg.svd(jacobian)[2][-1])
    w = left_null_vector(jacobian, v)
    inverse = np.linalg.pinv(jacobian, rcond=1e-8)
    z = -inverse @ by_parameter[:, 0]
    along_v, along_z = np.append(v, 0.0), np.append(z, 1.0)
    bent = second(equations, x, p, along_v)
    a, b = float(w @ bent @ along_v), float(w @ bent @ along_z)
    c = float(w @ second(equations, x, p, along_z) @ along_z)
    h = -inverse @ (bent @ along_v)
    cubic = float(w @ (third(equations, x, p, v) @ v + 3 * bent[:, :-1] @ h))
    if not np.isfinite([a, b, c, cubic]).all() or b**2 - a * c <= 0:
        return None
    unit = float(np.abs(lengths[:-1]).max())
    pitchfork = abs(a) * unit < LEVEL * max(abs(b) * abs(lengths[-1]), abs(cubic) * unit**2)
    root = float(np.sqrt(b**2 - a * c))
    if pitchfork:
        tangents = [along_v, along_z - c / (2 * b) * along_v]
    else:
        # the root without cancellation first, the other from their product c / a
        far = -(b + np.copysign(root, b)) / a
        near = c / (a * far)
        tangents = [along_z + far * along_v, along_z + near * along_v]
    sizes = [float(np.linalg.norm(t / lengths)) for t in tangents]
    directions = np.array([t / size for t, size in zip(tangents, sizes, strict=True)])
    likeness = np.abs((directions / lengths) @ (towards / lengths))
    return Bifurcation(
        kind="pitchfork" if pitchfork else "transcritical",
        value=p,
        state=np.array(x),
        eigenvalues=by_size(np.linalg.eigvals(jacobian)),
        null_vector=v,
        transversality=b if pitchfork else root,
        quadratic=a,
        cubic=cubic,
        directions=directions[np.argsort(-likeness)],
        residual=residual,
    )


def _rows(equations: Equations, y: np.ndarray) -> np.ndarray:
    return rows(equations, y[:-1], float(y[-1]))


def _second(equations: Equations, y: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return second(equations, y[:-1], float(y[-1]), direction)
