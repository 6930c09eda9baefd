"""The sentence that a summary begins with."""

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.report.answer import answer
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.result.point_parts import SloJudgement
from tests import stored_results

OVERLOADED = MeasurementWarning("overloaded", "The backlog grew.")
BUSY = MeasurementWarning("busy_machine", "This machine was busy.")
LATE = MeasurementWarning("late_starts", "Requests started late.")
UNSTEADY = MeasurementWarning("not_steady", "The times rose.")
COLD = MeasurementWarning("cold", "The target was cold: the first 2.4 s of 3 were slower by a factor of 40; warm up for 8 s.")
GPU_IDLE = MeasurementWarning("gpu_idle", "The GPU was idle.")
STOPPED = MeasurementWarning("generator_stopped", "The load generator stood still.")


def closed(*throughputs, **changes):
    """Load points of concurrency 1, 2, 4…; `valid` and `verdicts` hold one value each."""
    return made([ClosedLoad(concurrency=2**index) for index in range(len(throughputs))], throughputs, **changes)


def open_(rates, throughputs, **changes):
    return made([OpenLoad(rate_per_s=rate, arrivals="poisson") for rate in rates], throughputs, **changes)


def made(loads, throughputs, *, valid=None, verdicts=None, warnings=None, protocols=None, p50s_ms=None, error_rates=None, error=0.004):
    number = len(loads)
    original = stored_results.result()
    points = tuple(
        original.summary[0].model_copy(
            update={
                "load": load,
                "throughput_per_s": throughput,
                "throughput_interval_per_s": error and (throughput * (1 - error), throughput * (1 + error)),
                "valid": is_valid,
                "slo": verdict and SloJudgement(verdict=verdict, reason="It is so."),
                "warnings": warned,
                "protocol": protocol,
                "error_rate": error_rate,
                "service_time_ns": original.summary[0].service_time_ns.model_copy(update={"p50": round(p50_ms * 1e6)}),
            }
        )
        for load, throughput, is_valid, verdict, warned, protocol, p50_ms, error_rate in zip(
            loads, throughputs, valid or [True] * number, verdicts or [None] * number, warnings or [()] * number,
            protocols or ["http"] * number, p50s_ms or [2.0] * number, error_rates or [0.0] * number,
            strict=True,
        )
    )  # fmt: skip
    return original.model_copy(update={"summary": points})


@pytest.mark.parametrize(
    ("result", "sentences"),
    [
        (closed(812.0), ["812/s at concurrency 1: p50 2.00 ms, p99 6.00 ms."]),
        (closed(812.0, verdicts=["violated"]), ["812/s at concurrency 1: p50 2.00 ms, p99 6.00 ms; the SLO is missed."]),
        (closed(200.0, 500.0, 812.0, 800.0), ["Best 812/s at concurrency 4: p50 2.00 ms, p99 6.00 ms; beyond it requests only wait."]),
        (
            closed(200.0, 800.0, 812.0, 805.0),
            ["Concurrency 2 is enough for the most throughput: 800/s, p50 2.00 ms, p99 6.00 ms; concurrency 4 adds 1.5 % (812/s)."],
        ),
        (
            closed(31.9, 32.1, 31.8, p50s_ms=[31.0, 93.0, 180.0]),
            ["Concurrency 1 is enough for the most throughput: 31.9/s, p50 31.0 ms, p99 6.00 ms; concurrency 2 adds 0.6 % (32.1/s), and its p50 is 3.0 times as long."],
        ),
        (
            closed(200.0, 800.0, 812.0, 600.0),
            ["Concurrency 2 is enough for the most throughput: 800/s, p50 2.00 ms, p99 6.00 ms; concurrency 4 adds 1.5 % (812/s); at concurrency 8 throughput falls to 600/s."],
        ),
        (
            closed(800.0, 802.0, error=0.02),
            ["Concurrency 1 is enough for the most throughput: 800/s, p50 2.00 ms, p99 6.00 ms; concurrency 2 adds nothing that is shown, at most 3.1 % (802/s)."],
        ),
        (
            closed(200.0, 800.0, 812.0, 805.0, error=0.1),
            ["Best 812/s at concurrency 4: p50 2.00 ms, p99 6.00 ms; these windows are too short to tell whether concurrency 2 (800/s, p50 2.00 ms, p99 6.00 ms) is enough."],
        ),
        (
            closed(790.0, 812.0, 600.0, error=None),
            [("Best 812/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; these windows are too short to tell whether concurrency 1 (790/s, p50 2.00 ms, p99 6.00 ms) is enough; "
              "at concurrency 4 throughput is 600/s, and these windows are too short to tell whether it falls.")],
        ),
        (
            closed(200.0, 220.0, error=0.1),
            ["Best 220/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; these windows are too short to tell whether throughput still rises there."],
        ),
        (closed(200.0, 812.0, 600.0), ["Best 812/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; beyond it throughput falls to 600/s."]),
        (
            closed(200.0, 400.0),
            ["Best 400/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; throughput still rises at the highest concurrency measured."],
        ),
        (
            closed(200.0, 400.0, 900.0, valid=[True, True, False]),
            ["Best 400/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; throughput still rises at the highest concurrency measured.",
             "Not valid and left out of this answer: 1 of 3 load points (http, concurrency 4)."],
        ),
        (
            closed(200.0, 400.0, protocols=["http", "grpc"]),
            ["http: 200/s at concurrency 1: p50 2.00 ms, p99 6.00 ms.", "grpc: 400/s at concurrency 2: p50 2.00 ms, p99 6.00 ms."],
        ),
        (
            closed(200.0, 400.0, valid=[False, False]),
            ["No load point is valid: the figures are not those of the target, and the warnings say why."],
        ),
        (
            closed(200.0, 400.0, valid=[False, False], warnings=[(COLD,), (COLD,)]),
            ["No load point is valid, because of cold: the figures are not those of the target when warm, and the warnings say why."],
        ),
        (
            open_([100, 200], [100.0, 200.0], valid=[True, False], warnings=[(BUSY,), (BUSY, LATE, STOPPED)]),
            ["100/s answered at an arrival rate of 100/s: p50 2.00 ms, p99 6.00 ms.",
             "Not valid and left out of this answer: 1 of 2 load points (http, 200/s poisson), because of late_starts, generator_stopped."],
        ),
        (
            open_([100, 400, 500], [100.0, 400.0, 437.0], warnings=[(), (), (OVERLOADED,)]),
            ["Keeps up with 400/s (p50 2.00 ms, p99 6.00 ms); overloaded at 500/s, where it answers 437/s."],
        ),
        (
            open_([500, 400], [500.0, 400.0]),
            ["Keeps up with 500/s, the highest rate measured (p50 2.00 ms, p99 6.00 ms)."],
        ),
        (open_([400, 500], [380.0, 390.0], warnings=[(OVERLOADED,), ()]), ["Overloaded at 400/s, where it answers 380/s, the lowest rate measured."]),
        (
            open_([200, 400, 500], [200.0, 320.0, 500.0], error_rates=[0.01, 0.1988, 0.0]),
            ["Keeps up with 200/s (p50 2.00 ms, p99 6.00 ms, 1.00% of the requests failed); 19.88% of the requests failed at 400/s."],
        ),
        (open_([500], [437.0]), ["437/s answered at an arrival rate of 500/s: p50 2.00 ms, p99 6.00 ms."]),
        (
            closed(200.0, 812.0, verdicts=["satisfied", "inconclusive"]),
            ["Meets the SLO up to concurrency 1 (200/s, p50 2.00 ms, p99 6.00 ms); too few samples to judge it at concurrency 2."],
        ),
        (
            open_([100, 400], [100.0, 400.0], verdicts=["inconclusive", "violated"]),
            ["Too few samples to judge the SLO at 100/s; misses it at 400/s."],
        ),
        (
            open_([100, 400, 500], [100.0, 400.0, 500.0], verdicts=["satisfied", "inconclusive", "violated"]),
            ["Meets the SLO up to 100/s (p50 2.00 ms, p99 6.00 ms); too few samples to judge it at 400/s; misses it at 500/s."],
        ),
        (
            open_([100, 400, 500], [100.0, 400.0, 500.0], verdicts=["satisfied", "satisfied", "violated"]),
            ["Meets the SLO up to 400/s (p50 2.00 ms, p99 6.00 ms); misses it at 500/s."],
        ),
        (
            open_([100, 400, 500], [100.0, 400.0, 500.0], verdicts=["satisfied", "violated", "satisfied"]),
            ["Meets the SLO up to 100/s (p50 2.00 ms, p99 6.00 ms); misses it at 400/s."],
        ),
        (
            open_([100, 400], [100.0, 400.0], verdicts=["satisfied", "satisfied"]),
            ["Meets the SLO up to 400/s, the highest load measured (p50 2.00 ms, p99 6.00 ms)."],
        ),
        (open_([100, 400], [100.0, 400.0], verdicts=["violated", "violated"]), ["Misses the SLO at 100/s."]),
        (
            closed(200.0, 400.0, warnings=[(BUSY,), (UNSTEADY,)]),
            ["Best 400/s at concurrency 2: p50 2.00 ms, p99 6.00 ms; throughput still rises at the highest concurrency measured.",
             "Not steady: http, concurrency 2; the times or the throughput still changed, so a longer warm-up or measurement may give other figures."],
        ),
        (
            closed(200.0, 400.0, valid=[True, False], warnings=[(), (UNSTEADY,)]),
            ["200/s at concurrency 1: p50 2.00 ms, p99 6.00 ms.",
             "Not valid and left out of this answer: 1 of 2 load points (http, concurrency 2)."],
        ),
        (closed(), ["No load point was measured."]),
    ],
)  # fmt: skip
def test_the_answer_names_the_best_load_point_or_the_limit(result, sentences):
    assert list(answer(result)) == sentences


@pytest.mark.parametrize(
    ("count", "known", "text"),
    [
        (38, {"p50": 9_600_000, "p99": None}, "p50 9.60 ms, too few requests for p99 (38 of 662)"),
        (1, {"p50": None, "p99": None}, "too few requests for p50 (1 of 11)"),
        (0, {"p50": None, "p99": None}, "no request succeeded"),
    ],
)
@pytest.mark.parametrize("verdicts", [None, ["satisfied", "violated"], ["satisfied", "satisfied"]])
@pytest.mark.parametrize(
    "make", [lambda **changes: closed(200.0, 400.0, **changes), lambda **changes: open_([100, 200], [100.0, 200.0], **changes)]
)
def test_a_window_too_short_for_a_percentile_says_what_is_known_and_no_dash(make, verdicts, count, known, text):
    result = make(verdicts=verdicts)
    points = tuple(
        point.model_copy(update={"service_time_ns": point.service_time_ns.model_copy(update={"count": count, **known})})
        for point in result.summary
    )
    told = " ".join(answer(result.model_copy(update={"summary": points})))
    assert text in told
    assert "–" not in told


def test_repetitions_of_a_closed_loop_that_differ_by_much_are_told():
    result = closed(800.0, 1000.0)
    points = tuple(
        point.model_copy(update={"repetition": repetition, "throughput_per_s": point.throughput_per_s * share})
        for point in result.summary
        for repetition, share in enumerate((0.95, 1.05) if point.load.concurrency == 1 else (0.9, 1.1))
    )
    *_, last = answer(result.model_copy(update={"points": points}))
    assert last == "Throughput differs between repetitions: http, concurrency 2: 900/s to 1,100/s."


def test_an_idle_gpu_is_told_with_the_load_points_and_left_out_of_none():
    first, second = answer(closed(96.0, 2.33, 613.0, warnings=[(), (GPU_IDLE,), ()]))
    assert first == "Best 613/s at concurrency 4: p50 2.00 ms, p99 6.00 ms; throughput still rises at the highest concurrency measured."
    assert second == "The GPU was idle while requests waited: http, concurrency 2; the warning gpu_idle says what the server needs."
    assert len(answer(closed(96.0, 2.33, valid=[True, False], warnings=[(), (GPU_IDLE, LATE)]))) == 2, (
        "an invalid point has its own sentence"
    )


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (closed(200.0, 800.0, 812.0, 805.0), "Concurrency 2 is enough for the most throughput; concurrency 4 adds 1.5 % (812/s)."),
        (closed(200.0, 500.0, 812.0, 800.0), "Concurrency 4 gives the most throughput; beyond it requests only wait."),
        (closed(200.0, 812.0, verdicts=["satisfied", "violated"]), "Meets the SLO up to concurrency 1; misses it at concurrency 2."),
        (
            open_([100, 400], [100.0, 390.0], warnings=[(), (OVERLOADED,)]),
            "Keeps up with 100/s; overloaded at 400/s, where it answers 390/s.",
        ),
    ],
)
def test_beside_the_headline_the_answer_does_not_repeat_its_figures(result, sentence):
    assert answer(result, is_beside_figures=True) == (sentence,)
    assert answer(closed(812.0), is_beside_figures=True) == (), "of a single load point the headline says all"
