"""The result of a run as it grows: its status, its limits, and the parts of the time of traced requests."""

import numpy as np
import pytest

from perfkit.measurement.run_result import RunResult
from perfkit.recorder.series import Series
from perfkit.report.answer import answer
from perfkit.result.load import ClosedLoad, OpenLoad, SurgeLoad
from perfkit.result.search import Search
from perfkit.scenario.file import read_scenario
from perfkit.transport.base import Outcome
from tests.cli.gate_scenario import write_gate_scenario
from tests.queue_results import bucket_counts, measured_point

BUSY = 0.99  # of a core: the load generator was the bottleneck


@pytest.fixture
def grown(tmp_path):
    """Makes an empty result, of a search or of another load, with these limits of the scenario."""

    def make(is_search=False, *, slo=None, abort_error_rate=None):
        measure = {} if abort_error_rate is None else {"abort_error_rate": abort_error_rate}
        loaded = read_scenario(
            write_gate_scenario(tmp_path, "p50", slo=slo or {"p50": "1ms"}), [f"measure.{k}={v}" for k, v in measure.items()], environ={}
        )
        return RunResult(loaded, {None: loaded}, {"source": {}}, is_search=is_search)

    return make


def measured(repetition, cpu_share=0.1, ok=100, failed=(Outcome.REJECTED, 0), concurrency=4, slow=0):
    outcome, count = failed
    times = {
        "service_time": bucket_counts(np.repeat([0.002, 0.004], [ok - slow, slow])),
        "failure_time": bucket_counts(np.full(count, 0.002)),
    }
    return measured_point(
        ClosedLoad(concurrency=concurrency), repetition, seconds=1, outcomes={Outcome.OK: ok, outcome: count}, times=times, ended=ok + count,
        finished=ok, protocol="http",
        cpu_share=cpu_share, warnings=(),
    )  # fmt: skip


def searched(stopped_because):
    return Search(
        slo={"p50": "1ms"}, capacity_per_s=None, low_per_s=None, high_per_s=None, confidence=0.9, precision=0.05,
        stopped_because=stopped_because, reason="Why it stopped.", probes=(),
    )  # fmt: skip


def test_repetitions_are_pooled_and_judged_by_the_scenarios_limits(grown):
    result = grown()
    assert result.add([measured(0)]).throughput_per_s == 100
    result.add([measured(1)])
    document = result.document(None, {})
    assert (document.status, document.status_reason) == ("complete", "")
    assert [one.repetition for one in document.points] == [0, 1]
    (pooled,) = document.summary
    assert pooled.requests.ok == 200
    assert pooled.slo is not None
    assert pooled.slo.verdict == "violated"  # 2 ms


@pytest.mark.parametrize(
    ("cpu_share", "stopped_because", "status", "reason"),
    [
        (BUSY, None, "invalid", "some load points are not valid; their warnings say why"),
        (BUSY, "precision", "complete", ""),  # a search goes on from a probe that was not valid
        (0.1, "generator", "invalid", "Why it stopped."),
        (0.1, "cold", "invalid", "Why it stopped."),
    ],
)
def test_the_status_follows_from_the_points_and_the_search(grown, cpu_share, stopped_because, status, reason):
    result = grown(is_search=stopped_because is not None)
    result.add([measured(0, cpu_share)])
    document = result.document(stopped_because and searched(stopped_because), {})
    assert (document.status, document.status_reason) == (status, reason)


@pytest.mark.parametrize(
    ("ok", "failed", "limits", "status"),
    [
        (0, (Outcome.REJECTED, 100), {}, "unsuccessful"),
        (49, (Outcome.BROKEN, 51), {}, "unsuccessful"),
        (50, (Outcome.REJECTED, 50), {}, "complete"),
        (0, (Outcome.UNFINISHED, 100), {}, "complete"),  # cut by the end of the run, which is perfkit's
        (0, (Outcome.REJECTED, 100), {"slo": {"error_rate": "1%"}}, "complete"),  # which judges it
        (0, (Outcome.REJECTED, 100), {"abort_error_rate": "100%"}, "complete"),  # which expects it
    ],
)
def test_a_run_is_no_success_if_most_requests_of_a_load_point_failed(grown, ok, failed, limits, status):
    result = grown(**limits)
    result.add([measured(0, concurrency=1)])
    result.add([measured(0, ok=ok, failed=failed)])
    document = result.document(None, {})
    assert document.status == status
    if status == "unsuccessful":
        assert document.status_reason == f"most requests failed: {failed[1]}.000% at http, concurrency 4"
        assert answer(document)[0] == f"M{document.status_reason[1:]}."


@pytest.mark.parametrize(("good_before", "status"), [(10, "complete"), (0, "unsuccessful")])
def test_a_surge_of_which_most_fails_is_meant_unless_the_target_answered_nothing_before_it(grown, good_before, status):
    load = OpenLoad(rate_per_s=100, arrivals="poisson", surge=SurgeLoad(rate_per_s=300, start_s=1, end_s=2))
    scheduled, good = (np.repeat(rates, 10) for rates in ([10, 30, 10], [good_before, 1, 2]))
    none = np.zeros(30, dtype=np.int64)
    failed, answered = int((scheduled - good).sum()), bucket_counts(np.full(int(good.sum()), 0.002))
    result = grown()
    result.add(
        [
            measured_point(
                load, 0, seconds=3, outcomes={Outcome.OK: int(good.sum()), Outcome.REJECTED: failed}, ended=500, finished=int(good.sum()), protocol="http",
                times={
                    **dict.fromkeys(("service_time", "response_time"), answered),
                    **dict.fromkeys(("start_delay", "pacing_delay"), bucket_counts(np.full(int(good.sum()), 1e-5))),
                    "failure_time": bucket_counts(np.full(failed, 0.002)),
                },
                series=Series(0, 100_000_000, scheduled, scheduled, none, none, good, none, none), warnings=(), has_slo=True, beyond_share=0.01,
            )
        ]
    )  # fmt: skip
    document = result.document(None, {})
    assert (document.status, document.summary[0].valid) == (status, True)
    assert not {"overloaded", "not_steady"} & {one.code for one in document.summary[0].warnings}


def test_the_load_points_of_a_run_share_the_error_of_its_verdicts(grown):
    """18 of 1,000 beyond a limit of the p99 have a chance of 1.4 % if 1 % of all are beyond: enough of 2.5 % for one load point, not for two."""
    result = grown(slo={"p99": "3ms"})
    result.add([measured(0, ok=1000, slow=18)])
    assert [point.slo.verdict for point in result.document(None, {}).summary] == ["violated"]
    result.add([measured(0, ok=1000, slow=18, concurrency=8)])
    assert [point.slo.verdict for point in result.document(None, {}).summary] == ["inconclusive", "inconclusive"]


def test_what_ended_the_run_is_its_status(grown):
    result = grown()
    result.add([measured(0, BUSY)])
    result.end("interrupted", "after load point 1 of 2")
    document = result.document(None, {})
    assert (document.status, document.status_reason) == ("interrupted", "after load point 1 of 2")
