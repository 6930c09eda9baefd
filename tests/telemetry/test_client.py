"""The sampler process, as a run starts it."""

import asyncio
import contextlib
import dataclasses
import functools
import gzip
import os
import re
import socket

import aiohttp
import numpy as np
import pytest
import uvloop
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from perfkit.clock import MonotonicClock
from perfkit.errors import UsageError
from perfkit.recorder.recent import LiveFigures
from perfkit.spans.formats import read_json
from perfkit.spans.server_times import server_times
from perfkit.telemetry.client import SamplerProcess, ScreenQueue, TelemetryClient
from perfkit.telemetry.messages import (
    LiveMetric,
    MetricsPageConfig,
    PointBegins,
    PublishMetrics,
    ScreenLines,
    SpanCounts,
    SpansConfig,
    SpansReport,
    TelemetryConfig,
)
from tests.children import children_running
from tests.conditions import passes, until_ended
from tests.json_server import JsonHandler, serving
from tests.spans.bodies import HTTP_SPANS, TRACE, body

S = 1_000_000_000
PROCESS = "perfkit.telemetry.sampler_process"


@contextlib.asynccontextmanager
async def open_telemetry(config, **options):
    async with SamplerProcess(**options) as process, process.run() as client:
        await client.configure(config)
        yield client


def test_a_window_has_the_report_of_each_sampler(page):
    page.text = "nv_pending 3\nnv_broken{\n"
    clock = MonotonicClock()

    async def go():
        start_ns = clock.now_ns()
        async with open_telemetry(
            TelemetryConfig(metrics=(MetricsPageConfig(page.url, "", "m", (), S // 50),), listen=("127.0.0.1", 0))
        ) as client:
            client.follow([os.getpid()])
            client.publish(PublishMetrics("x", (LiveMetric("points", "Some.", "gauge", {}, 2),)))
            report = await client.window(start_ns, clock.now_ns() + 60 * S)
            reader, writer = await asyncio.open_connection("127.0.0.1", int(client.url.split(":")[2].split("/")[0]))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            assert len(children_running(PROCESS)) == 1
            return report, client.notes, text

    report, notes, text = asyncio.run(go())
    assert set(report.samplers) == {"generator", "metrics 1"}
    assert report.samplers["metrics 1"].summary.metrics[0].mean == 3
    assert report.samplers["generator"].summary.open_files_max >= 3
    assert notes == [f"1 line of the metrics at {page.url} could not be parsed, and are ignored."]
    assert "perfkit_points 2.0\n" in text
    assert "perfkit_nv_pending 3.0\n" in text
    assert children_running(PROCESS) == []


def test_live_metrics_are_pushed_when_a_run_ends(page):
    page.text = "nv_pending 3\n"
    bodies, keys = [], []

    class Receiver(JsonHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["x-key"])
            bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.answer_bytes(200 if self.path == "/v1/metrics" else 404, b"")

    async def go(port):
        metrics, variables = (MetricsPageConfig(page.url, "", "m", (), S // 50),), {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc"}
        async with open_telemetry(TelemetryConfig(metrics=metrics, otlp=f"http://127.0.0.1:{port}", otlp_variables=variables)) as client:
            client.publish(PublishMetrics("x", (LiveMetric("points", "Some.", "gauge", {"load": "c"}, 2),)))
            client.publish(PublishMetrics("y", (LiveMetric("sent_total", "Sent.", "counter", {}, 7),)))
            await client.window(0, 60 * S)
            return client.notes

    with serving(Receiver) as port:
        assert asyncio.run(go(port)) == []
    assert set(keys) == {"abc"}
    (resource,) = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics
    assert ("service.name", "perfkit") in [(one.key, one.value.string_value) for one in resource.resource.attributes]
    pushed = {one.name: one for one in resource.scope_metrics[0].metrics}
    (point,) = pushed["perfkit_points"].gauge.data_points
    assert (point.as_double or point.as_int, [(one.key, one.value.string_value) for one in point.attributes]) == (2, [("load", "c")])
    assert pushed["perfkit_sent_total"].sum.is_monotonic
    (point,) = pushed["perfkit_sent_total"].sum.data_points
    assert (point.as_double or point.as_int) == 7
    (point,) = pushed["perfkit_nv_pending"].gauge.data_points
    assert (point.as_double or point.as_int) == 3


def test_a_receiver_of_metrics_that_is_away_is_noted_once():
    async def go(port):
        async with open_telemetry(TelemetryConfig(otlp=f"http://user:sesame@127.0.0.1:{port}")) as client:
            while not client.notes:
                await client.window(0, S)
            return client.notes

    with socket.socket() as bound:  # and not listening, so that it refuses connections
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert asyncio.run(go(port)) == [
            f"Live metrics could not be pushed to http://<redacted>@127.0.0.1:{port}; it is tried again every 5 s."
        ]
    assert children_running(PROCESS) == []


def test_a_port_that_is_taken_is_refused():
    async def go():
        async with open_telemetry(TelemetryConfig(listen=("127.0.0.1", 0))) as first:
            port = int(first.url.split(":")[2].split("/")[0])
            async with open_telemetry(TelemetryConfig(listen=("127.0.0.1", port))):
                pytest.fail("two processes listen on one port")

    with pytest.raises(UsageError, match=r"--prometheus 127\.0\.0\.1:\d+: cannot listen: Address already in use"):
        asyncio.run(go())
    assert children_running(PROCESS) == []


def test_spans_that_a_server_sends_are_reported_after_being_waited_for():
    config = TelemetryConfig(spans=SpansConfig("127.0.0.1", 0, TRACE[:16], 100))

    async def go():
        async with open_telemetry(config) as client:
            reporting = asyncio.ensure_future(client.spans([TRACE], 60.0))
            url, headers = f"http://127.0.0.1:{client.spans_port}/v1/traces", {"Content-Type": "application/json"}
            async with aiohttp.ClientSession() as session, session.post(url, data=body(HTTP_SPANS), headers=headers) as answer:
                assert answer.status == 200
            return await reporting

    report = asyncio.run(go())
    assert report == SpansReport({TRACE: server_times(read_json(body(HTTP_SPANS)).spans)}, SpanCounts(received=3))  # type: ignore[dict-item] # all spans are there


def test_without_a_receiver_there_are_no_spans():
    async def go():
        async with open_telemetry(TelemetryConfig()) as client:
            return await client.spans([TRACE], 60.0)

    assert asyncio.run(go()) == SpansReport({}, SpanCounts())


def test_a_port_for_spans_that_is_taken_is_refused():
    async def go():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            config = TelemetryConfig(spans=SpansConfig("127.0.0.1", taken.getsockname()[1], TRACE[:16], 100))
            async with open_telemetry(config):
                pytest.fail("two processes listen on one port")

    with pytest.raises(UsageError, match=r"traces\.listen: 127\.0\.0\.1:\d+: cannot listen: Address already in use; use another port"):
        asyncio.run(go())


def test_the_end_of_the_process_is_noted_once_and_later_reports_are_empty():
    async def go():
        async with open_telemetry(TelemetryConfig()) as client:
            (child,) = children_running(PROCESS)
            child.kill()
            reports = [await client.window(0, 1), await client.window(1, 2)]
            return reports, client.notes

    reports, notes = asyncio.run(go())
    assert [report.samplers for report in reports] == [{}, {}]
    assert re.fullmatch(r"The telemetry process \d+ ended: the rest of the run has no telemetry\.", "".join(notes))


def test_a_stopped_process_is_killed_after_the_silence_that_is_allowed_and_the_reports_are_empty():
    async def go():
        async with open_telemetry(TelemetryConfig(), max_silence_s=1) as client:
            (child,) = children_running(PROCESS)
            child.suspend()
            reports = [await client.window(0, 1), await client.window(1, 2)]
            until_ended([child])
            return reports, client.lost

    reports, lost = asyncio.run(go())
    assert [report.samplers for report in reports] == [{}, {}]
    assert re.fullmatch(r"The telemetry process \d+ said nothing for 1 s and was killed: the rest of the run has no telemetry\.", lost)


BEGINS = PointBegins(1, 2, "http, concurrency 1", "service time", None, None)
NONE = np.zeros(0, dtype=np.int64)


class SlowProcess:
    """A sampler process that has taken all messages but the last `unsent_bytes`."""

    def __init__(self):
        self.sent: list[object] = []
        self.unsent_bytes = 0
        self.queue = ScreenQueue(self.sent.append, lambda: self.unsent_bytes)


@functools.cache  # lists find one object equal to itself, and do not compare its arrays
def figures(second):
    return LiveFigures(0, second, second, 0, 1, NONE, NONE)


def test_states_for_a_slow_process_are_bounded_and_the_newest_are_kept():
    async def go():
        slow = SlowProcess()
        slow.queue.add(BEGINS)
        slow.unsent_bytes = 2**20
        for second in range(1000):
            slow.queue.add(figures(second))
        assert slow.sent == [BEGINS]
        slow.unsent_bytes = 0
        slow.queue.add(figures(1000))
        assert slow.sent[1:] == [figures(second) for second in range(937, 1001)]
        slow.unsent_bytes = 2**20
        slow.queue.add(figures(1001))
        slow.queue.add(dataclasses.replace(BEGINS, number=2))
        slow.unsent_bytes = 0
        slow.queue.add(figures(1))
        assert slow.sent[-2:] == [dataclasses.replace(BEGINS, number=2), figures(1)], "figures of the point before are gone"

    asyncio.run(go())


def test_many_lines_of_the_server_are_few_messages_and_the_oldest_of_too_many_are_counted():
    async def go():
        slow = SlowProcess()
        for number in range(2000):
            slow.queue.add_line(str(number))
        assert slow.sent == [ScreenLines(("0",))], "the first at once"
        slow.queue.add(BEGINS)
        assert slow.sent[1:] == [ScreenLines(tuple(map(str, range(1500, 2000))), left_out=1499), BEGINS], "lines keep their place"
        slow.queue.add_line("later")
        slow.unsent_bytes = 2**20
        while len(slow.sent) < 4:
            await asyncio.sleep(0.01)
            slow.unsent_bytes = 0
        assert slow.sent[3] == ScreenLines(("later",)), "without another message"
        slow.unsent_bytes = 2**20
        slow.queue.add_line("last")
        slow.queue.close()
        assert slow.sent[4:] == [ScreenLines(("last",))]

    asyncio.run(go())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("turns", [1, 5])
def test_an_interruption_while_the_process_starts_leaves_none(run, turns):
    async def go():
        async with open_telemetry(TelemetryConfig()):
            pytest.fail("it was not interrupted")

    async def main():
        task = asyncio.ensure_future(go())
        await passes(turns)  # the process has been started, and its pipes may be connected
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert children_running(PROCESS) == []


def test_a_process_stays_for_the_next_run_unless_one_failed():
    async def configured(process, error=None):
        async with process.run() as client:
            await client.configure(TelemetryConfig())
            clock = MonotonicClock()
            assert set((await client.window(0, clock.now_ns())).samplers) == {"generator"}
            running = children_running(PROCESS)
            if error is not None:
                raise error
        return running

    async def go():
        async with SamplerProcess() as process:
            first = await configured(process)
            assert await configured(process) == first
            with pytest.raises(LookupError):
                await configured(process, LookupError())
            await asyncio.to_thread(until_ended, first)
            assert await configured(process) != first

    asyncio.run(go())
    assert children_running(PROCESS) == []


def test_a_failure_before_the_samplers_start_does_not_wait_for_the_process():
    async def go():
        async with SamplerProcess() as process, process.run():
            (child,) = children_running(PROCESS)
            child.suspend()  # as one that imports its libraries for long
            raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        asyncio.run(go())
    assert children_running(PROCESS) == []


def test_without_telemetry_there_is_no_process():
    async def go():
        async with SamplerProcess() as process, process.run(is_wanted=False) as client:
            client.follow([1])
            return (await client.window(0, 1)).samplers, client.notes, children_running(PROCESS)

    assert asyncio.run(go()) == ({}, [], [])
    assert TelemetryClient().url == ""
