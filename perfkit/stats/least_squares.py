"""Nonlinear least squares for a handful of parameters, by SciPy's MINPACK."""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.float64]
Model = Callable[[_Numbers], tuple[_Numbers, _Numbers]]
"""Parameters (p) → residuals (n ≥ p) and their derivatives by the parameters (n × p)."""
_TOLERANCE, _MAXIMUM_EVALUATIONS = 1e-14, 400
_INFEASIBLE = 1e9  # in place of residuals that are not finite: worse than any real ones, and MINPACK can compare it


@dataclasses.dataclass(frozen=True, slots=True)
class Minimum:
    """Where the sum of squares is least."""

    parameters: _Numbers
    residuals: _Numbers
    jacobian: _Numbers

    @property
    def sum_of_squares(self) -> float:
        """The sum of the squared residuals."""
        return float(self.residuals @ self.residuals)

    @property
    def unscaled_covariance(self) -> _Numbers:
        """(JᵀJ)⁻¹ (p × p), which times the residual variance is the parameters' covariance; a pseudoinverse without full rank."""
        inverse: _Numbers = np.linalg.pinv(self.jacobian.T @ self.jacobian).astype(np.float64)
        return inverse


def minimise(model: Model, start: _Numbers) -> Minimum:
    """The least sum of squares near `start`, by the Levenberg-Marquardt algorithm (J. J. Moré 1978)."""
    from scipy.optimize import leastsq

    evaluations: dict[bytes, tuple[_Numbers, _Numbers]] = {}

    def evaluate(parameters: _Numbers) -> tuple[_Numbers, _Numbers]:
        key = parameters.tobytes()  # MINPACK asks for residuals and derivatives at the same place, one after the other
        if key not in evaluations:
            evaluations[key] = model(parameters)
        return evaluations[key]

    def residuals(parameters: _Numbers) -> _Numbers:
        values = evaluate(parameters)[0]
        return values if np.isfinite(values).all() else np.full_like(values, _INFEASIBLE)

    def derivatives(parameters: _Numbers) -> _Numbers:
        return evaluate(parameters)[1]

    parameters, *_ = leastsq(
        residuals, start.tolist(), (), derivatives,
        full_output=True, ftol=_TOLERANCE, xtol=_TOLERANCE, gtol=0.0, maxfev=_MAXIMUM_EVALUATIONS,
    )  # fmt: skip
    return Minimum(parameters, *model(parameters))
