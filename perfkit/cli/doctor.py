"""`perfkit doctor`: checks this machine for problems that would spoil a measurement."""

import argparse
import asyncio
import dataclasses
import json

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--seconds", type=_seconds, default=2.0, metavar="S", help="how long to observe the machine; default 2")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")
    parser.set_defaults(execute=_execute)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, at most 3600, found {text!r}")
    return seconds


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.calibration.cache import calibration_path, read_calibration
    from perfkit.clock import MonotonicClock
    from perfkit.doctor.findings import Severity, find_problems
    from perfkit.machine.description import describe_host, read_machine_facts
    from perfkit.machine.readings import observe_idle

    idle = asyncio.run(observe_idle(MonotonicClock(), options.seconds))
    machine, calibration = read_machine_facts(), read_calibration(calibration_path(), describe_host())
    findings = find_problems(machine, idle, calibration)
    is_spoilt = any(finding.severity is Severity.SPOILS for finding in findings)
    if options.format == "json":
        document = {
            "findings": [{**dataclasses.asdict(finding), "severity": finding.severity.value} for finding in findings],
            "machine": {**dataclasses.asdict(machine), "governors": sorted(machine.governors)},
            "idle": dataclasses.asdict(idle),
        }
        print(json.dumps(document, indent=1))
    else:
        for finding in findings:
            print(f"{finding.severity.value:>8}  {finding.subject}: {finding.sentence}\n{'':>8}  → {finding.remedy}")
        print("a measurement made now would be invalid or misleading" if is_spoilt else "this machine is ready to measure")
    return ExitCode.INVALID if is_spoilt else ExitCode.DONE
