"""Differences of a server's statistics, and their warnings."""

import asyncio
import dataclasses

import pytest

from perfkit.clock import ManualClock
from perfkit.errors import TargetError
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recording import AnswerTotals
from perfkit.telemetry.server.statistics import ComposingModelsReader, OtherClients, ServerCounts, ServerStatisticsReader, difference

MS = 1_000_000


def statistics(requests, *, version="1", queue_ms=5, infer_ms=10, batch=1, hits=0, failed=0):
    """Counters after some requests of one kind, each with 1 ms of input and 2 ms of output."""
    computed = requests - hits
    return ModelStatistics(
        version=version,
        inferences=computed,
        executions=computed // batch,
        success=TotalTime(requests, requests * (queue_ms + infer_ms + 3) * MS),
        fail=TotalTime(failed, failed * MS),
        queue=TotalTime(requests, requests * queue_ms * MS),
        compute_input=TotalTime(computed, computed * MS),
        compute_infer=TotalTime(computed, computed * infer_ms * MS),
        compute_output=TotalTime(computed, computed * 2 * MS),
        cache_hit=TotalTime(hits, hits * MS),
    )


def reading(*versions):
    return {version.version: version for version in versions}


def codes(warnings):
    return [warning.code for warning in warnings]


def test_means_cover_only_the_requests_of_the_load():
    # requests before the load have another queue time, which must not count
    names = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    before = ModelStatistics("1", 100, 100, **{name: TotalTime(100, 100 * 10 * MS) for name in names})
    added = statistics(40, batch=4)
    after = dataclasses.replace(ModelStatistics.added([before, added]), version="1")
    counts, warnings = difference([{"1": before}], [{"1": after}], AnswerTotals(40, 40 * 20 * MS))
    figures = counts.figures()
    assert warnings == ()
    assert (figures.requests, figures.failed, figures.executions, figures.inferences, figures.mean_batch) == (40, 0, 10, 40, 4.0)
    assert (figures.success_ns, figures.queue_ns, figures.compute_input_ns, figures.compute_infer_ns, figures.compute_output_ns) == (
        18 * MS, 5 * MS, MS, 10 * MS, 2 * MS,
    )  # fmt: skip
    assert (figures.client_requests, figures.client_mean_ns, figures.versions) == (40, 20 * MS, ("1",))


def test_a_model_loaded_in_between_counts_from_zero():
    counts, warnings = difference([reading(statistics(3))], [reading(statistics(3), statistics(7, version="2"))], AnswerTotals(7))
    assert (counts.figures().requests, counts.versions, warnings) == (7, ("2",), ())


def test_a_load_without_requests_has_no_means():
    counts, warnings = difference([reading(statistics(3))], [reading(statistics(3))], AnswerTotals())
    figures = counts.figures()
    assert (figures.requests, warnings) == (0, ())
    assert (figures.success_ns, figures.queue_ns, figures.mean_batch, figures.client_mean_ns) == (None, None, None, None)


def test_several_versions_are_a_warning_and_are_summed():
    before = reading(statistics(3), statistics(5, version="2"))
    counts, warnings = difference([before], [reading(statistics(13), statistics(10, version="2"))], AnswerTotals(15))
    assert (counts.figures().requests, counts.versions, codes(warnings)) == (15, ("1", "2"), ["server_versions"])


@pytest.mark.parametrize("after", [reading(statistics(2)), reading(statistics(50, queue_ms=0)), {}, reading(statistics(9, version="2"))])
def test_counters_that_fell_have_no_difference(after):
    counts, warnings = difference([reading(statistics(5))], [after], AnswerTotals(5))
    assert (counts, codes(warnings)) == (None, ["server_counters_reset"])


@pytest.mark.parametrize(("before", "after"), [([5, 900, 5], [910]), ([5], [910, 10, 910]), ([7, 3], [9])])
def test_counters_that_change_while_nothing_is_sent_mean_replicas(before, after):
    quiet, loaded = ([reading(statistics(count)) for count in counts] for counts in (before, after))
    counts, warnings = difference(quiet, loaded, AnswerTotals(5))
    assert (counts, codes(warnings)) == (None, ["server_replicas"])


def test_cache_hits_are_a_warning_and_have_no_compute_time():
    counts, warnings = difference([reading(statistics(0))], [reading(statistics(10, hits=4))], AnswerTotals(10))
    assert codes(warnings) == ["cache_hits"]
    assert "4 of 10 requests" in warnings[0].message
    assert (counts.figures().compute_infer_ns, counts.figures().cache_hits) == (10 * MS, 4)


@pytest.mark.parametrize(
    ("counted", "sent", "fits"),
    [
        (10, AnswerTotals(10), True),
        (10, AnswerTotals(8, 0, 2), True),
        (10, AnswerTotals(8, 0, 1), False),
        (10, AnswerTotals(11), False),
        (10, AnswerTotals(0, 0, 20), True),
    ],
)
def test_different_counts_of_server_and_client_are_a_warning(counted, sent, fits):
    counts, warnings = difference([reading(statistics(0))], [reading(statistics(counted))], sent)
    assert codes(warnings) == ([] if fits else ["server_counts_differ"])
    assert counts.figures().requests == counted


@pytest.mark.parametrize("perhaps", [0, 2])
def test_a_server_that_counts_errors_as_successes_is_told_as_that(perhaps):
    sent = AnswerTotals(97, 0, perhaps, rejected=3)
    counts, warnings = difference([reading(statistics(0))], [reading(statistics(100 + perhaps))], sent)
    assert codes(warnings) == ["server_counts_errors"]
    assert "counted 10" in warnings[0].message
    assert "3 of them ended in an error: like Triton's Python backend" in warnings[0].message
    assert counts.figures().requests == 100 + perhaps


@pytest.mark.parametrize(
    ("succeeded", "failed", "code", "reason"),
    [
        (97, 3, None, ""),
        (97, 0, None, ""),  # refused before they were scheduled
        (98, 0, "server_counts_differ", "counts some errors as successes, as Triton's Python backend does, or other clients"),
        (100, 0, "server_counts_errors", ""),
        (101, 0, "server_counts_differ", "other clients used this model"),
        (100, 3, "server_counts_differ", "counts some errors as successes, as Triton's Python backend does, or other clients"),
        (96, 3, "server_counts_differ", "other replicas"),
    ],
)
def test_what_the_server_counts_as_success_and_failure_tells_errors_from_other_clients(succeeded, failed, code, reason):
    _, warnings = difference([reading(statistics(0))], [reading(statistics(succeeded, failed=failed))], AnswerTotals(97, rejected=3))
    assert codes(warnings) == ([code] if code else [])
    assert all(reason in warning.message for warning in warnings)


def test_a_server_that_lacks_answers_and_lost_connections_restarted_though_its_counters_rose():
    before, after = [reading(statistics(5))], [reading(statistics(60))]
    counts, warnings = difference(before, after, AnswerTotals(100), reconnects=4)
    assert (counts, codes(warnings)) == (None, ["server_counters_reset"])
    assert "counted 55 answered requests but perfkit 100, and 4 connections were lost" in warnings[0].message
    assert codes(difference(before, after, AnswerTotals(100))[1]) == ["server_counts_differ"]
    assert codes(difference(before, after, AnswerTotals(55), reconnects=4)[1]) == []


@pytest.mark.parametrize("name", ["fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"])
@pytest.mark.parametrize("part", ["count", "ns"])
def test_any_counter_that_falls_is_a_reset(name, part):
    was = dataclasses.replace(statistics(5), **{name: TotalTime(50, 50)})
    now = dataclasses.replace(statistics(9), **{name: dataclasses.replace(TotalTime(50, 50), **{part: 49})})
    counts, warnings = difference([reading(was)], [reading(now)], AnswerTotals(4))
    assert (counts, codes(warnings)) == (None, ["server_counters_reset"])


def test_counts_of_several_load_points_are_summed():
    parts = [
        difference([reading(statistics(0))], [reading(statistics(count, queue_ms=ms))], AnswerTotals(count, count * 30 * MS))[0]
        for count, ms in ((10, 2), (30, 6))
    ]
    figures = ServerCounts.added([part for part in parts if part]).figures()
    assert (figures.requests, figures.queue_ns, figures.compute_infer_ns) == (40, 5 * MS, 10 * MS)
    assert (figures.client_requests, figures.client_mean_ns) == (40, 30 * MS)


class ScriptedServer:
    """Returns its readings one after another, and then the last one again; None stands for no answer."""

    def __init__(self, *readings):
        self.readings, self.reads = list(readings), 0

    async def read(self):
        answer = self.readings[min(self.reads, len(self.readings) - 1)]
        self.reads += 1
        if answer is None:
            raise TargetError("gone")
        return answer


LOAD_NS = 100 * MS


def measure_around(script, sent):
    """The counts of a load of 100 ms around which the script answers, in virtual time, and the time at the end without the load."""
    clock = ManualClock()

    async def go():
        telemetry = ServerStatisticsReader(script.read, clock)
        await telemetry.before()
        await clock.sleep_until_ns(clock.now_ns() + LOAD_NS)
        return await telemetry.after(sent)

    return clock.run(go()), clock.now_ns() - LOAD_NS


@pytest.mark.parametrize(("perhaps", "pauses"), [(0, 2), (1, 3)])
def test_counts_that_are_complete_are_read_twice_at_once_unless_more_may_come_and_then_a_third_time(perhaps, pauses):
    script = ScriptedServer(*((statistics(count),) for count in (3, 3, 3, 13)))
    (counts, _), now_ns = measure_around(script, AnswerTotals(10, 10 * 20 * MS, perhaps_answered=perhaps))
    assert (counts.server.success.count, script.reads) == (10, 6)
    assert now_ns == pauses * 20 * MS


def test_executions_that_are_counted_after_their_answers_are_awaited():
    """Those of two requests before the load, and of one of its requests, are counted 5 ms later than their answers."""
    clock = ManualClock()

    async def read():
        if (now_ns := clock.now_ns()) < LOAD_NS:
            return (dataclasses.replace(statistics(3), executions=3 if now_ns >= 5 * MS else 1),)
        return (dataclasses.replace(statistics(13), executions=13 if now_ns >= LOAD_NS + 5 * MS else 12),)

    async def go():
        telemetry = ServerStatisticsReader(read, clock)
        await telemetry.before()
        await clock.sleep_until_ns(LOAD_NS)
        return await telemetry.after(AnswerTotals(10, 10 * 20 * MS))

    counts, warnings = clock.run(go())
    assert (counts.figures().executions, warnings) == (10, ())


@pytest.mark.parametrize("read", [(3, 3, 3, 8, 11, 13), (3, 5, 6, 8, 9, 9, 19)], ids=["after", "before"])
def test_counts_that_still_change_after_or_before_the_load_are_awaited(read):
    (counts, warnings), _ = measure_around(ScriptedServer(*((statistics(count),) for count in read)), AnswerTotals(10, 10 * 20 * MS))
    assert (counts.figures().requests, warnings) == (10, ())


@pytest.mark.parametrize(
    ("client_ms", "queue_ms", "answered", "is_possible"),
    [(20, 2, 10, True), (1.64, 20_000, 10, False), (20, 40, 10, False), (20, 90, 10, False), (20, 40, 9, True), (20, 3000, 9, False)],
    ids=["possible", "20 s in 1.64 ms", "longer than the client's", "longer than both", "of others, too", "longer than the load"],
)  # fmt: skip
def test_times_of_the_server_that_cannot_be_are_no_figures(client_ms, queue_ms, answered, is_possible):
    """Each request takes 13 ms besides its time in the queue, and the load takes 100 ms; counts that differ are awaited for 2 s."""
    script = ScriptedServer(*((statistics(count, queue_ms=queue_ms),) for count in (3, 3, 3, 13)))
    (counts, warnings), _ = measure_around(script, AnswerTotals(answered, round(answered * client_ms * MS)))
    assert (counts is not None) is is_possible
    assert ("server_times_impossible" in codes(warnings)) is not is_possible


def test_counts_that_never_arrive_are_a_warning_after_two_seconds():
    (counts, warnings), now_ns = measure_around(ScriptedServer((statistics(3),)), AnswerTotals(10))
    assert (counts.figures().requests, codes(warnings)) == (0, ["server_counts_differ"])
    assert 2000 * MS <= now_ns < 2100 * MS


def test_a_server_without_statistics_is_read_once_without_a_warning():
    script = ScriptedServer(())
    assert measure_around(script, AnswerTotals(10))[0] == (None, ())
    assert script.reads == 1


def test_a_server_whose_statistics_cannot_be_read_before_the_load_is_read_once_and_a_warning_says_why():
    script = ScriptedServer(None)
    (counts, warnings), _ = measure_around(script, AnswerTotals(10))
    assert (counts, codes(warnings), script.reads) == (None, ["server_statistics"], 1)
    assert warnings[0].message == "The server's statistics could not be read before the load, so the point has no server figures: gone."


def test_a_server_that_does_not_answer_after_the_load_is_a_warning():
    reading = (statistics(3),)
    (counts, warnings), _ = measure_around(ScriptedServer(reading, reading, reading, None), AnswerTotals(10))
    assert (counts, codes(warnings)) == (None, ["server_statistics"])


def test_a_point_without_a_reading_before_it_has_no_counts():
    reader = ServerStatisticsReader(ScriptedServer((statistics(3),)).read, ManualClock())
    assert asyncio.run(reader.after(AnswerTotals(3))) == (None, ())


def test_a_server_that_others_use_is_awaited_once_and_no_more():
    """It answers ten requests of others between two readings; perfkit's are 10 of each load."""
    served, clock, others, ends_ns = 0, ManualClock(), OtherClients(), []

    async def read():
        nonlocal served
        served += 10
        return (statistics(served),)

    async def go():
        nonlocal served
        for _ in range(3):
            reader = ServerStatisticsReader(read, clock, others=others)
            await reader.before()
            served += 10
            counts, warnings = await reader.after(AnswerTotals(10))
            assert codes(warnings) == ["server_counts_differ"]
            assert counts.figures().requests > 10
            ends_ns.append(clock.now_ns())

    clock.run(go())
    assert 2000 * MS <= ends_ns[0] < 2200 * MS
    assert ends_ns[2] - ends_ns[0] < 200 * MS


@pytest.mark.parametrize("missing", [0, 1])
def test_counts_beyond_all_that_was_sent_are_not_awaited_and_fewer_are(missing):
    script = ScriptedServer(*((statistics(count),) for count in (3, 3, 3, 14 - 2 * missing)))
    (_, warnings), now_ns = measure_around(script, AnswerTotals(10))
    assert codes(warnings) == ["server_counts_differ"]
    assert (now_ns < 100 * MS) is not bool(missing)


@pytest.mark.parametrize(("counts", "until_ms"), [(range(10_000), (2000, 2100)), ([5, 900] * 5_000, (20, 21))], ids=["others", "replicas"])
def test_a_server_in_use_by_others_is_awaited_for_two_seconds_and_replicas_are_not(counts, until_ms):
    script, clock = ScriptedServer(*((statistics(count),) for count in counts)), ManualClock()
    clock.run(ServerStatisticsReader(script.read, clock).before())
    assert until_ms[0] * MS <= clock.now_ns() < until_ms[1] * MS


def test_the_models_of_an_ensemble_have_figures_of_their_own():
    readings = iter([
        {"resize": (statistics(2), statistics(7, version="2")), "classify": (statistics(1),), "reloaded": (statistics(9),), "lost": ()},
        {"resize": (statistics(12, queue_ms=5, batch=1), statistics(7, version="2")), "classify": (statistics(21, queue_ms=8),),
         "reloaded": (statistics(3),), "lost": (statistics(9),)},
    ])  # fmt: skip

    async def read_composing():
        return next(readings)

    clock = ManualClock()
    script = ScriptedServer(*((statistics(count),) for count in (3, 3, 3, 13)))

    async def go():
        reader = ServerStatisticsReader(script.read, clock, ComposingModelsReader(read_composing))
        await reader.before()
        await clock.sleep_until_ns(clock.now_ns() + LOAD_NS)
        return await reader.after(AnswerTotals(10, 10 * 20 * MS))

    counts, _ = clock.run(go())
    resize, classify = counts.figures().composing_models
    assert (resize.name, resize.versions, resize.requests, resize.queue_ns, resize.compute_infer_ns, resize.mean_batch) == (
        "resize", ("1",), 10, 5 * MS, 10 * MS, 1.0,
    )  # fmt: skip
    assert (classify.name, classify.requests, classify.queue_ns) == ("classify", 20, (21 * 8 - 5) / 20 * MS)
    pooled = ServerCounts.added([counts, counts]).figures().composing_models
    assert [(model.name, model.requests, model.versions) for model in pooled] == [("resize", 20, ("1",)), ("classify", 40, ("1",))]
