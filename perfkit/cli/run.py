"""`perfkit run`: measures a scenario and writes its result folder."""

import argparse
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.scenario_options import add_scenario_options

if TYPE_CHECKING:
    from perfkit.result.model import Result


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="the result folder; default reports/<name>-<UTC time>")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what stdout gets: a table, or result.json")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings on stderr")
    parser.add_argument(
        "--on-inconclusive",
        choices=("fail", "pass"),
        default="fail",
        help="whether an SLO that too few samples carry gives exit code 3, or 0",
    )
    parser.add_argument(
        "--prometheus",
        type=_listening,
        metavar="[HOST:]PORT",
        help="tell the run to Prometheus at http://HOST:PORT/metrics while it goes on; HOST is 127.0.0.1 unless given, PORT 0 is a free one",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    import uvloop

    from perfkit.calibration.kept import calibration_path, read_calibration
    from perfkit.clock import utc_now
    from perfkit.load.interruption import Interruption
    from perfkit.report.live import LiveReport
    from perfkit.report.text import print_warnings
    from perfkit.result.file import ResultWriter
    from perfkit.run import run_scenario
    from perfkit.scenario.file import read_scenario
    from perfkit.telemetry.host import describe_host

    loaded = read_scenario(options.scenario, options.settings)
    now = utc_now()
    folder = options.out or pathlib.Path("reports") / f"{loaded.scenario.name}-{now:%Y%m%dT%H%M%SZ}"
    live, interruption = LiveReport(quiet=options.quiet), Interruption()
    writer = ResultWriter(folder, now.timestamp())
    calibration = read_calibration(calibration_path(), describe_host()).calibration
    caught: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        caught.append(number)
        interruption.interrupt()
        if len(caught) == 1:
            live.say("stopping: answers under way are awaited; once more stops at once")

    async def run() -> "Result":
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal, number)
        try:
            return await run_scenario(loaded, writer, live, interruption, calibration=calibration, publish_at=options.prometheus)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    try:
        result = uvloop.run(run())
    except BaseException:
        if kept := writer.abort():
            live.say(f"what was measured until then is in {kept}")
        raise
    if not result.points:
        writer.discard()
        live.say(f"{result.status_reason or result.status}; nothing was measured, and nothing is written")
        return _exit_code(result, caught)
    folder = writer.commit()
    if len(caught) < 2:
        _draw(folder)
    if not options.quiet:
        print_warnings(result)
    _show(result, folder, as_json=options.format == "json")
    code = _exit_code(result, caught)
    return ExitCode.DONE if code is ExitCode.INCONCLUSIVE and options.on_inconclusive == "pass" else code


def _listening(text: str) -> tuple[str, int]:
    """Reads `9400`, `0.0.0.0:9400` or `[::]:9400`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port, or host:port, found {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _show(result: "Result", folder: pathlib.Path, *, as_json: bool) -> None:
    from perfkit.report.text import print_summary
    from perfkit.result.model import result_document

    try:
        if as_json:
            print(json.dumps(result_document(result), indent=1))
        else:
            print_summary(result)
            files = [name for name in ("result.json", "latency.hlog", "report.html") if (folder / name).exists()]
            print(f"{folder}{os.sep}: {', '.join(files)}")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left; how the run ended is still ours to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _draw(folder: pathlib.Path) -> None:
    """Draws the report in a process of its own: its libraries are large, and the result is safe already."""
    drawn = subprocess.run([sys.executable, "-m", "perfkit", "report", "--quiet", str(folder)], check=False, stdin=subprocess.DEVNULL)
    if drawn.returncode:
        print(f"perfkit: the report was not drawn; `perfkit report {folder}` tries again", file=sys.stderr)


def _exit_code(result: "Result", caught: list[signal.Signals]) -> ExitCode:
    if caught:
        return ExitCode.TERMINATED if caught[0] is signal.SIGTERM else ExitCode.INTERRUPTED
    if result.status != "complete":
        return {"invalid": ExitCode.INVALID, "incomplete": ExitCode.TARGET}[result.status]
    verdicts = {point.slo.verdict for point in result.summary if point.slo is not None}
    if "violated" in verdicts:
        return ExitCode.VIOLATED
    return ExitCode.INCONCLUSIVE if "inconclusive" in verdicts else ExitCode.DONE
