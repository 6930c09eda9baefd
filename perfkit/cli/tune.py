"""`perfkit tune`: finds the best configuration of a server; whether it is decided is the exit code."""

import argparse
import asyncio
import contextlib
import json
import math
import os
import pathlib
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import (
    add_otlp,
    add_ready_timeout,
    add_resume,
    check_resume,
    command_that_continues,
    default_place,
    positive_duration_ns,
    publish_at,
)
from perfkit.cli.output import reader_may_leave, write_output
from perfkit.cli.url_scenario import add_scenario_or_url_options, scenario_source
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.gate.tune.configured_server import ConfiguredServer
    from perfkit.gate.tune.folder import TuneFolder
    from perfkit.gate.tune.outcome import TuneOutcome
    from perfkit.gate.tune.request import TunePlan
    from perfkit.gate.tune.tuning import TuneRequest
    from perfkit.scenario.file import LoadedScenario


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_or_url_options(parser, takes_command=True)
    space = (
        "the values of a key: of the model's configuration, such as instance_group.count=1,2,4, dynamic_batching=off,on or parameters.NAME=a,b, "
        "or of {KEY} in a command, whose first value is the present one; may be repeated; default: the scenario's tune.space, or instances "
        "and batching as the model's configuration allows them"
    )
    parser.add_argument("--space", action="append", default=[], metavar="KEY=VALUE[,VALUE…]", help=space)
    repository = (
        "the model repository of a server that cmd:COMMAND starts, with {repository} where the command takes its folder: each configuration "
        "is written into a copy of it"
    )
    parser.add_argument("--repository", type=pathlib.Path, metavar="DIR", help=repository)
    time = "spend at most this long, such as 20m, which is the default"
    parser.add_argument("--time", type=positive_duration_ns, default="20m", metavar="TIME", help=time)
    indifference = "how much better another configuration may be in a decided answer; default: 3%%"
    parser.add_argument("--indifference", type=_share, default="3%", metavar="SHARE", help=indifference)
    objective = (
        "goodput: the most throughput under the SLO, which is the default; latency: the lowest p99 at --rate; cost: the most throughput for each "
        "CPU that the server's processes use, with cmd:COMMAND"
    )
    parser.add_argument("--objective", choices=("goodput", "latency", "cost"), metavar="OBJECTIVE", help=objective)
    cpus = "the CPUs that the server's processes may keep busy, such as 4; the server is on this machine"
    parser.add_argument("--max-cpu", type=_positive_number, metavar="N", help=cpus)
    memory = "the GPU memory that may be used while it serves, such as 8GiB; the server is on this machine"
    parser.add_argument("--max-gpu-memory", type=_size, metavar="SIZE", help=memory)
    parser.add_argument("--dry-run", action="store_true", help="print the configurations and the time, and change nothing")
    restore = (
        "put back the configuration that the tune in this folder found, after perfkit was killed; with a target where it needs credentials"
    )
    parser.add_argument("--restore", type=pathlib.Path, metavar="DIR", help=restore)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help=f"the tune's folder; {default_place('<name>-tune')}")
    add_resume(parser, "windows that an interrupted or killed tune")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output on stdout: a table, or tune.json")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write a Markdown report")
    parser.add_argument("--quiet", action="store_true", help="print no progress on stderr")
    add_otlp(parser, "push the live metrics of each window at its start, every 5 s and at its end")
    add_ready_timeout(parser, "a server that a command starts")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.scenario.file import document_with_settings, make_cases, scenario_text

    if not options.scenario and options.restore is None:
        raise UsageError("a target is missing: perfkit tune URL -m MODEL, perfkit tune SCENARIO, or perfkit tune cmd:COMMAND -m MODEL")
    options.protocols = _protocols(options)
    limits = {"cpu": options.max_cpu, "gpu_memory": options.max_gpu_memory}
    options.settings = [*options.settings, *(f"tune.constraints.{key}={value}" for key, value in limits.items() if value is not None)]
    source = scenario_source(options) if options.scenario else None
    if source is not None and options.print_scenario:
        print(scenario_text(document_with_settings(source, options.settings)), end="")
        return ExitCode.DONE
    cases = make_cases(source, options.settings) if source is not None else ()
    if options.restore is not None:
        from perfkit.gate.tune.request import put_back

        print(put_back(options.restore, cases[0].loaded if cases else None))
        return ExitCode.DONE
    check_resume(options)
    if len(cases) > 1 or cases[0].values:
        raise UsageError("sweep: a tune has its own space: remove sweep")
    return _tune(cases[0].loaded, options)


def _tune(loaded: "LoadedScenario", options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import utc_now
    from perfkit.gate.tune.folder import TuneFolder
    from perfkit.gate.tune.request import plan_tune
    from perfkit.report.tune import render_tune_html
    from perfkit.result.output_folder import default_folder, locked

    if options.repository is not None and not options.quiet:
        print("perfkit: the server is started once, to read the configuration of its model", file=sys.stderr, flush=True)
    plan = plan_tune(
        loaded,
        options.space,
        indifference=options.indifference,
        objective=options.objective,
        is_default_load=options.concurrency is None and _is_of_options(options),
        resumed=options.out if options.resume and not options.dry_run else None,
        repository=options.repository,
        ready_within_ns=options.ready_timeout,
    )
    if options.dry_run:
        _print_space(plan, options.time)
        return ExitCode.DONE
    out = options.out or default_folder(f"{loaded.scenario.name}-tune")
    with locked(out):
        progress = plan.progress(random.SystemRandom().randrange(2**31), utc_now().isoformat(timespec="milliseconds"), options.time)
        folder = TuneFolder(out, progress, plan.present, resumes=options.resume)
        request, server = plan.request(folder, options.time, options.ready_timeout)
        outcome, code = _measure(request, server, folder, options)
        if outcome is None:
            return code
        texts = {**plan.files(outcome), "report.html": render_tune_html(outcome)}
        for name, text in texts.items():
            folder.write(name, text)
    return _report(outcome, folder.folder, list(texts), options)


def _measure(
    request: "TuneRequest", server: "ConfiguredServer", folder: "TuneFolder", options: argparse.Namespace
) -> "tuple[TuneOutcome | None, ExitCode]":
    from perfkit.cli.signals import SignalHandler
    from perfkit.gate.tune.tuning import run_tune
    from perfkit.measurement.control import Interruption
    from perfkit.report.live import LiveGate

    def put_back() -> ExitCode | None:
        if not folder.progress.restores:
            return None
        print("perfkit: the configuration is put back before the end; a load that is under way is awaited", file=sys.stderr, flush=True)
        problem = server.end_now()
        print(f"perfkit: {problem or 'the configuration was put back'}", file=sys.stderr, flush=True)
        return ExitCode.TARGET if problem else None

    live, interruption = LiveGate(quiet=options.quiet), Interruption()
    signals = SignalHandler(interruption, lambda: live.message("ending; the server is put back"))
    signals.before_exit = put_back
    try:
        return signals.run(run_tune(request, folder, live, interruption, publish_at=publish_at(options))), ExitCode.DONE
    except BaseException as error:
        again = command_that_continues(options, folder.folder, "--resume")
        print(f"perfkit: what was measured is in {folder.folder}; to continue: {again}", file=sys.stderr)
        if isinstance(error, asyncio.CancelledError) and signals.exit_code:
            return None, signals.exit_code
        raise


def _report(outcome: "TuneOutcome", folder: pathlib.Path, written: Sequence[str], options: argparse.Namespace) -> ExitCode:
    from perfkit.report.tune import print_tune, print_tune_status, render_tune_markdown

    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(outcome.document(), indent=1))
        else:
            print_tune(outcome)
            print(f"{folder}{os.sep}: {', '.join(written)}")
    if options.markdown is not None:
        write_output("--markdown", options.markdown, render_tune_markdown(outcome))
    code = ExitCode.INCONCLUSIVE if outcome.kind == "undecided" else ExitCode.DONE
    print_tune_status(outcome, code)
    return code


def _print_space(plan: "TunePlan", time_ns: int) -> None:
    from perfkit.gate.tune.objective import objective_of
    from perfkit.gate.tune.window_lengths import first_window_s, usual_times_s
    from perfkit.units import NS_PER_S, format_minutes, format_rate_per_s

    candidates, ladder, limit_s = plan.candidates, plan.ladder, time_ns / NS_PER_S
    objective, space = objective_of(plan.objective, plan.rate_per_s), plan.space
    window_s, first = first_window_s(limit_s, objective), plan.first(time_ns)
    scan_s, visit_s = usual_times_s(plan.loaded.scenario, len(ladder), window_s, objective)
    for number in first:
        print(f"{number:>3}  {candidates[number].title}{'' if number else '  (present)'}")
    first_s, round_s = (len(first) * one for one in (scan_s + visit_s + window_s, visit_s + window_s))
    load = f"at up to {len(ladder)} concurrencies from {ladder[0]} to {ladder[-1]}"
    if objective.rate_per_s is not None:
        load = f"with Poisson arrivals at {format_rate_per_s(objective.rate_per_s)}"
    print(f"{len(first)} configurations, each {load}")
    if len(first) < len(space):
        print(
            f"of {len(space):,} in the space: these differ from the present one by one key; then those join that differ by one key from the best "
            f"so far, {space.most} at most in all"
        )
    print(
        f"about {format_minutes(first_s)} for the first round, at most {format_minutes(round_s)} for each further one; at most {format_minutes(limit_s)} in all"
    )


def _protocols(options: argparse.Namespace) -> list[str] | None:
    """The protocols of the URLs that the tune needs: with load over gRPC also HTTP, over which the configuration is changed."""
    from perfkit.cli.url_scenario import is_url

    if len(options.protocols or ()) > 1:
        raise UsageError("--protocol: a tune measures over one protocol: give http or grpc alone")
    has_both_urls = sum(map(is_url, options.scenario)) > 1
    return None if options.protocols == ["grpc"] and has_both_urls else options.protocols


def _is_of_options(options: argparse.Namespace) -> bool:
    """Whether the command line describes the scenario, whose load is then perfkit's own."""
    from perfkit.cli.url_scenario import is_url
    from perfkit.target.command import COMMAND_PREFIX

    return any(is_url(word) or word.startswith(COMMAND_PREFIX) for word in options.scenario)


def _positive_number(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"expected a number above zero, such as 4 or 0.5, found {text!r}")


def _size(text: str) -> str:
    from perfkit.units import parse_size_bytes

    try:
        if parse_size_bytes(text) > 0:
            return text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"expected a size such as 8GiB, found {text!r}")


def _share(text: str) -> float:
    from perfkit.units import parse_share

    try:
        if 0 < (share := parse_share(text)) < 1:
            return share
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"expected a share such as 3%, found {text!r}")
