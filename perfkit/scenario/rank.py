"""The `rank` section of a scenario with a sweep: how its cases are ranked."""

from typing import Annotated, Literal, get_args

import pydantic

from perfkit.scenario.section import OneOrMoreTexts, Section, Text

RankFigure = Literal[
    "throughput", "goodput", "capacity", "energy", "gpu_memory", "error_rate", "p50", "p90", "p95", "p99", "p99_9", "p99_99"
]  # fmt: skip


class Rank(Section):
    """How the cases of a sweep are ranked; the SLO is always a constraint."""

    by: RankFigure | None = None
    """The default is the capacity of searches, the p99 of single rates, and the throughput of all else."""
    where: Annotated[tuple[Text, ...], OneOrMoreTexts] = ()
    """Constraints such as `p99 < 50ms` and `gpu_memory < 40GiB`."""

    @pydantic.field_validator("where")
    @classmethod
    def _can_be_read(cls, where: tuple[str, ...]) -> tuple[str, ...]:
        # imports NumPy, which scenarios without a ranking do not need
        from perfkit.stats.constraints import parse_constraint

        for text in where:
            parse_constraint(text, get_args(RankFigure))
        return where
