"""Executes every command of README.md and docs/ as it is written, against the bundled server, and reports what became of each.

    python -m benchmarks.documentation_commands [--page docs/how-to/ci.md] [--work build/documentation-commands] [--out reports/documentation-commands.md]

Each page gets a folder and a network namespace of its own, in which servers listen on the ports that the page names; this needs root. The few
commands that cannot be run here, those that are shortened, and what pages take as given are in documentation/pages.py; a command that is not
listed there is run as it stands. Pages whose commands have not changed since they succeeded are not run again; `--again` runs them. It takes
about 25 minutes. The exit code is 1 if a command fails, or a page was never run.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.documentation.commands import PAGES, commands_of
from benchmarks.documentation.page_run import FAILED, NOT_RUN, RAN, Outcome, run_page, treatment_of
from benchmarks.documentation.pages import SETUPS
from benchmarks.report import describe_machine, program_options, publish, table_head, table_row
from tests.docs.snippets import ROOT


def main() -> int:
    """Runs the program and returns its exit code."""
    options = program_options(
        __doc__,
        out="documentation-commands",
        page=([""], "run only these pages; the report has all"),
        again=(False, "also run pages whose commands have not changed since they succeeded"),
        work=(ROOT / "build/documentation-commands", "the folder of the outcomes"),
    )
    work, machine = options.work.absolute(), describe_machine()
    work.mkdir(parents=True, exist_ok=True)
    pages = [page for page in PAGES if commands_of(page)]
    for page in [page for page in options.page if page] or pages:
        stored = read_outcomes(work, page)
        if options.again or stored is None or any(one.state == FAILED for one in stored):
            write_outcomes(work, page, run_page(page, work))
    found = {page: read_outcomes(work, page) for page in pages}
    missing = [page for page, outcomes in found.items() if outcomes is None]
    outcomes = {page: one for page, one in found.items() if one is not None}
    is_met = not missing and all(one.state != FAILED for page in outcomes.values() for one in page)
    return publish(options.out, report_lines(outcomes, missing, machine), is_met=is_met)


def outcomes_file(work: pathlib.Path, page: str) -> pathlib.Path:
    """The file of a page's outcomes; where its commands are others, or are run in another way, it is another file."""
    what = [(command.text, treatment_of(page, command)) for command in commands_of(page)]
    digest = hashlib.sha256(repr((what, SETUPS.get(page))).encode()).hexdigest()[:16]
    return work / f"{page.replace('/', '-')}-{digest}.json"


def write_outcomes(work: pathlib.Path, page: str, outcomes: Sequence[Outcome]) -> None:
    """Stores the outcomes of a page."""
    outcomes_file(work, page).write_text(json.dumps([dataclasses.asdict(one) for one in outcomes], indent=1), encoding="utf-8")


def read_outcomes(work: pathlib.Path, page: str) -> list[Outcome] | None:
    """The outcomes of the page's commands as they are now, with their present lines; None if they were not run."""
    file = outcomes_file(work, page)
    if not file.exists():
        return None
    stored = json.loads(file.read_text(encoding="utf-8"))
    return [Outcome(**{**one, "place": command.place}) for one, command in zip(stored, commands_of(page), strict=True)]


def report_lines(outcomes: Mapping[str, Sequence[Outcome]], missing: Sequence[str], machine: str) -> list[str]:
    """The report: a row for each page, then what failed, what was not run, what was shortened, and what differs."""
    every = [one for page in outcomes.values() for one in page]
    counts = {state: sum(one.state == state for one in every) for state in (RAN, FAILED, NOT_RUN)}
    seconds = sum(one.seconds for one in every)
    lines = [
        "# Every command of the documentation, executed",
        "",
        "`python -m benchmarks.documentation_commands` takes each command of `README.md` and `docs/` (console lines, scripts, Python snippets) and runs",
        "it in a folder and a network of its own, against the bundled server on the ports that the page names.",
        "",
        machine,
        "",
        f"**{len(every)} commands: {counts[RAN]} executed with the exit code that their page states, {counts[FAILED]} failed,",
        f"{counts[NOT_RUN]} not executable here**, in {seconds / 60:.0f} minutes.",
        "",
        *table_head("page", ">commands", ">executed", ">failed", ">not executable", ">seconds"),
    ]
    for page, ones in outcomes.items():
        states = [sum(one.state == state for one in ones) for state in (RAN, FAILED, NOT_RUN)]
        lines.append(table_row(f"[{page}](../{page})", len(ones), *states, f"{sum(one.seconds for one in ones):.0f}"))
    if missing:
        lines += ["", "## Not run since they changed", "", *(f"- {page}" for page in missing)]
    failed = [one for one in every if one.state == FAILED]
    if failed:
        lines += ["", "## Failed", "", *table_head("command", "exit code", "what it said last")]
        lines += [table_row(shown(one), one.exit_code, cell(one.output.strip().rpartition("\n")[2] or one.said)) for one in failed]
    lines += ["", "## Not executable here", "", *table_head("command", "reason")]
    lines += grouped([one for one in every if one.state == NOT_RUN], lambda one: one.said)
    lines += [
        "",
        "Scripts among them are checked by `bash -n`, command lines of perfkit by its parser, and Python by the compiler (`tests/docs`).",
        "",
        "## Shortened, or with something of this machine's in place of the reader's",
        "",
        *table_head("command", "added or replaced"),
        *grouped([one for one in every if one.state != NOT_RUN and one.shortened], lambda one: one.shortened),
        "",
        "## Notes",
        "",
        "- Where a limit (`--slo`) is on the command line, exit code 1 (violated) and 3 (too few samples in a shortened window) count as executed, too;",
        "  of a shortened gate of equal servers, 3 (inconclusive).",
        "- Exit code 5 says that other work on this machine disturbed the load generator: the command ran, its figures do not count.",
        f"  So ended here: {', '.join(one.place for one in every if one.is_disturbed) or 'none'}.",
        "- Commands in the middle of a sentence are parsed (`tests/docs`), not executed.",
        *dict.fromkeys(f"- {one.place}: {one.said}" for one in every if one.state != NOT_RUN and one.said),
    ]
    return lines


def grouped(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    """Rows of a table; commands of one page for which the same is said share a row."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.place.rpartition(":")[0], key(one)), []).append(one)
    return [
        table_row(shown(ones[0]) if len(ones) == 1 else f"{page}: {len(ones)} commands, such as {code(ones[0])}", said)
        for (page, said), ones in groups.items()
    ]


def shown(outcome: Outcome) -> str:
    """Place and beginning of a command, for a cell of a table."""
    return f"{outcome.place}: {code(outcome)}"


def code(outcome: Outcome) -> str:
    """The first line of a command, shortened, as code."""
    line = next(line for line in outcome.text.splitlines() if line.strip() and not line.startswith(("#", "@", "import")))
    return f"`{cell(line[:80] + ('…' if len(line) > 80 else ''))}`"


def cell(text: str) -> str:
    """Text that does not end its cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
