"""Results whose requests were sent at the same instants: they are one piece of evidence."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest

from perfkit.errors import InconclusiveError
from perfkit.load.point import load_points
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.repeated_arrivals import sent_points
from perfkit.scenario.file import read_document
from tests.queue_results import Writer

RATES = (20, 35, 50, 60, 70, 110)


def sources_of(*folders):
    return read_sources(list(map(str, folders)))


@functools.cache
def evidence_of(*folders):
    (evidence,) = gather_evidence(sources_of(*folders))
    return evidence


@functools.cache
def planned(*folders):
    return plan_capacity([evidence_of(*folders)], PlanInputs(parse_slo(["p99<300ms"]), (1000.0,))).chosen


def with_load(source, **changes):
    """The source with other arrivals at every rate."""
    points, summary = (
        tuple(point.model_copy(update={"load": point.load.model_copy(update=changes)}) for point in given)
        for given in (source.result.points, source.result.summary)
    )
    return dataclasses.replace(source, result=source.result.model_copy(update={"points": points, "summary": summary}))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two starts of a server by the seed of their arrivals; `again` has the same arrivals as 3, but other times."""
    write = Writer(tmp_path_factory.mktemp("runs"))
    given = {"3": (3, 0), "again": (3, 1), "4": (4, 2)}
    return {name: write(RATES, overloaded_from=100, workload_seed=seed, seed=times) for name, (seed, times) in given.items()}


def test_a_run_of_the_same_arrivals_adds_nothing_and_the_plan_says_so(runs):
    alone, repeated, other = (planned(*(runs[name] for name in names)) for names in (("3",), ("3", "again"), ("3", "4")))
    sentence = (
        f"{runs['again']} has the same arrivals as {runs['3']} (workload.seed 3), so its 6 measurements count as repeated, not as new evidence: "
        "measure again with `--set workload.seed=1`."
    )
    assert (repeated.capacity, repeated.fleet, repeated.points) == (alone.capacity, alone.fleet, alone.points)
    assert (repeated.runs, other.runs) == (1, 2)
    assert repeated.notes[0] == sentence
    assert repeated.notes[1].startswith(
        "The measurements of one start of the server count: the variation between restarts is assumed (3 %)"
    )
    assert repeated.notes[2:] == alone.notes[1:]
    assert not [note for note in other.notes if "the same arrivals" in note]


def test_runs_of_other_arrivals_pool(runs):
    """The measured time near the capacity, and with it the number of clusters, is that of both."""
    alone, other = planned(runs["3"]), planned(runs["3"], runs["4"])
    assert [point.samples for point in other.points] == [2 * point.samples for point in alone.points]
    assert evidence_of(runs["3"], runs["4"]).repeated == ()


def test_a_refusal_names_the_run_that_did_not_help(tmp_path):
    write = Writer(tmp_path)
    short = [write(RATES, seconds=20, overloaded_from=100, workload_seed=0, seed=seed) for seed in range(2)]
    refusals = []
    for folders in (short[:1], short):
        with pytest.raises(InconclusiveError, match="The windows are too short for p99") as caught:
            planned(*folders)
        refusals.append(str(caught.value).split(" To measure that: "))
    (reason, command), (repeated, its_command) = refusals
    assert repeated.startswith(reason)
    assert its_command == command
    assert repeated.endswith(
        f" {short[1]} has the same arrivals as {short[0]} (workload.seed 0), so its 6 measurements count as repeated, not as new evidence: measure again "
        "with `--set workload.seed=1`."
    )


def test_each_repeated_run_is_given_a_seed_of_its_own(write):
    folders = [write((20, 35), seconds=5, workload_seed=seed) for seed in (0, 0, 1, 0)]
    cures = [sentence.rpartition("workload.seed=")[2] for sentence in evidence_of(*folders).repeated]
    assert cures == ["2`.", "3`."]


def test_rates_that_are_new_count_and_only_the_others_are_repeated(write):
    """Arrivals depend on the place of a rate in the list too: the 50/s of the third result have arrivals of their own."""
    first, more, elsewhere = (write(rates, seconds=5, workload_seed=0) for rates in ((20, 50), (20, 60), (50, 20)))
    evidence = evidence_of(first, more, elsewhere)
    assert [(point.run, point.rate_per_s) for point in evidence.open_points] == [(0, 20), (0, 50), (1, 60), (2, 50), (2, 20)]
    assert "so 1 of its 2 measurements counts as repeated" in evidence.repeated[0]
    assert evidence.runs == 3


def test_the_valid_and_then_the_longest_of_the_same_arrivals_counts(write):
    short, long, disturbed = (
        write((20, 35), seconds=seconds, workload_seed=0, invalid=invalid) for seconds, invalid in ((5, ()), (10, ()), (20, (35,)))
    )
    evidence = evidence_of(short, long, disturbed)
    assert [(point.run, point.rate_per_s) for point in evidence.open_points] == [(1, 35), (2, 20)]
    assert [sentence.split(" ")[0] for sentence in evidence.repeated] == [str(short), str(short), str(long), str(disturbed)]
    assert len({sentence.rpartition("workload.seed=")[2] for sentence in evidence.repeated[:2]}) == 1


def test_constant_gaps_are_not_chance_and_another_process_is_other_arrivals(write):
    sources = sources_of(*(write((20, 35), seconds=5, workload_seed=0) for _ in range(2)))
    (even,) = gather_evidence([with_load(source, arrivals="constant") for source in sources])
    assert (len(even.open_points), even.repeated) == (4, ())
    bursty = [with_load(source, arrivals="gamma", burstiness=cv) for source, cv in zip(sources, (2.0, 3.0), strict=True)]
    keys = [{one.arrivals for one in sent_points(0, source.folder, source.result, "http")} for source in bursty]
    assert not keys[0] & keys[1]


def test_a_trace_is_the_same_in_each_result_and_each_repetition(write):
    sources = [with_load(source, arrivals="trace") for source in sources_of(*(write((20,), seconds=5, repetitions=2) for _ in range(2)))]
    (evidence,) = gather_evidence(sources)
    first, second = (source.folder for source in sources)
    repeated = "as repeated, not as new evidence: measure another part of the trace."
    assert len(evidence.open_points) == 1
    assert evidence.repeated == (
        f"{first} sent the same arrivals in each repetition (a recorded trace), so 1 of its 2 measurements counts {repeated}",
        f"{second} has the same arrivals as {first} (a recorded trace), so its 2 measurements count {repeated}",
    )


def test_a_probe_of_a_search_is_told_by_its_number(write):
    sources = sources_of(*(write(rates, seconds=5, workload_seed=0) for rates in ((20, 35, 50), (20, 50, 35))))
    searches = [
        dataclasses.replace(one, result=one.result.model_copy(update={"scenario": {**one.result.scenario, "load": {"search": {}}}}))
        for one in sources
    ]
    (evidence,) = gather_evidence(searches)
    assert [(point.run, point.rate_per_s) for point in evidence.open_points] == [(0, 20), (0, 35), (0, 50), (1, 50), (1, 35)]


@pytest.mark.parametrize("law", ["poisson", "gamma"])
def test_keys_are_equal_where_the_load_generator_sends_at_the_same_instants(write, law):
    """Two seeds, two orders of the rates, two repetitions, and two lengths of the warm-up, which changes no instant."""
    keys, instants = [], []
    for seed, rates, warmup in itertools.product((0, 1), ((20, 35), (35, 20)), ("0s", "2s")):
        scenario = read_document(
            {
                "target": {"url": "http://127.0.0.1:1", "model": "m"},
                "workload": {"seed": seed},
                "load": {"open": {"rate": list(rates), "arrivals": law, **({"burstiness": 2} if law == "gamma" else {})}},
                "measure": {"warmup": warmup, "duration": "5s", "repetitions": 2},
            },
            environ={},
        )
        planned_points = load_points(scenario)
        (source,) = sources_of(write(rates, seconds=5, repetitions=2, workload_seed=seed))
        source = with_load(source, arrivals=law, burstiness=2.0 if law == "gamma" else None)
        sent = sent_points(0, source.folder, source.result, "http")
        assert [(one.point.load.level, one.point.repetition) for one in sent] == [
            (one.loads[0].rate_per_s, one.repetition) for one in planned_points
        ]
        keys += [one.arrivals for one in sent]
        instants += [next(one.loads[0].schedule.chunks())[:100] / 1e9 for one in planned_points]
    for (key, first), (other, second) in itertools.combinations(zip(keys, instants, strict=True), 2):
        assert (key == other) == np.allclose(first, second, rtol=0, atol=1e-8)
