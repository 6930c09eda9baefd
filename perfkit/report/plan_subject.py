"""A subject of a capacity plan's page: its answer, its tables and its charts; and the columns and amounts that subjects share."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.report.chart import ChartGroup
from perfkit.report.table import Column, Table, format_cost

CONFIGURATION = Column("configuration", "configuration")
RATE = Column("rate_per_s", "rate", "rate_per_s")
HEADROOM = Column("headroom", "headroom", "share")
REPLICAS = Column("replicas", "replicas", "count")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPlot:
    """A plot: its title, how to read it, and the function that makes its charts, which returns None if there is nothing to draw."""

    title: str
    caption: str
    group: Callable[[CapacityPlan], ChartGroup | None]


@dataclasses.dataclass(frozen=True, slots=True)
class PlanSubject:
    """A subject. Its plots and the tables of its title form a section; each other table is a section of its own."""

    title: str
    tables: Callable[[CapacityPlan], Iterable[Table]]
    """Tables without rows are left out."""
    plots: Mapping[str, PlanPlot] = dataclasses.field(default_factory=dict)
    """By the name of their file, without suffix."""
    answer: Callable[[CapacityPlan], Iterable[str]] = lambda _: ()
    """Its sentences in the answer, which is shown at the top of the page and on stdout."""
    title_of_one: str = ""
    """The title in a plan of a single configuration; empty: the same."""

    def title_of(self, plan: CapacityPlan) -> str:
        """The title in a plan."""
        return (self.title_of_one if len(plan.configurations) == 1 else "") or self.title


def configuration_table(
    plan: CapacityPlan,
    name: str,
    title: str,
    columns: Sequence[Column],
    items: Callable[[ConfigurationPlan], Iterable[Any]],
    note: str,
) -> Table:
    """A table with a row for each item of each configuration, without the empty columns."""
    rows = ((one.name, *(column.value_of(item) for column in columns)) for one in plan.configurations for item in items(one))
    return Table(name, title, (CONFIGURATION, *columns), tuple(rows), note).without_empty_columns()


def cost_columns(plan: CapacityPlan) -> tuple[Column, Column]:
    """Cost per hour and per million inferences, in the plan's currency."""
    currency = currency_suffix(plan)
    return Column("cost_per_hour", f"per hour{currency}", "cost"), Column("cost_per_million", f"per million{currency}", "cost")


def currency_suffix(plan: CapacityPlan) -> str:
    """The currency of the prices for a heading, such as ` ($)`; empty if there is none."""
    return next((f" ({one.currency})" for one in plan.configurations if one.currency), "")


def money(amount: float, one: ConfigurationPlan) -> str:
    """An amount in the configuration's currency: `$2.50`, `2.50 EUR`, or `$10,747`, without cents from 1,000 on."""
    return with_currency(format_cost(amount), one.currency)


def with_currency(amount: str, currency: str) -> str:
    """A formatted amount with its currency: a sign before it, a word or nothing after it."""
    return f"{currency}{amount}" if len(currency) == 1 else f"{amount} {currency}".rstrip()
