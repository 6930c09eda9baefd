"""What every benchmark's command line and report have in common: `--out`, Markdown tables, the line on the machine."""

import argparse
import os
import pathlib
import platform
from collections.abc import Iterable


def option_parser(doc: str | None, *, out: pathlib.Path | None = None) -> argparse.ArgumentParser:
    """A parser described by the first line of a program's docstring, with the option `--out`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=out, metavar="FILE", help=f"the report's file (default: {out or 'print the report only'})"
    )
    return parser


def table_head(*columns: str) -> list[str]:
    """The first two lines of a Markdown table; a column whose title starts with `>` is aligned right."""
    return [table_row(*(column.removeprefix(">") for column in columns)),
            f"|{'|'.join('---:' if column.startswith('>') else '---' for column in columns)}|"]  # fmt: skip


def table_row(*cells: object) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def yes_no(holds: bool) -> str:
    """`yes` or `no`."""
    return "yes" if holds else "no"


def describe_machine() -> str:
    """CPUs, the load average now, and the Python version: call it before the measurement."""
    return f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}."


def write_report(out: pathlib.Path | None, lines: Iterable[str]) -> None:
    """Writes the lines to the report's file, if there is one."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
