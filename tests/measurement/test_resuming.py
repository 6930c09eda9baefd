"""Runs that continue after the whole load points of one that was killed, as copies of its folder show it at some instant."""

import asyncio
import json
import pathlib
import shutil
import threading
import types

import numpy as np
import pytest
import yaml

from perfkit.errors import ResultError, UsageError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import InterleavedCase, measure_interleaved, measure_scenario
from perfkit.measurement.recovery import recover_result
from perfkit.points.warmth import Warmth
from perfkit.result.file import read_result
from perfkit.result.interval_log import check_log, read_window_starts
from perfkit.result.telemetry_file import read_telemetry
from perfkit.scenario.file import read_cases, read_scenario
from perfkit.stats.overload import Overload
from tests.json_server import serving, v2_handler
from tests.undisturbed import undisturbed

PLAIN = {
    "name": "plain",
    "target": {"model": "simple"},
    "load": {"closed": {"concurrency": [1, 2], "think_time": "1ms"}},
    "measure": {"warmup": "0s", "duration": "150ms", "repetitions": 2},
    "slo": {"p99": "10s", "error_rate": "1%"},
}
SEARCH = {
    "name": "search",
    "target": {"model": "synthetic"},
    "server": {"synthetic": "service=constant:1ms,servers=100"},
    "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
    "load": {"search": {"slo": {"p50": "10s", "error_rate": "90%"}, "start_rate": 50, "max_rate": 160}},
    "measure": {"warmup": "0s", "duration": "200ms"},
    "telemetry": False,
}


class Killer(RunObserver):
    """Copies the folders of a run after each of its load points, as a kill at this instant would leave them."""

    def __init__(self, *folders, every=True):
        self.folders, self.copies, self.notes, self.begun = folders if every else (), [], [], []

    def point_started(self, index, total, description, seconds, seconds_left):
        self.begun.append(description)

    def point_finished(self, point):
        number = len(self.copies) + 1
        self.copies.append([])
        for folder in self.folders:
            if (partial := folder.with_name(f"{folder.name}.partial")).exists():
                copy = folder.with_name(f"killed-{number}-{folder.name}")
                shutil.copytree(partial, copy.with_name(f"{copy.name}.partial"))
                self.copies[-1].append(copy)

    def note_added(self, note):
        self.notes.append(note)


def write(folder, document):
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def measure(path, folder, observer=None, interruption=None, **how):
    with undisturbed():
        loaded = read_scenario(path, (), environ={})
        return asyncio.run(measure_scenario(loaded, folder, observer or RunObserver(), interruption or Interruption(), **how)).result


@pytest.fixture(autouse=True, scope="module")
def _neither_overloaded_nor_cold():
    """A busy machine makes a server so at times, and searches take other probes then."""
    never = Overload(is_overloaded=False, scheduled=0, answered=0, grown=0, grown_in_second_half=0, allowed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfkit.points.behaviour.judge_overload", lambda *_, **__: never)
        patch.setattr("perfkit.points.behaviour.judge_warmth", lambda *_, **__: Warmth("warm"))
        yield


@pytest.fixture(scope="module", params=[PLAIN, SEARCH], ids=["fixed load points", "search"])
def whole(request, tmp_path_factory):
    """A run from its beginning to its end, and its folder as it was after each load point."""
    folder = tmp_path_factory.mktemp("whole")
    scenario, out = write(folder, request.param), folder / "out"
    killer = Killer(out)
    result = measure(scenario, out, killer)
    assert result.status == "complete", result.status_reason
    return types.SimpleNamespace(scenario=scenario, out=out, result=result, killed_after=[copies[0] for copies in killer.copies])


def without_resumptions(result):
    return result.model_copy(update={"resumptions": ()})


def test_a_run_killed_before_its_end_gives_the_same_result_without_measuring_anything(whole):
    killed = whole.killed_after[-1]
    observer = Killer(every=False)
    resumed = measure(whole.scenario, killed, observer, resume=True)
    assert observer.begun == []
    assert without_resumptions(resumed).document() == whole.result.document()
    assert without_resumptions(read_result(killed)[0]).document() == whole.result.document()
    assert (killed / "latency.hlog").read_bytes() == (whole.out / "latency.hlog").read_bytes()
    assert read_telemetry(killed) == read_telemetry(whole.out)
    assert {file.name for file in killed.iterdir()} == {file.name for file in whole.out.iterdir()}
    assert not killed.with_name(f"{killed.name}.partial").exists()


def test_a_killed_run_continues_after_its_whole_load_points(whole, tmp_path):
    killed = tmp_path / "killed"
    partial = shutil.copytree(whole.killed_after[1].with_name(f"{whole.killed_after[1].name}.partial"), tmp_path / "killed.partial")
    with (partial / "latency.hlog").open("a") as log:  # what a load point had written when it was killed
        log.write("Tag=p0.r0.service,1.000,1.000,0.1")
    if (partial / "telemetry.csv").exists():
        with (partial / "telemetry.csv").open("a") as rows:
            rows.write("0,1,http,half a r")
    observer = Killer(every=False)
    resumed = measure(whole.scenario, killed, observer, resume=True)
    assert resumed.status == "complete"
    assert len(observer.begun) == len(whole.result.points) - 2
    assert resumed.points[:2] == whole.result.points[:2]
    assert [(point.key, point.repetition) for point in resumed.points] == [(point.key, point.repetition) for point in whole.result.points]
    assert resumed.started_at == whole.result.started_at
    (resumption,) = resumed.resumptions
    assert (resumption.after_points, resumption.changes) == (2, ())
    assert resumption.paused_s >= 0
    for pooled in resumed.summary:
        own = [point for point in resumed.points if point.key == pooled.key]
        assert pooled.requests.sent == sum(point.requests.sent for point in own)
        assert pooled.service_time_ns.count == sum(point.service_time_ns.count for point in own)
    stored, _ = read_result(killed)
    check_log(killed, stored)
    starts = list(read_window_starts(killed).values())
    assert starts == sorted(starts)
    assert len(starts) == len(resumed.points)
    assert "the first 2 load points are taken from there" in observer.notes[0]
    telemetry = read_telemetry(killed)
    assert telemetry.keys() == read_telemetry(whole.out).keys()
    for key in list(telemetry)[:2]:
        assert telemetry[key] == read_telemetry(whole.out)[key]
    if resumed.search is not None:
        assert whole.result.search is not None
        assert [probe.rate_per_s for probe in resumed.search.probes] == [probe.rate_per_s for probe in whole.result.search.probes]
        assert resumed.search.probes[:2] == whole.result.search.probes[:2]
        assert resumed.search.stopped_because == whole.result.search.stopped_because


@pytest.fixture
def killed(tmp_path):
    """A killed run of `PLAIN` in a copy of its own, after a number of load points."""
    runs: list[pathlib.Path] = []

    def make(after, document=PLAIN):
        if not runs:
            (tmp_path / "first").mkdir()
            killer = Killer(tmp_path / "first" / "out")
            measure(write(tmp_path, document), tmp_path / "first" / "out", killer)
            runs.extend(copies[0] for copies in killer.copies)
        return tmp_path / "scenario.yaml", runs[after - 1]

    return make


def test_an_interrupted_run_and_a_run_that_was_resumed_and_interrupted_continue(killed):
    class Interrupting(Killer):
        def point_finished(self, point):
            interruption.interrupt()

    scenario, out = killed(1, {**PLAIN, "telemetry": False})
    interruption = Interruption()
    resumed = measure(scenario, out, Interrupting(), interruption, resume=True)
    assert (resumed.status, len(resumed.points)) == ("interrupted", 2)
    observer = Killer(every=False)
    resumed = measure(scenario, out, observer, resume=True)
    assert (resumed.status, len(observer.begun)) == ("complete", 2)
    assert [one.after_points for one in resumed.resumptions] == [1, 2]
    assert not (out / "measured").exists()


def test_what_cannot_be_continued_soundly_is_refused_or_said(killed, tmp_path):
    scenario, out = killed(2, {**PLAIN, "telemetry": False})
    partial = out.with_name(f"{out.name}.partial")
    before = sorted((file.name, file.read_bytes()) for file in partial.rglob("*") if file.is_file())
    other = write(tmp_path, {**PLAIN, "telemetry": False, "workload": {"seed": 8}})
    with pytest.raises(ResultError, match=r"is of another scenario, which differs in workload\.seed: give the same scenario"):
        measure(other, out, resume=True)
    traced = write(
        tmp_path,
        {**PLAIN, "target": {"model": "simple", "url": "http://127.0.0.1:9"}, "traces": {"share": "10%", "listen": "127.0.0.1:4318"}},
    )
    with pytest.raises(UsageError, match="a run with `traces` cannot be resumed"):
        measure(traced, out, resume=True)
    assert sorted((file.name, file.read_bytes()) for file in partial.rglob("*") if file.is_file()) == before
    write(tmp_path, {**PLAIN, "telemetry": False})
    document = json.loads((partial / "result.json").read_text())
    document["environment"]["generator"]["perfkit"] = "0.0.1"
    (partial / "result.json").write_text(json.dumps(document))
    (partial / "measured" / "00001.point").write_bytes(b"cut")
    observer = Killer(every=False)
    resumed = measure(scenario, out, observer, resume=True)
    assert len(observer.begun) == 3, "the load point that cannot be read is measured again"
    assert "The load points from number 2 on are measured again" in observer.notes[0]
    warned = [[warning.message for warning in point.warnings if warning.code == "resumed_elsewhere"] for point in resumed.points]
    assert [len(one) for one in warned] == [0, 1, 1, 1]
    assert "generator.perfkit differs: 0.0.1 against" in warned[1][0]
    assert resumed.resumptions[0].changes[0].startswith("generator.perfkit differs: 0.0.1 against")
    assert resumed.environment["generator"]["perfkit"] == "0.0.1", "the environment is that of the beginning"


def test_requests_that_have_changed_are_refused(killed, tmp_path):
    data = {"workload": {"inputs": {"INPUT0": {"file": "values.npy"}, "INPUT1": {"generate": "ones"}}}}
    np.save(tmp_path / "values.npy", np.arange(16, dtype=np.int32))
    scenario, out = killed(1, {**PLAIN, **data, "telemetry": False})
    np.save(tmp_path / "values.npy", np.zeros(16, dtype=np.int32))
    with pytest.raises(UsageError, match="the requests are not those of"):
        measure(scenario, out, resume=True)
    np.save(tmp_path / "values.npy", np.arange(16, dtype=np.int32))
    assert len(measure(scenario, out, resume=True).points) == 4


def test_a_continuation_that_does_not_reach_the_target_can_be_continued(tmp_path):
    is_down = threading.Event()

    def on_inference(_):
        if is_down.is_set():
            raise ConnectionError

    interruption = Interruption()

    class Interrupting(RunObserver):
        def point_finished(self, point):
            interruption.interrupt()

    with serving(v2_handler(on_inference)) as port:
        target = {"model": "m", "url": f"http://127.0.0.1:{port}"}
        measured = {"load": {"closed": {"concurrency": [1, 2]}}, "measure": {"warmup": "0s", "requests": 5, "repetitions": 1}}
        path = write(tmp_path, {"target": target, "telemetry": False, **measured})
        assert measure(path, tmp_path / "out", Interrupting(), interruption).status == "interrupted"
        is_down.set()
        assert measure(path, tmp_path / "out", resume=True).status == "incomplete"
        is_down.clear()
        result = measure(path, tmp_path / "out", resume=True)
    assert (result.status, len(result.points), len(result.resumptions)) == ("complete", 2, 1)


def test_interleaved_scenarios_continue_in_the_order_in_which_they_would_have_been_measured(tmp_path):
    document = {**PLAIN, "telemetry": False, "sweep": {"choices": {"a": {}, "b": {"workload.encoding": "json"}}}}
    path = write(tmp_path, document)

    def run(folder_of, observer, **how):
        cases = [
            InterleavedCase(case.values["choices"], case.loaded, folder_of(case.values["choices"])) for case in read_cases(path, environ={})
        ]
        with undisturbed():
            return asyncio.run(measure_interleaved(cases, observer, Interruption(), **how))

    killer = Killer(tmp_path / "a", tmp_path / "b")
    run(lambda name: tmp_path / name, killer)
    observer = Killer(every=False)
    resumed = run(lambda name: tmp_path / f"killed-5-{name}", observer, resume=True)
    assert observer.begun == killer.begun[5:]
    assert killer.begun[4].startswith("b: "), "the kill was between two cases of the third round, which goes backwards"
    assert [len(one.result.points) for one in resumed] == [4, 4]
    assert [len(one.result.resumptions) for one in resumed] == [1, 1]


def test_without_an_unfinished_result_the_run_begins_with_the_first_load_point(tmp_path):
    observer = Killer(every=False)
    result = measure(write(tmp_path, {**PLAIN, "telemetry": False}), tmp_path / "out", observer, resume=True)
    assert (len(result.points), result.resumptions) == (4, ())
    assert observer.notes[0].endswith("the run begins with the first load point.")
    assert pathlib.Path(tmp_path / "out").is_dir()


def test_whole_load_points_are_recovered_although_the_log_of_the_next_did_not_reach_the_disk(killed, tmp_path):
    _, out = killed(2, {**PLAIN, "telemetry": False})
    partial = out.with_name(f"{out.name}.partial")
    (partial / "measured" / "00002.log").write_bytes(bytes(4096))
    with undisturbed():
        recovered = recover_result(partial, tmp_path / "recovered")
    assert len(recovered.result.points) == 2
    assert read_result(recovered.folder)[0].points == read_result(partial)[0].points
    assert any(one.startswith("The load points from number 3 on: ") for one in recovered.lost)
    check_log(recovered.folder, recovered.result)


class KilledAtTarget(RunObserver):
    """Copies a run's folder once its target is reached, as a kill at this instant would leave it."""

    def __init__(self, folder):
        self.folder = folder

    def target_ready(self, description):
        shutil.copytree(self.folder.with_name(f"{self.folder.name}.partial"), self.folder.with_name("at-target.partial"))


def test_more_time_is_kept_by_a_search_that_is_killed_before_its_next_probe(tmp_path):
    load = {"slo": {"p50": "10s", "error_rate": "90%"}, "start_rate": 25, "max_rate": 350, "max_probes": 3}
    scenario, out = write(tmp_path, {**SEARCH, "load": {"search": load}}), tmp_path / "out"
    measure(scenario, out)
    second = measure(scenario, out, KilledAtTarget(out), resume=True, added_ns=60 * 10**9)
    third = measure(scenario, tmp_path / "at-target", resume=True)
    assert third.search.added_time == second.search.added_time
    assert third.search.stopped_because == "never_missed"
    assert third.environment["target"] == second.environment["target"]


def test_more_time_continues_a_search_that_had_ended_undecided(tmp_path):
    load = {"slo": {"p50": "10s", "error_rate": "90%"}, "start_rate": 25, "max_rate": 350, "max_probes": 3}
    scenario, out = write(tmp_path, {**SEARCH, "load": {"search": load}}), tmp_path / "out"
    first = measure(scenario, out)
    assert (first.status, first.search.stopped_because, len(first.points)) == ("complete", "max_probes", 3)
    observer = Killer(out)
    second = measure(scenario, out, observer, resume=True, added_ns=60 * 10**9)
    assert (len(observer.begun), len(second.search.probes)) == (3, 6)
    assert second.points[:3] == first.points
    assert second.search.stopped_because == "never_missed"
    assert [one.after_points for one in second.resumptions] == [one.after_probes for one in second.search.added_time] == [3]
    assert not (out / "measured").exists()
    killed = observer.copies[0][0]  # during the continuation, which goes on with its time
    third = measure(scenario, killed, resume=True)
    assert third.search.added_time == second.search.added_time
    assert [one.rate_per_s for one in third.search.probes] == [one.rate_per_s for one in second.search.probes]
    with pytest.raises(ResultError, match=r"no search that more time could continue: there is none, or it has ended with an answer"):
        measure(scenario, out, resume=True, added_ns=10**9)
    other = write(tmp_path, {**SEARCH, "load": {"search": {**load, "slo": {"p50": "9s"}}}})
    with pytest.raises(ResultError, match=r"is of another scenario, which differs in load\.search\.slo"):
        measure(other, out, resume=True, added_ns=10**9)
