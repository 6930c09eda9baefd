"""A server that restarts in the middle of a load point: its figures are not those of the load."""

import asyncio
import itertools
from typing import Any

import pytest

import perfkit
from perfkit.errors import MeasurementWarning
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.measurement.point_telemetry import PointTelemetry
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from perfkit.telemetry.client import TelemetryClient
from perfkit.telemetry.messages import StatisticsConfig, WindowReport
from perfkit.telemetry.prometheus.server_times import PageReport, ServerTime, TimeCounts
from perfkit.telemetry.series import SamplerReport
from perfkit.telemetry.server.sampler import ServerStatisticsSampler
from perfkit.telemetry.server.statistics import ServerStatisticsReader
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.workers.point_recording import PointRecording, WorkloadRecording
from tests.clocks import SettableClock
from tests.hostile.v2_server import Described, grpc_server, http_server, statistics_document

S = 1_000_000_000


@pytest.mark.parametrize("server", [http_server, grpc_server])
def test_counters_that_fall_between_two_readings_are_seen_over_both_protocols(server):
    counts = (5, 900, 300, 2000)
    described = Described(statistics=lambda number: statistics_document(counts[number]))
    clock = SettableClock()
    with server(described) as url:
        sampler = ServerStatisticsSampler(StatisticsConfig(Address.parse(url), "m", "", S), clock)
        assert sampler.start()
        for _ in counts[1:]:
            clock.ns += S
            sampler.sample()
        sampler.close()
    assert sampler.window(0, 9 * S).summary == ((S, 2 * S),)


class Client(TelemetryClient):
    """A telemetry client whose samplers saw counters fall in these spans, or a restart on the page of metrics."""

    def __init__(self, resets, warnings=()):
        super().__init__()
        self.reports: dict[str, SamplerReport[Any]] = {
            "statistics": SamplerReport(resets),
            "metrics 1": SamplerReport(None, warnings=warnings),
        }

    async def window(self, start_ns, end_ns):
        return WindowReport(self.reports, ())


def observed_with(client, connections=None, after=6, models=(("m", ""),), **options):
    """What is observed of a load with one request, before which the server had counted 5."""
    clock = SettableClock()
    clock.ns = 2 * S
    counts = itertools.chain([5, 5, 5], itertools.repeat(after))

    async def read():
        return [ModelStatistics("1", count := next(counts), count, success=TotalTime(count, count))]

    recorder = Recorder(window_start_ns=2 * S, window_end_ns=6 * S)
    recorder.add(Reply(Outcome.OK, 2 * S, 3 * S))
    recording = recorder.finish(6 * S)
    recorded = PointRecording((WorkloadRecording(recording, connections or ConnectionCounts()),), 2 * S, Ending(), BusyShares())

    async def go():
        telemetry = PointTelemetry(1, [(ServerStatisticsReader(read, clock), (0,))], models, client, clock, **options)
        await telemetry.begin()
        clock.ns = 6 * S
        return await telemetry.finish(recorded, cut(recording, 2 * S, is_open=False))

    return asyncio.run(go())


@pytest.mark.parametrize(("resets", "is_null"), [((), False), (((0, S),), False), (((S, 3 * S),), True), (((0, S), (4 * S, 5 * S)), True)])
def test_a_restart_between_two_readings_leaves_no_server_figures_though_the_ends_rose(resets, is_null):
    observed = observed_with(Client(resets))
    assert (observed.resources.server is None) == is_null
    assert [warning.code for warning in observed.warnings] == (["server_counters_reset"] if is_null else [])


def test_a_restart_that_only_the_server_s_page_of_metrics_shows_leaves_no_server_figures():
    client = Client((), (MeasurementWarning("metrics_reset", "It restarted."),))
    assert observed_with(client, has_own_page=True).resources.server is None
    assert observed_with(client).resources.server is not None, "the page of another process, such as an exporter"


@pytest.mark.parametrize(
    ("models", "apart"),
    [
        ([("a", ""), ("b", "")], [0, 1]),
        ([("a", ""), ("a", "")], []),
        ([("a", "1"), ("a", "2"), ("b", "")], [0, 1, 2]),
        ([("a", "1"), ("a", ""), ("b", "")], [2]),
        ([("a", "1"), ("a", "1"), ("a", "2")], [2]),
    ],
)
def test_a_workload_of_a_mix_has_the_times_of_its_model_if_no_other_workload_shares_it(models, apart):
    times = {model: (ServerTime("total", "x", TimeCounts(place + 1.0, 1.0)),) for place, model in enumerate(dict.fromkeys(models))}
    client = Client(())
    client.reports["metrics 1"] = SamplerReport(PageReport(times=times))
    observed = observed_with(client, models=models, is_mix=True)
    assert observed.resources.server_times == ()
    found = [observed.of_workload(place).resources.server_times for place in range(len(models))]
    assert found == [times[model] if place in apart else () for place, model in enumerate(models)]


def test_a_request_that_was_sent_again_may_have_been_answered_twice():
    assert observed_with(Client(()), ConnectionCounts(reconnects=1, retried=1), after=7).warnings == ()
    (warning,) = observed_with(Client(()), after=7).warnings
    assert warning.code == "server_counts_differ"


def test_a_run_across_a_restart_has_no_server_figures(tmp_path):
    described = Described()
    described.statistics = lambda _: statistics_document(described.inferences - (150 if described.inferences >= 150 else 0))
    with http_server(described) as url:
        document = {
            "name": "restart",
            "target": {"url": url, "model": "m"},
            "load": {"open": {"rate": 100, "arrivals": "constant"}},
            "measure": {"warmup": "0s", "duration": "3200ms", "repetitions": 1},
        }
        result = perfkit.run(LoadedScenario(Scenario.model_validate(document), tmp_path, ()))
    (point,) = result.points
    assert described.inferences > 300, "the counters passed their values from before the load"
    assert point.server is None
    assert "server_counters_reset" in {warning.code for warning in point.warnings}
