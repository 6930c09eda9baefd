"""Requests that are sent again over real connections: counts, beside what the server itself counted and its declaration."""

import itertools

import pytest

from perfkit.errors import ScenarioError
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.service_model import uniform_share
from tests.measurement import one_point

FAILING = "service=constant:2ms,servers=1000,errors=40%:503,seed=5"
RETRY = {"attempts": 4, "backoff": "1ms..4ms", "on": [503, "UNAVAILABLE", "timeout"]}


def read(tmp_path, protocol="http", synthetic=FAILING, load=None, **sections):
    load = load or {"closed": {"concurrency": 1}, "retry": RETRY}
    return one_point.read(tmp_path, protocol=protocol, synthetic=synthetic, load=load, **sections)


def declared(is_failing, requests, attempts):
    """The attempts, the requests answered, and those that failed, of one request after the other; each attempt is the server's next request.

    Before, perfkit asks the server until it is answered.
    """
    numbers = itertools.count()
    while is_failing(next(numbers)):
        pass
    first, ok = next(numbers), 0
    last = first - 1
    numbers = itertools.count(first)
    for _ in range(requests):
        for last in itertools.islice(numbers, attempts):
            if not is_failing(last):
                ok += 1
                break
    return last + 1 - first, ok, requests - ok


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_attempts_are_those_that_the_declared_failures_make(tmp_path, protocol):
    point, model = one_point.run(read(tmp_path, protocol), tmp_path), parse_service_model(FAILING)
    retries, requests, server = point.retries, point.requests, point.server
    assert retries is not None
    assert server is not None
    attempts, ok, failed = declared(lambda number: model.failure(number) is not None, 60, 4)
    assert (retries.attempts, requests.ok, requests.rejected) == (attempts, ok, failed)
    assert (requests.sent, retries.retries) == (60, attempts - 60)
    assert retries.by_cause == {"503" if protocol == "http" else "UNAVAILABLE": attempts - 60}
    assert retries.amplification == pytest.approx(attempts / 60)
    assert (server.requests, server.failed) == (ok, attempts - ok)
    assert server.client_requests == ok
    assert point.error_rate == pytest.approx(failed / 60)
    assert {warning.code for warning in point.warnings}.isdisjoint({"server_counts_differ", "server_times_impossible"})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_that_timed_out_is_sent_again(tmp_path, protocol):
    load = {"closed": {"concurrency": 1}, "retry": {**RETRY, "attempts": 2}}
    loaded = read(
        tmp_path, protocol, "service=constant:2ms,servers=1000,slow=1000x/40%,seed=11", load,
        target={"model": "synthetic", "protocols": [protocol], "timeout": "200ms"}, measure={"warmup": "0s", "requests": 12, "repetitions": 1},
    )  # fmt: skip
    point = one_point.run(loaded, tmp_path)
    attempts, ok, failed = declared(lambda number: uniform_share(11, number, b"slow") < 0.4, 12, 2)
    assert point.retries is not None
    assert 0 < failed < ok
    assert (point.requests.ok, point.requests.timed_out, point.retries.attempts) == (ok, failed, attempts)
    assert point.retries.by_cause == {"timeout": attempts - 12}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_budget_bounds_the_retries_of_all_workers(tmp_path, protocol):
    load = {"open": {"rate": 200, "arrivals": "constant"}, "retry": {**RETRY, "budget": "10%"}}
    measure = {"warmup": "0s", "requests": 200, "repetitions": 1, "workers": 2}
    point = one_point.run(
        read(tmp_path, protocol, "service=constant:2ms,servers=1000,errors=90%:503,seed=1", load, measure=measure), tmp_path
    )
    assert point.retries is not None
    assert point.requests.sent == 200
    # each worker retries as soon as its budget permits: at the end at most a token is left for want of a failure
    assert 18 <= point.retries.retries <= 20
    assert point.retries.attempts == 200 + point.retries.retries
    assert point.retries.over_budget > 100


@pytest.mark.parametrize("workers", [1, 2])
def test_attempts_of_a_mix_are_those_of_its_workloads_and_of_the_server(tmp_path, workers):
    load = {"open": {"rate": 200}, "retry": RETRY}
    measure = {"warmup": "0s", "duration": "1s", "repetitions": 1, "workers": workers}
    loaded = read(tmp_path, load=load, measure=measure, workloads=[{"name": "a", "weight": 3}, {"name": "b", "weight": 1}])
    whole, *parts = one_point.run_all(loaded, tmp_path)
    assert whole.retries is not None
    assert whole.server is not None
    assert whole.server.failed is not None
    own = [part.retries for part in parts if part.retries is not None]
    assert whole.retries.attempts == sum(one.attempts for one in own) == whole.server.requests + whole.server.failed
    assert whole.retries.retries == whole.retries.attempts - whole.requests.sent > 0
    assert [one.attempts - one.retries for one in own] == [part.requests.sent for part in parts]


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"load": {"idle": {"gap": "1s"}, "retry": {}}}, "load.retry is for closed and open loads and surges"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"on": ["503x"]}}}, "found '503x'"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"on": []}}}, "load.retry.on"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"backoff": "2s..50ms"}}}, "the first pause and the longest"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"backoff": "1ms..2ms..3ms"}}}, "the first pause and the longest"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"backoff": "1s..61m"}}}, "the longest, at most an hour"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"attempts": 1}}}, "load.retry.attempts"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {"budget": 0}}}, "load.retry.budget"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {}, "abandon": {"share": "5%", "after": "1s"}}}, "does not send it again"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {}}, "sequences": {"length": 3}}, "change its sequence twice"),
        ({"load": {"closed": {"concurrency": 1}, "retry": {}}, "traces": {"share": "10%"}}, "remove retry, or traces"),
    ],
)
def test_what_cannot_be_sent_again_is_refused(tmp_path, sections, told):
    with pytest.raises(ScenarioError, match=told):
        read(tmp_path, **sections)


def test_backoff_and_causes_are_read_and_written_as_the_file_has_them(tmp_path):
    load = {"open": {"rate": 10}, "retry": {"on": [429, "broken"], "backoff": "50ms..2s", "budget": "10%"}}
    scenario = read(tmp_path, load=load).scenario
    assert scenario.retry is not None
    assert (scenario.retry.on, scenario.retry.backoff_ns, scenario.retry.budget) == (("429", "broken"), (50 * 10**6, 2 * 10**9), 0.1)
    written = scenario.model_dump(mode="json", by_alias=True)["load"]["retry"]
    assert type(scenario.retry).model_validate(written) == scenario.retry
    surge = {"surge": {"base": 10, "surge": 20, "for": "2s"}, "retry": {}}
    assert read(tmp_path, load=surge, slo={"p99": "50ms"}, measure={}).scenario.retry == type(scenario.retry)()
    assert scenario.longest_request_ns == 3 * scenario.target.timeout_ns + 2 * 2 * 10**9
