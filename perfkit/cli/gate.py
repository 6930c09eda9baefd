"""`perfkit gate`: compares a candidate with a baseline; the verdict decides the exit code."""

import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_scenario_options, command_that_continues, whole_number
from perfkit.cli.output import note_unverified, reader_may_leave
from perfkit.cli.verdict_outputs import add_verdict_outputs, prepare_verdict_outputs, write_verdict_outputs
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.gate.folder import GateFolder
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.gate.verdict import Verdict

_TARGET = re.compile(r"cmd:|[a-z+]+://|unix:")
_EXIT_CODES = {
    "pass": ExitCode.DONE,
    "regressed": ExitCode.VIOLATED,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "incomparable": ExitCode.INCOMPARABLE,
    "invalid": ExitCode.INVALID,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser, is_optional=True)
    target = "http://…, grpc://…, or cmd:COMMAND, which perfkit restarts for every run; {port} in it becomes a free port"
    stored = "without a scenario, a result folder, its result.json, or a file written by `perfkit baseline`"
    parser.add_argument("--baseline", required=True, metavar="TARGET", help=f"{target}; {stored}")
    parser.add_argument("--candidate", required=True, metavar="TARGET", help="as --baseline")
    parser.add_argument(
        "--control", type=whole_number(1, 100), default=0, metavar="N", help="first measure N pairs of the baseline against itself"
    )
    parser.add_argument("--quick", action="store_true", help="10 pairs instead of 12 to 20: half the time, but detects much less")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="the gate's folder; default: reports/<name>-gate-<UTC time>")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output on stdout: a table, or verdict.json")
    parser.add_argument("--quiet", action="store_true", help="print no progress on stderr")
    parser.add_argument(
        "--on-inconclusive", choices=("fail", "pass"), default="fail", help="exit code of an inconclusive verdict: 3 (fail) or 0 (pass)"
    )
    parser.add_argument("--same-build", action="store_true", help="for stored results: allow both to name the same server build")
    add_verdict_outputs(parser)
    parser.set_defaults(execute=_execute)


def exit_code_of_verdict(verdict: "Verdict", *, on_inconclusive: str) -> ExitCode:
    """The exit code of a verdict."""
    code = _EXIT_CODES[verdict.kind]
    return ExitCode.DONE if code is ExitCode.INCONCLUSIVE and on_inconclusive == "pass" else code


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.gate.arm import parse_arm
    from perfkit.gate.folder import GateFolder, GateManifest
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.result.output_folder import locked
    from perfkit.scenario.file import read_scenario

    prepare_verdict_outputs(options)
    if options.scenario is None:
        return _gate_stored_results(options)
    if options.same_build:
        raise UsageError("--same-build is for stored results; a gate that measures allows equal builds")
    loaded = read_scenario(options.scenario, options.settings)
    baseline = parse_arm("--baseline", options.baseline, loaded.scenario)
    candidate = parse_arm("--candidate", options.candidate, loaded.scenario)
    if (baseline.command is None) != (candidate.command is None):
        raise UsageError(
            "--baseline and --candidate: give two URLs or two commands; only commands are restarted, and a restart changes the figures"
        )
    now = utc_now()
    request = GateRequest(loaded, baseline, candidate, quick=options.quick, control_pairs=options.control)
    out = options.out or pathlib.Path("reports") / f"{loaded.scenario.name}-gate-{now:%Y%m%dT%H%M%SZ}"
    manifest = GateManifest(
        inputs=request.inputs,
        seed=random.SystemRandom().randrange(2**31),
        started_at=now.isoformat(timespec="milliseconds"),
        files={**request.baseline.files, **request.candidate.files},
    )
    with locked(out):
        return _measure_gate(request, GateFolder(out, manifest), options)


def _measure_gate(request: "GateRequest", folder: "GateFolder", options: argparse.Namespace) -> ExitCode:
    import uvloop

    from perfkit.cli.signals import SignalHandler
    from perfkit.gate.paired_gate import run_gate
    from perfkit.measurement.control import Interruption
    from perfkit.report.live import LiveGate

    live, interruption = LiveGate(quiet=options.quiet), Interruption()
    signals = SignalHandler(interruption)

    async def run() -> "Verdict":
        with signals.installed():
            return await run_gate(request, folder, live, interruption)

    try:
        verdict = uvloop.run(run())
    except BaseException as error:
        if not folder.discard_if_empty():
            again = command_that_continues(options, folder.folder)
            print(f"perfkit: the pairs measured so far are in {folder.partial}; to continue: {again}", file=sys.stderr)
        if isinstance(error, asyncio.CancelledError) and signals.exit_code:
            return signals.exit_code
        raise
    folder.commit(verdict)
    return _report(verdict, f"{folder.folder}{os.sep}: verdict.json, pairs.json, runs", options)


def _gate_stored_results(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.gate.baseline import read_baseline
    from perfkit.gate.folder import VERDICT_FILE
    from perfkit.gate.stored_gate import stored_verdict

    if any(_TARGET.match(given) for given in (options.baseline, options.candidate)):
        raise UsageError("perfkit gate: a scenario is missing: perfkit gate SCENARIO --baseline TARGET --candidate TARGET")
    if options.control or options.quick or options.settings:
        raise UsageError("--control, --quick and --set are for a gate that measures, not for stored results")
    paths = [pathlib.Path(given) for given in (options.baseline, options.candidate)]
    sides = [read_baseline(path) for path in paths]
    if not options.quiet:
        note_unverified(paths)
    now = utc_now().isoformat(timespec="milliseconds")
    labels = (options.baseline, options.candidate)
    verdict = stored_verdict(sides[0], sides[1], labels=labels, started_at=now, allow_same_build=options.same_build)
    written = ""
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / VERDICT_FILE).write_text(json.dumps(verdict.document(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {options.out}: cannot be written: {error.strerror}") from None
        written = f"{options.out}{os.sep}: {VERDICT_FILE}"
    return _report(verdict, written, options)


def _report(verdict: "Verdict", written: str, options: argparse.Namespace) -> ExitCode:
    from perfkit.report.terminal_status import print_verdict_status
    from perfkit.report.verdict import print_verdict

    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(verdict.document(), indent=1))
        else:
            print_verdict(verdict)
            print(written)
    write_verdict_outputs(verdict, options)
    code = exit_code_of_verdict(verdict, on_inconclusive=options.on_inconclusive)
    print_verdict_status(verdict, code)
    return code
