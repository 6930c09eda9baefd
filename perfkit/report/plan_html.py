"""A plan as one HTML page that needs nothing else."""

from collections.abc import Mapping

from perfkit.plan.model import CapacityPlan
from perfkit.report.html import inline_svg, page
from perfkit.report.plan_markdown import TITLE
from perfkit.report.plan_sentences import headline, remarks
from perfkit.report.plan_tables import plan_tables

# what each plot is called, and how to read it with what it rests on
_PLOTS = {
    "rate": (
        "Response time against arrival rate",
        (
            "Points are measured, repetitions pooled; hollow ones are those at which the target did not keep up, which no curve was fitted to. Bands hold a new "
            "measurement, after a restart, with a chance of 90 %. The grey stripe is the 90 % interval of the capacity. Curves end at the highest rate fitted."
        ),
    ),
    "front": (
        "Cost against response time",
        (
            "Each point is a fleet for the demand at some headroom, which decides how much each replica is sent. On the line no fleet is cheaper without being slower. "
            "Times are those of the fitted curve; where a replica is sent less than the lowest rate measured they are extrapolated."
        ),
    ),
    "throughput": (
        "Throughput against concurrency",
        (
            "Closed loops. The law is Gunther's universal scalability law, fitted to logarithms; dotted is what lies beyond the measurements, up to 1.5 times the largest "
            "concurrency. Where its peak is not observed, or the law does not apply, the tables say so."
        ),
    ),
    "latency-throughput": (
        "Response time against throughput",
        "Measured points of open loops. Where the line turns upwards, more load buys waiting and no throughput.",
    ),
    "gpu": (
        "GPUs against arrival rate",
        "Means over the measured windows. Busy is the share of time in which a kernel ran, not the share of the capacity. Energy is power over inferences.",
    ),
    "forecast": (
        "Demand to come",
        (
            "A log-linear trend of daily peaks and courses drawn around it; the band holds the daily peak with a chance of 80 %. Dotted lines mark the days by which one, five "
            "and nine in ten courses first exceed the capacity. Shaded is what lies further ahead than the history is long."
        ),
    ),
    "held-out": (
        "Queueing models on points they were not fitted to",
        "Fitted up to 70 % of the capacity. A model with a point outside its dotted lines is rejected, and nothing is taken from it.",
    ),
}


def render_plan_html(plan: CapacityPlan, plots: Mapping[str, str]) -> str:
    """The page; `plots` is SVG by name, as `draw_plan_plots` gives it."""
    tables = [
        {
            "title": table.title,
            "note": table.note,
            "headings": [(column.heading, column.is_figure) for column in table.columns],
            "rows": [[(text, column.is_figure) for text, column in zip(row, table.columns, strict=True)] for row in table.texts],
        }
        for table in plan_tables(plan)
    ]
    return page(
        "plan.html.j2",
        title=TITLE,
        headline=headline(plan),
        tables=tables,
        plots=[(*_PLOTS[name], inline_svg(svg, _PLOTS[name][0])) for name, svg in plots.items()],
        remarks=remarks(plan),
    )
