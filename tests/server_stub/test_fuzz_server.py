"""A short run of `benchmarks.fuzz_server`: randomly broken requests to a running server."""

import asyncio
import random

import psutil
import pytest

from benchmarks.fuzz_server import MODELS, Fuzzing, Ports, growth_bytes, is_complete
from benchmarks.fuzz_server_requests import any_call, any_frames, any_http


@pytest.fixture(scope="module")
def fuzzed(start_server):
    with start_server("--model", *MODELS, "--allow-client-shm", "--max-body=8388608") as started:
        yield started


@pytest.mark.parametrize("seed", [0, 104_000])
def test_every_broken_request_gets_a_result_or_an_error_and_the_server_continues(fuzzed, seed):
    async def main():
        fuzz = Fuzzing(Ports(fuzzed.http_port, fuzzed.grpc_port), seed, psutil.Process(fuzzed.process.pid))
        await fuzz.run(lambda: fuzz.counts.total() < 150)
        return fuzz

    fuzz = asyncio.run(main())
    assert fuzz.failures == []
    assert fuzz.counts["gRPC OK"]


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}more", True),
        (b"POST /v2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{}", False),
        (b"POST /v2 HTTP/1.1\r\nHost: a\r\n", False),
        (b"\0\0", False),
        (b"", False),
    ],
)
def test_a_response_is_expected_for_complete_requests(written, whole):
    assert is_complete(written) is whole


@pytest.mark.parametrize("make", [any_http, any_call, any_frames])
def test_equal_seeds_give_equal_requests(make):
    assert [make(random.Random(seed)) for seed in range(20)] == [make(random.Random(seed)) for seed in range(20)]


def test_memory_growth_is_measured_after_the_warm_up():
    assert growth_bytes([1] * 30 + [100] * 70) == 0
    assert growth_bytes([*range(1000)]) == 767 - 300
    assert growth_bytes([77] * 90 + [108] * 10) == 0, "as long as a large message is held"
    assert growth_bytes([77] * 65 + [108] * 35) == 31
