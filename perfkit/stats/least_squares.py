"""Nonlinear least squares for a handful of parameters."""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.float64]
Model = Callable[[_Numbers], tuple[_Numbers, _Numbers]]
"""Parameters (p) → residuals (n) and their derivatives by the parameters (n × p)."""
_ROUNDS, _SMALLEST_GAIN = 80, 1e-10


@dataclasses.dataclass(frozen=True, slots=True)
class Minimum:
    """Where the sum of squares is least."""

    parameters: _Numbers
    residuals: _Numbers
    jacobian: _Numbers

    @property
    def sum_of_squares(self) -> float:
        """Of the residuals."""
        return float(self.residuals @ self.residuals)

    @property
    def unscaled_covariance(self) -> _Numbers:
        """(JᵀJ)⁻¹ (p × p): times the residual variance it is the parameters' covariance; a pseudoinverse where J has not full rank."""
        inverse: _Numbers = np.linalg.pinv(self.jacobian.T @ self.jacobian).astype(np.float64)
        return inverse


def minimise(model: Model, start: _Numbers) -> Minimum:
    """The least sum of squares near `start`.

    Source: D. W. Marquardt, SIAM Journal on Applied Mathematics 11 (1963): Gauss-Newton steps, damped along the diagonal of
    JᵀJ until the sum falls. Residuals that are not finite count as worse than any others.
    """
    parameters = np.asarray(start, dtype=np.float64)
    residuals, jacobian = model(parameters)
    best, damping = float(residuals @ residuals), 1e-3
    for _ in range(_ROUNDS):
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ residuals
        scale = np.diag(np.maximum(np.diag(normal), 1e-12))
        trial = parameters - np.linalg.solve(normal + damping * scale, gradient)
        new_residuals, new_jacobian = model(trial)
        total = float(new_residuals @ new_residuals)
        if not total < best:  # nan is not
            damping *= 8
            if damping > 1e12:
                break
            continue
        gain, best = best - total, total
        parameters, residuals, jacobian, damping = trial, new_residuals, new_jacobian, max(damping / 8, 1e-12)
        if gain <= _SMALLEST_GAIN * best:
            break
    return Minimum(parameters, residuals, jacobian)
