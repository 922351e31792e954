"""Normal forms with a known answer, plain or hidden by a change of variables.

y = phi(x, p) = Q x + quadratic + shift(p) and F(x, p) = [D phi]^-1 f(phi, p): the fixed points of f
in other coordinates, with the same eigenvalues. Derivatives by complex steps, exact to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

DIM = 5
TINY = 1e-30


@dataclass(frozen=True)
class Hidden:
    """f(y, p) on the first coordinates, beside directions that decay onto y_0^2."""

    core: Callable
    order: int
    seed: int = 0
    bent: float = 0.06
    matrices: tuple = field(init=False, repr=False)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        rotation = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
        squares = rng.normal(size=(DIM, DIM, DIM)) * self.bent
        shift = rng.normal(size=DIM) * self.bent
        object.__setattr__(self, "matrices", (rotation, squares + squares.swapaxes(1, 2), shift))

    def normal(self, x, p):
        """phi(x, p) and D phi."""
        rotation, squares, shift = self.matrices
        bent = squares @ x
        return rotation @ x + bent @ x / 2 + shift * np.sin(p), rotation + bent

    def residual(self, x, p):
        y, jacobian = self.normal(x, p)
        rest = -np.arange(1, DIM + 1 - self.order) * y[self.order :] + y[0] ** 2
        inner = np.concatenate([self.core(y[: self.order], p), rest])
        return np.linalg.solve(jacobian, inner)

    def jacobian(self, x, p):
        return np.column_stack(
            [self.residual(x + 1j * TINY * e, p).imag / TINY for e in np.eye(DIM)]
        )

    def parameter_derivative(self, x, p):
        return self.residual(x + 0j, p + 1j * TINY).imag / TINY

    def start(self, y, p):
        """x with phi(x, p) = y, from the rotation on."""
        x, target = np.zeros(DIM), np.append(y, np.zeros(DIM - len(y)))
        for _ in range(50):
            here, jacobian = self.normal(x, p)
            x = x - np.linalg.solve(jacobian, here - target)
        return x


@dataclass(frozen=True)
class Plain:
    """f itself, with the same derivatives."""

    core: Callable

    def residual(self, x, p):
        return self.core(x, p)

    def jacobian(self, x, p):
        return np.column_stack(
            [self.core(x + 1j * TINY * e, p).imag / TINY for e in np.eye(len(x))]
        )

    def parameter_derivative(self, x, p):
        return self.core(x + 0j, p + 1j * TINY).imag / TINY


def fold(y, p):
    return np.array([p + y[0] ** 2])


def transcritical(y, p):
    return np.array([p * y[0] - y[0] ** 2])


def supercritical(y, p):
    return np.array([p * y[0] - y[0] ** 3])


def subcritical(y, p):
    return np.array([p * y[0] + y[0] ** 3])


FREQUENCY = 1.7


def hopf(sign):
    """z' = (p + i omega) z + sign z |z|^2: the Lyapunov coefficient is 2 sign / omega."""

    def core(y, p):
        u, v = y
        return np.array(
            [
                p * u - FREQUENCY * v + sign * u * (u**2 + v**2),
                FREQUENCY * u + p * v + sign * v * (u**2 + v**2),
            ]
        )

    return core
