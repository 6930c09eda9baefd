"""A GPU that is idle while requests wait is told; one that has little to do, or of which too little is known, is not."""

import asyncio
import dataclasses
import types
from typing import Any

import pytest

from perfkit.figures.resources import GpuFigures, ServerCpuUse
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.measurement.observation import observe
from perfkit.points.measured import Resources
from perfkit.points.point import LoadSummary, point
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import AnswerTotals
from perfkit.recorder.window import cut
from perfkit.result.load import ColdStartLoad, IdleLoad, OpenLoad
from perfkit.scenario.model import Scenario
from perfkit.stats.buckets import BucketCounts
from perfkit.target.address import Address
from perfkit.telemetry.client import TelemetryClient
from perfkit.telemetry.messages import WindowReport
from perfkit.telemetry.prometheus.server_times import PageReport
from perfkit.telemetry.series import SamplerReport
from perfkit.telemetry.server.statistics import ServerCounts
from perfkit.transport.base import ConnectionCounts
from perfkit.workers.point_recording import PointRecording, WorkloadRecording
from tests.clocks import SettableClock
from tests.points.made_measurement import measurement

MS, S = 1_000_000, 1_000_000_000


def gpu(busy, uuid="GPU-1", **figures):
    return GpuFigures(uuid, "H100", "nvml", utilization_mean=busy, **figures)


def counts(compute_ms, requests=24):
    """A server's counts, with its time for input, inference and output as 1 : 8 : 1."""
    shares = {"compute_input": 0.1, "compute_infer": 0.8, "compute_output": 0.1}
    times = {name: TotalTime(requests, round(requests * compute_ms * MS * share)) for name, share in shares.items()}
    return ServerCounts(ModelStatistics("1", requests, requests, success=TotalTime(requests, requests), **times), ("1",), AnswerTotals())


def cold_measurement(*, busy=0.0, took_ms=1700, concurrency=4, gpus=None, server=None, server_cpu=None, is_known=True, **changes):
    """Four in flight, each answered after about 1.7 s, on a GPU that did nothing; changed as asked."""
    made = measurement([took_ms * MS] * 24, window_s=10.0, concurrency=concurrency)
    gpus = (gpu(busy),) if gpus is None else gpus
    resources = Resources(server=server, server_cpu=server_cpu, gpus=gpus, server_has_gpu=is_known)
    return dataclasses.replace(made, resources=resources, **changes)


@pytest.fixture
def cold():
    return cold_measurement


def warnings_of(measured):
    return [warning.message for warning in point(measured).warnings if warning.code == "gpu_idle"]


def opened(cold, rate_per_s, took_ms):
    """Ten seconds of an open loop whose requests all took as long."""
    number = round(10 * rate_per_s)
    made, quick, waited = cold(), BucketCounts.of([10_000] * number), BucketCounts.of([took_ms * MS] * number)
    times = {**made.window.times, "service_time": waited, "response_time": waited, "start_delay": quick, "pacing_delay": quick}
    window = dataclasses.replace(made.window, times=times, counts={"ended": number})
    return dataclasses.replace(made, load=OpenLoad(rate_per_s=rate_per_s, arrivals="poisson"), window=window)


def test_a_gpu_that_does_nothing_while_requests_wait_is_told_with_its_figures(cold):
    (message,) = warnings_of(cold(busy=0.004))
    assert message.startswith(
        "The GPU was idle: H100 was busy for 0.4% of the window, although 4 requests were in flight on average and a request took 1.70 s (the median)."
    )


def test_the_point_stays_valid_because_the_figures_are_the_server_s(cold):
    assert point(cold()).valid


def test_the_server_s_own_time_is_told_where_it_has_statistics_and_its_cpus_where_they_are_known(cold):
    (message,) = warnings_of(cold(server=counts(620), server_cpu=ServerCpuUse(11 * S)))
    assert "an execution took the server 620 ms (the mean of its own statistics), while the server kept 1.1 CPUs busy." in message


@pytest.mark.parametrize("busy", [0.05, 0.5, None])
def test_a_gpu_that_computed_or_was_not_sampled_is_not_called_idle(cold, busy):
    assert warnings_of(cold(busy=busy)) == []


def test_nothing_is_said_of_a_server_that_may_have_no_gpu(cold):
    assert warnings_of(cold(is_known=False)) == []
    assert warnings_of(cold(gpus=())) == []


@pytest.mark.parametrize(("took_ms", "is_told"), [(490, False), (510, True)])
def test_only_half_a_second_or_more_is_told(cold, took_ms, is_told):
    assert bool(warnings_of(cold(took_ms=took_ms))) == is_told
    assert bool(warnings_of(cold(took_ms=3000, server=counts(took_ms)))) == is_told, "the time in the queue does not count"


def test_every_gpu_that_the_server_may_use_must_have_been_idle(cold):
    others = gpu(0.97, "GPU-2", used_by_server=False)
    (message,) = warnings_of(cold(gpus=(gpu(0.0, used_by_server=True), others)))
    assert "H100 was busy for 0.0%" in message
    assert warnings_of(cold(gpus=(others,))) == []
    assert warnings_of(cold(gpus=(gpu(0.0), gpu(0.97, "GPU-2")))) == []
    assert warnings_of(cold(gpus=(gpu(0.0), gpu(None, "MIG-2", mig=True)))) == []
    (message,) = warnings_of(cold(gpus=(gpu(0.0), gpu(0.02, "GPU-2"))))
    assert message.startswith("The GPUs were idle: none of the 2 was busy for more than 2.0% of the window")


def test_a_gpu_is_not_called_idle_for_want_of_load(cold):
    assert warnings_of(cold(think_time_ns=5 * S)) == [], "four users who think for 5 s leave it without any request for 30 % of the time"
    assert warnings_of(cold(think_time_ns=S // 10)) != []
    assert warnings_of(opened(cold, 1.0, 1700)) == [], "without any request for 18 % of the time"
    assert "4.25 requests were in flight on average" in warnings_of(opened(cold, 2.5, 1700))[0]


def test_gaps_and_starts_are_no_idle_gpu(cold):
    made = cold()
    nothing = BucketCounts.of([])
    window = dataclasses.replace(made.window, times={**made.window.times, "after_gap_time": nothing, "following_time": nothing})
    assert warnings_of(dataclasses.replace(made, window=window, load=IdleLoad(gap_s=1.0, then=1))) == []
    assert warnings_of(dataclasses.replace(made, load=ColdStartLoad(by="reload", requests=24))) == []


def test_a_cold_repetition_is_told_although_the_next_one_was_warm(cold):
    warm = dataclasses.replace(cold(busy=0.9, took_ms=10), repetition=1)
    pooled = LoadSummary([cold(), warm]).pooled()
    assert [warning.code for warning in pooled.warnings if warning.code == "gpu_idle"] == ["gpu_idle"]


def observed_resources(device, reports, **target):
    """What is observed of a load without requests, on a server of that device; None: one that perfkit did not start."""

    class Client(TelemetryClient):
        async def configure(self, config):
            pass

        async def window(self, start_ns, end_ns):
            return WindowReport(reports, ())

    document = {"name": "x", "target": {"model": "m", **target}, "load": {"closed": {"concurrency": 4}}}
    server = None if device is None else types.SimpleNamespace(description={"device": device}, pid=None)
    recording = Recorder(window_start_ns=S, window_end_ns=2 * S).finish(2 * S)
    recorded = PointRecording((WorkloadRecording(recording, ConnectionCounts()),), S, Ending(), BusyShares())

    async def go():
        run_target: Any = types.SimpleNamespace(server=server, addresses={"http": Address.parse("http://127.0.0.1:8000")})
        unused: Any = None
        observation = await observe(Scenario.model_validate(document), run_target, Client(), unused, SettableClock(), None)
        return (await observation.point(1, []).finish(recorded, cut(recording, S, is_open=False))).resources

    return asyncio.run(go())


@pytest.mark.parametrize(("device", "is_known"), [("cuda", True), ("cuda:1", True), ("cpu", False), (None, False)])
def test_the_bundled_server_s_device_says_whether_it_has_a_gpu(device, is_known):
    found = observed_resources(device, {"gpu": SamplerReport((gpu(0.0),))})
    assert (found.server_has_gpu, found.gpus) == (is_known, (gpu(0.0),))


@pytest.mark.parametrize(("used", "is_known"), [(True, True), (None, False), (False, False)])
def test_a_server_that_was_seen_on_a_gpu_has_one(used, is_known):
    assert observed_resources(None, {"gpu": SamplerReport((gpu(0.0, used_by_server=used),))}).server_has_gpu == is_known


def test_a_server_whose_own_page_of_metrics_lists_a_gpu_has_one():
    def page(*gpus):
        return {"metrics 1": SamplerReport(PageReport(gpus))}

    listed = dataclasses.replace(gpu(0.0), source="metrics")
    url = "http://127.0.0.1:8002/metrics"
    assert observed_resources(None, page(listed), url="http://127.0.0.1:8000", metrics_url=url).server_has_gpu
    assert not observed_resources(None, page(), url="http://127.0.0.1:8000", metrics_url=url).server_has_gpu
    assert not observed_resources(None, page(listed)).server_has_gpu, "the page of another process, such as an exporter"
