"""The sampler process, as a run starts it."""

import asyncio
import os
import re

import pytest
import uvloop

from perfkit.clock import MonotonicClock
from perfkit.errors import UsageError
from perfkit.telemetry.client import TelemetryClient, open_telemetry
from perfkit.telemetry.messages import LiveMetric, MetricsPageConfig, PublishMetrics, TelemetryConfig
from tests.children import children_running
from tests.conditions import passes, until_ended

S = 1_000_000_000
PROCESS = "perfkit.telemetry.sampler_process"


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


def test_a_port_that_is_taken_is_refused():
    async def go():
        async with open_telemetry(TelemetryConfig(listen=("127.0.0.1", 0))) as first:
            port = int(first.url.split(":")[2].split("/")[0])
            async with open_telemetry(TelemetryConfig(listen=("127.0.0.1", port))):
                pytest.fail("two processes listen on one port")

    with pytest.raises(UsageError, match=r"--prometheus 127\.0\.0\.1:\d+: cannot listen: Address already in use"):
        asyncio.run(go())
    assert children_running(PROCESS) == []


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


def test_without_telemetry_there_is_no_process():
    async def go():
        async with open_telemetry(None) as client:
            client.follow([1])
            return (await client.window(0, 1)).samplers, client.notes, children_running(PROCESS)

    assert asyncio.run(go()) == ({}, [], [])
    assert TelemetryClient().url == ""
