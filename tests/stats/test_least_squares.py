"""Least squares against a linear solution, and at the edge of a model's domain."""

import numpy as np
import pytest

from perfkit.stats.least_squares import minimise


def test_a_linear_model_has_the_solution_and_covariance_of_linear_least_squares():
    random = np.random.default_rng(1)
    design, values = random.normal(size=(12, 3)), random.normal(size=12)
    found = minimise(lambda parameters: (design @ parameters - values, design), np.zeros(3))
    assert found.parameters == pytest.approx(np.linalg.lstsq(design, values)[0], rel=1e-9)
    assert found.unscaled_covariance == pytest.approx(np.linalg.inv(design.T @ design), rel=1e-9)
    assert found.sum_of_squares == pytest.approx(float(np.square(design @ found.parameters - values).sum()))


def test_steps_to_where_the_model_is_not_finite_are_taken_back():
    def model(parameters):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(parameters) - np.log([1e-3, 2e-3]), np.diag(1 / parameters)

    assert minimise(model, np.array([1.0, 1.0])).parameters == pytest.approx([1e-3, 2e-3])
