"""The server's statistics over time, with readings from a script."""

import pytest

from perfkit.errors import TargetError
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.target.address import Address
from perfkit.telemetry.messages import StatisticsConfig
from perfkit.telemetry.server.sampler import ServerStatisticsSampler

S, MS = 1_000_000_000, 1_000_000


def statistics(requests, infer_ms):
    times = {"success": TotalTime(requests, 0), "compute_infer": TotalTime(requests, infer_ms * MS)}
    return (ModelStatistics("1", 2 * requests, requests, **times),)


class ScriptedTransport:
    """Answers with readings from a list, the first at the start; None stands for no answer."""

    def __init__(self, readings):
        self.readings = list(readings)

    async def model_statistics(self, model, version):
        reading = self.readings.pop(0)
        if reading is None:
            raise TargetError("gone")
        return reading

    async def aclose(self):
        pass


@pytest.fixture
def make_sampler(clock):
    made = []

    def make(*readings):
        config = StatisticsConfig(Address.parse("http://127.0.0.1:1"), "m", "", S)

        def make_transport(*_):
            return ScriptedTransport(readings)

        made.append(ServerStatisticsSampler(config, clock, make_transport))
        return made[-1]

    yield make
    for sampler in made:
        sampler.close()


def sampled(sampler, clock, times):
    for _ in range(times):
        clock.ns += S
        assert sampler.sample() == clock.ns + S


def test_means_cover_the_requests_between_two_readings(make_sampler, clock):
    sampler = make_sampler(statistics(0, 0), statistics(0, 0), statistics(10, 100), statistics(30, 500), statistics(30, 500))
    assert sampler.start()
    sampled(sampler, clock, 4)
    series = {series.name: series for series in sampler.window(0, 9 * S).series}
    assert (series["server_compute_infer"].times_ns, series["server_compute_infer"].values) == ((2 * S, 3 * S), (10 * MS, 20 * MS))
    assert series["server_answers_per_s"].values == (10, 20, 0)
    assert series["server_mean_batch"].values == (2, 2)
    assert {newest.name: newest.values for newest in sampler.latest()}["server_answers_per_s"] == (0,)


def test_a_server_that_does_not_answer_at_first_is_read_again(make_sampler, clock):
    sampler = make_sampler(None, statistics(0, 0), statistics(4, 20))
    assert sampler.start()
    sampled(sampler, clock, 2)
    assert sampler.notes == ["Some readings of the server's statistics failed (gone): their series have gaps."]
    assert {series.name for series in sampler.window(0, 9 * S).series} >= {"server_compute_infer"}


def test_a_server_without_statistics_is_noted_and_not_read_again(make_sampler):
    sampler = make_sampler(())
    assert not sampler.start()
    assert sampler.notes == [
        "The server has no v2 statistics: its queue and compute times are not known. If it has a page of metrics, target.metrics_url takes them from there."
    ]


def test_each_reading_is_compared_with_the_one_before(make_sampler, clock):
    sampler = make_sampler(statistics(9, 9), statistics(9, 9), statistics(2, 2), statistics(3, 5), None, statistics(4, 1))
    assert sampler.start()
    sampled(sampler, clock, 5)
    report = sampler.window(0, 9 * S)
    assert report.summary == ((S, 2 * S), (3 * S, 5 * S)), "the second time only the time of a counter fell, and a reading was missed"
    assert [series.values for series in report.series if series.name == "server_compute_infer"] == [(3 * MS,)]


def test_a_model_that_is_unknown_for_a_while_was_reloaded(make_sampler, clock):
    sampler = make_sampler(statistics(0, 0), statistics(0, 0), (), statistics(7, 7), statistics(9, 9))
    assert sampler.start()
    sampled(sampler, clock, 4)
    report = sampler.window(0, 9 * S)
    assert report.summary == ((S, 2 * S),)
    assert [series.values for series in report.series if series.name == "server_answers_per_s"] == [(2,)]
