"""The process that draws a run's report: it imports what that needs, and then waits for the arguments of `perfkit report` on stdin."""

import contextlib
import importlib
import sys

from perfkit.process.messages import load_message

_MODULES = (
    *("jinja2", "yaml", "perfkit.report.run", "perfkit.report.run_charts", "perfkit.report.chart_svg", "perfkit.report.render"),
    *("perfkit.report.perf_analyzer", "perfkit.report.sweep", "perfkit.cli.main", "perfkit.cli.report"),
)


def main() -> int:
    """Draws one report and returns the exit code; without arguments, none."""
    for module in _MODULES:
        importlib.import_module(module)
    from perfkit.cli.main import main as run_command
    from perfkit.result.model import Result

    Result.model_rebuild()
    with contextlib.suppress(EOFError):  # the run has ended without a report
        return run_command(["report", "--quiet", *load_message(sys.stdin.buffer)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
