"""The pages of which `benchmarks.screens` makes pictures."""

import contextlib
import datetime
import io
import pathlib
import signal
import threading
import urllib.request
from collections.abc import Callable, Mapping

import perfkit
from benchmarks.processes import RunningServer, running_server
from benchmarks.synthetic import open_loop, scenario
from benchmarks.virtual_runs import ENVIRONMENT, measure, workers
from perfkit.cli.main import main as main_of_perfkit
from perfkit.clock import utc_now
from perfkit.comparison.result_comparison import compare_results
from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest
from perfkit.gate.paired_gate import GateRequest
from perfkit.gate.pairs import ArmRun
from perfkit.gate.verdict import MetricNoise, Timing
from perfkit.measurement.control import RunObserver
from perfkit.recorder.window import Window
from perfkit.report.comparison import comparison_html
from perfkit.report.render import render_html
from perfkit.report.run import run_page
from perfkit.report.run_charts import summary_groups
from perfkit.report.sweep import write_sweep_report
from perfkit.result.model import Point, Result
from perfkit.result.sweep import SweepFolder, SweepRank
from perfkit.scenario.file import read_scenario
from perfkit.units import NS_PER_S
from tests.cli.gate_scenario import write_gate_scenario
from tests.report.subject_pages import history_page, plan_page
from tests.search.virtual_search import search_in_virtual_time
from tests.simulated_pairs import OPEN, disturbed, make_pairs

SERVER = ("--model=synthetic", "--synthetic=service=lognormal:60ms:cv=0.3,servers=4")


def _run_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of the run whose terminal is shown."""
    return folder / "columns-140" / "report.html"


class Disturbance(RunObserver):
    """From second 4 to 6 of their windows, stops the server in the first load point, and unloads its model in the second."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """Starts the timers of this load point, after a warm-up of a second."""
        signals, actions = (signal.SIGSTOP, signal.SIGCONT), ("unload", "load")
        for number in range(2 if index < 2 else 0):
            act, argument = (self._server.process.send_signal, signals[number]) if index == 0 else (self._change_model, actions[number])
            threading.Timer(5.0 + 2.0 * number, act, (argument,)).start()

    def _change_model(self, action: str) -> None:
        path = f"127.0.0.1:{self._server.http_port}/v2/repository/models/synthetic/{action}"
        urllib.request.urlopen(f"http://{path}", b"{}", timeout=10).close()


def _disturbed_page(folder: pathlib.Path) -> pathlib.Path:
    """Three load points: one with a stall, one with an error burst, and one with a higher rate than one worker can send."""
    laws = ("--synthetic=service=lognormal:5ms:cv=0.5,servers=4", "--model-control-mode=explicit")
    with running_server("--model=synthetic", *laws) as server:
        document = scenario(server.url(), open_loop(200, 400, 60_000), 10, name="page-trial", measure={"workers": 1, "drain": "2s"})
        perfkit.run(document, out=folder / "disturbed", observer=Disturbance(server))
    return folder / "disturbed" / "report.html"


def _plan_page(folder: pathlib.Path) -> pathlib.Path:
    """The plan of two simulated servers, whose true capacities are known."""
    (folder / "plan").mkdir()
    return plan_page(folder / "plan")


def _gate_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of `perfkit gate` for simulated pairs, in which the candidate's p99 is 12 % longer, and two of which were disturbed."""
    place = folder / "gate"
    place.mkdir()
    scenario = write_gate_scenario(place, "throughput", "p50", "p95", "p99", name="simple")
    targets = ["cmd:./server-1.4 --port {port}", "cmd:./server-1.5 --port {port}"]
    words = ["gate", scenario.name, "--baseline", targets[0], "--candidate", targets[1], "--out", "reports/gate", "--html", "gate.html"]
    loaded = read_scenario(scenario)
    baseline, candidate = (parse_arm("", target, loaded.scenario) for target in targets)
    started_at = (utc_now() - datetime.timedelta(minutes=5)).isoformat(timespec="milliseconds")
    noise = tuple(MetricNoise(metric=name, load_point=OPEN, between=0.02, within_one_second=0.015) for name in ("p50", "p95", "p99"))
    timing = Timing(window_s=3.0, window_chosen_by="trial", run_overhead_s=2.5, load_points=2, noise=noise)
    pairs = [pair.model_copy(update={"candidate": _slower(pair.candidate)}) for pair in make_pairs(12, noise=0.02, cpu=1.0, seed=3)]
    with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()):
        gate = GateFolder(
            pathlib.Path("reports/gate"),
            GateManifest(inputs=GateRequest(loaded, baseline, candidate).inputs, seed=1, started_at=started_at),
        )
        gate.fix(FixedSettings(warmup_ns=NS_PER_S, window_ns=3 * NS_PER_S, concurrency=4, rate_per_s=70.0, timing=timing))
        for pair in [*disturbed(pairs[:2], 0.2), *pairs[2:]]:
            gate.add(pair)
        main_of_perfkit([*words, "--quiet"])  # decides from the pairs that are there
    return place / "gate.html"


def _slower(run: ArmRun) -> ArmRun:
    """The run, with a p99 that is 12 % longer."""
    points = [point.model_copy(update={"figures": {**point.figures, "p99": 1.12 * (point.figures["p99"] or 0.0)}}) for point in run.points]
    return run.model_copy(update={"points": tuple(points)})


def _search_page(folder: pathlib.Path) -> pathlib.Path:
    """A search in virtual time for the capacity of four workers of 10 ms, within 30 ms at p95."""
    taken = list[tuple[Window, Point]]()
    found, _ = search_in_virtual_time(
        folder / "search.yaml", workers(4, 10.0, 0.8), taken=taken, seconds=10, slo={"p95": "30ms"}, start_rate=100, precision="5%"
    )
    points = tuple(point for _, point in taken)
    summary = {point.load: point.model_copy(update={"repetition": None}) for point in points}
    scenario = {"name": "search", "target": {"model": "m"}, "load": {"search": {"slo": {"p95": "30ms"}, "precision": "5%"}}}
    result = Result(
        started_at="2026-01-02T03:04:05.678+00:00", status="complete", status_reason="", overrides=(), points=points,
        summary=tuple(summary.values()), search=found, scenario=scenario, environment=ENVIRONMENT,
    )  # fmt: skip
    return _written(folder / "search.html", render_html(run_page(result, summary_groups(result))))


def _sweep_page(folder: pathlib.Path) -> pathlib.Path:
    """A sweep in virtual time over three servers: more workers, and slower ones."""
    kinds = {"2 of 40 ms": (2, 40.0), "4 of 60 ms": (4, 60.0), "8 of 100 ms": (8, 100.0)}
    sweep = SweepFolder(folder / "sweep", "workers", [({"workers": name}, {}) for name in kinds], SweepRank(where=("p95<400ms",)))
    for index, (case, (number, service_ms)) in enumerate(zip(sweep.document.cases, kinds.values(), strict=True)):
        servers = [workers(number, service_ms, seed=10 * index + repetition) for repetition in range(3)]
        measure(sweep.folder / case.folder, "workers", servers, (1, 4, 16), seconds=20)
        sweep.record(index, "complete")
    write_sweep_report(sweep.folder)
    return sweep.folder / "report.html"


def _compare_page(folder: pathlib.Path) -> pathlib.Path:
    """Two versions of a server in virtual time, the second with a service time that is 8 % longer."""
    results = []
    for index, (version, service_ms) in enumerate((("server-1.4", 60.0), ("server-1.5", 64.8))):
        servers = [workers(4, service_ms, seed=10 * index + repetition) for repetition in range(5)]
        results.append((version, measure(folder / version, "versions", servers, (1, 4, 16), seconds=30)))
    return _written(folder / "compare.html", comparison_html(compare_results(results)))


def _history_page(folder: pathlib.Path) -> pathlib.Path:
    """Sixty simulated results with a step."""
    return _written(folder / "history.html", history_page())


def _written(page: pathlib.Path, text: str) -> pathlib.Path:
    page.write_text(text, encoding="utf-8")
    return page


PAGES: Mapping[str, Callable[[pathlib.Path], pathlib.Path]] = {
    "run": _run_page,
    "trial": _disturbed_page,
    "search": _search_page,
    "sweep": _sweep_page,
    "gate": _gate_page,
    "plan": _plan_page,
    "compare": _compare_page,
    "history": _history_page,
}
"""By name, a function that makes a page in a working folder and returns its file. The terminals have been shown before."""
