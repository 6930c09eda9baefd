"""The variance between runs, split into that between machines and that within a machine."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Components:
    """Variances of a figure; None if they cannot be estimated."""

    within: float | None
    """Between the runs of one machine."""
    within_df: int
    between: float | None
    """Between machines, without the variance within; at least 0."""
    between_df: int


def variance_components(groups: Sequence[Sequence[float]]) -> Components:
    """The variance components of a one-way layout, with a group per machine and a value per run.

    Analysis of variance for unequal groups, σ_b² = (MS_b - MS_w) / n₀ with n₀ = (N - Σnᵢ²/N)/(k-1); source: S. R. Searle,
    G. Casella & C. E. McCulloch, *Variance Components*, section 3.6. Assumptions: machines from one population, and equal variance on each.
    """
    groups = [group for group in groups if group]
    count, machines = sum(map(len, groups)), len(groups)
    means = [sum(group) / len(group) for group in groups]
    within_df = count - machines
    within = (
        sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group) / within_df if within_df else None
    )
    if machines < 2 or within is None:
        return Components(within, within_df, None, 0)
    whole = sum(map(sum, groups)) / count
    between = sum(len(group) * (mean - whole) ** 2 for group, mean in zip(groups, means, strict=True)) / (machines - 1)
    size = (count - sum(len(group) ** 2 for group in groups) / count) / (machines - 1)
    return Components(within, within_df, max((between - within) / size, 0.0), machines - 1)


def pooled_variance(parts: Sequence[tuple[float | None, int]]) -> tuple[float | None, int]:
    """One variance from several estimates with their degrees of freedom, and the sum of these."""
    known = [(variance, df) for variance, df in parts if variance is not None and df > 0]
    total = sum(df for _, df in known)
    return (sum(variance * df for variance, df in known) / total, total) if total else (None, 0)
