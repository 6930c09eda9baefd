"""A start over the repository API in virtual time: its steps and figures, and what an interrupt leaves."""

import asyncio

import pytest

from perfkit.clock import ManualClock
from perfkit.errors import TargetError, UsageError
from perfkit.load.load_plan import ColdStartPlan
from perfkit.measurement.cold_start import StartTrial
from perfkit.points.point import pooled_starts
from perfkit.protocol.message import IndexedModel
from perfkit.report.first_requests import cold_start_group, cold_start_sentence, cold_start_table
from perfkit.result.load import ColdStartLoad
from perfkit.result.model import Point
from perfkit.scenario.file import read_document
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.messages import Replied
from tests.result.conftest import POINT

MS, S = 1_000_000, 1_000_000_000
ADDRESS = Address("http", "h", 1)


class Repository(ScriptedTransport):
    """Unloads at once but is busy with that for 30 ms, loads within 200 ms, and is ready 50 ms later."""

    def __init__(self, clock, refusal=""):
        super().__init__(clock, lambda _: (MS, Outcome.OK))
        self.transport = self  # it is the client, too
        self.refusal, self.calls, self.state = refusal, [], "READY"
        self._since_ns = 0

    def _is(self, state):
        self.state, self._since_ns = state, self._clock.now_ns()

    async def unload_model(self, model):
        self.calls.append("unload")
        await self._clock.sleep_until_ns(self._clock.now_ns() + 5 * MS)
        if not self.refusal:
            self._is("UNLOADING")
        return self.refusal

    async def load_model(self, model):
        self.calls.append("load")
        await self._clock.sleep_until_ns(self._clock.now_ns() + 200 * MS)
        self._is("LOADING")
        self.calls.append("loaded")
        return ""

    async def is_ready(self, model, version):
        await asyncio.sleep(0)
        if self.state == "LOADING" and self._clock.now_ns() >= self._since_ns + 50 * MS:
            self.state = "READY"
        return self.state == "READY"

    async def model_index(self):
        if self.state == "UNLOADING" and self._clock.now_ns() >= self._since_ns + 30 * MS:
            self.state = "UNAVAILABLE"
        return (IndexedModel("m", "1", self.state), IndexedModel("other", "1", "READY"))


def trial(clock, repository, timeout_ns=60 * S):
    scenario = read_document({"name": "s", "target": {"model": "m", "url": "http://h:1"}, "load": {"cold_start": {}}}).scenario
    plan = ColdStartPlan(concurrency=1, think_time_ns=0, by="reload", requests=100, timeout_ns=timeout_ns)
    return StartTrial(scenario, plan, ADDRESS, None, clock, lambda *_: repository)


def test_the_steps_are_timed_from_the_call_of_load():
    clock = ManualClock(7 * S)
    repository = Repository(clock)
    start = trial(clock, repository)
    ready_ns = clock.run(start.begin())
    assert ready_ns == clock.now_ns()
    assert repository.calls == ["unload", "load", "loaded"]
    for number in range(100):
        began_ns = ready_ns + 10 * MS * (number + 1)
        outcome = Outcome.REJECTED if number == 0 else Outcome.OK
        start.take(Replied(outcome, began_ns, began_ns + (340 if number == 1 else 30 if number < 14 else 12) * MS))
    found = start.result(3)
    assert found.repetition == 3
    # readiness and index are asked every 2 ms
    assert found.unload_ns == pytest.approx(35 * MS, abs=3 * MS)
    assert found.load_ns == 200 * MS
    assert found.ready_ns == pytest.approx(250 * MS, abs=3 * MS)
    assert (found.first_answer_ns, found.failed_before_answer) == (340 * MS, 1)
    assert found.first_answer_after_ns == found.ready_ns + 20 * MS + 340 * MS
    assert (found.steady_after_requests, found.warm_p50_ns) == (14, 12 * MS)
    assert found.steady_after_ns == found.ready_ns + 150 * MS
    assert found.times_ns[:3] == (None, 340 * MS, 30 * MS)


def test_a_start_without_a_request_has_no_figures():
    clock = ManualClock()
    assert trial(clock, Repository(clock)).result(0) is None


# in the call of unload, while the server unloads, in the call of load, and before the model is ready
@pytest.mark.parametrize("after_ms", [0, 1, 6, 20, 40, 150, 240, 270])
def test_an_interrupt_leaves_the_model_loaded_whenever_it_comes(after_ms):
    clock = ManualClock()
    repository = Repository(clock)

    async def main():
        running = asyncio.ensure_future(trial(clock, repository).begin())
        await clock.sleep_until_ns(after_ms * MS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    clock.run(main())
    assert repository.calls in ([], ["unload", "load", "loaded"])
    assert repository.state != "UNAVAILABLE"


def test_a_server_that_loads_nothing_on_request_is_named_with_its_option():
    clock = ManualClock()
    repository = Repository(clock, "HTTP 503: explicit model load / unload is not allowed")
    with pytest.raises(UsageError) as caught:
        clock.run(trial(clock, repository).begin())
    assert "http://h:1: the model 'm' cannot be unloaded: HTTP 503: explicit model load / unload is not allowed: " in str(caught.value)
    assert "--model-control-mode explicit" in str(caught.value)
    assert repository.calls == ["unload"]


def test_a_model_that_does_not_become_ready_ends_the_start():
    clock = ManualClock()

    class NeverReady(Repository):
        async def is_ready(self, model, version):
            return False

    with pytest.raises(TargetError, match="was loaded, but not ready within 1 s"):
        clock.run(trial(clock, NeverReady(clock), timeout_ns=S).begin())


def starts(*first_ms):
    """Starts whose first request took that long, and the others 12 ms."""
    clock, found = ManualClock(), []
    for repetition, time_ms in enumerate(first_ms):
        start = trial(clock, Repository(clock))
        clock.run(start.begin())
        for number in range(100):
            start.take(Replied(Outcome.OK, clock.now_ns(), clock.now_ns() + (time_ms if number == 0 else 12) * MS))
        found.append(start.result(repetition))
    return found


def test_starts_are_pooled_to_medians_and_ranges():
    pooled = pooled_starts(starts(300, 340, 500))
    first = pooled.figures["first_answer_ns"]
    assert (first.median, first.min, first.max) == (340 * MS, 300 * MS, 500 * MS)
    assert pooled.figures["steady_after_requests"].median == 1
    assert pooled_starts([]) is None


def test_the_report_has_each_start():
    point = Point.model_validate(POINT).model_copy(
        update={"load": ColdStartLoad(by="reload", requests=100), "cold_start": pooled_starts(starts(300, 340, 500))}
    )
    assert (
        cold_start_sentence(point) == "loaded after 200 ms, first answer 340 ms (warm 12.0 ms), steady after 1 request; medians of 3 starts"
    )
    table = cold_start_table([point])
    assert [row[1] for row in table.rows] == ["1", "2", "3", "median"]
    (chart,) = cold_start_group([point]).charts
    assert [line.ys[:2] for line in chart.lines] == [(300.0, 12.0), (340.0, 12.0), (500.0, 12.0)]
    assert chart.levels[0].value == 12.0
