"""`perfkit report`: draws the report of results again, from their files alone."""

import argparse
import pathlib

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "results", nargs="+", type=pathlib.Path, metavar="RESULT", help="a result folder or its result.json, or a sweep's folder"
    )
    parser.add_argument("--table-only", action="store_true", help="of a sweep's folder the table over all cases alone")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.report.run import write_reports
    from perfkit.report.sweep import write_sweep_report
    from perfkit.result.file import read_result
    from perfkit.result.sweep import SWEEP_FILE, result_folders

    for path in options.results:
        written = []
        if not options.table_only:
            for one in result_folders(path):
                written += write_reports(read_result(one)[1])
        if (path / SWEEP_FILE).is_file():
            written += write_sweep_report(path)
        if not options.quiet:
            print("\n".join(map(str, written)))
    return ExitCode.DONE
