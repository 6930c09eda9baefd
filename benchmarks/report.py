"""What the programs share on their command lines and in their reports: options, Markdown tables, the line on the machine, the exit code."""

import argparse
import dataclasses
import os
import pathlib
import platform
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

REPORTS = pathlib.Path(__file__).parents[1] / "reports"
_HELP = {
    "rounds": "how often each is measured",
    "seconds": "length of each measurement",
    "realtime": "run servers and clients at real-time priority, on a machine that is busy",
    "at_once": "how many are measured at once, each with a server of its own",
    "seed": "of the random numbers",
    "peers": "folder of the peers",
}
"""What options mean that several programs have."""


def option_parser(doc: str | None, *, out: pathlib.Path | None = None) -> argparse.ArgumentParser:
    """A parser described by the first line of a program's docstring, with the option `--out`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=out, metavar="FILE", help=f"the report's file (default: {out or 'print the report only'})"
    )
    return parser


def program_options(doc: str | None, *, out: str = "", **options: object) -> argparse.Namespace:
    """The options of a program: `--out`, by default `reports/<out>.md`, and one for each keyword, whose value is the default, or default and help.

    A default of True or False makes a flag, a list takes any number of values, also if it is repeated, and a type, or a function that makes
    the value of a text, in place of a default stands for no default.
    """
    parser, lists = option_parser(doc, out=REPORTS / f"{out}.md" if out else None), dict[str, list[Any]]()
    for name, value in options.items():
        default, text = value if isinstance(value, tuple) else (value, _HELP.get(name, ""))
        flag, text = (
            f"--{name.replace('_', '-')}",
            text if isinstance(default, bool) or callable(default) else f"{text} (default %(default)s)".strip(),
        )
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", help=text)
        elif isinstance(default, list):
            lists[name] = default
            parser.add_argument(
                flag, nargs="*", action="extend", type=type(default[0]), help=text.replace("%(default)s", " ".join(map(str, default)))
            )
        elif callable(default):
            parser.add_argument(flag, type=default, help=text, metavar=default.__name__.upper())
        else:
            parser.add_argument(flag, type=pathlib.Path if isinstance(default, pathlib.Path) else type(default), default=default, help=text)
    found = parser.parse_args()
    for name, default in lists.items():
        setattr(found, name, getattr(found, name) or default)
    return found


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


def rounds_text(rounds: int) -> str:
    """`1 round`, `2 rounds`."""
    return f"{rounds} round{'s' * (rounds != 1)}"


def percent(share: float | None) -> str:
    """A share as a whole percentage; – without one."""
    return "–" if share is None else f"{share:.0%}"


def share(holds: Iterable[bool]) -> float | None:
    """The share of true values; None without values."""
    values = list(holds)
    return sum(values) / len(values) if values else None


def describe_machine() -> str:
    """CPUs, the load average now, and the Python version: call it before the measurement."""
    return f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}."


def write_report(out: pathlib.Path | None, lines: Iterable[str]) -> None:
    """Writes the lines to the report's file, if there is one."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")


def publish(out: pathlib.Path | None, lines: Sequence[str], *, is_met: bool = True) -> int:
    """Prints the report, writes it to its file if there is one, and returns the exit code: 1 if a target is missed."""
    print("\n".join(lines))
    write_report(out, lines)
    return 0 if is_met else 1


class Report:
    """A report that is printed while it grows, and written at its end; `is_met` is false once a requirement is missed."""

    def __init__(self, out: pathlib.Path | None, title: str) -> None:
        self._out, self.lines, self.is_met = out, list[str](), True
        self.add(f"# {title}", "")

    def add(self, *lines: str) -> None:
        """Adds lines."""
        self.lines += lines
        print("\n".join(lines), flush=True)

    def section(self, title: str, *lines: str) -> None:
        """A heading, and lines under it."""
        self.add("", f"## {title}", "", *lines)

    def table(self, *columns: str) -> None:
        """The head of a table."""
        self.add(*table_head(*columns))

    def row(self, *cells: object) -> None:
        """A row of the table."""
        self.add(table_row(*cells))

    def judged_row(self, is_met: bool, *cells: object) -> None:
        """A row whose last cell says whether a requirement is met."""
        self.is_met &= is_met
        self.row(*cells, yes_no(is_met))

    def write(self) -> int:
        """Writes the file, if there is one, and returns the exit code: 1 if a requirement is missed."""
        write_report(self._out, self.lines)
        return 0 if self.is_met else 1


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """A figure divided by another one, per round; the median must lie between `low` and `high`, if given."""

    name: str
    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        """Whether the median meets the target; true without a target."""
        return (self.low is None or self.low <= self.median) and (self.high is None or self.median <= self.high)

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of `RATIO_COLUMNS`."""
        match (self.low, self.high):
            case (None, None):
                target = "–"
            case (None, high):
                target = f"at most {_fraction(high)}"
            case (low, None):
                target = f"at least {_fraction(low)}"
            case (low, high):
                target = f"{low:g} to {high:g}"
        met = yes_no(self.is_met) if target != "–" else "–"
        return f"{self.median:.3g}", f"{min(self.values):.3g} to {max(self.values):.3g}", target, met


RATIO_COLUMNS = (">median", ">rounds", ">target", "met")


def _fraction(value: float | None) -> str:
    """A target as text: 1/20 rather than 0.05."""
    assert value is not None
    return f"1/{round(1 / value)}" if value <= 0.5 else f"{value:g}"
