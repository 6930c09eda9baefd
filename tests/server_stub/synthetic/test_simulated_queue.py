"""The simulated queue against closed forms, the recursions of Lindley and of Kiefer and Wolfowitz, and general invariants."""

import dataclasses
import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import ErrorKind
from server_stub.synthetic.service_model import (
    AfterGap,
    Exponential,
    Failures,
    Linear,
    Lognormal,
    ServiceModel,
    SlowFirst,
    SlowShare,
    SlowStart,
    Stall,
    uniform_share,
)
from server_stub.synthetic.simulated_queue import ServedRequest, SimulatedQueue

MS, S = 10**6, 10**9
AT_ONCE, AT_PACE = Stall(1 * S, 10 * S), Stall(1 * S, 10 * S, drains_at_once=False)


def served(model, arrivals_ns, batch_sizes=None):
    queue = SimulatedQueue(model)
    return [queue.arrive(arrived_ns, size) for arrived_ns, size in zip(arrivals_ns, batch_sizes or itertools.repeat(1), strict=False)]


def poisson_ns(rate_per_s, count, seed=1):
    source = random.Random(seed)
    return list(itertools.accumulate(round(source.expovariate(rate_per_s) * S) for _ in range(count)))


def mean_response_ns(model, arrivals_ns):
    return statistics.fmean(one.departed_ns - one.arrived_ns for one in served(model, arrivals_ns))


def random_service_times_ns(model, count):
    return [round(model.service.quantile_ns(uniform_share(model.seed, number, b"service"), 1)) for number in range(count)]


gaps_ns = st.lists(st.integers(0, 3000), min_size=1, max_size=60)
models = st.builds(
    ServiceModel,
    service=st.one_of(
        st.builds(Linear, st.integers(0, 2000)),
        st.builds(Exponential, st.integers(1, 2000)),
        st.builds(Lognormal, st.integers(1, 2000), st.just(1.0)),
    ),
    servers=st.integers(1, 4),
    seed=st.integers(0, 2**64 - 1),
)
stalls = st.integers(2, 9000).flatmap(lambda period: st.builds(Stall, st.integers(1, period - 1), st.just(period), st.booleans()))


def test_a_request_is_served_at_once_if_a_server_is_free_and_waits_otherwise():
    assert served(ServiceModel(Linear(5)), [100, 102, 200]) == [
        ServedRequest(100, 100, 105),
        ServedRequest(102, 105, 110),
        ServedRequest(200, 200, 205),
    ]


def test_with_two_servers_the_third_request_takes_the_one_free_first():
    model = ServiceModel(Linear(0, row_ns=10), servers=2)
    assert served(model, [0, 1, 2], [3, 1, 1]) == [ServedRequest(0, 0, 30), ServedRequest(1, 1, 11), ServedRequest(2, 11, 21)]


def test_linear_service_adds_a_time_per_row_to_a_fixed_time():
    assert [one.departed_ns - one.started_ns for one in served(ServiceModel(Linear(5, row_ns=2)), [0, 100, 200], [1, 8, 64])] == [
        7,
        21,
        133,
    ]


def test_an_arrival_before_the_previous_one_is_an_error():
    queue = SimulatedQueue(ServiceModel())
    queue.arrive(10)
    with pytest.raises(ValueError, match="arrives at 9 ns, before the previous one at 10 ns"):
        queue.arrive(9)


@given(gaps_ns, models)
def test_one_server_follows_lindleys_recursion_to_the_nanosecond(gaps, model):
    model = dataclasses.replace(model, servers=1)
    waited_ns, service_times_ns = 0, random_service_times_ns(model, len(gaps))
    requests = served(model, itertools.accumulate(gaps))
    for number, one in enumerate(requests):
        if number:
            waited_ns = max(0, waited_ns + service_times_ns[number - 1] - gaps[number])
        assert one.started_ns - one.arrived_ns == waited_ns
        assert one.departed_ns - one.started_ns == service_times_ns[number]


@given(gaps_ns, models)
def test_several_servers_follow_the_kiefer_wolfowitz_recursion(gaps, model):
    workloads_ns, service_times_ns = [0] * model.servers, random_service_times_ns(model, len(gaps))
    for number, one in enumerate(served(model, itertools.accumulate(gaps))):
        workloads_ns = sorted(max(0, left - (gaps[number] if number else 0)) for left in workloads_ns)
        assert one.started_ns - one.arrived_ns == workloads_ns[0]
        workloads_ns[0] += service_times_ns[number]


@given(gaps_ns, models, st.none() | stalls)
def test_requests_are_served_in_order_of_arrival(gaps, model, stall):
    model = dataclasses.replace(model, stall=stall)
    requests = served(model, itertools.accumulate(gaps))
    assert all(one.arrived_ns <= one.started_ns <= one.departed_ns for one in requests)
    assert all(one.started_ns <= other.started_ns for one, other in itertools.pairwise(requests))
    if model.servers == 1:
        assert all(one.departed_ns <= other.started_ns for one, other in itertools.pairwise(requests))


@given(gaps_ns, models)
def test_no_request_waits_while_a_server_is_idle(gaps, model):
    requests = served(model, itertools.accumulate(gaps))
    for one in requests:
        instants = {one.arrived_ns, *(other.departed_ns for other in requests if one.arrived_ns <= other.departed_ns < one.started_ns)}
        for instant in instants if one.started_ns > one.arrived_ns else ():
            assert sum(other.started_ns <= instant < other.departed_ns for other in requests if other is not one) == model.servers


@given(gaps_ns, models, stalls)
def test_no_request_departs_during_a_stall(gaps, model, stall):
    first, *_ = requests = served(dataclasses.replace(model, stall=stall), itertools.accumulate(gaps))
    for one in requests:
        within_ns = (one.departed_ns - first.arrived_ns) % stall.period_ns
        assert within_ns < stall.period_ns - stall.duration_ns


@given(gaps_ns, models, stalls)
def test_a_request_arriving_in_a_stall_that_drains_at_once_departs_at_its_end(gaps, model, stall):
    stall = dataclasses.replace(stall, drains_at_once=True)
    first, *_ = requests = served(dataclasses.replace(model, stall=stall), itertools.accumulate(gaps))
    for one in requests:
        periods, within_ns = divmod(one.arrived_ns - first.arrived_ns, stall.period_ns)
        end_ns = first.arrived_ns + (periods + 1) * stall.period_ns
        assert one.departed_ns <= end_ns, "a stall's end empties the queue"
        if within_ns >= stall.period_ns - stall.duration_ns:
            assert (one.started_ns, one.departed_ns) == (end_ns, end_ns)


@given(gaps_ns, models, stalls)
def test_a_stall_served_at_pace_stops_the_clock_of_a_queue_without_stalls(gaps, model, stall):
    stall = dataclasses.replace(stall, drains_at_once=False)
    arrivals = list(itertools.accumulate(gaps))

    def active_ns(instant):  # time outside stalls since the first arrival, counted stall by stall
        since = instant - arrivals[0]
        stalled = sum(
            min(since, begin + stall.duration_ns) - begin for begin in range(stall.period_ns - stall.duration_ns, since, stall.period_ns)
        )
        return since - stalled

    stalled = served(dataclasses.replace(model, stall=stall), arrivals)
    plain = served(model, [active_ns(arrival) for arrival in arrivals])
    assert [active_ns(one.started_ns) for one in stalled] == [one.started_ns for one in plain]
    assert [active_ns(one.departed_ns) for one in stalled] == [one.departed_ns for one in plain]


def test_a_stall_in_the_middle_of_service_at_once_and_at_pace():
    arrivals = [0, 8_999 * MS, 9_400 * MS, 10_001 * MS]
    ended = [one.departed_ns // MS for one in served(ServiceModel(Linear(3 * MS), stall=AT_ONCE), arrivals)]
    assert ended == [3, 10_000, 10_000, 10_004]
    ended = [one.departed_ns // MS for one in served(ServiceModel(Linear(3 * MS), stall=AT_PACE), arrivals)]
    assert ended == [3, 10_002, 10_005, 10_008]


def test_a_stall_of_one_second_in_ten_gives_the_textbook_percentiles():
    arrivals = [number * MS for number in range(20_000)]  # 1000/s for two periods
    responses_ns = [one.departed_ns - one.arrived_ns for one in served(ServiceModel(Linear(100_000), stall=AT_ONCE), arrivals)]
    quantiles_ns = statistics.quantiles(responses_ns, n=100)
    assert quantiles_ns[94] / S == pytest.approx(0.5, rel=0.01)
    assert quantiles_ns[98] / S == pytest.approx(0.9, rel=0.01)
    assert quantiles_ns[88] == 100_000


def test_M_M_1_response_times_have_the_mean_and_quantiles_of_theory():
    utilisation = 0.6  # at 0.8 the mean of four times as many requests is as uncertain
    requests = served(ServiceModel(Exponential(10 * MS), seed=3), poisson_ns(100 * utilisation, 50_000))
    responses_s = [(one.departed_ns - one.arrived_ns) / S for one in requests]
    spare_per_s = 100 * (1 - utilisation)
    assert statistics.fmean(responses_s) == pytest.approx(1 / spare_per_s, rel=0.04)
    assert statistics.median(responses_s) == pytest.approx(math.log(2) / spare_per_s, rel=0.04)
    assert statistics.quantiles(responses_s, n=100)[98] == pytest.approx(math.log(100) / spare_per_s, rel=0.06)


def test_M_D_1_response_times_have_the_mean_and_quantiles_of_theory():
    requests = served(ServiceModel(Linear(10 * MS)), poisson_ns(80, 100_000))
    responses = [(one.departed_ns - one.arrived_ns) / (10 * MS) for one in requests]
    quantiles = statistics.quantiles(responses, n=100)
    assert statistics.fmean(responses) == pytest.approx(3.0, rel=0.03)
    assert (quantiles[94], quantiles[98]) == pytest.approx((7.620, 11.356), rel=0.06)


def test_M_M_c_waiting_times_follow_erlang_c():
    servers, offered = 3, 2.4  # erlangs
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    waiting_share = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    expected_ms = 10 + waiting_share * 10 / (servers - offered)
    model = ServiceModel(Exponential(10 * MS), servers=servers, seed=5)
    assert mean_response_ns(model, poisson_ns(100 * offered, 100_000)) / MS == pytest.approx(expected_ms, rel=0.04)


@pytest.mark.parametrize("service", [Exponential(10 * MS), Lognormal(10 * MS, 0.5), Lognormal(10 * MS, 1.0)])
def test_service_times_follow_their_distribution(service):
    count, model = 50_000, ServiceModel(service, seed=11)
    drawn_ns = sorted(random_service_times_ns(model, count))
    assert statistics.fmean(drawn_ns) == pytest.approx(10 * MS, rel=0.02)

    def share_below(value_ns):
        if isinstance(service, Exponential):
            return 1 - math.exp(-value_ns / service.average_ns)
        distance = (math.log(value_ns / service.average_ns) + service.sigma**2 / 2) / service.sigma
        return (1 + math.erf(distance / math.sqrt(2))) / 2

    # Kolmogorov-Smirnov: at most 1.63 / sqrt(n) in 99 % of samples; the seed is fixed
    assert max(abs((rank + 0.5) / count - share_below(value)) for rank, value in enumerate(drawn_ns)) < 1.63 / math.sqrt(count)


def test_a_requests_random_values_depend_only_on_seed_and_number():
    model = ServiceModel(Exponential(10 * MS), seed=7)
    slowly, at_once = served(model, [number * S for number in range(50)]), served(model, [0] * 50)
    service_times_ns = [one.departed_ns - one.started_ns for one in slowly]
    assert service_times_ns == [one.departed_ns - one.started_ns for one in at_once] == random_service_times_ns(model, 50)
    assert service_times_ns != random_service_times_ns(dataclasses.replace(model, seed=8), 50)
    assert service_times_ns[:3] == [26_377_454, 2_250_045, 5_398_987], "the service times of a seed never change"


def test_shares_exclude_0_and_1_and_extreme_service_times_are_finite():
    for share in (0.5 / 2**52, 1 - 0.5 / 2**52):
        assert 0 < share < 1
        assert Lognormal(10 * MS, 5.0).quantile_ns(share, 1) > 0
        assert 0 < Exponential(10 * MS).quantile_ns(share, 1) < 40 * 10 * MS


def test_the_configured_share_of_requests_fails_with_the_configured_error_after_the_usual_service():
    model = ServiceModel(Exponential(10 * MS), seed=1)
    failing = dataclasses.replace(model, failures=Failures(0.1, ErrorKind.UNAVAILABLE))
    arrivals = poisson_ns(50, 20_000)
    requests = served(failing, arrivals)
    assert [dataclasses.replace(one, failure=None) for one in requests] == served(model, arrivals)
    assert {one.failure for one in requests} == {None, ErrorKind.UNAVAILABLE}
    share = statistics.fmean(one.failure is not None for one in requests)
    assert share == pytest.approx(0.1, abs=3 * math.sqrt(0.1 * 0.9 / len(requests)))


@pytest.mark.parametrize(("share", "kinds"), [(0.0, {None}), (1.0, {ErrorKind.INTERNAL})])
def test_the_failing_share_may_be_0_or_1(share, kinds):
    assert {one.failure for one in served(ServiceModel(failures=Failures(share, ErrorKind.INTERNAL)), range(200))} == kinds


def test_a_slow_start_decays_from_the_first_request():
    model = ServiceModel(Linear(10 * MS), slow_start=SlowStart(3, 10 * S))
    first_ns = 77 * S
    requests = served(model, [first_ns, first_ns + 10 * S, first_ns + 100 * S])
    services_ms = [(one.departed_ns - one.started_ns) / MS for one in requests]
    assert services_ms == pytest.approx([30, 10 * (1 + 2 / math.e), 10], rel=1e-4)


def test_the_first_executions_of_each_batch_size_are_slow():
    queue = SimulatedQueue(ServiceModel(Linear(10 * MS), first=SlowFirst(8, 2)))
    requests = [queue.arrive(0, size) for size in (1, 1, 1, 4, 1, 4, 4)]
    assert [(one.departed_ns - one.started_ns) / MS for one in requests] == [80, 80, 10, 80, 10, 80, 10]


def test_a_share_of_the_requests_is_slow_at_random():
    """Of 5,000 requests 2 % are 100, with a standard deviation of 10; the seed is fixed."""
    requests = served(ServiceModel(Linear(10 * MS), slow=SlowShare(3, 0.02)), [0] * 5000)
    services_ms = [(one.departed_ns - one.started_ns) / MS for one in requests]
    assert set(services_ms) == {10, 30}
    assert 60 < services_ms.count(30) < 140


@pytest.mark.parametrize(("drift_per_s", "expected_ms"), [(0.01, [10, 11, 20]), (-0.01, [10, 9, 0]), (-0.1, [10, 0, 0])])
def test_drift_adds_its_share_every_second_and_never_makes_service_negative(drift_per_s, expected_ms):
    requests = served(ServiceModel(Linear(10 * MS), drift_per_s=drift_per_s), [0, 10 * S, 100 * S])
    assert [(one.departed_ns - one.started_ns) / MS for one in requests] == expected_ms


@given(st.integers(0, 2**62))
def test_rounding_errors_do_not_accumulate(first_ns):
    requests = served(ServiceModel(Linear(1_000_003)), [first_ns] * 1000)
    assert requests[-1].departed_ns == first_ns + 1000 * 1_000_003


def test_a_request_after_a_gap_takes_longer_and_others_do_not():
    model = ServiceModel(Linear(10 * MS), after_gap=AfterGap(40 * MS, 100 * MS))
    # the first has no gap before it; then gaps of 99, 100 and 0 ms after the latest departure
    arrivals_ms, service_ms = [0, 109, 219, 269], [10, 10, 50, 10]
    assert [(one.departed_ns - one.started_ns) // MS for one in served(model, [ms * MS for ms in arrivals_ms])] == service_ms


def test_a_full_queue_refuses_at_once_and_keeps_its_place_for_no_one():
    requests = served(ServiceModel(Linear(10 * MS), queue=1), [0, 1 * MS, 2 * MS, 10 * MS, 11 * MS])
    assert [one.is_refused for one in requests] == [False, False, True, False, True]
    assert [one.departed_ns // MS for one in requests] == [10, 20, 2, 30, 11]


def test_without_places_to_wait_the_share_that_is_refused_is_that_of_erlang():
    offered, servers, count = 2.0, 3, 40_000
    requests = served(ServiceModel(Exponential(20 * MS), servers=servers, queue=0), poisson_ns(offered / 0.02, count))
    terms = [offered**number / math.factorial(number) for number in range(servers + 1)]
    share = terms[-1] / sum(terms)
    assert statistics.fmean(one.is_refused for one in requests) == pytest.approx(share, abs=5 * math.sqrt(share / count))
