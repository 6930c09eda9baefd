"""The files of a plan: one page, Markdown, JSON, and every table as CSV and JSON."""

import json
import pathlib

from perfkit.errors import ResultError
from perfkit.plan.model import CapacityPlan, plan_document
from perfkit.report.plan_html import render_plan_html
from perfkit.report.plan_markdown import render_plan_markdown
from perfkit.report.plan_plots import draw_plan_plots
from perfkit.report.plan_tables import plan_tables
from perfkit.report.table import csv_text
from perfkit.result.atomic_write import write_whole

PLAN_FILE = "plan.json"


def check_plan_folder(folder: pathlib.Path) -> None:
    """Raises ResultError where something other than a plan is there already."""
    if folder.exists() and not (folder.is_dir() and ((folder / PLAN_FILE).exists() or not any(folder.iterdir()))):
        raise ResultError(f"--out {folder}: this is there already, and is no plan; give another one")


def write_plan(plan: CapacityPlan, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the folder, each file in one step, and removes the tables and plots of an earlier plan that this one has not; raises ResultError."""
    check_plan_folder(folder)
    plots = draw_plan_plots(plan)
    texts = {folder / PLAN_FILE: json.dumps(plan_document(plan), indent=1) + "\n"}
    texts |= {folder / "plots" / f"{name}.svg": svg for name, svg in plots.items()}
    for table in plan_tables(plan):
        texts[folder / "tables" / f"{table.name}.csv"] = csv_text(table)
        texts[folder / "tables" / f"{table.name}.json"] = json.dumps(table.records, indent=1) + "\n"
    texts[folder / "plan.md"] = render_plan_markdown(plan)
    texts[folder / "plan.html"] = render_plan_html(plan, plots)
    try:
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        for left in {one for pattern in ("plots/*.svg", "tables/*.csv", "tables/*.json") for one in folder.glob(pattern)} - set(texts):
            left.unlink()
    except OSError as error:
        raise ResultError(f"--out {folder}: the plan cannot be written there: {error.strerror}") from None
    return list(texts)
