"""`perfkit report`: renders the reports of stored results again."""

import argparse

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results
from perfkit.cli.output import note_unverified


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder or its result.json, or a sweep's folder")
    parser.add_argument("--table-only", action="store_true", help="for a sweep's folder, render only the table over all cases")
    parser.add_argument("--rank-by", metavar="FIGURE", help="for a sweep's folder: rank its cases by throughput, p99, capacity, energy …")
    where = "for a sweep's folder: rank under this constraint, such as 'p99<50ms' or 'gpu_memory<40GiB'; may be repeated"
    parser.add_argument("--where", action="append", metavar="LIMIT", help=where)
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.report.run import write_reports
    from perfkit.report.sweep import write_sweep_report
    from perfkit.result.sweep import SWEEP_FILE, result_folders

    is_sweep = {path: (path / SWEEP_FILE).is_file() for path in options.results}
    if options.rank_by or options.where:
        for path in (path for path in options.results if not is_sweep[path]):
            raise UsageError(f"{path}: --rank-by and --where rank the cases of a sweep, and this is not a sweep's folder")
    for path in options.results:
        written = []
        if not options.table_only:
            for folder in result_folders(path):
                written += write_reports(folder)
        if is_sweep[path]:
            written += write_sweep_report(path, rank_by=options.rank_by, where=options.where)
        if not options.quiet:
            note_unverified([path])
            print("\n".join(map(str, written)))
    return ExitCode.DONE
