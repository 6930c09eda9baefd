import functools
import math
import sys

import pytest

from benchmarks.peers.clients import (
    Client,
    ClientError,
    HungError,
    Load,
    Reported,
    Usage,
    duration_us,
    read_h2load,
    read_perf_analyzer,
    read_wrk,
    run_measured,
)
from benchmarks.peers.compare import ANALYZER, CASES, OWN, Figures, loads, ratios_of, round_figures
from benchmarks.peers.rounds import retry_hung

WRK = """Running 1s test @ http://127.0.0.1:8900/v2/models/simple/versions/1/infer
  1 threads and 1 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    52.11us   30.01us   1.35ms   98.00%
    Req/Sec    18.90k     1.20k   20.10k    70.00%
  Latency Distribution
     50%   48.00us
     75%   55.00us
     90%   70.00us
     99%  110.00us
  18832 requests in 1.00s, 10.00MB read
Requests/sec:  18831.70
Transfer/sec:     10.00MB
"""
H2LOAD = """finished in 1.01s, 18977.00 req/s, 4.18MB/s
requests: 18977 total, 18978 started, 18977 done, 18977 succeeded, 0 failed, 0 errored, 0 timeout
"""
PERF_ANALYZER = """Request concurrency: 4
  Client:
    Request count: 10000
    Throughput: 9958.5 infer/sec
    Avg latency: 369 usec (standard deviation 782 usec)
    p50 latency: 183 usec
  Server:
    Request count: 0
"""


def usage(output):
    return Usage(output, 1.0, 5.0)


def test_wrks_output_is_parsed():
    reported = read_wrk(usage(WRK))
    assert (reported.requests, reported.per_s, reported.p50_us) == (18832, 18831.70, 48.0)


@pytest.mark.parametrize("failure", ["  Non-2xx or 3xx responses: 7\n", "  Socket errors: connect 0, read 3, write 0, timeout 0\n"])
def test_failures_of_wrk_are_an_error(failure):
    with pytest.raises(ClientError, match=r"wrk had failures: (Non-2xx|Socket errors)"):
        read_wrk(usage(WRK + failure))


def test_h2loads_output_is_parsed_with_the_median_from_its_log():
    log = "1795267019595566\t200\t317\n1795267019595911\t200\t93\n1795267019596011\t200\t56\n"
    reported = read_h2load(usage(H2LOAD), log)
    assert (reported.requests, reported.per_s, reported.p50_us) == (18977, 18977.0, 93.0)
    assert math.isnan(read_h2load(usage(H2LOAD), "").p50_us)


def test_failures_of_h2load_are_an_error():
    with pytest.raises(ClientError, match="18977 done, 18970 succeeded"):
        read_h2load(usage(H2LOAD.replace("18977 succeeded, 0 failed", "18970 succeeded, 7 failed")), "")


def test_perf_analyzers_output_is_parsed():
    reported = read_perf_analyzer(usage(PERF_ANALYZER))
    assert (reported.requests, reported.per_s, reported.p50_us) == (10000, 9958.5, 183.0)


def test_unexpected_output_is_an_error_that_quotes_it():
    with pytest.raises(ClientError, match="printed something unexpected: unable to connect"):
        read_wrk(usage("unable to connect"))


@pytest.mark.parametrize(("text", "us"), [("48.00us", 48), ("1.35ms", 1350), ("2s", 2e6), ("1.5m", 90e6)])
def test_durations_are_parsed(text, us):
    assert duration_us(text) == pytest.approx(us)


def test_a_large_body_over_http_goes_to_the_model_that_reads_it_whole():
    assert Load("http", 16, 80, 1, 1, 1).url == "http://127.0.0.1:80/v2/models/simple/versions/1/infer"
    assert Load("http", 75_264, 80, 1, 1, 1).url == "http://127.0.0.1:80/v2/models/large/versions/1/infer"
    assert Load("grpc", 75_264, 80, 1, 1, 1).url == "http://127.0.0.1:80/inference.GRPCInferenceService/ModelInfer"


def test_cpu_time_includes_child_processes():
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], check=True); print('done')"
    taken = run_measured([sys.executable, "-c", parent], timeout_s=60)
    assert taken.output == "done\n"
    assert taken.cpu_s > 0.2


def test_a_failing_program_is_an_error_that_quotes_its_output():
    command = [sys.executable, "-c", "import sys; print('sorry'); sys.exit(5)"]
    with pytest.raises(ClientError, match="exit code 5: sorry"):
        run_measured(command, timeout_s=60)
    assert run_measured(command, accepted_codes=(0, 5), timeout_s=60).output == "sorry\n"


def test_a_hanging_program_is_killed_and_named():
    with pytest.raises(HungError, match=r"sleep 600 did not end within 0\.1 s"):
        run_measured(["sleep", "600"], timeout_s=0.1)


REPORTED = Reported(1, 1.0, 1.0, Usage("", 1.0, 1.0))


class Hanging(Client):
    def __init__(self, times):
        self.times, self.runs = times, 0

    def run(self, load, folder):
        self.runs += 1
        if self.runs <= self.times:
            raise HungError("it hangs")
        return REPORTED


def test_a_hanging_client_is_run_a_second_time(tmp_path):
    load = Load("http", 16, 80, 1, 1, 1)
    assert retry_hung(functools.partial(Hanging(1).run, load, tmp_path)) == REPORTED
    twice = Hanging(2)
    with pytest.raises(HungError):
        retry_hung(functools.partial(twice.run, load, tmp_path))
    assert twice.runs == 2


def test_the_cost_is_the_slope_between_a_short_and_a_long_run():
    short, long, alone = (
        Reported(100, 0, 0, Usage("", 3.0, 9)),
        Reported(1100, 90, 0, Usage("", 5.0, 10)),
        Reported(1, 0, 70, Usage("", 1, 1)),
    )
    assert round_figures("it", short, long, alone) == Figures(2000.0, 90, 70, 10)
    with pytest.raises(ClientError, match="it sent 1100 requests in its short run and 100"):
        round_figures("it", long, short, alone)


def test_a_round_has_a_short_run_a_long_run_and_one_at_concurrency_1():
    found = loads(CASES["http-large"], 80, 12)
    assert [(one.concurrency, one.seconds, one.requests) for one in found] == [(8, 2, 300), (8, 12, 1800), (1, 3, 225)]


def test_ratios_are_taken_within_a_round_and_compared_with_their_targets():
    rounds = {
        "wrk": [Figures(5, 100, 50, 1), Figures(10, 100, 60, 1), Figures(20, 100, 70, 1)],
        ANALYZER: [Figures(100, 10, 100, 1)] * 3,
        OWN: [Figures(6, 80, 50, 1), Figures(13, 80, 60, 1), Figures(40, 80, 70, 1)],
    }
    cost, p50, throughput, *of_analyzer = ratios_of(CASES["http-small"], rounds)
    assert cost.values == (6 / 5, 13 / 10, 40 / 20)
    assert (cost.median, cost.is_met) == (1.3, False)
    assert (p50.median, p50.is_met, throughput.median, throughput.is_met) == (1, True, 0.8, True)
    assert (of_analyzer[0].median, of_analyzer[0].is_met) == (0.13, True)
