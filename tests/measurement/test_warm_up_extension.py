"""`warmup: auto` measures a load point again while its target is cold, and says so."""

import asyncio
import types
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.cold_targets import closed_loop, measured
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.warm_up_extension import WarmUpExtension
from perfkit.result.load import ClosedLoad
from perfkit.scenario.file import read_scenario
from tests.undisturbed import undisturbed

S, NEVER_S = 1_000_000_000, 1e9


@pytest.fixture
def attempt():
    """The start of a load and its window, of `window_s` after a second of warm-up, on a server that is cold until `until_s`."""

    def make(cold_s, warm_s, until_s, *, at_s=0.0, in_flight=1, window_s=3.0):
        requests = closed_loop(np.random.default_rng(1), "serial", in_flight, cold_s, warm_s, until_s, 1.0 + window_s, 0.05)
        load = ClosedLoad(concurrency=in_flight)
        return round(at_s * S) + 1, measured(requests, 1.0, window_s, load, origin_s=at_s).window

    return make


def test_a_cold_window_is_measured_again_until_one_is_warm(attempt):
    extension = WarmUpExtension(ClosedLoad(concurrency=1), ())
    reason = extension.reason(*attempt(0.4, 0.01, 3.0))
    assert reason.startswith("the target was cold for 3.")
    assert reason.endswith(": that counts as warm-up, and it is measured again")
    assert extension.reason(*attempt(0.01, 0.01, NEVER_S, at_s=5)) == ""


def test_a_window_is_not_measured_again_for_ever(attempt):
    """No attempt begins once a minute has passed since the start of the first."""
    extension = WarmUpExtension(ClosedLoad(concurrency=1), ())
    assert [bool(extension.reason(*attempt(0.4, 0.01, 3.0, at_s=at_s))) for at_s in (0, 20, 40, 55, 57, 70)] == [True] * 4 + [False] * 2


def test_a_window_that_was_cold_throughout_is_told_by_the_next(attempt):
    """7 of 16 requests are answered: too few to tell; the next window is cold for a second, and then a hundred times as fast."""
    extension = WarmUpExtension(ClosedLoad(concurrency=16), ())
    slow = attempt(0.5, 0.5, NEVER_S, in_flight=16)
    answers = int(slow[1].series.answered.sum())
    assert (
        extension.reason(*slow)
        == f"{answers} answers do not show whether the target was warm: they count as warm-up, and it is measured again"
    )
    assert "the target was cold" in extension.reason(*attempt(0.5, 0.005, 3.0, at_s=5, in_flight=16))
    assert extension.reason(*attempt(0.005, 0.005, NEVER_S, at_s=10, in_flight=16)) == ""


def test_a_slow_server_is_asked_for_some_20_s_and_then_taken_as_it_is(attempt):
    extension = WarmUpExtension(ClosedLoad(concurrency=16), ())
    assert [bool(extension.reason(*attempt(1.0, 1.0, NEVER_S, at_s=at_s, in_flight=16))) for at_s in (0, 10, 20)] == [True, True, False]


def test_a_throughput_far_below_that_of_a_lower_concurrency_is_measured_again_for_20_s(attempt):
    lower: Any = types.SimpleNamespace(load=ClosedLoad(concurrency=1), throughput_per_s=100.0)
    extension = WarmUpExtension(ClosedLoad(concurrency=4), (lower,))
    found = [extension.reason(*attempt(0.1, 0.1, NEVER_S, at_s=at_s, in_flight=4, window_s=10.0)) for at_s in (0, 11)]
    assert found[0].endswith("/s beside 100/s at concurrency 1, perhaps because the target was cold: it is measured again")
    assert found[1] == ""
    assert WarmUpExtension(ClosedLoad(concurrency=4), ()).reason(*attempt(0.1, 0.1, NEVER_S, in_flight=4, window_s=10.0)) == ""


def test_without_doubt_only_a_cold_window_is_measured_again(attempt):
    extension = WarmUpExtension(ClosedLoad(concurrency=16), (), in_doubt=False)
    assert extension.reason(*attempt(1.0, 1.0, NEVER_S, in_flight=16)) == ""
    assert extension.reason(*attempt(0.4, 0.01, 3.0)).startswith("the target was cold for 3.")


@pytest.mark.parametrize("warmup", ["auto", "1s"])
def test_a_run_on_a_cold_server(tmp_path, warmup):
    """The first 12 executions take 200 ms, 1.4 s more than the first second; the others take 5 ms."""
    notes = list[str]()

    class Observer(RunObserver):
        def note_added(self, note):
            notes.append(note)

    document = {
        "target": {"model": "synthetic"},
        "server": {"synthetic": "service=constant:5ms,first=40x/12"},
        "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
        "load": {"closed": {"concurrency": 1}},
        "measure": {"warmup": warmup, "duration": "2s", "repetitions": 1},
        "telemetry": False,
    }
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(document))
    with undisturbed():
        loaded = read_scenario(tmp_path / "scenario.yaml", environ={})
        found = asyncio.run(measure_scenario(loaded, tmp_path / "out", Observer(), Interruption())).result
    (point,) = found.summary
    assert (found.status, point.valid) == (("complete", True) if warmup == "auto" else ("invalid", False))
    assert ("cold" in {warning.code for warning in point.warnings}) is (warmup != "auto")
    assert sum("the target was cold for" in note for note in notes) == (warmup == "auto")
    if warmup == "auto":
        assert point.warmup_s >= 4
        assert point.service_time_ns.mean < 100_000_000  # the slow executions would be nearly all of a window
