"""`perfkit calibrate`: measures what this machine can do as a load generator, and stores it in the user's cache."""

import argparse
import asyncio
import gc
import json
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import whole_number
from perfkit.cli.output import reader_may_leave

if TYPE_CHECKING:
    from perfkit.calibration.model import Calibration


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "--rounds", type=whole_number(1, 100), default=3, metavar="N", help="number of rounds, whose medians are reported (default: 3)"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output on stdout: tables (default) or the JSON document"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress to stderr")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.calibration.measurement import Lengths, calibrate
    from perfkit.calibration.model import calibration_path, read_calibration, write_calibration
    from perfkit.cli.signals import SignalHandler
    from perfkit.clock import MonotonicClock
    from perfkit.machine.description import describe_host
    from perfkit.measurement.control import Interruption

    def report(text: str) -> None:
        if not options.quiet:
            print(f"perfkit: {text}", file=sys.stderr)

    path = calibration_path()
    if unusable := read_calibration(path, describe_host()).unusable:
        report(f"the stored calibration is not used and will be replaced: {unusable}")
    signals = SignalHandler(Interruption())
    gc.collect()
    gc.freeze()  # as a worker does before it sends load
    try:
        calibration = signals.run(calibrate(Lengths(rounds=options.rounds), MonotonicClock(), report))
    except asyncio.CancelledError:
        if signals.exit_code is None:
            raise
        report("interrupted; nothing was stored")
        return signals.exit_code
    _show(calibration, as_json=options.format == "json")
    write_calibration(path, calibration)
    report(f"stored in {path}")
    for warning in calibration.warnings:
        report(f"warning: {warning}")
    return ExitCode.DONE


def _show(calibration: "Calibration", *, as_json: bool) -> None:
    from perfkit.report.environment import print_calibration

    with reader_may_leave():  # the calibration is stored all the same
        if as_json:
            print(json.dumps(calibration.document(), indent=1))
        else:
            print_calibration(calibration)
