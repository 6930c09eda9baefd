"""`perfkit gate accept`: writes known and accepted changes of a verdict into a file that is reviewed like code."""

import argparse
import pathlib
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.clock import Date, parse_date

if TYPE_CHECKING:
    from perfkit.gate.verdict import Verdict

_DEFAULT_FILE = pathlib.Path("perfkit-accepted.yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("verdict", type=pathlib.Path, metavar="VERDICT", help="a gate's folder or its verdict.json")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why the change is accepted, for reviewers")
    parser.add_argument(
        "--expires", required=True, type=_date, metavar="DATE", help="the last day on which it is accepted, such as 2027-01-31"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this metric only; may be repeated; default: all that regressed",
    )
    file = f"the file, which is to be committed; default: the one that the gate has read, or {_DEFAULT_FILE} here if it found none"
    parser.add_argument("--file", type=pathlib.Path, metavar="FILE", help=file)
    parser.set_defaults(execute=_execute)


def _date(text: str) -> Date:
    try:
        return parse_date(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a date such as 2027-01-31, found {text!r}") from None


def _file_of(verdict: "Verdict") -> pathlib.Path:
    """The file that the gate has read, where the next one will read it too; that of the current folder if it found none."""
    from perfkit.errors import UsageError

    file = pathlib.Path(verdict.accepted_file or _DEFAULT_FILE)
    if verdict.accepted_file and not file.exists():
        raise UsageError(f"the gate read {file}, which is not here: enter this in the folder in which the gate ran, or give --file FILE")
    return file


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.errors import UsageError
    from perfkit.gate.accepted import accept_verdict
    from perfkit.gate.folder import read_verdict
    from perfkit.history.accepted import merge_accepted, read_accepted, write_accepted

    today = utc_now().date()
    if options.expires <= today:
        raise UsageError(f"--expires {options.expires}: give a day after today, {today}")
    if not options.reason.strip():
        raise UsageError("--reason: say why the change is accepted")
    verdict = read_verdict(options.verdict)
    file = options.file or _file_of(verdict)
    known = read_accepted(file) if file.exists() else ()
    try:
        added = accept_verdict(verdict, options.metric, reason=options.reason.strip(), accepted=today, expires=options.expires)
    except UsageError as error:
        raise UsageError(f"{options.verdict}: {error}") from None
    write_accepted(file, merge_accepted(known, added))
    for change in added:
        print(f"{change.scenario}: {change.metric}, {change.load_point}: up to {change.amount} slower is accepted until {change.expires}")
    print(f"{file}: {len(added)} written; commit it")
    return ExitCode.DONE
