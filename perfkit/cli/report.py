"""`perfkit report`: draws the report of results again, from their files alone."""

import argparse
import pathlib

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="RESULT", help="a result folder or its result.json")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.report.folder import write_reports
    from perfkit.result.file import read_result

    for path in options.results:
        _, folder = read_result(path)
        for written in write_reports(folder):
            if not options.quiet:
                print(written)
    return ExitCode.DONE
