"""The sampler process while others send it what it has not asked for, 100 MB of it: counted, in bounded memory, and without harm."""

import asyncio
import gzip
import pathlib
import re

import aiohttp

from perfkit.telemetry.client import SamplerProcess
from perfkit.telemetry.messages import SpanCounts, SpansConfig, TelemetryConfig
from tests.spans.bodies import HTTP_SPANS, TRACE, body

MIB = 2**20
TRACES_OF_A_BODY, MOST_TRACES = 170, 1000


def traces(prefix, first):
    """A body of about 300 kB, as large as Triton's: three spans of each trace."""
    return body([{**span, "traceId": f"{prefix}{first + number:016x}"} for number in range(TRACES_OF_A_BODY) for span in HTTP_SPANS])


def peak_bytes(pid):
    [kib] = re.findall(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(kib) * 1024


def flooded(bodies, **headers):
    """The counts after these bodies, how much the peak of the process's memory grew, and whether a trace is joined afterwards."""

    async def go():
        async with SamplerProcess() as process, process.run() as client:
            await client.configure(TelemetryConfig(spans=SpansConfig("127.0.0.1", 0, TRACE[:16], MOST_TRACES)))
            url, pid = f"http://127.0.0.1:{client.spans_port}/v1/traces", client._child.pid
            async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

                async def post(data, **more):
                    async with session.post(url, data=data, headers=more) as answer:
                        await answer.read()

                await post(traces("bb" * 8, 0))
                await client.spans([], 0.0)
                before_bytes = peak_bytes(pid)
                for data in bodies:
                    await post(data, **headers)
                counts, grown_bytes = (await client.spans([], 0.0)).counts, peak_bytes(pid) - before_bytes
                await post(body(HTTP_SPANS))
            return counts, grown_bytes, set((await client.spans([TRACE], 60.0)).times)

    return asyncio.run(go())


def test_100_mb_of_spans_from_a_stranger():
    data = traces("bb" * 8, 0)
    number = -(-(10**8) // len(data))
    counts, grown_bytes, joined = flooded([data] * number)
    assert counts == SpanCounts(strangers=3 * TRACES_OF_A_BODY * number)
    assert grown_bytes < 32 * MIB
    assert joined == {TRACE}


def test_more_traces_of_the_run_than_are_kept():
    number = 60
    counts, grown_bytes, joined = flooded(traces(TRACE[:16], first * TRACES_OF_A_BODY + 2**32) for first in range(number))
    sent = 3 * TRACES_OF_A_BODY * number
    assert counts == SpanCounts(received=sent, dropped=sent - 3 * MOST_TRACES)
    assert grown_bytes < 32 * MIB
    assert joined == {TRACE}


def test_compressed_bodies_that_unpack_to_100_mb():
    counts, grown_bytes, joined = flooded([gzip.compress(b" " * 10**8)] * 10, **{"Content-Encoding": "gzip"})
    assert counts == SpanCounts(refused_bodies=10)
    assert grown_bytes < 32 * MIB
    assert joined == {TRACE}
