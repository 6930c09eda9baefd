"""The comparison of clients: ratios, with an earlier perfkit, too, and the counts of callgrind."""

import pytest

from benchmarks.peers.clients import ClientError
from benchmarks.peers.compare import CASES, Figures, ratios_of
from benchmarks.peers.instructions import PerRequest, _Count, _counted, _difference, _totals
from benchmarks.processes import BEFORE, OWN

LOG = "==7== Events    : Ir sysCount sysTime\n==7== Collected : 2086000 4100 33\n==7==\n"


def test_an_earlier_perfkit_is_compared_with_this_one_and_with_the_peer_within_each_round():
    rounds = {
        "wrk": [Figures(10, 100, 50, 5), Figures(20, 100, 50, 5)],
        BEFORE: [Figures(12, 80, 60, 70), Figures(26, 80, 60, 70)],
        OWN: [Figures(9, 110, 55, 70), Figures(13, 110, 55, 70)],
    }
    cpu = {ratio.name: ratio.values for ratio in ratios_of(CASES["http-small"], rounds) if ratio.name.startswith("CPU")}
    assert cpu == {
        "CPU per request, perfkit / wrk": (0.9, 0.65),
        "CPU per request, perfkit / perfkit before": (0.75, 0.5),
        "CPU per request, perfkit before / wrk": (1.2, 1.3),
    }


def test_a_request_costs_what_more_requests_add(tmp_path):
    log = tmp_path / "log"
    log.write_text(LOG, encoding="utf-8")
    assert _totals(log) == (2_086_000, 4100)
    assert _difference("wrk", _Count(10, 1_086_000, 100), _Count(1010, *_totals(log))) == PerRequest(1000, 4)


def test_counts_that_say_nothing_are_refused(tmp_path):
    log = tmp_path / "log"
    log.write_text("==7== terminated\n", encoding="utf-8")
    with pytest.raises(ClientError, match="counted nothing: ==7== terminated"):
        _totals(log)
    with pytest.raises(ClientError, match=r"wrk sent 10 requests and then 1009 .*too busy"):
        _difference("wrk", _Count(10, 5, 5), _Count(1009, 6, 6))
    for more in (_Count(1010, 5, 6), _Count(1010, 6, 5)):
        with pytest.raises(ClientError, match=r"wrk took [01] instructions and [01] system calls for 1,000 more requests"):
            _difference("wrk", _Count(10, 5, 5), more)


def test_a_log_of_an_earlier_run_does_not_count(tmp_path):
    log = tmp_path / "log"
    log.write_text(LOG, encoding="utf-8")
    with pytest.raises(ClientError, match="counted nothing"):
        _counted(log, lambda _: 10, "0s")
    assert _counted(log, lambda requests: log.write_text(LOG, encoding="utf-8") and requests, 10) == _Count(10, 2_086_000, 4100)
