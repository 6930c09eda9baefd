"""`perfkit recover`: makes a result of the folder that a killed run left."""

import argparse
import os
import pathlib

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.output import reader_may_leave


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR", help="the folder that a killed run left: DIR.partial")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="result folder; default: the one that the run would have written")
    parser.add_argument("--no-report", action="store_true", help="write no report; `perfkit report DIR` writes it later")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.measurement.recovery import recover_result
    from perfkit.report.run import write_reports

    recovered = recover_result(options.folder, options.out)
    written = [] if options.no_report else write_reports(recovered.folder)
    if not options.quiet:
        with reader_may_leave():
            print(f"{recovered.folder}{os.sep}: {', '.join(['result.json', *(file.name for file in written)])}")
            print(f"status: {recovered.result.status}: {recovered.result.status_reason}")
            for lost in recovered.lost:
                print(f"lost: {lost}")
            print(f"{options.folder} is left as it is; remove it when you do not need it any more")
    return ExitCode.DONE
