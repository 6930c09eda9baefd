"""`perfkit gate`: compares a candidate with a baseline; the verdict decides the exit code."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.gate_ending import GateProgress, add_verdict_outputs, prepare_verdict_outputs, write_verdict_outputs
from perfkit.cli.options import (
    add_accepted,
    add_otlp,
    add_ready_timeout,
    add_resume,
    add_scenario_options,
    check_resume,
    default_place,
    find_accepted_file,
    positive_duration_ns,
    publish_at,
    read_accepted_changes,
    shown_words,
    whole_number,
)
from perfkit.cli.output import note_unverified, reader_may_leave
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.gate.folder import GateFolder
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.gate.verdict import Verdict
    from perfkit.telemetry.messages import PublishConfig

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
    parser.add_argument(
        "--time", type=positive_duration_ns, metavar="TIME", help="spend this long, such as 10m: the trial chooses windows and pairs for it"
    )
    parser.add_argument(
        "--pairs",
        type=whole_number(1, 1000),
        metavar="N",
        help="decide after N pairs at the latest; default 20, more with many metrics, or what --time allows",
    )
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help=f"the gate's folder; {default_place('<name>-gate')}")
    add_resume(parser, "pairs that an interrupted or killed gate")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output on stdout: a table, or verdict.json")
    parser.add_argument("--quiet", action="store_true", help="print no progress on stderr")
    parser.add_argument(
        "--on-inconclusive", choices=("fail", "pass"), default="fail", help="exit code of an inconclusive verdict: 3 (fail) or 0 (pass)"
    )
    add_otlp(parser, "push the live metrics of each run at its start, every 5 s and at its end")
    add_ready_timeout(parser, "a cmd: target")
    parser.add_argument("--same-build", action="store_true", help="for stored results: allow both to name the same server build")
    add_accepted(parser)
    add_verdict_outputs(parser)
    parser.set_defaults(execute=_execute)


def exit_code_of_verdict(verdict: "Verdict", *, on_inconclusive: str) -> ExitCode:
    """The exit code of a verdict."""
    code = _EXIT_CODES[verdict.kind]
    return ExitCode.DONE if code is ExitCode.INCONCLUSIVE and on_inconclusive == "pass" else code


def _execute(options: argparse.Namespace) -> ExitCode:
    prepare_verdict_outputs(options)
    progress = GateProgress(options)
    try:
        with contextlib.closing(progress):
            verdict, written = _gate_stored_results(options) if options.scenario is None else _gate(options, progress)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the outputs say so
        return progress.fail(error)
    return _report(verdict, written, options)


def _gate(options: argparse.Namespace, progress: GateProgress) -> "tuple[Verdict, str]":
    """The verdict of a gate that measures, and what it has written."""
    from perfkit.clock import parse_instant, utc_now
    from perfkit.gate.arm import parse_arm
    from perfkit.gate.folder import GateFolder, GateManifest, complete_verdict
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.result.output_folder import default_folder, locked
    from perfkit.scenario.file import read_scenario

    if options.same_build:
        raise UsageError("--same-build is for stored results; a gate that measures allows equal builds")
    check_resume(options)
    loaded = read_scenario(options.scenario, options.settings)
    baseline = parse_arm("--baseline", options.baseline, loaded.scenario)
    candidate = parse_arm("--candidate", options.candidate, loaded.scenario)
    if (baseline.command is None) != (candidate.command is None):
        raise UsageError(
            "--baseline and --candidate: give two URLs or two commands; only commands are restarted, and a restart changes the figures"
        )
    if options.ready_timeout is not None and baseline.command is None:
        raise UsageError("--ready-timeout is for cmd: targets; servers at URLs must be ready when the gate begins")
    now = utc_now()
    accepted = find_accepted_file(options, options.scenario)
    request = GateRequest(
        loaded,
        baseline,
        candidate,
        pairs=options.pairs,
        time_limit_ns=options.time,
        control_pairs=options.control,
        accepted=read_accepted_changes(accepted),
        ready_within_ns=options.ready_timeout,
    )
    out = options.out or default_folder(f"{loaded.scenario.name}-gate")
    manifest = GateManifest(
        inputs=request.inputs,
        seed=random.SystemRandom().randrange(2**31),
        started_at=now.isoformat(timespec="milliseconds"),
        files={**request.baseline.files, **request.candidate.files},
    )
    with locked(out):
        if options.resume and (complete := complete_verdict(out, manifest)) is not None:
            return complete, f"{out}{os.sep}: this gate is complete, and nothing was measured; without --resume another one replaces it"
        folder = GateFolder(out, manifest)
        if options.resume and folder.resumption is None:
            progress.message(f"There is no unfinished gate of {out} to continue after its trial; it begins with the trial.")
        request = request.as_of(parse_instant(folder.manifest.started_at).date())
        progress.begin(request, folder)
        verdict = _with_next_steps(_measure(request, folder, progress, publish_at(options)), request, folder, options)
        verdict = verdict.model_copy(update={"accepted_file": str(accepted or "")})
        folder.commit(verdict)
    return verdict, f"{out}{os.sep}: verdict.json, pairs.json, runs"


def _measure(request: "GateRequest", folder: "GateFolder", progress: GateProgress, publish_at: "PublishConfig | None") -> "Verdict":
    from perfkit.cli.signals import SignalHandler
    from perfkit.gate.paired_gate import run_gate
    from perfkit.measurement.control import Interruption

    interruption = Interruption()
    signals = SignalHandler(interruption)
    try:
        return signals.run(run_gate(request, folder, progress, interruption, publish_at=publish_at))
    finally:
        progress.signal_code = signals.exit_code


def _with_next_steps(verdict: "Verdict", request: "GateRequest", folder: "GateFolder", options: argparse.Namespace) -> "Verdict":
    from perfkit.clock import parse_instant, utc_now
    from perfkit.gate.next_steps import next_steps
    from perfkit.gate.undecided import GateFacts

    scenario, settings = request.loaded.scenario, folder.manifest.settings
    workers = scenario.measure.workers
    facts = GateFacts(
        tuple(shown_words(options)),
        is_standard=request.choice.is_standard,
        counts_requests=scenario.measure.requests is not None,
        warmup_ns=None if settings is None else settings.warmup_ns,
        concurrency=None if settings is None else settings.concurrency,
        workers=1 if workers == "auto" else workers,
        metrics=tuple(dict.fromkeys(name for kind in request.load_kinds for name in request.choice.gated(kind))),
        folder=str(folder.folder),
        scenario=str(options.scenario),
        starts_servers=request.baseline.command is not None,
    )
    duration_s = (utc_now() - parse_instant(verdict.started_at)).total_seconds()
    return verdict.model_copy(update={"next_steps": next_steps(verdict, facts), "duration_s": duration_s})


def _gate_stored_results(options: argparse.Namespace) -> "tuple[Verdict, str]":
    from perfkit.clock import utc_now
    from perfkit.gate.baseline import read_baseline
    from perfkit.gate.folder import VERDICT_FILE
    from perfkit.gate.next_steps import stored_next_steps
    from perfkit.gate.stored_gate import stored_verdict

    if any(_TARGET.match(given) for given in (options.baseline, options.candidate)):
        raise UsageError("perfkit gate: a scenario is missing: perfkit gate SCENARIO --baseline TARGET --candidate TARGET")
    if options.control or options.pairs or options.time or options.ready_timeout or options.settings or options.resume or options.otlp:
        named = "--control, --pairs, --time, --ready-timeout, --resume, --otlp and --set"
        raise UsageError(f"{named} are for a gate that measures, not for stored results")
    paths = [pathlib.Path(given) for given in (options.baseline, options.candidate)]
    sides = [read_baseline(path) for path in paths]
    if not options.quiet:
        note_unverified(paths)
    now = utc_now().isoformat(timespec="milliseconds")
    labels = (options.baseline, options.candidate)
    file = find_accepted_file(options)
    accepted = read_accepted_changes(file)
    verdict = stored_verdict(sides[0], sides[1], labels=labels, started_at=now, allow_same_build=options.same_build, accepted=accepted)
    steps = stored_next_steps(verdict, str(options.out or ""))
    verdict = verdict.model_copy(update={"next_steps": steps, "accepted_file": str(file or "")})
    written = ""
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / VERDICT_FILE).write_text(json.dumps(verdict.document(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {options.out}: cannot be written: {error.strerror}") from None
        written = f"{options.out}{os.sep}: {VERDICT_FILE}"
    return verdict, written


def _report(verdict: "Verdict", written: str, options: argparse.Namespace) -> ExitCode:
    from perfkit.report.terminal import print_verdict_status
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
