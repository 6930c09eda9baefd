"""Ratios of cases that were all measured once in each of several repetitions: what a repetition does to all of them alike cancels out."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from perfkit.stats.distributions import student_t_quantile
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate

FEWEST_REPETITIONS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class RandomizedBlocks:
    """The randomised block design on logarithms: ln(value) = case + repetition + residual, with the repetitions as blocks.

    Source: R. A. Fisher, *The Design of Experiments* (1935), chapter IV; W. G. Cochran & G. M. Cox, *Experimental Designs* (2nd ed., 1957),
    chapter 4. Assumptions: a repetition's drift affects all cases alike, and the residuals are independent and about normal.
    """

    means: tuple[float, ...]
    """The mean of the logarithms of each case."""
    variances: tuple[float, ...]
    """Of the residuals of each case: its own or the common one, whichever is larger."""
    repetitions: int

    @classmethod
    def of(cls, cases: Sequence[Sequence[float]]) -> Self:
        """From the values above zero of two cases or more, each in the order of the same repetitions, of which there are at least three.

        The common variance s² has (C - 1)(R - 1) degrees of freedom. A case's own one, from its mean squared residual q_c = Σe²/(R - 1), is
        (q_c - s²/C)·C/(C - 2), which is unbiased, since E[q_c] = σ_c²(1 - 2/C) + Σσ²/C²; two cases have the common one only. Source: F. E.
        Grubbs, J. Am. Statist. Assoc. 43 (1948). It keeps a case that scatters more than the others from their small variance, as in
        `PooledScatter`. Raises ValueError for other values.
        """
        values = np.asarray(cases, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < FEWEST_REPETITIONS or not (values > 0).all():
            raise ValueError("blocks need two cases or more, with the same number of repetitions, at least three, and values above zero")
        logarithms = np.log(values)
        number, repetitions = values.shape
        means = logarithms.mean(axis=1)
        residuals = logarithms - means[:, None] - logarithms.mean(axis=0) + logarithms.mean()
        squares = (residuals**2).sum(axis=1) / (repetitions - 1)
        common = float(squares.sum()) / (number - 1)
        own = (squares - common / number) * number / (number - 2) if number > 2 else squares * 0.0
        return cls(tuple(means.tolist()), tuple(np.maximum(own, common).tolist()), repetitions)

    @property
    def degrees(self) -> int:
        """The degrees of freedom of the common variance."""
        return (len(self.means) - 1) * (self.repetitions - 1)

    def ratio(self, base: int, other: int, confidence: float = CONFIDENCE) -> Estimate:
        """The ratio of the geometric means, other ÷ base, of two cases, by their indices, with Student's interval on logarithms."""
        ratio = math.exp(self.means[other] - self.means[base])
        standard_error = math.sqrt((self.variances[base] + self.variances[other]) / self.repetitions)
        reach = math.exp(student_t_quantile((1 + confidence) / 2, self.degrees) * standard_error)
        return Estimate(ratio, ratio / reach, ratio * reach)
