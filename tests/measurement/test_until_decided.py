"""Load points whose SLO verdict is open are measured again, up to eight times as often."""

import asyncio
import shutil
import time

import numpy as np
import pytest
import yaml

from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.load_points import load_point_source
from perfkit.measurement.run_result import RunResult
from perfkit.result.load import ClosedLoad
from perfkit.scenario.file import read_scenario
from perfkit.transport.base import Outcome
from tests.json_server import serving, v2_handler
from tests.queue_results import bucket_counts, measured_point
from tests.undisturbed import undisturbed

UNDECIDED, MET, MISSED = 50, 10, 90  # of 100 requests beyond a limit on the p50
ONCE_ENOUGH = 38  # P[Bin(100, 1/2) <= 38] = 1.05 %: below 2.5 % / 2, and not below a quarter of that


def scenario(folder, **sections):
    document = {
        "target": {"model": "simple"},
        "load": {"closed": {"concurrency": [1, 4]}},
        "measure": {"repetitions": 1, "until_decided": True},
        "slo": {"p50": "3ms"},
        **sections,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    return read_scenario(path, environ={})


def measured_as(loaded, slow_of):
    """The concurrency and repetition of each load point that is measured, and the last verdicts, if so many of 100 requests are slow."""
    source, result, order = load_point_source(loaded), RunResult(loaded, {None: loaded}, {}, is_search=False), []
    while (point := result.next_point(source, 0)[0]) is not None:
        concurrency = point.loads[0].concurrency
        order.append((concurrency, point.repetition))
        slow = slow_of(concurrency, point.repetition)
        times = {"service_time": bucket_counts(np.repeat([0.002, 0.004], [100 - slow, slow])), "failure_time": bucket_counts([])}
        result.add([
            measured_point(
                ClosedLoad(concurrency=concurrency), point.repetition, seconds=1, outcomes={Outcome.OK: 100}, times=times, ended=100,
                finished=100, protocol="http", cpu_share=0.1, warnings=(),
            )
        ])  # fmt: skip
        assert point.number == len(order) - 1
    return order, [one.slo.verdict for one in result.document(None, {}).summary]


def test_open_verdicts_are_measured_twice_four_and_eight_times_as_often(tmp_path):
    order, verdicts = measured_as(scenario(tmp_path), lambda concurrency, _: MET if concurrency == 1 else UNDECIDED)
    assert order == [(1, 0), *((4, repetition) for repetition in range(8))]
    assert verdicts == ["satisfied", "inconclusive"]


def test_a_load_point_that_is_decided_is_not_measured_again(tmp_path):
    order, verdicts = measured_as(
        scenario(tmp_path), lambda concurrency, repetition: MISSED if concurrency == 4 or repetition else UNDECIDED
    )
    assert order == [(1, 0), (4, 0), (1, 1)]
    assert verdicts == ["violated", "violated"]


@pytest.mark.parametrize(("measure", "repetitions"), [({"repetitions": 1}, 1), ({"repetitions": 1, "until_decided": True}, 2)])
def test_the_error_of_the_verdict_is_divided_over_the_looks(tmp_path, measure, repetitions):
    loaded = scenario(tmp_path, measure=measure, load={"closed": {"concurrency": 4}})
    order, verdicts = measured_as(loaded, lambda *_: ONCE_ENOUGH)
    assert (len(order), verdicts) == (repetitions, ["satisfied"])


# every second request takes 60 ms, so that the p50 lies on both sides of its limit
HALF_SLOW = v2_handler(lambda number: time.sleep(0.06) if number % 2 else None)


class Observer(RunObserver):
    """Keeps the notes, and a copy of the folder after the third load point, as a kill at this instant would leave it."""

    def __init__(self, folder):
        self.folder, self.notes, self.measured = folder, [], 0

    def note_added(self, note):
        self.notes.append(note)

    def point_finished(self, point):
        self.measured += 1
        if self.measured == 3 and not (self.folder / "killed.partial").exists():
            shutil.copytree(self.folder / "out.partial", self.folder / "killed.partial")


def run(folder, port, observer, out="out", **sections):
    document = {
        "target": {"model": "m", "url": f"http://127.0.0.1:{port}"},
        "measure": {"warmup": "0s", "requests": 10, "repetitions": 1, "until_decided": True},
        "load": {"closed": {"concurrency": 1}},
        "slo": {"p50": "30ms"},
        "telemetry": False,
        **sections,
    }
    how = {"resume": out != "out"}
    with undisturbed():
        return asyncio.run(measure_scenario(scenario(folder, **document), folder / out, observer, Interruption(), **how)).result


def test_a_decided_run_that_was_killed_before_its_end_asks_the_server_no_more(tmp_path):
    observer = Observer(tmp_path)
    with serving(v2_handler(lambda _: None)) as port:
        whole = run(tmp_path, port, observer, slo={"p50": "10s"}, load={"closed": {"concurrency": [1, 2, 3]}})
    resumed = run(tmp_path, port, Observer(tmp_path), "killed", slo={"p50": "10s"}, load={"closed": {"concurrency": [1, 2, 3]}})
    assert resumed.points == whole.points
    assert (resumed.status, resumed.environment) == (whole.status, whole.environment)


def test_a_run_measures_again_and_says_so_also_after_it_was_killed(tmp_path):
    observer, later = Observer(tmp_path), Observer(tmp_path)
    with serving(HALF_SLOW) as port:
        whole = run(tmp_path, port, observer)
        resumed = run(tmp_path, port, later, "killed")
    notes = [f"The SLO's verdict is still open: {number} more measurement{'s' * (number > 1)}." for number in (1, 2, 4)]
    assert [one for one in observer.notes if "verdict" in one] == notes
    assert [one for one in later.notes if "verdict" in one] == notes[2:]
    assert [one.repetition for one in whole.points] == [one.repetition for one in resumed.points] == [*range(8)]
    assert later.measured == 5


def test_a_mix_is_measured_again_as_a_whole(tmp_path):
    workloads = [{"name": name, "weight": 1, "model": "m"} for name in "ab"]
    with serving(HALF_SLOW) as port:
        result = run(tmp_path, port, RunObserver(), target={"url": f"http://127.0.0.1:{port}"}, workloads=workloads)
    assert {name: sum(one.workload == name for one in result.points) for name in (None, "a", "b")} == {None: 8, "a": 8, "b": 8}
