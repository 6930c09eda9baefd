"""The rate near which a search begins, of servers whose rate follows from a clock that only they advance."""

import asyncio

import pytest

from perfkit.errors import TargetError
from perfkit.measurement.answer_gap import answer_gap_ns
from perfkit.scenario.model import Scenario
from tests.clocks import SettableClock

S, MS = 1_000_000_000, 1_000_000
SEARCH = {"search": {"slo": {"p99": "50ms"}}}


class Server:
    """Answers each request after a time on its clock; as many as are in flight share it, if the server is parallel."""

    def __init__(self, *times_ns, parallel=False, fails_after=None):
        self.clock, self.times_ns, self.parallel, self.fails_after = SettableClock(), list(times_ns), parallel, fails_after
        self.sent = self.in_flight = self.most_in_flight = 0

    async def send(self):
        if self.fails_after is not None and self.sent >= self.fails_after:
            raise TargetError("it fails")
        self.sent += 1
        time_ns = self.times_ns.pop(0) if len(self.times_ns) > 1 else self.times_ns[0]
        self.in_flight += 1
        await asyncio.sleep(0)  # the others are sent meanwhile
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.clock.ns += time_ns // (self.most_in_flight if self.parallel else 1)
        self.in_flight -= 1
        return time_ns, 0


def gap_ns(server, first_ns=3 * S, load=None, **sections):
    scenario = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": load or SEARCH, **sections})
    return asyncio.run(answer_gap_ns(server.send, scenario, server.clock, first_ns))


def test_a_cold_first_request_does_not_decide_and_a_serial_server_answers_one_by_one():
    server = Server(5 * MS)
    assert gap_ns(server) == 5 * MS
    assert server.most_in_flight == 8


def test_a_parallel_server_answers_eight_times_as_often():
    assert gap_ns(Server(40 * MS, parallel=True)) == pytest.approx(5 * MS, rel=0.2)


def test_a_slow_server_gets_one_request_more():
    server = Server(2 * S)
    assert gap_ns(server) == 2 * S
    assert server.sent == 1


@pytest.mark.parametrize(
    "sections",
    [
        {"load": {"closed": {"concurrency": 4}}},
        {"load": {"search": {"slo": {"p99": "50ms"}, "start_rate": "5/s"}}},
        {"sequences": {"length": 4}},
    ],
)
def test_what_needs_no_rate_sends_nothing(sections):
    server = Server(5 * MS)
    assert gap_ns(server, **sections) == 3 * S
    assert server.sent == 0


def test_an_error_that_is_no_failure_of_the_target_ends_all_loops():
    server = Server(5 * MS)
    sent = list[None]()

    async def send():
        sent.append(None)
        if len(sent) == 4:
            raise RuntimeError("a mistake")
        return await server.send()

    async def main():
        scenario = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": SEARCH})
        with pytest.raises(RuntimeError, match="a mistake"):
            await answer_gap_ns(send, scenario, server.clock, 3 * S)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(main()) == []


def test_a_server_that_fails_leaves_the_best_time_that_is_known():
    assert gap_ns(Server(5 * MS, fails_after=0)) == 3 * S
    assert gap_ns(Server(5 * MS, fails_after=1)) == 5 * MS
    assert gap_ns(Server(5 * MS, fails_after=101)) == 5 * MS
