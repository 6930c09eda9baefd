"""A plan as GitHub Markdown."""

from perfkit.plan.model import CapacityPlan
from perfkit.report.markdown import escaped
from perfkit.report.plan_sentences import headline, remarks
from perfkit.report.plan_tables import plan_tables
from perfkit.report.table import Table

TITLE = "Capacity plan"


def render_plan_markdown(plan: CapacityPlan) -> str:
    """The answer, every table, and what the plan rests on."""
    lines = [f"# {TITLE}", "", *(f"- {escaped(sentence)}" for sentence in headline(plan))]
    for table in plan_tables(plan):
        lines += ["", *_table(table)]
    for title, sentences in remarks(plan):
        lines += ["", f"## {title}", "", *(f"- {escaped(sentence)}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    lines = [f"## {table.title}", "", "| " + " | ".join(escaped(column.heading) for column in table.columns) + " |"]
    lines += ["|" + "|".join("---:" if column.is_figure else "---" for column in table.columns) + "|"]
    lines += ["| " + " | ".join(map(escaped, row)) + " |" for row in table.texts]
    return [*lines, "", escaped(table.note)] if table.note else lines
