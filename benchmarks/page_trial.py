"""A live run whose page must name a stall, an error burst and an invalid load point: the bundled server is disturbed while it is measured.

    .venv/bin/python -m benchmarks.page_trial [--seconds 10] [--out reports/page-trial]

Three load points of an open loop. In the first, the server's process is stopped for two seconds; in the second, its model is unloaded for two
seconds, so that every request is rejected; the third has a higher rate than one worker can send. The result folder with its page is written to
`--out`. The exit code is 1 if one of the three is not found, if it is found at other seconds, or if anything else is.
"""

import pathlib
import shutil
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable

import perfkit
from benchmarks.processes import RunningServer, running_server
from benchmarks.report import option_parser
from perfkit.measurement.control import RunObserver
from perfkit.report.answer import findings
from perfkit.result.model import Incident, Result

_RATES_PER_S = (200, 400, 60_000)  # one worker cannot send the last
_SERVER = ("--model=synthetic", "--synthetic=service=lognormal:5ms:cv=0.5,servers=4", "--model-control-mode=explicit")
_WARMUP_S, _BEGINS_S, _LASTS_S, _TOLERANCE_S = 1.0, 4.0, 2.0, 1.0


class Disturbance(RunObserver):
    """Disturbs the server at a second of the first two load points' windows, each for two seconds."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """Starts the timers of this load point."""
        signals: tuple[Callable[[], None], Callable[[], None]]
        if index == 0:
            signals = self._send(signal.SIGSTOP), self._send(signal.SIGCONT)
        elif index == 1:
            signals = self._model("unload"), self._model("load")
        else:
            return
        for at_s, act in zip((_BEGINS_S, _BEGINS_S + _LASTS_S), signals, strict=True):
            threading.Timer(_WARMUP_S + at_s, act).start()

    def _send(self, number: signal.Signals) -> Callable[[], None]:
        return lambda: self._server.process.send_signal(number)

    def _model(self, action: str) -> Callable[[], None]:
        path = f"127.0.0.1:{self._server.http_port}/v2/repository/models/synthetic/{action}"
        return lambda: urllib.request.urlopen(f"http://{path}", b"{}", timeout=10).close()


def measure(seconds: float, out: pathlib.Path) -> Result:
    """Runs the three load points, and writes the result folder with its page."""
    shutil.rmtree(out, ignore_errors=True)
    with running_server(*_SERVER) as server:
        scenario = {
            "name": "page-trial",
            "target": {"url": server.url(), "model": "synthetic"},
            "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
            "load": {"open": {"rate": list(_RATES_PER_S), "arrivals": "poisson"}},
            "measure": {"warmup": f"{_WARMUP_S:g}s", "duration": f"{seconds:g}s", "repetitions": 1, "workers": 1, "drain": "2s"},
        }
        return perfkit.run(scenario, out=out, observer=Disturbance(server))


def problems(result: Result) -> list[str]:
    """What is missing, or should not be there."""
    stalled, failed, beyond = result.summary
    found = [f"{point.title}: valid is {point.valid}" for point in result.summary if point.valid != (point is not beyond)]
    found += [f"{stalled.title}: {one}" for one in _unlike(stalled.incidents, "stall")]
    found += [f"{failed.title}: {one}" for one in _unlike(failed.incidents, "error_burst")]
    named = {finding.load_point for finding in findings(result)}
    return found + [f"{point.title} is not named before the figures" for point in result.summary if point.title not in named]


def _unlike(incidents: tuple[Incident, ...], kind: str) -> list[str]:
    if [one.kind for one in incidents] != [kind]:
        return [f"expected one {kind}, found {', '.join(one.kind for one in incidents) or 'none'}"]
    spans = (incidents[0].start_s - _BEGINS_S, incidents[0].end_s - _BEGINS_S - _LASTS_S)
    return [] if max(map(abs, spans)) <= _TOLERANCE_S else [f"{kind} from {incidents[0].start_s:.1f} to {incidents[0].end_s:.1f} s"]


def main() -> int:
    """Prints what the page names, and what is wrong with it."""
    parser = option_parser(__doc__, out=pathlib.Path("reports/page-trial"))
    parser.add_argument("--seconds", type=float, default=10, help="window of each load point (default %(default)s)")
    options = parser.parse_args()
    result = measure(options.seconds, options.out)
    for finding in findings(result):
        print(f"{finding.load_point}: {finding.text} [{finding.code}]")
    wrong = problems(result)
    print(f"page: {options.out / 'report.html'}", *(f"WRONG: {one}" for one in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
