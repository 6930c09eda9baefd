"""Warnings of what is sampled: the server's statistics, pages of metrics, GPUs, and the sampler itself."""

import types
from typing import Any

from perfkit.clock import ManualClock
from perfkit.errors import TargetError
from perfkit.protocol.statistics import ModelStatistics
from perfkit.recorder.recording import AnswerTotals
from perfkit.telemetry.gpu.window import GpuWindow, gpu_warnings
from perfkit.telemetry.messages import MetricsPageConfig
from perfkit.telemetry.prometheus.sampler import MetricsSampler
from perfkit.telemetry.series import Series
from perfkit.telemetry.server.statistics import ServerStatisticsReader, difference, impossible_times
from tests.clocks import SettableClock
from tests.json_server import JsonHandler, serving
from tests.measurement.test_server_restart import Client, observed_with
from tests.telemetry.server.test_statistics import reading, statistics
from tests.warning_examples.example import Case, changes, informs

MS, S = 1_000_000, 1_000_000_000
_LOST = "The telemetry process 7 was killed: the rest of the run has no telemetry."


def _counted(*after: ModelStatistics, requests_before=0, **sent: int) -> Case:
    """The counters of the versions after the load, and what the client counted: by default ten answers."""
    totals = AnswerTotals(**{"answered": 10, **sent})
    return lambda _: difference([reading(statistics(requests_before))], [reading(*after)], totals)[1]


def _read_twice(*counts: int) -> Case:
    """The counters of several readings while nothing is sent."""
    return lambda _: difference([reading(statistics(count)) for count in counts], [reading(statistics(counts[-1] + 10))], AnswerTotals(10))[
        1
    ]


def _statistics(*, fails: bool) -> Case:
    """The server's statistics, read before and after a load of one request."""

    def warnings(_):
        clock, calls = ManualClock(S), []

        async def read():
            calls.append(1)
            if fails and len(calls) > 3:
                raise TargetError("HTTP 503")
            return [statistics(5 + (len(calls) > 3))]

        async def go():
            reader = ServerStatisticsReader(read, clock)
            await reader.before()
            return (await reader.after(AnswerTotals(1, 30 * MS)))[1]

        return clock.run(go())

    return warnings


def _impossible(infer_ms: int) -> Case:
    """Ten requests that took 20 ms by the client."""
    counts, _ = difference([reading(statistics(0))], [reading(statistics(10, infer_ms=infer_ms))], AnswerTotals(10, 200 * MS))
    assert counts is not None
    return lambda _: [one for one in [impossible_times(counts, 10 * S)] if one is not None]


def _pages(*texts: str) -> Case:
    """A page of metrics, sampled once a second."""

    def warnings(_):
        clock, served = SettableClock(), list(texts)

        class Handler(JsonHandler):
            def do_GET(self):
                self.answer_bytes(200, served[min(clock.ns // S, len(served) - 1)].encode())

        with serving(Handler) as port:
            sampler = MetricsSampler(MetricsPageConfig(f"http://127.0.0.1:{port}/metrics", "", "m", (), S), clock)
            for second in range(len(served)):
                clock.ns = second * S
                sampler.sample()
            return sampler.window(0, (len(served) - 1) * S).warnings

    return warnings


def _gpu(*, lost_ns=None, processes=None, **values: tuple[float, float]) -> Case:
    """A GPU over ten seconds; each quantity has a value at the start and one from the fifth second on."""
    gpu: Any = types.SimpleNamespace(title="GPU 0 (H100)")
    series = {f"gpu_{name}": Series(f"gpu_{name}", "", {}, (0, 5 * S), pair) for name, pair in values.items()}
    window = GpuWindow(gpu, series, frozenset(), lost_ns=lost_ns, processes=processes, used_by_server=True)
    return lambda _: gpu_warnings(window, (0, 10 * S), [7])


def _observed(lost: str) -> Case:
    def warnings(_):
        client = Client(())
        client.lost = lost
        return observed_with(client).warnings

    return warnings


EXAMPLES = (
    informs(
        "server_statistics",
        "could not be read after the load, so the point has no server figures: HTTP 503",
        _statistics(fails=True),
        _statistics(fails=False),
    ),
    informs(
        "server_counters_reset",
        "lower after the load than before it",
        _counted(statistics(2), requests_before=5),
        _counted(statistics(15), requests_before=5),
    ),
    informs("server_replicas", "fell between readings while nothing was sent", _read_twice(5, 900, 5), _read_twice(5, 5, 5)),
    changes(
        "server_versions",
        "Versions 1, 2 of the model answered",
        _counted(statistics(5), statistics(5, version="2")),
        _counted(statistics(10), statistics(0, version="2")),
    ),
    changes(
        "server_counts_errors",
        "3 of them ended in an error",
        _counted(statistics(100), answered=97, rejected=3),
        _counted(statistics(97, failed=3), answered=97, rejected=3),
    ),
    changes(
        "server_counts_differ",
        "The server counted 10 answered requests but perfkit 8",
        _counted(statistics(10), answered=8),
        _counted(statistics(10), answered=8, perhaps_answered=2),
    ),
    informs("server_times_impossible", "and the same requests took 20.0 ms", _impossible(60), _impossible(10)),
    changes("cache_hits", "answered 4 of 10 requests", _counted(statistics(10, hits=4)), _counted(statistics(10))),
    informs("metrics_missing", "No metric that is kept was read", _pages("other 1\n", "other 1\n"), _pages("nv_x 1\n", "nv_x 1\n")),
    informs(
        "metrics_reset",
        "The counter nv_x_total fell within the window",
        _pages("# TYPE nv_x_total counter\nnv_x_total 9\n", "# TYPE nv_x_total counter\nnv_x_total 3\n"),
        _pages("# TYPE nv_x_total counter\nnv_x_total 3\n", "# TYPE nv_x_total counter\nnv_x_total 9\n"),
    ),
    informs("telemetry_lost", f"{_LOST} This load point lacks it.", _observed(_LOST), _observed("")),
    changes(
        "gpu_throttled", "lowered its clocks for 50.0% of the window", _gpu(throttle_reasons=(0, 0x4)), _gpu(throttle_reasons=(0, 0x1))
    ),
    changes(
        "gpu_shared",
        "besides the server, 1 process (PID 8) held 3 MiB of its memory",
        _gpu(processes={7: 5, 8: 3 * 2**20}),
        _gpu(processes={7: 5}),
    ),
    changes("gpu_ecc", "had 1 uncorrectable memory errors", _gpu(ecc_uncorrected=(4, 5)), _gpu(ecc_uncorrected=(4, 4))),
    changes("gpu_lost", "was lost 4.0 s into the window", _gpu(lost_ns=4 * S), _gpu(lost_ns=11 * S)),
)
