"""`perfkit doctor`: what on this machine would spoil a measurement."""

import argparse
import asyncio
import dataclasses
import json

from perfkit.cli.exit_code import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--seconds", type=_seconds, default=2.0, metavar="S", help="how long the machine is watched; default 2")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what stdout gets")
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
    from perfkit.doctor.findings import Severity, find
    from perfkit.machine.description import describe_host, read_machine_facts
    from perfkit.machine.readings import observe_idle

    watched = asyncio.run(observe_idle(MonotonicClock(), options.seconds))
    machine, kept = read_machine_facts(), read_calibration(calibration_path(), describe_host())
    found = find(machine, watched, kept)
    spoils = any(one.severity is Severity.SPOILS for one in found)
    if options.format == "json":
        findings = [{**dataclasses.asdict(one), "severity": one.severity.value} for one in found]
        facts = {**dataclasses.asdict(machine), "governors": sorted(machine.governors)}
        print(json.dumps({"findings": findings, "machine": facts, "watched": dataclasses.asdict(watched)}, indent=1))
    else:
        for one in found:
            print(f"{one.severity.value:>8}  {one.subject}: {one.sentence}\n{'':>8}  → {one.remedy}")
        print("a measurement made now would be spoilt" if spoils else "nothing here spoils a measurement")
    return ExitCode.INVALID if spoils else ExitCode.DONE
