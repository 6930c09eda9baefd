"""`perfkit doctor`: checks this machine for problems that would spoil a measurement."""

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from perfkit.target.address import Address


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--seconds", type=_seconds, default=2.0, metavar="S", help="how long to observe the machine; default 2")
    target_help = "the server to be measured, if elsewhere: findings about this machine's GPUs become notes"
    parser.add_argument("--target", type=_address, metavar="URL", help=target_help)
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


def _address(text: str) -> "Address":
    from perfkit.target.address import Address

    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.calibration.model import calibration_path, read_calibration
    from perfkit.clock import MonotonicClock
    from perfkit.doctor import Severity, by_severity, conclusion, find_gpu_problems, find_problems
    from perfkit.machine.description import describe_host, read_machine_facts
    from perfkit.machine.gpu_packages import library_finder, read_gpu_packages, read_loader_cache
    from perfkit.machine.idle import observe_idle
    from perfkit.telemetry.gpu.nvml import read_driver_facts
    from perfkit.telemetry.host.other_processes import OtherProcessesMeter

    target_is_local = options.target is None or options.target.is_local
    clock, others = MonotonicClock(), OtherProcessesMeter(own_pid=os.getpid())
    others.begin(clock.now_ns(), 0.0)
    idle = asyncio.run(observe_idle(clock, options.seconds))
    seen = others.end(clock.now_ns(), 0.0)
    machine, calibration = read_machine_facts(), read_calibration(calibration_path(), describe_host())
    driver, packages = read_driver_facts(), read_gpu_packages(sys.path, library_finder(os.environ, read_loader_cache()))
    gpu_findings = find_gpu_problems(driver, packages, target_is_local=target_is_local)
    findings = by_severity([*find_problems(machine, idle, calibration, seen.busiest if seen else ()), *gpu_findings])
    is_spoilt = any(finding.severity is Severity.SPOILS for finding in findings)
    if options.format == "json":
        document = {
            "findings": [{**dataclasses.asdict(finding), "severity": finding.severity.value} for finding in findings],
            "machine": {**dataclasses.asdict(machine), "governors": sorted(machine.governors)},
            "idle": dataclasses.asdict(idle),
            "gpu": {"driver": dataclasses.asdict(driver), "packages": dataclasses.asdict(packages)},
        }
        print(json.dumps(document, indent=1))
    else:
        for finding in findings:
            print(f"{finding.severity.value:>8}  {finding.subject}: {finding.sentence}\n{'':>8}  → {finding.remedy}")
        print(conclusion(findings))
    return ExitCode.INVALID if is_spoilt else ExitCode.DONE
