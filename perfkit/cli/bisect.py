"""`perfkit bisect`: finds the first slower one of the revisions of a git repository; the outcome decides the exit code."""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import (
    add_ready_timeout,
    add_scenario_options,
    command_that_continues,
    default_place,
    positive_duration_ns,
    whole_number,
)
from perfkit.cli.output import reader_may_leave, write_output
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.bisection.folder import Bisection, BisectionFolder
    from perfkit.bisection.revisions import Revision
    from perfkit.gate.paired_gate import GateRequest

_EXIT_CODES = {
    "found": ExitCode.DONE,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "incomparable": ExitCode.INCOMPARABLE,
    "invalid": ExitCode.INVALID,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.add_argument("--good", required=True, metavar="REV", help="an older revision that is fast enough")
    parser.add_argument("--bad", required=True, metavar="REV", help="a later revision that is slower")
    parser.add_argument("--build", metavar="CMD", help="builds a revision: a shell command, run in the revision's folder")
    serve = "starts the server in the revision's folder, without a shell; {port} becomes a free port, {dir} the folder"
    parser.add_argument("--serve", required=True, metavar="CMD", help=serve)
    repository = "the git repository; default: that of the current folder. Its checkout is not touched"
    parser.add_argument("--repository", type=pathlib.Path, default=pathlib.Path(), metavar="DIR", help=repository)
    parser.add_argument("--build-within", type=positive_duration_ns, default="1h", metavar="TIME", help="limit of one build; default: 1h")
    add_ready_timeout(parser, "a server")
    time = "spend this long on the first gate, such as 10m: its trial chooses the windows of all gates for it"
    parser.add_argument("--time", type=positive_duration_ns, metavar="TIME", help=time)
    pairs = "the most pairs of each gate after the first; default: 60"
    parser.add_argument("--pairs", type=whole_number(10, 60), default=60, metavar="N", help=pairs)
    parser.add_argument("--keep", action="store_true", help="keep the revisions' folders, which are otherwise removed at the end")
    folder = f"the bisection's folder; {default_place('<name>-bisect')}"
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help=folder)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output on stdout: a table, or bisection.json")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write a Markdown report")
    parser.add_argument("--quiet", action="store_true", help="print no progress on stderr")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    import perfkit
    from perfkit.bisection.folder import BisectionFolder, BisectionInputs, Progress
    from perfkit.bisection.revisions import read_path
    from perfkit.clock import utc_now
    from perfkit.gate.arm import PREFIX, parse_arm
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.result.output_folder import default_folder, locked
    from perfkit.scenario.file import read_scenario, scenario_document

    if options.markdown is not None and options.markdown.is_dir():
        raise UsageError(f"--markdown {options.markdown}: this is a folder; give a file")
    loaded = read_scenario(options.scenario, options.settings)
    options.serve = options.serve.removeprefix(PREFIX)
    arm = parse_arm("--serve", f"{PREFIX}{options.serve}", loaded.scenario)
    request = GateRequest(loaded, arm, arm, time_limit_ns=options.time, ready_within_ns=options.ready_timeout, looks_early=False)
    path = read_path(options.repository, options.good, options.bad)
    now = utc_now()
    inputs = BisectionInputs(
        scenario=scenario_document(loaded.scenario),
        repository=str(options.repository.resolve()),
        good=path[0].sha,
        bad=path[-1].sha,
        build=options.build,
        serve=options.serve,
        pairs=options.pairs,
        perfkit=perfkit.__version__,
    )
    out = options.out or default_folder(f"{loaded.scenario.name}-bisect")
    seed = random.SystemRandom().randrange(2**31)
    with locked(out):
        folder = BisectionFolder(out, Progress(inputs=inputs, seed=seed, started_at=now.isoformat(timespec="milliseconds")))
        return _bisect(path, request, folder, options)


def _bisect(path: "tuple[Revision, ...]", request: "GateRequest", folder: "BisectionFolder", options: argparse.Namespace) -> ExitCode:
    from perfkit.bisection.revisions import Worktrees
    from perfkit.cli.signals import SignalHandler
    from perfkit.clock import MonotonicClock
    from perfkit.gate.bisect.bisection import BisectionPlan, run_bisection
    from perfkit.gate.bisect.revision_pairs import RevisionPairs
    from perfkit.measurement.control import Interruption
    from perfkit.report.live import LiveGate

    live, interruption, clock = LiveGate(quiet=options.quiet), Interruption(), MonotonicClock()
    signals = SignalHandler(interruption)
    worktrees = Worktrees(options.repository.resolve(), folder.worktrees, options.build, options.build_within)
    source = RevisionPairs(
        path,
        options.serve,
        request,
        folder,
        worktrees,
        observer=live,
        interruption=interruption,
        clock=clock,
        keeps_worktrees=options.keep,
    )
    plan = BisectionPlan(path, request.loaded.scenario.name, request.choice, options.pairs)
    try:
        with contextlib.closing(live):
            bisection = signals.run(run_bisection(plan, folder, source, live.message, clock))
    except BaseException as error:
        again = command_that_continues(options, folder.folder)
        print(f"perfkit: what was measured and built so far is in {folder.folder}; to continue: {again}", file=sys.stderr)
        if isinstance(error, asyncio.CancelledError) and signals.exit_code:
            return signals.exit_code
        raise
    return _report(bisection, folder.folder, options)


def _report(bisection: "Bisection", folder: pathlib.Path, options: argparse.Namespace) -> ExitCode:
    from perfkit.report.bisection import print_bisection, print_bisection_status, render_bisection_markdown

    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(bisection.document(), indent=1))
        else:
            print_bisection(bisection)
            print(f"{folder}{os.sep}: bisection.json, gates")
    if options.markdown is not None:
        write_output("--markdown", options.markdown, render_bisection_markdown(bisection))
    code = _EXIT_CODES[bisection.kind]
    print_bisection_status(bisection, code)
    return code
