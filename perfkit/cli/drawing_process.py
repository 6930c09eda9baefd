"""The process that draws the report of a run: it imports what it needs, waits for its arguments on stdin, draws one report and ends."""

import contextlib
import importlib
import sys

from perfkit.process.entry import collect_from_now_on, start_without_collection
from perfkit.process.messages import load_message

_IMPORTED_AHEAD = (
    *("jinja2", "yaml", "perfkit.report.run", "perfkit.report.run_charts", "perfkit.report.chart_svg", "perfkit.report.render"),
    *("perfkit.result.sweep", "perfkit.result.checks", "perfkit.result.perf_analyzer_files"),
    *("perfkit.cli.main", "perfkit.cli.report"),
)


def main() -> int:
    """Draws one report and returns the exit code; without arguments, none. What it writes to stdout says that it is ready."""
    start_without_collection()
    for module in _IMPORTED_AHEAD:
        importlib.import_module(module)
    from perfkit.cli.main import main as run_command
    from perfkit.report.render import page_template
    from perfkit.result.model import Result

    Result.model_rebuild()
    page_template()
    collect_from_now_on()
    print(flush=True)
    with contextlib.suppress(EOFError):  # the run has ended without a report
        return run_command(["report", "--quiet", *load_message(sys.stdin.buffer)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
